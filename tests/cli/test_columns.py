"""Lines and tables that fit a width."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.cli.columns import Column, fitted_table, paged_table, shortened, wrapped

TEXT = "predicted badly: flops_add_pattern (0.2 to 56.1 %), kernel(lsize_0=16,nelements=65536) in 1.25e-07 s, 3 of 12"


@pytest.mark.parametrize("width", [24, 40, 60, 80])
def test_wrapped_lines_fit_and_say_the_same(width: int) -> None:
    lines = wrapped(TEXT, width)
    assert all(len(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(TEXT.split())
    # Neither numbers nor a number and its unit are divided.
    for together in ("56.1 %", "65536", "1.25e-07 s", "3 of 12"):
        assert any(together in line for line in lines), together


def test_without_a_width_nothing_is_wrapped() -> None:
    assert wrapped("x" * 500, None) == ["x" * 500]
    assert fitted_table([Column("a", wraps=True)], [["y " * 200]], None)[1] == ("y " * 200).rstrip()


@given(st.lists(st.text("ab 0123456789.,=_()", max_size=30), max_size=8).map(" ".join), st.integers(40, 100))
def test_every_number_stays_whole(text: str, width: int) -> None:
    lines = wrapped(text, width)
    numbers = re.findall(r"[0-9]+", text)
    assert re.findall(r"[0-9]+", "\n".join(lines)) == numbers


def test_indentation_is_kept_and_continued() -> None:
    assert wrapped("  one two three four", 12) == ["  one two", "      three", "      four"]


@pytest.mark.parametrize("width", [10, 11, 30])
def test_middle_is_left_out(width: int) -> None:
    found = shortened("pthread-haswell-AMD EPYC (Portable)", width)
    assert len(found) == width
    assert found.startswith("pth")
    assert found.endswith("e)")
    assert shortened("short", width) == "short"


COLUMNS = [
    Column("kernel", left=True, wraps=True),
    Column("samples"),
    Column("first seen", spare=1),
    Column("last seen", spare=2),
    Column("median time"),
]
ROWS = [
    ["matmul_sq(dtype=float32, prefetch=True, lsize_0=16)", "12", "2026-01-01", "2026-02-02", "1.234 ms"],
    ["empty", "3", "2026-01-01", "2026-02-02", "12.5 us"],
]


def test_wide_terminal_shows_all_in_one_line_each() -> None:
    lines = fitted_table(COLUMNS, ROWS, 200)
    assert lines == fitted_table(COLUMNS, ROWS, None)
    assert [len(line) for line in lines[1:]] == [len(lines[0])] * 2
    assert lines[2].split() == ["empty", "3", "2026-01-01", "2026-02-02", "12.5", "us"]


def test_columns_are_left_out_in_order_and_named() -> None:
    for width, absent in ((80, []), (66, ["first seen"]), (54, ["first seen", "last seen"])):
        lines = fitted_table(COLUMNS, ROWS, width)
        assert all(len(line) <= width for line in lines), width
        said = re.findall(r"not shown: (.*?) \(", " ".join(" ".join(lines).split()))
        assert said == ([", ".join(absent)] if absent else [])
        assert ("2026-02-02" in "\n".join(lines)) is ("last seen" not in absent)
        assert "1.234 ms" in "\n".join(lines)


def test_quantities_of_many_kernels_go_on_below() -> None:
    rows = [["", *(f"kernel_{n}" for n in range(9))], ["transactions", *map(str, range(1000, 1009))]]
    lines = paged_table(rows, 40)
    assert all(len(line) <= 40 for line in lines)
    assert " ".join(lines).split().count("transactions") > 1
    assert re.findall(r"1\d{3}", "\n".join(lines)) == rows[1][1:]
    assert len(paged_table(rows, None)) == 2
