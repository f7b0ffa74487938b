"""Pruning a space of described configurations after a batch of them was measured."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.fit.result import geometric_mean_error
from perflex.search.described.hybrid import HybridPredictor, predictor_for
from perflex.search.pruning.keep import decide
from perflex.search.pruning.promise import Promise
from perflex.search.pruning.pruned import Pruning

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from perflex.search.described.hybrid import HybridPrediction
    from perflex.search.described.space import DescribedSpace
    from perflex.search.pruning.keep import Keep

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]


@dataclass(frozen=True, repr=False, eq=False)
class DescribedPruning(Pruning):
    """A pruning of a described space: what it is predicted by, and how known times judge it.

    Attributes
    ----------
    candidates
        The space.
    prediction
        Times by the analytic model alone and with its learned correction, shape ``(n,)``, in milliseconds as the
        space's.
    """

    candidates: DescribedSpace
    prediction: HybridPrediction

    @property
    def batch(self) -> NDArray[np.bool_]:
        """Which configurations the prediction was made from, shape ``(n,)``."""
        return np.isfinite(self.measured)

    @property
    def parameters(self) -> dict[str, float]:
        """Parameters of the analytic model, fitted to the batch."""
        return dict(self.prediction.analytic.fit.parameters)

    @property
    def _judging(self) -> NDArray[np.bool_]:
        """Which configurations have known times that the prediction did not see."""
        return np.isfinite(self.candidates.known) & ~self.batch

    @property
    def errors(self) -> dict[str, float]:
        """Geometric mean of relative errors outside the batch: analytic, and with the correction if there is one."""
        return {name: geometric_mean_error(errors) for name, errors in self.relative_errors.items()}

    @property
    def relative_errors(self) -> dict[str, Array]:
        """Relative errors outside the batch, shape ``(m,)``: analytic, and with the correction if there is one."""
        rest, known = self._judging, self.candidates.known
        if not rest.any():
            return {}
        made = {"analytic": self.prediction.analytic.predicted}
        if self.prediction.weights:
            made["with the correction"] = self.prediction.predicted
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
        kept, best = self.candidates.known[self.decision.kept], np.nanmin(self.candidates.known)
        return bool(np.isfinite(kept).any() and np.nanmin(kept) <= (1 + self.allowed_loss) * best)

    @cached_property
    def _dominating(self) -> tuple[list[str], Array]:
        shares = _shares(self.candidates, self.prediction)
        names, parts = list(shares), np.array(list(shares.values()))
        return [names[place] for place in parts.argmax(axis=0)], parts.max(axis=0)

    def table(self) -> list[dict[str, Any]]:
        """Return one dictionary per kept configuration, the most promising first; times in milliseconds.

        ``dominates`` is the parameter whose cost has the largest ``share`` of the time in the analytic model.
        """
        kinds, shares = self._dominating
        return [
            {**self._row(number), "dominates": kinds[number], "share": float(shares[number])}
            for number in self.decision.kept.tolist()
        ]

    def _row(self, number: int) -> dict[str, float]:
        space = self.candidates
        row = {name: float(space.settings[name][number]) for name in space.description.tunables}
        predicted, analytic = self.prediction.predicted, self.prediction.analytic.predicted
        times = {"predicted_ms": predicted, "analytic_ms": analytic, "measured_ms": space.known}
        return row | {name: float(column[number]) for name, column in times.items()}

    def _file_rows(self) -> list[dict[str, Any]]:
        kept, batch = set(self.decision.kept.tolist()), self.batch
        rows: list[dict[str, Any]] = []
        for number in range(len(self.predicted)):
            row = {name: "" if np.isnan(value) else f"{value:g}" for name, value in self._row(number).items()}
            rows.append({**row, "batch": int(batch[number]), "kept": int(number in kept)})
        return rows


def prune_described(
    space: DescribedSpace, keep: Keep, measured: ArrayLike | None, predictor: HybridPredictor | None
) -> DescribedPruning:
    """Keep the configurations of a described kernel that are worth measuring; parameters as for `prune`.

    Raises
    ------
    CalibrationError
        No time is known, or none of a configuration that counts as measured; or the model's times are not positive.
    MissingExtraError
        The predictor learns a correction, and scikit-learn is not installed.
    """
    predictor = predictor_for(space, predictor)
    index = np.flatnonzero(np.isfinite(space.known)) if measured is None else _numbers(space, measured)
    times = np.full(len(space), np.nan)
    times[index] = 1e-3 * space.known[index]
    # Five more fits are worth it only for a promise, which rests on predictions of what the fit did not see.
    found = predictor.predict(index, space.known[index], unseen=isinstance(keep, Promise))
    decision = decide(keep, found.predicted, index, space.known[index], order=found.order, unseen=found.unseen)
    costs = {name: 1e-3 * found.analytic.predicted * share for name, share in _shares(space, found).items()}
    unknown = np.full(len(space), np.nan)
    return DescribedPruning(space, 1e-3 * found.predicted, unknown, unknown, times, costs, decision, found)


def _shares(space: DescribedSpace, found: HybridPrediction) -> dict[str, Array]:
    """Return the share of each cost in the analytic model's time, shape ``(n,)``."""
    return found.analytic.fit.shares(space.readings[found.analytic.reading])


def _numbers(space: DescribedSpace, measured: ArrayLike) -> Indices:
    try:
        index = np.unique(np.asarray(measured, dtype=np.intp))
        known = np.isfinite(space.known[index])
    except (TypeError, ValueError, IndexError) as error:
        msg = f"measured configurations are given by their numbers, 0 to {len(space) - 1}: {error}"
        raise CalibrationError(msg, description=space.description.name) from error
    if not known.all():
        msg = f"configuration {index[~known][0]} has no time; give the space times, or leave it out"
        raise CalibrationError(msg, description=space.description.name)
    return index
