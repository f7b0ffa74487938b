"""Pruning configurations of described kernels, which are predicted from few times of their own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, warn
from perflex.fit.result import geometric_mean_error
from perflex.search.gaussian_process import GaussianProcess
from perflex.search.promise import Promise, check_keep, decide
from perflex.search.times_picture import draw_times
from perflex.tables import Column, Table, number, percent, seconds, text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from perflex.search.described.space import DescribedSpace, ReadingFit
    from perflex.search.promise import Keep, KeepDecision

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]


@dataclass(frozen=True, repr=False, eq=False)
class DescribedPruning:
    """A pruning of a described space: what it is predicted by, and how known times judge it."""

    space: DescribedSpace
    # Seconds, shape ``(n,)``; measured are those that the prediction was made from, nan elsewhere.
    predicted: Array
    measured: Array
    # Which are kept, the most promising first, and what that promises.
    decision: KeepDecision
    # Alone, fitted to the batch.
    analytic: ReadingFit

    @property
    def batch(self) -> NDArray[np.bool_]:
        """Which configurations the prediction was made from, shape ``(n,)``."""
        return np.isfinite(self.measured)

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the analytic model, fitted to the batch."""
        return dict(self.analytic.fit.parameters)

    @property
    def _judging(self) -> NDArray[np.bool_]:
        """Which configurations have known times that the prediction did not see."""
        return np.isfinite(self.space.known) & ~self.batch

    @property
    def errors(self) -> dict[str, float]:
        """Geometric mean of relative errors outside the batch: of the analytic model, and with the correction."""
        return {name: geometric_mean_error(errors) for name, errors in self.relative_errors.items()}

    @property
    def relative_errors(self) -> dict[str, Array]:
        """Relative errors outside the batch, shape ``(m,)``: of the analytic model, and with the correction."""
        rest, known = self._judging, self.space.known
        if not rest.any():
            return {}
        made = {"analytic": self.analytic.predicted, "with the correction": self.predicted}
        return {name: times[rest] / known[rest] - 1 for name, times in made.items()}

    @property
    def allowed_loss(self) -> float:
        """How much slower than the best a kept configuration may be, a fraction: a promise's loss, 0.05 without one."""
        return (self.decision.promise or Promise()).loss

    @property
    def keeps_near_best(self) -> bool | None:
        """Whether a kept configuration is within `allowed_loss` of the best known; None if only the batch is known."""
        if not self._judging.any():
            return None
        kept, best = self.space.known[self.decision.kept], np.nanmin(self.space.known)
        return bool(np.isfinite(kept).any() and np.nanmin(kept) <= (1 + self.allowed_loss) * best)

    def table(self, *, kept: bool = True) -> Table:
        """Return a row for each kept configuration, the most promising first, or for all; times in seconds.

        ``dominates`` is the parameter whose cost has the largest ``share`` of the time in the analytic model.
        """
        space, numbers = self.space, self.decision.kept if kept else np.arange(len(self.predicted))
        shares = self.analytic.fit.shares(space.readings[self.analytic.reading])
        names, parts = list(shares), np.array(list(shares.values()))
        columns: list[tuple[Column, Any]] = [
            (
                number(name, place="everywhere" if np.ptp(space.settings[name][numbers]) else "files"),
                space.settings[name],
            )
            for name in space.told_apart_by
        ]
        columns += [
            (seconds("predicted_s"), self.predicted),
            (seconds("analytic_s"), self.analytic.predicted),
            (seconds("measured_s"), space.known),
            (text("dominates"), [names[place] for place in parts.argmax(axis=0)]),
            (percent("share", digits=0), parts.max(axis=0)),
            (text("batch", place="files"), self.batch.tolist()),
            (text("kept", place="files"), np.isin(np.arange(len(self.predicted)), self.decision.kept).tolist()),
        ]
        rows = [[_plain(values[place]) for _, values in columns] for place in numbers.tolist()]
        return Table(f"Configurations of {space.description.name}", [column for column, _ in columns], rows)

    def to_csv(self, path: Path | str) -> None:
        """Write every configuration to a file; a `FileFormatError` where that cannot be written."""
        self.table(kept=False).to_csv(path)

    def draw(self, path: Path) -> None:
        """Draw known over predicted times to a PNG file."""
        kept = np.isin(np.arange(len(self.predicted)), self.decision.kept)
        title = f"{kept.sum()} of {kept.size} configurations of {self.space.description.name} kept"
        draw_times(path, 1e3 * self.predicted, 1e3 * self.space.known, kept, title)

    def __repr__(self) -> str:
        kept, every = len(self.decision.kept), len(self.predicted)
        return f"{kept} of {every} configurations of {self.space.description.name} kept: {self.decision.explanation}"


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, np.floating) else value


def prune_described(space: DescribedSpace, *, keep: Keep = 0.1, measured: ArrayLike | None = None) -> DescribedPruning:
    """Choose the few configurations of a described space that are worth being run, from its own measured ones.

    Parameters
    ----------
    space
        The configurations, with the times that are known of them.
    keep
        How many: a number, a share such as 0.1, or a `Promise`, which keeps the smallest set that holds it.
    measured
        Numbers of the configurations whose known times may be used, e.g. of `DescribedSpace.sample`; all others then
        judge the result. By default all that are known.

    Raises
    ------
    CalibrationError
        No times are known, numbers are wrong, or `keep` is out of range.
    """
    check_keep(keep)
    index = np.flatnonzero(np.isfinite(space.known)) if measured is None else _numbers(space, measured)
    known = space.known[index]
    if problems := [name for name in space.told_apart_by if name in space.description.constants]:
        names = ", ".join(problems)
        warn(f"configurations of several values of {names} are compared; choose among those of one problem at a time")
    analytic, process = space.fit_analytic(index, known), GaussianProcess()
    found = process.forecast(analytic, index, known)
    predicted = np.exp(found.logs)
    # Five more fits are worth it only for a promise, which rests on predictions of what the fit did not see.
    unseen = np.exp(process.unseen(space.fit_analytic, index, known)) if isinstance(keep, Promise) else None
    decision = decide(keep, predicted, index, known, order=found.order, unseen=unseen)
    times = np.full(len(space), np.nan)
    times[index] = known
    return DescribedPruning(space, predicted, times, decision, analytic)


def _numbers(space: DescribedSpace, measured: ArrayLike) -> Indices:
    given = np.asarray(measured)
    whole = given.dtype.kind in "iu" or not given.size
    if not whole or not ((given >= 0) & (given < len(space))).all():
        shown = f"{measured!r:.60}{'; np.flatnonzero makes them of a mask' if given.dtype.kind == 'b' else ''}"
        msg = f"measured configurations are given by their numbers, 0 to {len(space) - 1}, not as {shown}"
        raise CalibrationError(msg, description=space.description.name)
    index = np.unique(given.astype(np.intp))
    known = np.isfinite(space.known[index])
    if not known.all():
        msg = f"configuration {index[~known][0]} has no time; give the space times, or leave it out"
        raise CalibrationError(msg, description=space.description.name)
    return index
