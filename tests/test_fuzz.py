"""Mutated inputs of every kind end in success or in an error of perflex."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent / "bench"))

import fuzz
from fuzz_parts.kinds import KINDS, Kind, finite

from perflex.devices import listing

pytestmark = pytest.mark.machine


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    """Give back what the program hides from all that its process runs: devices and the store."""
    monkeypatch.setattr(listing, "_listed", listing._listed)
    monkeypatch.setenv("PERFLEX_STORE", os.environ["PERFLEX_STORE"])


@pytest.mark.parametrize("cases", [75, pytest.param(1000, marks=pytest.mark.slow)])
def test_mutated_inputs(cases):
    found = list(fuzz.run(range(cases), "suite"))
    assert [(number, what) for number, what in found if what] == []
    if cases == 1000:
        assert {fuzz.input_of(number, "suite")[0] for number, _ in found} == set(KINDS)


def test_what_is_looked_for_is_found():
    """An escape, a number that is none, a process and a crash are each told; valid inputs are read first."""

    def use(content, what):
        if content == b"valid":
            return
        if what == "raise":
            {}["absent"]
        elif what == "infinite":
            finite(float("inf"))
        elif what == "start":
            subprocess.run([sys.executable, "-c", ""], check=True)

    told = {"raise": "KeyError", "infinite": "NotFiniteError", "start": "execution", "well": ""}
    for what, word in told.items():
        [(_, found)] = fuzz.run(range(1), "suite", [Kind("made", 1, lambda what=what: [(b"valid", "text", what)], use)])
        assert word in found if word else found == ""
