"""From calibrations of other devices and few samples, or none, to a calibration of a new device.

Sources are left out one at a time: each is predicted from the others and as few samples as the target has. This says
what no fit to the target could: how far predictions of a device lie off that is not among the sources, and whether the
model, or other devices' times with one factor, predicts kernels better that the sources have timed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from perflex.calibration.calibrating import software_versions
from perflex.calibration.calibration import Calibration
from perflex.calibration.doubts import machine_doubts
from perflex.calibration.gathering import table_of_times
from perflex.calibration.times.table import TimesTable
from perflex.calibration.transfer.devices import (
    Sources,
    counted_samples,
    distances,
    fit_target,
    labelled_alike,
    residuals_of,
    transfer_prior,
)
from perflex.calibration.transfer.priors import require_one_model, shared_prior
from perflex.calibration.transfer.residuals import components_of
from perflex.calibration.transfer_prior import LEVELS, NORMAL, transferred_predictions
from perflex.calibration.usual_prior import usual_description
from perflex.errors import CalibrationError, MachineError, warn
from perflex.features.target import using_machine
from perflex.machines.files import load_machine
from perflex.machines.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.transfer.devices import TargetFit
    from perflex.calibration.transfer_prior import TransferPrior
    from perflex.expression.model import Model
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]


def transfer(
    sources: Sequence[Calibration],
    samples: FeatureTable | TimesTable | None = None,
    *,
    machine: str | Path | Machine | None = None,
    seed: int = 0,
) -> Calibration:
    """Make a calibration of a device from those of other devices and few samples of its own, or none.

    Parameters are the mode of the posterior: the sources are the prior. What the model errs by for the
    same kernel, or for kernels of the same program, on the sources is carried over, shrunk by how well the sources
    agree. Kernels that sources have timed are predicted by the model so corrected and by the sources' times with one
    factor for each device, mixed as predicted left-out sources best. Intervals come from left-out sources, too.

    Parameters
    ----------
    sources
        Calibrations of one model on other devices, with the rows that were fitted. The same kernel at the same sizes
        has the same label on all devices.
    samples
        Rows of the device: the model's features and the measured time, or kernels and their times; None for none.
        Groups are programs.
    machine
        The device's machine, its name or file; by default the one that the samples' features were counted for. From its
        facts and the sources' follows which of them are similar.
    seed
        Of the choice of samples of left-out sources.

    Returns
    -------
    Calibration
        Its ``transferred`` is what was carried over; `Calibration.predict_rows` predicts rows of tables.

    Raises
    ------
    CalibrationError
        There are no sources, their models differ, or a sample's time is not positive.
    MachineError
        The machine is not known, or is a GPU and a source is of a CPU, or the reverse.

    Warns
    -----
    PerflexWarning
        Several sources are of one device; there are no samples, or they lie so far from what the sources let expect
        that a device like these would not have them but with a probability of less than 1 %.
    """
    sources = [sources] if isinstance(sources, (str, Calibration)) else list(sources)
    model = require_one_model(sources)
    named = Counter(str(source.device.get("name", "")) for source in sources)
    if several := [name for name, count in named.items() if name and count > 1]:
        warn(
            f"{several[0]} is the device of several sources, which count as devices of their own, so that intervals "
            "are too narrow; give one calibration of each device"
        )
    with using_machine(machine):
        counted = table_of_times(model, samples) if isinstance(samples, TimesTable) else samples
    target = _machine(machine, counted)
    for source in sources:
        machine_doubts(source, target)  # refuses a CPU's calibration for a GPU, and the reverse
    rows = _samples(model, counted, [source.table for source in sources], target)
    known = _known_sources(tuple(sources), target)
    *_, rows = labelled_alike([*known.tables, rows])
    everyone, number = list(range(len(sources))), len(sources)
    residuals = known.residuals(everyone)
    fitted = fit_target(known, everyone, rows, number)
    asked = dict.fromkeys(zip(residuals.programs, residuals.kernels, strict=True))
    asked |= dict.fromkeys(zip(rows.generators, rows.kernels, strict=True))
    carried = transfer_prior(known, everyone, fitted, rows, number, list(asked))
    errors = _device_errors(known, len(rows), seed)
    carried = msgspec.structs.replace(
        carried,
        weight=errors.weight,
        limits=errors.limits,
        conflict=_conflict(fitted, len(rows), errors.surprise) if len(rows) else None,
    )
    found = _made(model, rows, fitted, carried, "" if target is None else target.name)
    for remark in carried.remarks:
        warn(remark)
    return found


@lru_cache(maxsize=2)
def _known_sources(sources: tuple[Calibration, ...], target: Machine | None) -> Sources:
    """Return what the sources say, once for transfers with several sets of samples."""
    prior, fits = shared_prior(sources)
    tables = labelled_alike([source.table for source in sources])
    apart = distances([*(_known_machine(source.machine) for source in sources), target])
    residuals = residuals_of(fits, tables, range(len(sources)))
    return Sources(sources[0].model, tuple(fits), tables, apart, components_of(residuals, apart), prior.noise)


@lru_cache(maxsize=8)
def _device_errors(known: Sources, count: int, seed: int) -> DeviceErrors:
    return device_folds(known, count, seed)


def _samples(
    model: Model, samples: FeatureTable | None, tables: Sequence[FeatureTable], target: Machine | None
) -> FeatureTable:
    """Return the samples, of which there may be none, with the model's columns."""
    names = model.all_features()
    if samples is None:
        none = tables[0].of_features(names).take([])
        size = None if target is None else target.sub_group_size
        return none if size is None else replace(none, sub_group_size=size)
    rows = samples.of_features(names)
    bad = [rows.kernels[i] for i in np.flatnonzero(~(rows.column(model.output_feature) > 0))]
    if bad:
        msg = f"the time of sample {bad[0]} is not above zero; leave it out"
        raise CalibrationError(msg, kernel=bad[0])
    return rows


