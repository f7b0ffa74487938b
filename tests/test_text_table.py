"""Columns of text, aligned."""

from __future__ import annotations

from perflex.text_table import table_lines

ROWS = [["name", "value", ""], ["a", "10", "exact"], ["long name", "5", ""]]


def test_words_begin_at_the_left_and_numbers_end_at_the_right() -> None:
    assert table_lines(ROWS, left={0, 2}, indent="  ") == [
        "  name       value",
        "  a             10  exact",
        "  long name      5",
    ]


def test_without_words_all_columns_end_at_the_right() -> None:
    assert table_lines([["n", "time"], ["1024", "3"]], left=()) == ["   n  time", "1024     3"]


def test_no_rows_are_no_lines() -> None:
    assert table_lines([]) == []
