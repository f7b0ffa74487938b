"""The builder of HTML: escaping, numbers and their units, tables."""

from __future__ import annotations

import math

import pytest

from perflex.html import (
    Column,
    Html,
    bullets,
    element,
    facts,
    fixed,
    folded,
    joined,
    notebook,
    notice,
    percent,
    significant,
    table,
    times,
)
from support.html_structure import checked

NASTY = "<script>alert('&')</script>\"'"


def test_text_is_escaped_and_html_is_not() -> None:
    assert element("p", "a < b & c").text == "<p>a &lt; b &amp; c</p>"
    assert element("p", Html("<b>x</b>"), None, 3).text == "<p><b>x</b>3</p>"
    assert joined(["a", ["<", Html("<br>")]]).text == "a&lt;<br>"


def test_attributes() -> None:
    made = element("th", "x", scope="row", class_="number", data_value=1.5, title='a "b" <c>', hidden=True, id=None)
    assert made.text == (
        '<th scope="row" class="number" data-value="1.5" title="a &quot;b&quot; &lt;c&gt;" hidden>x</th>'
    )
    assert element("meta", charset="utf-8").text == '<meta charset="utf-8">'
    assert element("meta", name="viewport").text == '<meta name="viewport">'


@pytest.mark.parametrize(
    "make",
    [
        lambda: element("p", NASTY, title=NASTY),
        lambda: table([Column(NASTY, meaning=NASTY), Column("n", significant, NASTY)], [[NASTY, 1.0]], caption=NASTY),
        lambda: facts({NASTY: NASTY}),
        lambda: notice("warning", NASTY),
        lambda: bullets([NASTY]),
        lambda: folded(NASTY, NASTY),
    ],
)
def test_nothing_gets_through_unescaped(make) -> None:
    found = checked(make().text)
    assert "<script" not in make().text
    assert NASTY in found.text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1.000"), (12.3456, "12.35"), (99999.6, "100000"), (9.99996, "10.00"), (1e-3, "0.001000"),
        (0.0001234, "0.0001234"), (1.23456e-5, "1.235e-05"), (1.5e9, "1.500e+09"), (-2.5, "-2.500"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


def test_a_table_keeps_exact_numbers_beside_what_it_shows() -> None:
    columns = [Column("name"), percent("error", sign=True), Column("count", fixed(0)), Column("nothing", significant)]
    found = checked(table(columns, [["a", 0.12345, 3, math.nan], ["b", math.nan, math.inf, None]]).text).tables[0]
    # What has no value in any row is no column.
    assert found.rows == [["name", "error (%)", "count"], ["a", "+12.3", "3"], ["b", "", "inf"]]
    assert found.values[1:] == [[None, "0.12345", "3.0"], [None, None, "Infinity"]]


@pytest.mark.parametrize(
    ("seconds", "heading", "shown"),
    [
        ([0.5, 2.0, 8.0], "t (s)", ["0.500", "2.000", "8.000"]),
        ([1.5e-3, 0.02, 0.1], "t (ms)", ["1.50", "20.00", "100.00"]),
        ([3e-6, 4e-6, None], "t (µs)", ["3.00", "4.00", ""]),
        ([1e-6, 1e-3, 10.0], "t (ms)", ["0.001000", "1.000", "10000"]),
        ([math.nan, None], "t", []),
    ],
)
def test_times_have_one_unit_and_points_below_each_other(seconds, heading: str, shown: list[str]) -> None:
    found = checked(table([Column("x"), times("t", seconds)], [["x", s] for s in seconds]).text).tables[0]
    if shown:
        assert found.column(heading) == shown
    else:
        assert found.head == ["x"]


def test_a_row_with_another_number_of_cells_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="cells"):
        table([Column("a"), Column("b")], [["only one"]])


def test_tables_of_one_row_are_not_sorted() -> None:
    assert "sortable" not in table([Column("a")], [["x"]]).text
    assert "sortable" in table([Column("a")], [["x"], ["y"]]).text


def test_a_notebook_output_brings_its_style_for_itself_alone() -> None:
    text = notebook(element("p", "x"))
    assert checked(text).text.strip() == "x"
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = [line for line in style.splitlines() if line.rstrip().endswith("{") or ("{" in line and line[:1] == ".")]
    assert rules
    assert all(part.strip().startswith(".perflex") for rule in rules for part in rule.partition("{")[0].split(","))
