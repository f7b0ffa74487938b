"""From calibrations of other devices and few samples, or none, to a calibration of a new device."""

from __future__ import annotations

import warnings
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.calibrating import software_versions
from perflex.calibration.calibration import Calibration
from perflex.calibration.transfer.devices import Sources, counted_samples, fit_target, programs_of, residuals_of
from perflex.calibration.transfer.left_out_devices import left_out_devices
from perflex.calibration.transfer.priors import require_one_model, shared_prior
from perflex.calibration.transfer.residuals import components_of
from perflex.calibration.transfer.similarity import distances
from perflex.calibration.transfer.terms import carried_terms
from perflex.errors import CalibrationError, MachineError, PerflexWarning
from perflex.fit.table import FeatureTable, fitted_rows
from perflex.machines.lookup import load_machine
from perflex.machines.machine import Machine

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex.calibration.carried_over import CarriedOver
    from perflex.calibration.transfer.devices import TargetFit
    from perflex.calibration.transfer.left_out_devices import LeftOutDevices
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss


def transfer(
    sources: Sequence[Calibration],
    samples: FeatureTable | None = None,
    *,
    machine: str | Path | Machine | None = None,
    loss: Loss = "soft_l1",
    seed: int = 0,
) -> Calibration:
    """Make a calibration of a device from those of other devices and few samples of its own, or none.

    Parameters are the mode of the posterior: the sources are the prior (`prior_of`). What the model errs by for the
    same kernel, or for kernels of the same program, on the sources is carried over, shrunk by how well the sources
    agree. Kernels that sources have timed are predicted by the model so corrected and by the sources' times with one
    factor for each device, mixed as predicted left-out sources best. Intervals come from left-out sources, too.

    Parameters
    ----------
    sources
        Calibrations of one model on other devices, with the rows that were fitted. The same kernel at the same sizes
        has the same label on all devices.
    samples
        Rows of the device: the model's features and the measured time; None for none. Groups are programs.
    machine
        The device's machine, its name or file; by default the one that the samples' features were counted for. From its
        facts and the sources' follows which of them are similar.
    loss
        What the fit minimises, as for `fit_model`.
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
        The machine is not known.

    Warns
    -----
    PerflexWarning
        There are no samples, or they lie so far from what the sources let expect that a device like these would not
        have them but with a probability of less than 1 %.
    """
    model = require_one_model(sources)
    rows = _samples(model, samples, [source.table for source in sources])
    target = _machine(machine, rows)
    known = _known_sources(tuple(sources), target)
    everyone, number = list(range(len(sources))), len(sources)
    residuals = known.residuals(everyone)
    fitted = fit_target(known, everyone, rows, number, loss)
    asked = dict.fromkeys(zip(residuals.programs, residuals.kernels, strict=True))
    asked |= dict.fromkeys(zip(programs_of(rows), rows.kernels, strict=True))
    carried = carried_terms(known, everyone, fitted, rows, number, list(asked))
    left_out = _left_out(known, len(rows), loss, seed)
    carried = replace(
        carried,
        weight=left_out.weight,
        limits=left_out.limits,
        conflict=_conflict(fitted, len(rows), left_out.surprise) if len(rows) else None,
    )
    found = _made(model, rows, fitted, carried, "" if target is None else target.name)
    for remark in carried.remarks:
        warnings.warn(remark, PerflexWarning, stacklevel=2)
    return found


@lru_cache(maxsize=2)
def _known_sources(sources: tuple[Calibration, ...], target: Machine | None) -> Sources:
    """Return what the sources say, once for transfers with several sets of samples."""
    prior, fits = shared_prior(sources)
    tables = tuple(source.table for source in sources)
    apart = distances([*(_known_machine(source.machine) for source in sources), target])
    residuals = residuals_of(fits, tables, range(len(sources)))
    return Sources(sources[0].model, tuple(fits), tables, apart, components_of(residuals, apart), prior.noise)


@lru_cache(maxsize=8)
def _left_out(known: Sources, count: int, loss: Loss, seed: int) -> LeftOutDevices:
    return left_out_devices(known, count, loss, seed)


def _samples(model: Model, samples: FeatureTable | None, tables: Sequence[FeatureTable | None]) -> FeatureTable:
    """Return the samples, of which there may be none, with the model's columns."""
    if samples is None:
        known = next((table for table in tables if table is not None), None)
        names = tuple(model.all_features())
        if known is None:
            return FeatureTable(model.output_feature, names, (), np.empty((0, len(names))))
        return fitted_rows(model, known, scaled=False).take([])
    rows = fitted_rows(model, samples, scaled=False)
    bad = [rows.kernels[i] for i in np.flatnonzero(~(rows.column(model.output_feature) > 0))]
    if bad:
        msg = f"the time of sample {bad[0]} is not above zero; leave it out"
        raise CalibrationError(msg, kernel=bad[0])
    return replace(rows, machine=samples.machine, device=samples.device)


def _machine(machine: str | Path | Machine | None, rows: FeatureTable) -> Machine | None:
    if isinstance(machine, Machine):
        return machine
    if machine is not None:
        return load_machine(machine)
    return _known_machine(rows.machine)


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


def _made(model: Model, rows: FeatureTable, fitted: TargetFit, carried: CarriedOver, machine: str) -> Calibration:
    fit = fitted.fit
    values = {name: rows.column(name) for name in model.input_features()}
    predicted = np.broadcast_to(np.asarray(model.evaluate(fit, values), dtype=np.float64), (len(rows),))
    errors = predicted / rows.column(model.output_feature) - 1.0
    return Calibration(
        model=model,
        # Of what was measured: the fit saw it without what other devices explain.
        fit=replace(fit, relative_errors=tuple(map(float, errors))),
        device={"name": rows.device or machine} if rows.device or machine else {},
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        versions=software_versions(),
        machine=machine or rows.machine,
        table=fitted_rows(model, rows, scaled=True),
        transferred=carried,
    )
