"""Ranking variants by predicted time, choosing those that are worth being compiled and run, and timing them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.device_match import timing_device
from perflex.calibration.doubts import doubted_deviation
from perflex.errors import CalibrationError, warn
from perflex.search.counted_variants import variants_of
from perflex.search.promise import KeepDecision, Promise, check_keep, decide, number_kept
from perflex.search.ranked import Ranking, order_of
from perflex.search.settings_table import LEAST, corrected
from perflex.search.variant_doubts import doubts_of, warn_of_missing, warn_of_variants
from perflex.search.variant_times import measure_variants

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.features.from_triton.launches import TritonLaunch
    from perflex.machines.machine import Machine
    from perflex.progress import RunOptions
    from perflex.search.promise import Keep
    from perflex.search.variants import Measured, Space, Variants
    from perflex.timing.launch.backend import TimedDevice

    Array = NDArray[np.float64]
    Indices = NDArray[np.intp]

# Kept variants whose kernels are built again to ask for doubts, which takes as long as counting does.
_LOOKED_AT = 20
_CONFIDENCE = 0.95


def rank(
    variants: Mapping[str, Any] | Sequence[Any] | Space | TritonLaunch | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 1.0,
    measured: Measured | None = None,
    time: bool | str | TimedDevice = False,
    machine: str | Path | Machine | None = None,
    run: RunOptions | None = None,
) -> Ranking:
    """Order variants by predicted time, fastest first, and say which are kept; nothing is run but with `time`.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave;
        or a Triton launch (`perflex.triton.capture`), of which the variants are the configurations.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    keep
        How many are worth being compiled and run: a number, a share such as 0.1, or a `Promise`, which keeps the
        smallest set that holds it.
    measured
        Seconds of variants that were measured, by name, or a tuner's file that knows them by their settings: a first
        batch, chosen by chance. Eight and more correct all predictions and their intervals. A promise rests on how well
        the measured are predicted. The fastest of them is kept, slower ones are dropped.
    time
        Whether to time each variant, too, as `calibrate` times kernels, and where: True on the device that the
        calibration belongs to; or a device, one of workers too (`DaskExecutor.device`), or parts of its name. The order
        is that of the times then, and variants that fail come last.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
        calibration's.
    run
        Where variants are built and counted.

    Returns
    -------
    Ranking
        Places with predicted time, interval, dominating cost, and the reason why each is kept or dropped; equal times
        keep the order of `variants`.

    Warns
    -----
    DoubtfulPredictionWarning
        There are reasons not to rely on predictions (`Ranked.doubts`).
    PerflexWarning
        A variant cannot be described or timed.

    Raises
    ------
    CalibrationError
        There are no variants, sizes or times are missing or wrong, a promise has no measured variants to rest on, or
        variants were extracted at other sizes, or for other sub-groups or another machine.
    SpaceError
        The space has no valid variant.
    UnsupportedKernelError
        No variant can be described, or built where the model reads compiled code.
    FeatureError, MachineError, MissingSizeError, ExecutorError
        As for predictions and counting.
    DeviceError, MeasurementError
        Only with `time`: there is no such device, or no variant can be timed.
    """
    # Before minutes of counting, on which these do not depend.
    check_keep(keep)
    device, timed = None if isinstance(time, bool) else time, time is not False
    if timed:
        if measured is not None:
            msg = "time= times all variants, so that times of some are not used; leave measured out"
            raise CalibrationError(msg)
        timing_device(calibration, device, machine=machine)
    found = variants_of(variants, calibration, sizes, machine=machine, run=run)
    if found is not variants and found.kernels:
        warn_of_missing(found)
    if timed:
        measured = measure_variants(found, range(len(found)), calibration, device, machine=machine)
    ranking = ranked(found, calibration, keep, {} if measured is None else measured, machine, timed=timed)
    warn_of_variants(found.names, ranking.doubts)
    return ranking


def ranked(
    found: Variants,
    calibration: Calibration,
    keep: Keep,
    measured: Measured,
    machine: str | Path | Machine | None,
    *,
    timed: bool = False,
    intervals: bool = True,
) -> Ranking:
    """Return the ranking of counted variants; `timed` says that the times are of all that do not fail."""
    predicted = found.predicted(calibration)
    _require_positive(predicted, found)
    index, given = found.measured_rows(measured)
    order, least, learned = None, predicted, not timed and index.size >= LEAST
    if learned:
        forecast = corrected(found, predicted, index, given)
        # Fast variants unlike any of the batch are not learned: what either expects to be fast may be the fastest.
        least = np.minimum(np.exp(forecast.logs), predicted * np.median(given / predicted[index]))
        predicted, order, (low, high) = np.exp(forecast.logs), forecast.order, forecast.interval
    elif intervals:
        low, high = _intervals(calibration, found, predicted, machine)
    else:
        low = high = np.full(len(found), np.nan)
    seconds_of = np.full(len(found), np.nan)
    seconds_of[index] = given
    if timed and not isinstance(keep, Promise):
        kept = order_of(predicted, seconds_of)[: number_kept(keep, len(found))]
        said = f"{kept.size} of {len(found)}: those measured fastest"
        decision = KeepDecision(kept, math.inf, math.nan, met=True, explanation=said)
    else:
        decision = decide(keep, least, index, given, order)
    # Kernels of launches are at hand.
    most = None if found.kernels and found.settings else _LOOKED_AT
    doubts = doubts_of(calibration, found, machine, decision.kept[:most].tolist())
    return Ranking(found, calibration, predicted, low, high, seconds_of, decision, doubts, timed, learned)


def prune(
    variants: Mapping[str, Any] | Sequence[Any] | Space | TritonLaunch | Variants,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    **options: Any,
) -> Ranking:
    """Choose the few variants that are worth being compiled and run: `rank`, of which a tenth is kept by default."""
    return rank(variants, calibration, sizes, keep=keep, **options)


def _require_positive(predicted: Array, found: Variants) -> None:
    wrong = np.flatnonzero(~((predicted > 0) & np.isfinite(predicted)))
    if wrong.size:
        msg = (
            f"variant {found.names[wrong[0]]!r} is predicted to take {predicted[wrong[0]]:g} s; calibrate with "
            "nonnegative finite costs, and with measurement kernels that contain what the variants do"
        )
        raise CalibrationError(msg, variant=found.names[wrong[0]])


def _intervals(
    calibration: Calibration, variants: Variants, predicted: Array, machine: str | Path | Machine | None
) -> tuple[Array, Array]:
    from perflex.calibration.interval import interval_at

    columns = variants.columns(calibration.model.input_features())
    try:
        interval = interval_at(calibration, columns, _CONFIDENCE, variants.known_as(calibration))
    # No kernels to spare, or an undetermined parameter: predictions stand without intervals.
    except CalibrationError as error:
        warn(f"the predictions have no intervals: {error.message}")
        unknown = np.full(predicted.shape, np.nan)
        return unknown, unknown
    target = calibration.target(machine)
    kernels = zip(variants.kernels, variants.sizes, strict=True) if variants.kernels else ()
    if any(more := [doubted_deviation(kernel, sizes, target) for kernel, sizes in kernels]):
        interval = interval.widened(np.array(more))
    scales = variants.scales(calibration)
    return np.asarray(interval.low) * scales, np.asarray(interval.high) * scales