def _machine(machine: str | Path | Machine | None, rows: FeatureTable | None) -> Machine | None:
    if isinstance(machine, Machine):
        return machine
    if machine is not None:
        return load_machine(machine)
    return None if rows is None else _known_machine(rows.machine)


def _known_machine(name: str) -> Machine | None:
    """Return a machine that comes with perflex; None where a name is of another, which is then like none."""
    if not name:
        return None
    try:
        return load_machine(name)
    except MachineError:
        return None


def _conflict(fitted: TargetFit, count: int, usual: float) -> float:
    """Return how probable samples so far from the prior's prediction are.

    A check for conflict of prior and data (Evans, Moshonov: Bayesian Anal. 1, 893, 2006), in units of the distance that
    left-out sources' samples have: residuals have more far ones than the normal distribution.
    """
    from scipy.stats import chi2

    freedom = counted_samples(count)
    typical = float(chi2.median(freedom)) / freedom
    return float(chi2.sf(fitted.surprise / max(usual / typical, 1.0), freedom))


def _made(model: Model, rows: FeatureTable, fitted: TargetFit, carried: TransferPrior, machine: str) -> Calibration:
    # Errors are of what was measured: the fit saw it without what other devices explain.
    problem = replace(fitted.fit.problem, output=rows.column(model.output_feature))
    # Without rows, the table's device and machine are those of a source.
    device, machine = (rows.device or machine, machine or rows.machine) if len(rows) else (machine, machine)
    return Calibration(
        model=model,
        fit=replace(fitted.fit, problem=problem),
        table=rows,
        device={"name": device} if device else {},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=software_versions(),
        machine=machine,
        transferred=carried,
    )


# Draws of samples of each source.
_DRAWS = 4
# Rows of a source that are predicted for each draw: more say the same.
_MOST_ROWS = 240
_FEWEST_SOURCES = 2
_WEIGHTS = np.linspace(0.0, 1.0, 11)


