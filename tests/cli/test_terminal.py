"""Lines and tables in a terminal and in a pipe, warnings, and quiet sessions."""

import warnings

import pytest

from perflex.cli.terminal import Terminal
from perflex.errors import CalibrationError, PerflexWarning

HEADINGS = ("kernel", "samples", "first seen", "median time", "remark")
ROWS = [
    (
        "matmul_sq(dtype=float32, prefetch=True, lsize_0=16)",
        "12",
        "2026-01-01",
        "1.234 ms",
        "text [bold] of words " * 4,
    ),
    ("16x16", "3", "2026-02-02", "12.5 us", ""),
]


@pytest.mark.parametrize("width", [48, 60, 80, 120])
def test_tables_fit_the_terminal_and_lose_nothing(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    Terminal().show_table(HEADINGS, ROWS, title="Title", indent=2)
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "Title"
    assert all(line.startswith("  ") and len(line) <= width for line in lines)
    assert not set("".join(lines)) & set("─│┃━┏┓")
    # Cells take several lines; each letter of them is there.
    shown = sorted("".join("".join(lines).split()))
    assert shown == sorted("".join("".join([*HEADINGS, *ROWS[0], *ROWS[1]]).split()))


def test_a_pipe_has_one_line_for_each_row(capsys):
    Terminal().show_table(HEADINGS, ROWS)
    Terminal().show_table(("", ""), [("a", "b")])
    head, first, second, third = capsys.readouterr().out.splitlines()
    assert [len(line) == len(line.rstrip()) for line in (head, first)] == [True, True]
    # Numbers end where their heading does; texts begin there, also those that begin with a digit.
    assert head.index("samples") + len("samples") == first.index("  2026") == second.index("  2026")
    assert second.startswith("16x16")
    assert first.index("2026") == head.index("first seen")
    assert third == "a  b"


def test_lines_are_wrapped_and_stay_indented(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    Terminal().show("  " + "word " * 12, "x" * 100)
    lines = capsys.readouterr().out.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert lines[0].startswith("  word")
    assert lines[1].startswith("      word")
    monkeypatch.delenv("COLUMNS")
    Terminal().show("word " * 100)
    assert capsys.readouterr().out.count("\n") == 1


def test_quiet_session_says_nothing(capsys):
    terminal = Terminal(quiet=True)
    terminal.remarks.print("remark")
    with terminal.progress("working") as tell:
        tell(1, 2, "a kernel")
    assert capsys.readouterr().err == ""


def test_warnings_are_shown_before_the_error_they_may_explain(capfd):
    def work():
        warnings.warn("a kernel is left out", PerflexWarning, stacklevel=1)
        warnings.warn("a kernel is left out", PerflexWarning, stacklevel=1)
        msg = "too few kernels"
        raise CalibrationError(msg)

    for quiet, expected in ((False, "warning: a kernel is left out\n"), (True, "")):
        with pytest.raises(CalibrationError), Terminal(quiet=quiet).warnings_shown():
            work()
        assert capfd.readouterr().err == expected
