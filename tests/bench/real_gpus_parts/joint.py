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

from perflex import Calibration, FeatureTable, load_model
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
    Flags = NDArray[np.bool_]

MODEL = "general_gpu"
# The calibrations of perflex's own measurement kernels, and what their launches are.
_OWN = {"general_gpu_h100_cuda": "queued", "general_gpu_h100_opencl": "host"}
_LAUNCH, _LAUNCHES = "p_launch", "f_sync_kernel_launch"
# Seconds of a launch for which the host does not wait.
_FURTHER = 2e-6
# So many rows of a program on a GPU say something new, and so far off, in the logarithm, a row begins to count less.
_INDEPENDENT, _FAR = 3, 0.25
_ROUNDS = 5
# Standard deviation of the logarithm of a row's time that no parameter explains, at least; and of a launch's cost.
_LEAST, _LAUNCH_SPREAD = 0.1, 0.7
_LEAST_SPREAD = 0.05
# As how many rows the usual spread of a parameter counts.
_USUAL_ROWS = 10.0


def is_general(model: Model) -> bool:
    """Return whether a model is the one whose calibrations come with perflex."""
    return model.expression == load_model(MODEL).expression


def own_rows(model: Model) -> tuple[list[MeasuredRow], Array]:
    """Return the measurement kernels of the calibrations of an H100 that come with perflex, and their features."""
    rows, values = [], []
    for name, timed in _OWN.items():
        table = Calibration.load(name).table
        values.append(np.column_stack([table.column(each) for each in model.input_features()]))
        known = zip(table.kernels, table.generators, table.column(model.output_feature), strict=True)
        rows += [
            MeasuredRow(
                data="measurement kernels",
                gpu="H100",
                machine="H100-SXM",
                program=f"own {generator}",
                case=label,
                label=f"{timed} {label}",
                launches=(),
                seconds=float(seconds),
                timed=timed,
                least_seconds=0.0,
            )
            for label, generator, seconds in known
        ]
    return rows, np.vstack(values)


def launch_seconds(rows: Sequence[MeasuredRow], launches: Array, costs: Array) -> Array:
    """Return what rows' launches take, each that the host waits for as given, further ones as if queued."""
    waits = np.array([each if row.waits is None else row.waits for row, each in zip(rows, launches, strict=True)])
    return waits * costs + (launches - waits) * _FURTHER


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
        info = info_of(model.input_features())
        entries = {name: ParameterPrior(float(np.log(at)), self.spreads[name]) for name, at in self.parameters.items()}
        table = FeatureTable(model.output_feature, names, (), np.empty((0, len(names))), info=info)
        # Other meanings than these are those of single data sets; one without times is as usual.
        usual = self.parameters[_LAUNCH]
        launches = LaunchCosts(*(self.launches.get(name, usual) for name in LaunchCosts.__struct_fields__))
        return Calibration(
            model,
            fit_with_prior(model, table, Prior(entries, _LEAST, self.sources)),
            table,
            device={"name": f"{len(self.sources)} GPUs"},
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            versions=software_versions(),
            transferred=TransferPrior(self.sources, 0, unknown=_LEAST, limits=self.limits, launches=launches),
        )


