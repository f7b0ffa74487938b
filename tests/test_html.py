"""Templates: escaping, numbers and their units, tables."""

import math
from dataclasses import dataclass
from typing import ClassVar

import pytest

from perflex.html import Column, fixed, number, percent, seconds, shown_by, significant, table
from support.html_structure import checked

NASTY = "<script>alert('&')</script>\"'"


def made(columns, rows, caption=""):
    return checked(str(table(caption, rows, columns))).tables[0]


def test_nothing_gets_through_unescaped():
    text = str(table(NASTY, [[NASTY, 1.0]], [Column(NASTY, NASTY), number("n", unit=NASTY, meaning=NASTY)]))
    assert "<script" not in text
    assert checked(text).tables[0].rows[1][0] == NASTY


@dataclass
class Thing:
    excluded: ClassVar = {NASTY: 1}
    kernel = NASTY
    machine = ""
    cores = 1
    approximated = (NASTY,)
    levels = ()

    _repr_html_ = shown_by("traffic.html")


def test_a_notebook_output_is_escaped_and_brings_its_style_for_itself_alone():
    text = Thing()._repr_html_()
    assert "<script" not in text
    assert checked(text).notices == [("warning", f"Warning: {NASTY}")]
    style = text.partition("<style>")[2].partition("</style>")[0]
    rules = [line for line in style.splitlines() if "{" in line]
    assert rules
    assert all(part.strip().startswith(".perflex") for rule in rules for part in rule.partition("{")[0].split(","))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"), (1.0, "1.000"), (12.3456, "12.35"), (99999.6, "100000"), (9.99996, "10.00"), (1e-3, "0.001000"),
        (0.0001234, "0.0001234"), (1.23456e-5, "1.235e-05"), (1.5e9, "1.500e+09"), (-2.5, "-2.500"), (math.inf, "inf"),
    ],
)  # fmt: skip
def test_significant_digits(value, text):
    assert significant(value) == text


def test_a_table_keeps_exact_numbers_beside_what_it_shows():
    columns = ["name", percent("error", sign=True), fixed("count"), number("nothing")]
    found = made(columns, [["a", 0.12345, 3, math.nan], ["b", math.nan, math.inf, None]])
    # What has no value in any row is no column.
    assert found.rows == [["name", "error (%)", "count"], ["a", "+12.3", "3"], ["b", "", "inf"]]
    assert found.values[1:] == [[None, "0.12345", "3.0"], [None, None, "Infinity"]]


@pytest.mark.parametrize(
    ("times", "heading", "shown"),
    [
        ([0.5, 2.0, 8.0], "t (s)", ["0.500", "2.000", "8.000"]),
        ([1.5e-3, 0.02, 0.1], "t (ms)", ["1.50", "20.00", "100.00"]),
        ([3e-6, 4e-6, None], "t (µs)", ["3.00", "4.00", ""]),
        ([1e-6, 1e-3, 10.0], "t (ms)", ["0.001000", "1.000", "10000"]),
    ],
)
def test_times_have_one_unit_and_points_below_each_other(times, heading, shown):
    found = made(["x", seconds("t"), seconds("u")], [["x", one, 1.0] for one in times])
    assert found.column(heading) == shown
    assert found.head[2] == heading.replace("t", "u")
    assert made(["x", seconds("t")], [["x", math.nan], ["y", None]]).head == ["x"]


def test_rows_of_a_table():
    with pytest.raises(ValueError, match="cells"):
        table("", [["only one"]], ["a", "b"])
    # One row needs no sorting.
    assert ["sortable" in str(table("", rows, ["a"])) for rows in ([["x"]], [["x"], ["y"]])] == [False, True]
