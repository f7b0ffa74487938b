"""Mutated inputs of every kind end in success or in an error of perflex."""

from __future__ import annotations

import pytest

from bench.fuzz_parts.driver import ALL_KINDS, kind_of, run

pytestmark = pytest.mark.machine


def bad(cases: int) -> list[object]:
    """Return the cases that ended badly, of a seed that is the suite's alone."""
    ended = list(run(range(cases), "suite", processes=2))
    assert len(ended) == cases
    return [outcome for outcome in ended if outcome is not None]


def test_some_mutated_inputs() -> None:
    assert bad(75) == []


@pytest.mark.slow
def test_mutated_inputs() -> None:
    assert {kind_of(number, "suite", ALL_KINDS)[0].name for number in range(2000)} == {kind.name for kind in ALL_KINDS}
    assert bad(2000) == []


def test_what_is_looked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """An escape, a number that is none, and a process are each told."""
    import subprocess
    import sys

    from bench.fuzz_parts.readers import Kind, finite

    def use(what: str) -> None:
        if what == "raise":
            {}["absent"]
        elif what == "infinite":
            finite(float("inf"))
        elif what == "start":
            subprocess.run([sys.executable, "-c", ""], check=True)

    for what, told in (("raise", "KeyError"), ("infinite", "NotFiniteError"), ("start", "execution"), ("well", None)):
        [outcome] = run(range(1), "suite", [Kind("made", 1, lambda _, what=what: what, use)])
        assert (outcome is None) if told is None else (outcome is not None and told in outcome.what)
