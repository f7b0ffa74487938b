"""Whether kernels compute what they should: each is launched once, and what it writes is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from perflex.errors import CalibrationError, MeasurementError
from perflex.timing.launch.request import LaunchRequest

if TYPE_CHECKING:
    from numpy.typing import NDArray

Answer: TypeAlias = "Literal[True] | Callable[[Mapping[str, Any]], Mapping[str, Any]]"
"""True for what the first kernel writes; or a function of what a kernel reads, by name, that returns what to expect."""


class ResultCheck:
    """Compares what kernels write with the answer, of which floating-point results may miss a fraction."""

    def __init__(self, answer: Answer, tolerance: float) -> None:
        self._answer = answer
        self._tolerance = tolerance
        self._first: tuple[str, Mapping[str, Any]] | None = None

    @property
    def lacks_first(self) -> bool:
        """Whether the next kernel's results are those that others are compared with."""
        return not callable(self._answer) and self._first is None

    def take_first(self, other: ResultCheck) -> None:
        """Compare with the results that another one knows, where this one knows none."""
        self._first = self._first or other._first

    def require_right(self, job: Any, runnable: Any) -> None:
        """Launch a built kernel; a MeasurementError where its results are wrong.

        A CalibrationError where there is nothing to compare.
        """
        if not isinstance(job, LaunchRequest):
            msg = f"{job.label}: this device tells no results; leave out answer"
            raise CalibrationError(msg)
        found = runnable.results()
        if mixed := [name for name, array in found.items() if array.dtype.kind == "V"]:
            msg = f"{job.label}: elements of {mixed[0]} have several types, which are not compared; leave out answer"
            raise CalibrationError(msg)
        if callable(self._answer):
            whose, expected = "the answer", self._answer({**job.scalars, **job.given()})
        else:
            self._first = whose, expected = self._first or (job.label, found)
        given: object = expected
        if not (isinstance(given, Mapping) and given):
            msg = f"{job.label}: there is nothing to compare, but {given!r:.60}; give arrays that are written by name"
            raise CalibrationError(msg)
        for name, values in expected.items():
            if wrong := self._difference(np.ravel(values), found.get(name, np.empty(0))):
                msg = f"{job.label}: {name} {wrong} {whose}"
                raise MeasurementError(msg, kernel=job.label, kind="wrong result")

    def _difference(self, expected: NDArray[Any], found: NDArray[Any]) -> str:
        """Return how an array differs, as the beginning of a phrase; empty where it does not."""
        if not 0 < expected.size <= found.size:
            return f"has {found.size} elements, not {expected.size} as"
        # Whole numbers have no rounding errors.
        tolerance = self._tolerance if found.dtype.kind in "fc" else 0.0
        # Differences of unsigned integers would wrap.
        wide = np.complex128 if "c" in {expected.dtype.kind, found.dtype.kind} else np.float64
        expected, found = expected.astype(wide), found[: expected.size].astype(wide)
        # Cancellation leaves small elements with the errors of usual ones.
        usual = np.mean(np.abs(expected), where=np.isfinite(expected)) if np.isfinite(expected).any() else 0.0
        with np.errstate(all="ignore"):
            off = np.abs(found - expected) / np.maximum(np.abs(expected), usual)
        same = (found == expected) | (np.isnan(found) & np.isnan(expected))
        worst = float(np.where(same, 0.0, np.nan_to_num(off, nan=np.inf, posinf=np.inf)).max())
        return "" if worst <= tolerance else f"differs by {worst:.1e} from"
