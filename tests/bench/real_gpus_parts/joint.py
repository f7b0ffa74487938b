"""One fit to the times of all GPUs and programs together: what `general_gpu` says of a kernel and a GPU that are new.

Parameters are the mode of the posterior, about the usual values of the model; what a launch costs is another parameter
for each meaning of a time. Each program on a GPU counts as a few rows, and rows far off count less (Student's
distribution), so that a miscounted kernel does not decide.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from perflex import Calibration, FeatureTable, load_calibration, load_model
from perflex.calibration.calibrating import software_versions
from perflex.calibration.gathering import info_of
from perflex.calibration.transfer_prior import LEVELS, LaunchCosts, TransferPrior
from perflex.calibration.usual_prior import prior_about
from perflex.fit.options import ParameterPrior, Prior
from perflex.fit.posterior import fit_with_prior

from .rows import MeasuredRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex import Model

    from .methods import DataSet

    Array = NDArray[np.float64]

MODEL = "general_gpu"
# The calibrations of perflex's own measurement kernels, and what their launches are.
_OWN = {"general_gpu_h100_cuda": "queued", "general_gpu_h100_opencl": "host"}
_LAUNCHES = "f_sync_kernel_launch"
# So many rows of a program on a GPU say something new, and so far off, in the logarithm, a row begins to count less.
_INDEPENDENT, _FAR = 3, 0.25
_ROUNDS = 5
# Standard deviation of the logarithm of a row's time that no parameter explains, at least; and of a launch's cost.
_LEAST, _LAUNCH_SPREAD = 0.1, 0.7
# As how many rows the usual spread of a parameter counts.
_USUAL_ROWS = 10.0


def own_rows(model: Model) -> tuple[list[MeasuredRow], Array]:
    """Return the measurement kernels of the calibrations of an H100 that come with perflex, and their features."""
    rows, values = [], []
    for name, timed in _OWN.items():
        table = load_calibration(name).table
        values.append(np.column_stack([table.column(each) for each in model.input_features()]))
        for label, generator, seconds in zip(
            table.kernels, table.generators, table.column(model.output_feature), strict=True
        ):
            rows.append(
                MeasuredRow(
                    "measurement kernels", "H100", "H100-SXM", f"own {generator}", label, f"{timed} {label}", (),
                    float(seconds), timed=timed, least_seconds=0.0,
                )  # fmt: skip
            )
    return rows, np.vstack(values)


@dataclass(frozen=True, eq=False)
class JointFit:
    """Parameters by name, that of launches apart: seconds by what a time means; the spread of each parameter's
    logarithm; and the deviations within which rows lay, for `LEVELS`."""

    model: Model
    parameters: Mapping[str, float]
    launches: Mapping[str, float]
    spreads: Mapping[str, float]
    limits: tuple[float, ...]
    sources: tuple[str, ...]

    def calibration(self) -> Calibration:
        """Return what the fit says, as the calibration that comes with perflex."""
        model, names = self.model, tuple(self.model.all_features())
        entries = {name: ParameterPrior(float(np.log(value)), self.spreads[name]) for name, value in self.parameters.items()}
        table = FeatureTable(model.output_feature, names, (), np.empty((0, len(names))), info=info_of(model.input_features()))
        fit = fit_with_prior(model, table, Prior(entries, _LEAST, self.sources))
        # Other meanings than these are those of single data sets; one without times is as usual.
        usual = self.parameters["p_launch"]
        launches = LaunchCosts(*(self.launches.get(name, usual) for name in LaunchCosts.__struct_fields__))
        carried = TransferPrior(self.sources, 0, unknown=_LEAST, limits=self.limits, launches=launches)
        return Calibration(
            model, fit, table, device={"name": f"{len(self.sources)} GPUs"}, transferred=carried,
            date=datetime.now(UTC).isoformat(timespec="seconds"), versions=software_versions(),
        )  # fmt: skip


def _weights(rows: Sequence[MeasuredRow]) -> Array:
    counts = Counter((row.gpu, row.data, row.program) for row in rows)
    return np.array([min(1.0, _INDEPENDENT / counts[row.gpu, row.data, row.program]) for row in rows])


@lru_cache(maxsize=64)
def joint_fit(data: DataSet, numbers: tuple[int, ...]) -> JointFit:
    """Fit the model to rows of a data set."""
    from scipy.optimize import least_squares

    model, rows = data.model, [data.rows[i] for i in numbers]
    description = load_model(MODEL)
    about = prior_about(description)
    names = [name for name in model.params() if name != "p_launch"]
    meanings = list(dict.fromkeys(row.timed for row in rows))
    which = np.array([meanings.index(row.timed) for row in rows])
    columns = {name: data.values[list(numbers), i] for i, name in enumerate(model.input_features())}
    launches, seconds = columns[_LAUNCHES], np.log(data.seconds[list(numbers)])
    mean = np.array([about[name].mean for name in names] + [about["p_launch"].mean] * len(meanings))
    spread = np.array([about[name].spread for name in names] + [_LAUNCH_SPREAD] * len(meanings))

    def errors(u: Array) -> Array:
        cost = np.exp(u[len(names) :])[which]
        values = {**columns, _LAUNCHES: launches * cost}
        found = model.evaluate(dict(zip(names, np.exp(u), strict=False), p_launch=1.0), values)
        return np.log(found) - seconds

    weights, u, robust = _weights(rows), mean, np.ones(len(rows))
    for _ in range(_ROUNDS):
        roots = np.sqrt(weights * robust) / _FAR

        def residual(u: Array, roots: Array = roots) -> Array:
            return np.concatenate([errors(u) * roots, (u - mean) / spread])

        u = least_squares(residual, u, method="trf").x
        robust = 1.0 / (1.0 + (errors(u) / _FAR) ** 2)
    off = errors(u)
    shares = _shares(errors, u)
    spreads = _spreads(off, shares, weights, spread)
    deviations = np.sqrt(_LEAST**2 + (shares**2) @ (spreads**2))
    found = dict(zip([*names, *meanings], map(float, np.exp(u)), strict=True))
    known = {name: found[name] for name in names}
    widths = dict(zip(names, map(float, spreads), strict=False))
    costs = {name: found[name] for name in meanings}
    usual = costs.get("gpu", float(np.exp(about["p_launch"].mean)))
    return JointFit(
        model,
        {name: usual if name == "p_launch" else known[name] for name in model.params()},
        costs,
        {name: _LAUNCH_SPREAD / 2 if name == "p_launch" else widths[name] for name in model.params()},
        _limits(np.abs(off) / deviations, weights),
        data.gpus,
    )


def _shares(errors: object, u: Array) -> Array:
    """Return the derivatives of the logarithms of times by those of parameters, shape ``(rows, parameters)``."""
    step = 1e-4
    return np.column_stack(
        [(errors(u + step * one) - errors(u - step * one)) / (2 * step) for one in np.eye(len(u))]  # type: ignore[operator]
    )


def _spreads(off: Array, shares: Array, weights: Array, usual: Array) -> Array:
    """Return how far each parameter differs between programs and GPUs, from the rows that it decides."""
    heavy = weights[:, None] * shares**4
    near = np.minimum(off**2, (3 * _FAR) ** 2)  # a miscounted kernel says nothing of a parameter
    found = (heavy.T @ near + _USUAL_ROWS * (usual**2 + _LEAST**2)) / (heavy.sum(axis=0) + _USUAL_ROWS)
    return np.sqrt(np.maximum(found - _LEAST**2, 0.05**2))


def _limits(ratios: Array, weights: Array) -> tuple[float, ...]:
    """Return the quantiles of ratios at `LEVELS`, each row with its weight."""
    order = np.argsort(ratios)
    share = (np.cumsum(weights[order]) - weights[order] / 2) / weights.sum()
    return tuple(float(np.interp(level, share, ratios[order])) if level else 0.0 for level in LEVELS)
