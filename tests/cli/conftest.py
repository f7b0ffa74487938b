"""Commands as users give them: what each prints, and how it ends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from perflex.__main__ import main
from support.saved_calibrations import saved_text

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capfd):
    """Run a command; give its exit code, output and remarks."""

    def run(*words):
        capfd.readouterr()
        code = main([str(word) for word in words])
        return (code, *capfd.readouterr())

    return run


@pytest.fixture
def shown(run):
    """Run a command that goes well; give what it prints."""

    def shown(*words):
        code, out, err = run(*words)
        assert code == 0, err
        return out

    return shown


@pytest.fixture
def content(shown):
    """Run a command that goes well; give what it prints with ``--json``."""
    return lambda *words: json.loads(shown(*words, "--json"))


@pytest.fixture
def refused(run):
    """Run a command that is refused; give its error, which is one line."""

    def refused(*words, code=2):
        found, out, err = run(*words)
        assert (found, out) == (code, "")
        assert err.startswith("perflex: error: ")
        assert err.count("\n") == 1
        return err

    return refused


@pytest.fixture
def calibration(tmp_path):
    """The file of a calibration that comes with perflex."""
    path = tmp_path / "matmul.yaml"
    path.write_text(saved_text("matmul_sq_amd_epyc_4cores_intel_opencl"), encoding="utf-8")
    return str(path)
