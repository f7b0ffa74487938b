"""Pruning a space of described configurations after a batch of them was measured."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from perflex.errors import CalibrationError, FileFormatError
from perflex.search.described.description import Description
from perflex.search.described.description_file import load_description
from perflex.search.described.hybrid import predict_hybrid
from perflex.search.described.space import DescribedSpace
from perflex.search.described.space_file import MeasuredSpace, read_space
from perflex.search.pruning.keep import check_keep, number_kept
from perflex.search.pruning.promise import KeepDecision, Promise, keep_by_promise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine
    from perflex.search.described.hybrid import HybridPrediction

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

__all__ = ["DescribedPruning", "prune_described"]

_NEAR = 1.05


@dataclass(frozen=True, eq=False, repr=False)
class DescribedPruning:
    """Which configurations of a described kernel are kept.

    Attributes
    ----------
    description
        The family of kernels.
    settings
        Columns of the tunables, shape ``(n,)`` each, one row per kernel.
    analytic, predicted
        Times in milliseconds by the analytic model alone, and with the learned correction (the same where there is
        none), shape ``(n,)``.
    measured
        Measured times in milliseconds of what the prediction was made from, nan elsewhere, shape ``(n,)``.
    known
        All times that the file holds, nan where there is none: what the prediction is judged by.
    kept
        Indices of the kept configurations, the most promising first.
    decision
        How a promise was met, None if a number or fraction was asked for.
    excluded
        Rows of the file that were left out or joined with others, by cause.
    parameters
        Parameters of the analytic model.
    weights
        Share of each member of the correction; empty without the learned correction.
    shares
        Share of each cost in the analytic model's time of each kept configuration, shape ``(len(kept),)``.
    """

    description: Description
    settings: Mapping[str, Array]
    analytic: Array
    predicted: Array
    measured: Array
    known: Array
    kept: Indices
    decision: KeepDecision | None
    excluded: Mapping[str, int]
    parameters: Mapping[str, float]
    weights: Mapping[str, float]
    shares: Mapping[str, Array]

    def __repr__(self) -> str:
        batch = int(np.isfinite(self.measured).sum())
        whole = f"{len(self.predicted)} configurations of {self.description.name}"
        return f"<{len(self.kept)} of {whole} kept, {batch} measured>"

    @property
    def errors(self) -> dict[str, float]:
        """Geometric-mean errors, analytic and with the correction if any, on known times outside the batch."""
        rest = np.isfinite(self.known) & ~np.isfinite(self.measured)
        if not rest.any():
            return {}
        made = {"analytic": self.analytic}
        if self.weights:
            made["with the correction"] = self.predicted
        return {
            name: float(np.expm1(np.mean(np.abs(np.log(times[rest] / self.known[rest])))))
            for name, times in made.items()
        }

    @property
    def covered(self) -> bool | None:
        """Whether a kept configuration is within 5 % of the best known; None if only the batch is known."""
        if not (np.isfinite(self.known) & ~np.isfinite(self.measured)).any():
            return None
        kept = self.known[self.kept]
        return bool(np.isfinite(kept).any() and np.nanmin(kept) <= _NEAR * np.nanmin(self.known))

    def table(self, rows: int = 20) -> list[dict[str, float | str]]:
        """Return the first kept configurations: settings, predicted times, the measured one, and what dominates.

        ``dominates`` is the parameter whose cost has the largest ``share`` of the time in the analytic model.
        """
        names = list(self.shares)
        parts = np.array(list(self.shares.values()))
        first = parts.argmax(axis=0)
        return [
            {**self._row(index), "dominates": names[first[place]], "share": float(parts[first[place], place])}
            for place, index in enumerate(self.kept[:rows])
        ]

    def _row(self, index: int) -> dict[str, float]:
        row = {name: float(self.settings[name][index]) for name in self.description.tunables}
        times = {"predicted_ms": self.predicted, "analytic_ms": self.analytic, "measured_ms": self.known}
        return row | {name: float(column[index]) for name, column in times.items()}

    def to_csv(self, path: Path | str) -> None:
        """Write every configuration: settings, predicted and measured times, whether it is of the batch, and kept.

        Raises
        ------
        FileFormatError
            The file cannot be written.
        """
        kept = set(self.kept.tolist())
        try:
            with Path(path).open("w", newline="", encoding="utf-8") as stream:
                writer = csv.writer(stream)
                writer.writerow([*self._row(0), "batch", "kept"])
                for index in range(len(self.predicted)):
                    texts = ["" if np.isnan(value) else f"{value:g}" for value in self._row(index).values()]
                    batch = int(np.isfinite(self.measured[index]))
                    writer.writerow([*texts, batch, int(index in kept)])
        except OSError as error:
            msg = f"cannot write {path}: {error.strerror or error}"
            raise FileFormatError(msg, path=path) from error


def prune_described(
    space: Path | str | MeasuredSpace,
    description: Description | Path | str,
    *,
    samples: int | None = None,
    keep: float | Promise = 0.05,
    device: str | None = None,
    machine: Machine | None = None,
    learned: bool = True,
    seed: int = 0,
) -> DescribedPruning:
    """Keep the configurations of a described kernel that are worth measuring.

    Parameters
    ----------
    space
        Measured configurations, or the file that holds them (see `read_space`).
    description
        The kernel's description, its name or its file.
    samples
        Measure so many, drawn at random from the file, and prune the file's configurations; the other times serve to
        judge. Without, all of the file is the measured batch, and all configurations that the description allows are
        pruned.
    keep
        How many to keep: a number, a share above 0 and at most 1 such as 0.05 (1.0 for all), or a promise. The fastest
        measured is among them, slower ones of the batch are dropped.
    device
        Name of the device; without, the one in the file.
    machine
        Facts of the device, if it is to be another machine than the name finds.
    learned
        Whether to correct the analytic model by what its residuals have in common (needs the extra ``learn``).
    seed
        Of the samples and the correction.

    Raises
    ------
    FileFormatError
        A file cannot be read, or holds no valid configuration.
    CalibrationError
        More samples are asked for than there are, the number to keep is none, or the model's times are not positive.
    MissingExtraError
        ``learned`` is set and scikit-learn is not installed.
    """
    check_keep(keep)
    family = description if isinstance(description, Description) else load_description(description)
    found = space if isinstance(space, MeasuredSpace) else read_space(space, family)
    settings, known = (found.settings, found.times) if samples is not None else _whole(family, found)
    index = _batch(known, samples, seed)
    target = DescribedSpace(family, settings, device if device is not None else found.device, machine)
    analytic = target.fit_analytic(index, known[index])
    hybrid = None
    if learned:
        unseen = isinstance(keep, Promise)
        hybrid = predict_hybrid(target, index, known[index], seed=seed, analytic=analytic, unseen=unseen)
    predicted = hybrid.predicted if hybrid is not None else analytic.predicted
    kept, decision = _keep(predicted, index, known[index], keep, hybrid)
    measured = np.full(len(known), np.nan)
    measured[index] = known[index]
    shares = analytic.fit.shares({name: column[kept] for name, column in target.readings[analytic.reading].items()})
    return DescribedPruning(
        family, settings, analytic.predicted, predicted, measured, known, kept, decision, found.excluded,
        analytic.fit.parameters, hybrid.weights if hybrid is not None else {}, shares,
    )  # fmt: skip


def _whole(family: Description, found: MeasuredSpace) -> tuple[Mapping[str, Array], Array]:
    """Return all configurations that the description allows, one per kernel, with the times of those in the file."""
    every = family.space()
    stated = {name: column for name, column in found.settings.items() if name in family.constants}
    if any(np.ptp(column) > 0 for column in stated.values()):
        return found.settings, found.times
    every |= {name: np.full(len(next(iter(every.values()))), column[0]) for name, column in stated.items()}
    seen = np.column_stack(list(family.kernels(found.settings).values()))
    rows, first = np.unique(np.column_stack(list(family.kernels(every).values())), axis=0, return_index=True)
    times = dict(zip(map(tuple, seen.tolist()), found.times.tolist(), strict=True))
    known = np.array([times.pop(tuple(row), np.nan) for row in rows.tolist()])
    if times:
        # The file has values that the description does not list: its own configurations are the space then.
        return found.settings, found.times
    return {name: column[first] for name, column in every.items()}, known


def _batch(known: Array, samples: object, seed: int) -> Indices:
    there = np.flatnonzero(np.isfinite(known))
    if samples is None:
        return there
    if isinstance(samples, bool) or not isinstance(samples, (int, np.integer)) or not 1 <= samples <= len(there):
        msg = (
            f"{samples!r} samples cannot be drawn from {len(there)} measured configurations; ask for 1 to {len(there)}"
        )
        raise CalibrationError(msg, samples=samples)
    return np.sort(np.random.default_rng(seed).choice(there, samples, replace=False))


def _keep(
    predicted: Array, index: Indices, times: Array, keep: float | Promise, hybrid: HybridPrediction | None
) -> tuple[Indices, KeepDecision | None]:
    if isinstance(keep, Promise):
        unseen = hybrid.unseen if hybrid is not None else None
        decision = keep_by_promise(
            predicted, measured_index=index, measured=times, predicted_of_measured=unseen, promise=keep
        )
        return decision.kept, decision
    order = hybrid.order if hybrid is not None else np.argsort(predicted, kind="stable")
    # Of those measured only the fastest may be worth measuring again: the others are known to be slower.
    best = index[np.argmin(times)]
    left = order[~np.isin(order, index)][: number_kept(keep, len(predicted)) - 1]
    return order[np.isin(order, [best, *left])].astype(np.intp), None
