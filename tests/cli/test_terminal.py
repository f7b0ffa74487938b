"""Lines in a terminal and in a pipe, warnings, and quiet sessions."""

import warnings

import pytest

from perflex.cli.terminal import Terminal
from perflex.errors import CalibrationError, PerflexWarning


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
