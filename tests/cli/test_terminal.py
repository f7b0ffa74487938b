"""Lines and tables in a terminal and in a pipe, warnings, and quiet sessions."""

import warnings

import pytest

from perflex.cli.terminal import Terminal
from perflex.errors import CalibrationError, PerflexWarning
from perflex.tables import Table, fixed, seconds, text

TABLE = Table(
    "Title",
    [text("kernel"), fixed("samples"), text("first seen"), seconds("median time"), text("remark")],
    [
        ("matmul_sq(dtype=float32, prefetch=True, lsize_0=16)", 12, "2026-01-01", 1.234e-3, "text [bold] words " * 4),
        ("16x16", 3, "2026-02-02", 0.0125e-3, ""),
    ],
)


@pytest.mark.parametrize("width", [40, 48, 60, 80, 120])
def test_tables_fit_the_terminal_and_lose_nothing(width, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", str(width))
    Terminal().show_result(TABLE, indent=2)
    title, *lines = capsys.readouterr().out.splitlines()
    assert title == "  Title"
    assert all(line.startswith("  ") and len(line) <= width for line in lines)
    assert not set("".join(lines)) & set("─│┃━┏┓")
    # Cells take several lines; each letter of them is there. Where there is no room for columns, headings are repeated.
    shown = "".join("".join(lines).split())
    cells = ["".join(cell.split()) for row in TABLE.seen("everywhere").texts() for cell in row]
    if width > 48:
        headings = TABLE.seen("everywhere").headings()
        assert sorted(shown) == sorted("".join(["".join("".join(headings).split()), *cells]))
    else:
        assert all(cell in shown for cell in cells)


def test_a_pipe_has_one_line_for_each_row(capsys):
    Terminal().show_result(TABLE, most=1)
    title, head, first, more = capsys.readouterr().out.splitlines()
    assert (title, more) == ("Title", "and 1 more; --json prints all")
    # Numbers end where their heading does; texts begin there, also those that begin with a digit.
    assert head.index("samples") + len("samples") == first.index("  2026")
    assert first.index("2026") == head.index("first seen")


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
