"""Simulated devices: one model, parameters drawn from a log-normal, residuals that devices have in common."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from perflex import Calibration, FeatureTable, FitOptions, Model, fit_model

OUTPUT = "f_cl_wall_time"
INPUTS = ("f_op_float32_madd", "f_op_float64_madd", "f_mem_access_local_float32", "f_sync_kernel_launch")
MODEL = Model(OUTPUT, " + ".join(f"p_{place} * {name}" for place, name in enumerate(INPUTS)))
MEANS = np.log([2e-9, 1e-9, 5e-9, 1e-5])


@dataclass(frozen=True)
class World:
    """How devices differ: standard deviations of logarithms."""

    parameters: float = 0.3  # over devices
    program: float = 0.15  # of what the model errs by, on all devices alike; below, on each device
    kernel: float = 0.1
    program_here: float = 0.05
    kernel_here: float = 0.05
    noise: float = 0.02


@dataclass(frozen=True)
class SimulatedDevices:
    """Rows of devices, all kernels on each, and each device's true parameters, shape ``(devices, 4)``."""

    tables: tuple[FeatureTable, ...]
    parameters: NDArray[np.float64]

    def calibrations(self, count):
        """Return calibrations of the first devices, from all their rows."""
        return [calibrated(table, f"device {place}") for place, table in enumerate(self.tables[:count])]


def simulated_devices(seed, count, world=World(), *, programs=12, kernels=10):
    """Return devices of a world."""
    rng = np.random.default_rng(seed)
    rows = programs * kernels
    features = 10 ** rng.uniform(3, 6, (rows, len(INPUTS)))
    features[rng.random(features.shape) < 0.3] = 0.0
    features[:, -1] = 1.0
    owner = np.repeat(np.arange(programs), kernels)
    labels = tuple(f"program{p}(n={n})" for p, n in zip(owner, np.tile(np.arange(kernels), programs), strict=True))
    common = rng.normal(0, world.program, programs)[owner] + rng.normal(0, world.kernel, rows)
    tables, drawn = [], []
    for _ in range(count):
        parameters = np.exp(MEANS + rng.normal(0, world.parameters, len(MEANS)))
        here = rng.normal(0, world.program_here, programs)[owner] + rng.normal(0, world.kernel_here, rows)
        seconds = features @ parameters * np.exp(common + here + rng.normal(0, world.noise, rows))
        groups = tuple(f"program{p}" for p in owner)
        values = np.column_stack([seconds, features])
        tables.append(FeatureTable(OUTPUT, (OUTPUT, *INPUTS), labels, values, groups=groups))
        drawn.append(parameters)
    return SimulatedDevices(tuple(tables), np.array(drawn))


def calibrated(table, name):
    """Return the calibration of a device from its rows."""
    return Calibration(MODEL, fit_model(MODEL, table, FitOptions(residual="logarithmic")), table, {"name": name})