class _Rows:
    """Rows of a data set, and how far a model with given logarithms of parameters is off them."""

    def __init__(self, data: DataSet, numbers: Sequence[int]) -> None:
        rows, about = [data.rows[i] for i in numbers], prior_about(load_model(MODEL))
        self.model = data.model
        self.names = [name for name in data.model.params() if name != _LAUNCH]
        self.meanings = list(dict.fromkeys(row.timed for row in rows))
        self._meaning = np.array([self.meanings.index(row.timed) for row in rows])
        self._columns = {name: data.values[list(numbers), i] for i, name in enumerate(data.model.input_features())}
        self._rows = rows
        self._logs = np.log(data.seconds[list(numbers)])
        launches = [_LAUNCH] * len(self.meanings)
        self.mean = np.array([about[name].mean for name in (*self.names, *launches)])
        self.spread = np.array([*(about[name].spread for name in self.names), *(_LAUNCH_SPREAD for _ in launches)])
        counts = Counter((row.gpu, row.data, row.program) for row in rows)
        self.programs = [(row.gpu, row.data, row.program) for row in rows]
        self.weights = np.array([min(1.0, _INDEPENDENT / counts[key]) for key in self.programs])
        self.with_code = np.array([row.timed == "code" for row in rows])

    def errors(self, u: Array) -> Array:
        """Return ln(predicted / measured), shape ``(rows,)``."""
        costs = np.exp(u[len(self.names) :])[self._meaning]
        values = {**self._columns, _LAUNCHES: launch_seconds(self._rows, self._columns[_LAUNCHES], costs)}
        found = self.model.evaluate(dict(zip(self.names, np.exp(u), strict=False)) | {_LAUNCH: 1.0}, values)
        return np.asarray(np.log(found) - self._logs)

    def shares(self, u: Array) -> Array:
        """Return the derivatives of the errors, shape ``(rows, parameters)``."""
        step = 1e-4 * np.eye(len(u))
        return np.column_stack([(self.errors(u + one) - self.errors(u - one)) / 2e-4 for one in step])

    def mode(self, start: Array, counted: Flags, moving: Flags) -> Array:
        """Return the mode of the posterior of the parameters that move, given the rows that count."""
        from scipy.optimize import least_squares

        u, robust = start.copy(), np.ones(len(counted))
        for _ in range(_ROUNDS):
            roots = np.sqrt(self.weights * robust * counted) / _FAR

            def residual(part: Array, roots: Array = roots, at: Array = u) -> Array:
                whole = at.copy()
                whole[moving] = part
                return np.concatenate([self.errors(whole) * roots, ((whole - self.mean) / self.spread)[moving]])

            u = u.copy()
            u[moving] = least_squares(residual, u[moving], method="trf").x
            robust = 1.0 / (1.0 + (self.errors(u) / _FAR) ** 2)
        return u


@lru_cache(maxsize=64)
def joint_fit(data: DataSet, numbers: tuple[int, ...]) -> JointFit:
    """Fit the model to rows of a data set."""
    rows = _Rows(data, numbers)
    # No resource of the GPU explains host code, which says what a launch costs with it when all else is known.
    of_code = np.array([*(False for _ in rows.names), *(one == "code" for one in rows.meanings)])
    u = rows.mode(rows.mean, ~rows.with_code, ~of_code)
    if of_code.any():
        u = rows.mode(u, rows.with_code, of_code)
    off, shares, weights = rows.errors(u), rows.shares(u), rows.weights * ~rows.with_code
    spreads = _spreads(off, shares, weights, rows.spread)
    deviations = np.sqrt(_LEAST**2 + (shares**2) @ (spreads**2))
    judged = np.flatnonzero(~rows.with_code)
    found = dict(zip([*rows.names, *rows.meanings], map(float, np.exp(u)), strict=True))
    costs = {name: found[name] for name in rows.meanings}
    usual = costs.get("gpu", float(np.exp(rows.mean[-1])))
    widths = dict(zip(rows.names, map(float, spreads), strict=False)) | {_LAUNCH: _LAUNCH_SPREAD / 2}
    return JointFit(
        data.model,
        {name: usual if name == _LAUNCH else found[name] for name in data.model.params()},
        costs,
        widths,
        _limits((np.abs(off) / deviations)[judged], [rows.programs[i] for i in judged]),
        tuple(dict.fromkeys(data.rows[i].gpu for i in numbers)),
    )


def _spreads(off: Array, shares: Array, weights: Array, usual: Array) -> Array:
    """Return how far each parameter differs between programs and GPUs, from the rows that it decides."""
    heavy = weights[:, None] * shares**4
    found = (heavy.T @ off**2 + _USUAL_ROWS * (usual**2 + _LEAST**2)) / (heavy.sum(axis=0) + _USUAL_ROWS)
    return np.sqrt(np.maximum(found - _LEAST**2, _LEAST_SPREAD**2))


def _limits(ratios: Array, programs: Sequence[tuple[str, str, str]]) -> tuple[float, ...]:
    """Return quantiles at `LEVELS` of each program's largest ratio: what all of its rows lie within."""
    largest: dict[tuple[str, str, str], float] = {}
    for program, ratio in zip(programs, ratios, strict=True):
        largest[program] = max(largest.get(program, 0.0), float(ratio))
    found = np.quantile(list(largest.values()), LEVELS)
    return tuple(float(one) if level else 0.0 for level, one in zip(LEVELS, found, strict=True))
