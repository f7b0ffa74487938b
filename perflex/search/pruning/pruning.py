"""Pruning variants by predicted time: what is kept, and what is dropped."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError
from perflex.search.pruning.costs import dominating, feature_kind, model_costs
from perflex.search.pruning.keep import check_keep, decide
from perflex.search.pruning.pruned import PrunedVariant, Pruning
from perflex.search.spaces.candidates import Candidates, candidates_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.machines import Machine
    from perflex.progress import Progress
    from perflex.search.pruning.keep import Keep
    from perflex.search.pruning.promise import KeepDecision
    from perflex.search.spaces.extraction import ExtractedSpace
    from perflex.search.spaces.space import VariantSpace
    from perflex.store.store import StorePlace

    Array = NDArray[np.float64]

__all__ = ["prune"]

_CONFIDENCE = 0.95


def prune(  # noqa: PLR0913 - one parameter per choice
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | ExtractedSpace | Candidates,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    machine: str | Path | Machine | None = None,
    measured: Mapping[str, float] | None = None,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
) -> Pruning:
    """Choose the few variants that are worth being compiled and run; nothing is run here.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    keep
        How many: a number, a share such as 0.1, or a `Promise`, which keeps the smallest set that holds it.
    machine
        For features that need one, as for `rank`.
    measured
        Seconds of variants that were measured, by name: a first batch, chosen by chance. A promise then rests on how
        well the variants themselves are predicted. Without one it rests on held-out measurement kernels, and is worth
        as much as they resemble the variants. The fastest of them is kept, slower ones are dropped.
    executor
        Where variants are built and counted; a pool of processes uses all cores.
    store, progress
        As for `gather_feature_values`.

    Returns
    -------
    Pruning
        Kept and dropped variants with predicted time, interval, dominating cost, and the reason.

    Raises
    ------
    CalibrationError
        There are no variants, sizes or times are missing or wrong, or a promise has nothing to rest on.
    SpaceError
        The space has no valid variant.
    UnsupportedKernelError
        No variant can be described.
    MachineError, MissingSizeError, ExecutorError
        As for predictions and counting.
    """
    check_keep(keep)
    found = (
        variants
        if isinstance(variants, Candidates)
        else candidates_of(
            variants, calibration, sizes, machine=machine, executor=executor, store=store, progress=progress
        )
    )
    count = len(found.names)
    predicted = np.broadcast_to(calibration.model.evaluate(calibration.params, found.columns), (count,))
    _require_positive(predicted, found)
    index, seconds = _batch(found, {} if measured is None else measured)
    decision = decide(keep, predicted, index, seconds, calibration)
    return _pruning(found, calibration, predicted, decision, dict(zip(index.tolist(), seconds.tolist(), strict=True)))


def _pruning(
    found: Candidates, calibration: Calibration, predicted: Array, decision: KeepDecision, times: Mapping[int, float]
) -> Pruning:
    low, high = _intervals(calibration, found.columns, predicted)
    costs = model_costs(calibration.model, calibration.params, found.columns, lambda name: _kind_of(name, found))
    kinds, shares = dominating(costs)
    kept, fastest = set(decision.kept.tolist()), float(predicted.min())
    best = min(times.values(), default=math.nan)
    listed = []
    for rank, number in enumerate(np.argsort(predicted, kind="stable").tolist(), start=1):
        ratio = float(predicted[number]) / fastest
        entry = PrunedVariant(
            rank=rank,
            name=found.names[number],
            kept=number in kept,
            reason="",
            predicted=float(predicted[number]),
            low=float(low[number]),
            high=float(high[number]),
            ratio=ratio,
            dominating=kinds[number],
            share=float(shares[number]),
            costs={kind: float(cost[number]) for kind, cost in costs.items()},
            measured=times.get(number, math.nan),
            settings=found.settings[number] if found.settings else {},
            number=number,
        )
        listed.append(_explained(entry, decision, best))
    return Pruning(tuple(listed), decision, found.excluded, found)


def _explained(variant: PrunedVariant, decision: KeepDecision, best: float) -> PrunedVariant:
    if not math.isnan(variant.measured):
        reason = "the fastest measured" if variant.kept else f"measured {variant.measured / best:.3g} times the fastest"
    elif variant.kept:
        reason = "predicted among the fastest"
    else:
        reason = f"predicted {variant.ratio:.3g} times the fastest"
        if math.isfinite(decision.threshold_ratio):
            reason += ", beyond what the promise needs"
        reason += f"; {variant.dominating} dominates ({100 * variant.share:.0f} %)"
    return replace(variant, reason=reason)


def _require_positive(predicted: Array, found: Candidates) -> None:
    wrong = np.flatnonzero(~((predicted > 0) & np.isfinite(predicted)))
    if wrong.size:
        msg = (
            f"variant {found.names[wrong[0]]!r} is predicted to take {predicted[wrong[0]]:g} s; calibrate with "
            "nonnegative finite costs, and with measurement kernels that contain what the variants do"
        )
        raise CalibrationError(msg, variant=found.names[wrong[0]])


def _batch(found: Candidates, measured: object) -> tuple[NDArray[np.intp], Array]:
    number = {name: place for place, name in enumerate(found.names)}
    for place, others in found.same.items():
        number.update(dict.fromkeys(others, place))
    times: dict[int, list[float]] = {}
    if not isinstance(measured, Mapping):
        msg = f"measured times are given by name, e.g. {{{found.names[0]!r}: 0.001}}, not as {type(measured).__name__}"
        raise CalibrationError(msg)
    for name, seconds in measured.items():
        if name not in number:
            msg = (
                f"a time is given for {name!r}, which is none of the {len(found.names)} variants; names must be theirs"
            )
            raise CalibrationError(msg, variant=name)
        if not (isinstance(seconds, (int, float, np.integer, np.floating)) and 0 < seconds < math.inf):
            msg = f"the time of {name!r} is {seconds!r}; it must be positive, and failed variants be left out"
            raise CalibrationError(msg, variant=name)
        times.setdefault(number[name], []).append(float(seconds))
    index = np.array(list(times), dtype=np.intp)
    return index, np.array([float(np.median(values)) for values in times.values()])


def _intervals(calibration: Calibration, columns: Mapping[str, Array], predicted: Array) -> tuple[Array, Array]:
    from perflex.calibration.interval import interval_at

    try:
        interval = interval_at(calibration, columns, _CONFIDENCE)
    except CalibrationError:  # no kernels to spare, or an undetermined parameter: predictions stand without intervals
        unknown = np.full(predicted.shape, np.nan)
        return unknown, unknown
    return (
        np.broadcast_to(np.asarray(interval.low), predicted.shape),
        np.broadcast_to(np.asarray(interval.high), predicted.shape),
    )


def _kind_of(name: str, found: Candidates) -> str:
    """Return a feature's kind of cost; what an access tag stands for is looked up in a kernel that has it."""
    if not name.startswith("f_mem_access") or any(space in name.split("_") for space in ("global", "local", "private")):
        return feature_kind(name)
    from perflex.features import extract_scop, parse_feature
    from perflex.features.families.memory import MemoryAccessFeature
    from perflex.features.values import kernel_of

    feature, place = parse_feature(name), int(np.argmax(found.columns[name]))
    if not isinstance(feature, MemoryAccessFeature) or not found.columns[name][place] > 0:
        return feature_kind(name)
    scop = extract_scop(kernel_of(found.kernel(place)))
    spaces = {item.array.space for item in feature.selected(scop, scop.checked(found.sizes(place)))}
    return feature_kind(name, spaces.pop() if len(spaces) == 1 else None)
