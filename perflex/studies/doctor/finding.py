"""What a check says, and the verdict over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

State: TypeAlias = Literal["good", "poor", "bad", "unknown"]
Verdict: TypeAlias = Literal["fit to measure on", "measure with care", "not fit"]


@dataclass(frozen=True)
class Finding:
    """What one check says.

    Attributes
    ----------
    check
        What was looked at.
    state
        ``"good"``; ``"poor"``: times are disturbed, measure with care; ``"bad"``: times mean nothing; ``"unknown"``:
        the system does not tell.
    found
        What was found, with numbers and units.
    advice
        What to do; empty where there is nothing to do.
    """

    check: str
    state: State
    found: str
    advice: str = ""


def verdict(findings: Iterable[Finding]) -> Verdict:
    """Return what the worst finding says; what is unknown counts neither way."""
    states = {finding.state for finding in findings}
    if "bad" in states:
        return "not fit"
    return "measure with care" if "poor" in states else "fit to measure on"


def graded(value: float, poor: float, bad: float = float("inf")) -> State:
    """Return the state of something that is the worse the larger it is: poor and bad from a limit each on."""
    return "bad" if value >= bad else "poor" if value >= poor else "good"


def percent(fraction: float) -> str:
    """Return a fraction in percent, small ones with a digit more."""
    return f"{100 * fraction:.0f} %" if fraction >= 0.0995 or fraction == 0 else f"{100 * fraction:.1f} %"
