"""Pruning variants by predicted time: what is kept, and what is dropped."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from perflex.calibration.probed import probing_device
from perflex.errors import CalibrationError
from perflex.search.described.space import DescribedSpace
from perflex.search.pruning.costs import feature_kind, model_costs
from perflex.search.pruning.described_pruning import DescribedPruning, prune_described
from perflex.search.pruning.keep import check_keep, decide, number_kept
from perflex.search.pruning.promise import Promise
from perflex.search.pruning.pruned import Pruning
from perflex.search.spaces.building import settings_text
from perflex.search.spaces.candidates import candidates_of, columns_of, sizes_of
from perflex.search.spaces.extraction import ExtractedSpace
from perflex.search.spaces.predicted import known_variants, predicted_variants
from perflex.search.spaces.probes import probe_candidates

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.probed import ProbeOn
    from perflex.machines.machine import Machine
    from perflex.progress import Progress
    from perflex.search.described.hybrid import HybridPredictor
    from perflex.search.pruning.keep import Keep
    from perflex.search.spaces.candidates import Candidates
    from perflex.search.spaces.probes import ProbedCandidates
    from perflex.search.spaces.space import VariantSpace
    from perflex.store.store import StorePlace
    from perflex.timing.launch.backend import TimedDevice

    Array = NDArray[np.float64]

_CONFIDENCE = 0.95
# Variants that are probed for each that is kept: predictions of what was never launched err by factors.
_PROBED = 4


@overload
def prune(
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates,
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    machine: str | Path | Machine | None = None,
    measured: Mapping[str, float] | None = None,
    probe: ProbeOn = False,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
) -> Pruning: ...


@overload
def prune(
    variants: DescribedSpace,
    *,
    keep: Keep = 0.1,
    measured: ArrayLike | None = None,
    predictor: HybridPredictor | None = None,
) -> DescribedPruning: ...


def prune(  # noqa: PLR0913 - one parameter per choice
    variants: Mapping[str, Any] | Sequence[Any] | VariantSpace | Candidates | DescribedSpace,
    calibration: Calibration | None = None,
    sizes: Mapping[str, Any] | None = None,
    *,
    keep: Keep = 0.1,
    machine: str | Path | Machine | None = None,
    measured: Any = None,
    predictor: HybridPredictor | None = None,
    probe: ProbeOn = False,
    executor: Executor | None = None,
    store: StorePlace | None = None,
    progress: bool | Progress | None = None,
) -> Pruning:
    """Choose the few variants that are worth being compiled and run; nothing is run here but with `probe`.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence; or a `VariantSpace`, or what its `extract` gave.
        Or a `DescribedSpace`, which is predicted from its own measured configurations.
    calibration
        From `perflex.calibrate` or `Calibration.load`; a described space needs none.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    keep
        How many: a number, a share such as 0.1, or a `Promise`, which keeps the smallest set that holds it.
    measured
        Seconds of variants that were measured, by name: a first batch, chosen by chance. A promise then rests on how
        well the variants themselves are predicted. Without one it rests on how differently measurement kernels of one
        generator are mispredicted by a fit to all others, and is worth as much as they resemble the variants; where too
        few can be left out, it is refused. The fastest of them is kept, slower ones are dropped.

        Of a described space, the numbers of the configurations whose known times may be used, e.g. of its `sample`;
        all others then judge the result. By default all that are known.
    predictor
        Of a described space: by default the analytic model with its learned correction (needs the extra ``learn``).
    machine
        For features that need one, as for `rank`.
    probe
        Whether those predicted fastest, four times as many as are kept, are launched in small parts first, and where,
        as for `Calibration.predict`; the fastest of them by that are kept. Not with a promise.
    executor
        Where variants are built and counted; a pool of processes uses all cores.
    store, progress
        As for `gather_feature_values`.

    Returns
    -------
    Pruning
        Kept and dropped variants with predicted time, interval, dominating cost, and the reason; a `DescribedPruning`
        for a described space.

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
    DeviceError, MeasurementError
        Only with `probe`: there is no such device, or all launches fail.
    MissingExtraError
        A described space needs scikit-learn, which is not installed.
    """
    # Before minutes of counting, on which a wrong share does not depend.
    check_keep(keep)
    if isinstance(variants, DescribedSpace):
        if calibration is not None or sizes is not None or machine is not None or probe is not False:
            msg = (
                "a described space states its sizes and device itself and needs no calibration or probe; leave them out"
            )
            raise CalibrationError(msg, description=variants.description.name)
        return prune_described(variants, keep, measured, predictor)
    if calibration is None or predictor is not None:
        msg = "variants of loopy kernels are predicted by a calibration; give one, and no predictor"
        raise CalibrationError(msg)
    found = candidates_of(
        variants, calibration, sizes, machine=machine, executor=executor, store=store, progress=progress
    )
    columns = columns_of(found, calibration.model.input_features())
    predicted = predicted_variants(calibration, found, columns)
    _require_positive(predicted, found)
    index, seconds = _batch(found, {} if measured is None else measured)
    times = np.full(len(found), np.nan)
    times[index] = seconds
    low, high = _intervals(calibration, columns, predicted, known_variants(calibration, found))
    order = None
    if probe is not False:
        probed = _probed(found, predicted, index, keep, probing_device(calibration, probe))
        low, high = (_by_probes(probed, bound, sign) for bound, sign in ((low, -1), (high, 1)))
        predicted, order = probed.predicted, probed.order
    costs = model_costs(calibration.model, calibration.params, columns, lambda name: _kind_of(name, found, columns))
    decision = decide(keep, predicted, index, seconds, calibration=calibration, order=order)
    return Pruning(found, predicted, low, high, times, costs, decision)


def _probed(
    found: Candidates, predicted: Array, measured: NDArray[np.intp], keep: Keep, device: TimedDevice
) -> ProbedCandidates:
    """Launch parts of the variants predicted fastest; those that were measured are known already."""
    if isinstance(keep, Promise):
        msg = "a promise rests on predictions of one kind, and only some variants are probed; keep a number or a share"
        raise CalibrationError(msg)
    count = _PROBED * number_kept(keep, len(found))
    order = np.argsort(predicted, kind="stable")
    return probe_candidates(found, order[~np.isin(order, measured)][:count].tolist(), predicted, device)


def _by_probes(probed: ProbedCandidates, bound: Array, sign: int) -> Array:
    """Return lower (-1) or upper (1) bounds of the intervals.

    Of variants that were probed they are those of the launch, of those whose launch failed unknown, and of the others
    corrected as their predictions are.
    """
    bounds = np.array(bound) * probed.ratio
    bounds[list(probed.failures)] = math.nan
    quantile = statistics.NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    for number, probe in probed.probes.items():
        bounds[number] = probe.seconds * math.exp(sign * quantile * probe.deviation)
    return bounds


def _require_positive(predicted: Array, found: Candidates) -> None:
    wrong = np.flatnonzero(~((predicted > 0) & np.isfinite(predicted)))
    if wrong.size:
        msg = (
            f"variant {found.names[wrong[0]]!r} is predicted to take {predicted[wrong[0]]:g} s; calibrate with "
            "nonnegative finite costs, and with measurement kernels that contain what the variants do"
        )
        raise CalibrationError(msg, variant=found.names[wrong[0]])


def _batch(found: Candidates, measured: object) -> tuple[NDArray[np.intp], Array]:
    names = found.names
    number = {name: place for place, name in enumerate(names)}
    if isinstance(found, ExtractedSpace):
        # Settings that give the same kernel are measured under any of their names.
        for place, others in found.same.items():
            number.update(dict.fromkeys(map(settings_text, others), place))
    times: dict[int, list[float]] = {}
    if not isinstance(measured, Mapping):
        msg = f"measured times are given by name, e.g. {{{names[0]!r}: 0.001}}, not as {type(measured).__name__}"
        raise CalibrationError(msg)
    for name, seconds in measured.items():
        if name not in number:
            msg = f"a time is given for {name!r}, which is none of the {len(names)} variants; names must be theirs"
            raise CalibrationError(msg, variant=name)
        if not (isinstance(seconds, (int, float, np.integer, np.floating)) and 0 < seconds < math.inf):
            msg = f"the time of {name!r} is {seconds!r}; it must be positive, and failed variants be left out"
            raise CalibrationError(msg, variant=name)
        times.setdefault(number[name], []).append(float(seconds))
    index = np.array(list(times), dtype=np.intp)
    # One kernel may have been timed under several of its settings.
    return index, np.array([float(np.median(values)) for values in times.values()])


def _intervals(
    calibration: Calibration, columns: Mapping[str, Array], predicted: Array, known: Sequence[tuple[str, str]]
) -> tuple[Array, Array]:
    from perflex.calibration.interval import interval_at

    try:
        interval = interval_at(calibration, columns, _CONFIDENCE, known)
    except CalibrationError:  # no kernels to spare, or an undetermined parameter: predictions stand without intervals
        unknown = np.full(predicted.shape, np.nan)
        return unknown, unknown
    return (
        np.broadcast_to(np.asarray(interval.low), predicted.shape),
        np.broadcast_to(np.asarray(interval.high), predicted.shape),
    )


def _kind_of(name: str, found: Candidates, columns: Mapping[str, Array]) -> str:
    """Return a feature's kind of cost; what an access tag stands for is looked up in a kernel that has it."""
    if not name.startswith("f_mem_access") or any(space in name.split("_") for space in ("global", "local", "private")):
        return feature_kind(name)
    from perflex.features import extract_scop, parse_feature
    from perflex.features.families.memory import MemoryAccessFeature
    from perflex.features.values import kernel_of

    feature, place = parse_feature(name), int(np.argmax(columns[name]))
    if not isinstance(feature, MemoryAccessFeature) or not columns[name][place] > 0:
        return feature_kind(name)
    scop = extract_scop(kernel_of(found.kernel(place)))
    spaces = {item.array.space for item in feature.selected(scop, scop.checked(sizes_of(found, place)))}
    return feature_kind(name, spaces.pop() if len(spaces) == 1 else None)