@dataclass(frozen=True)
class DeviceErrors:
    """What sources say that were left out."""

    # Of the model beside other devices' times, in the logarithm.
    weight: float
    # Quantiles, at `LEVELS`, of errors over predicted standard deviations; empty with one source.
    limits: tuple[float, ...]
    # Median of the samples' squared distance from what the prior predicts, per sample.
    surprise: float


@dataclass(frozen=True, eq=False)
class _Draw:
    """Errors of a source's rows that were no samples: of the model, of one factor, and the predicted deviation."""

    source: int
    model: Array
    factor: Array
    deviation: Array
    surprise: float


def device_folds(sources: Sources, samples: int, seed: int) -> DeviceErrors:
    """Return what leaving out each source says of predictions with so many samples."""
    with_rows = [i for i, table in enumerate(sources.tables) if len(table) > 1]
    if len(with_rows) < _FEWEST_SOURCES:
        # How much devices differ, the model states, or one of them cannot tell.
        return DeviceErrors(1.0, NORMAL if usual_description(sources.model) is not None else (), 1.0)
    generator = np.random.default_rng(seed)
    draws = [
        _draw(sources, source, samples, generator) for source in with_rows for _ in range(_DRAWS if samples else 1)
    ]
    weight = _best_weight(draws)
    errors = [np.abs(_mixed(draw, weight)) / draw.deviation for draw in draws]
    # Each source counts alike, however many rows it has.
    mass = np.concatenate([np.full(len(part), 1.0 / max(len(part), 1)) for part in errors])
    sizes = np.concatenate(errors)
    order = np.argsort(sizes)
    share = np.cumsum(mass[order]) / mass.sum()
    limits = [float(np.interp(level, share, sizes[order])) for level in LEVELS]
    # What is not known of the device moves all its rows alike, few devices were left out, and of these the spreads
    # know: never nearer than deviations of a normal distribution.
    limits = [max(pair) for pair in zip(limits, NORMAL, strict=True)]
    surprise = float(np.median([draw.surprise for draw in draws])) if samples else 1.0
    return DeviceErrors(weight, tuple(np.maximum.accumulate(limits).tolist()), surprise)


def _draw(sources: Sources, source: int, count: int, generator: np.random.Generator) -> _Draw:
    table = sources.tables[source]
    order = generator.permutation(len(table))
    few = min(count, len(table) // 2)
    samples, rest = table.take(order[:few].tolist()), table.take(order[few : few + _MOST_ROWS].tolist())
    others = [i for i in range(len(sources.fits)) if i != source]
    target = fit_target(sources, others, samples, source, precise=False)
    asked = list(zip(rest.generators, rest.kernels, strict=True))
    carried = transfer_prior(sources, others, target, samples, source, asked)
    values = rest.columns(sources.model.input_features())
    pairs = list(zip(rest.kernels, rest.generators, strict=True))
    found = transferred_predictions(target.fit, carried, values, pairs)
    measured = np.log(rest.column(sources.model.output_feature))
    times = [carried.kernels[label].log_time if label in carried.kernels else None for label in rest.kernels]
    factor = np.array([np.nan if time is None else time for time in times])
    return _Draw(
        source, measured - found.mean, measured - factor, found.deviation, target.surprise / counted_samples(few)
    )


def _mixed(draw: _Draw, weight: float) -> Array:
    both = weight * draw.model + (1.0 - weight) * np.nan_to_num(draw.factor)
    return np.where(np.isfinite(draw.factor), both, draw.model)


def _best_weight(draws: Sequence[_Draw]) -> float:
    """Return the model's weight with the least mean error of sources' rows, each source alike."""
    if not any(np.isfinite(draw.factor).any() for draw in draws):
        return 1.0

    def size(weight: float) -> float:
        return float(np.mean([np.mean(np.abs(_mixed(draw, weight))) for draw in draws if len(draw.model)]))

    return float(min(_WEIGHTS, key=size))
