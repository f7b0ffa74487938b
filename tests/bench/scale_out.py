"""Measuring matmul's kernels here and on a Dask cluster of two processes: ``python tests/bench/scale_out.py``.

Both take turns at the same device, so a cluster on one machine cannot be faster; what is shown is what sending the work
costs, and that times are the same within what two runs here differ by.
"""

from __future__ import annotations

import argparse
import time
import warnings
from typing import TYPE_CHECKING

import numpy as np
from distributed import LocalCluster

from perflex import TimingOptions, dask_executor, find_device
from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
from perflex.features import SizedKernel
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.timing.executors.rounds import measure_on
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing

if TYPE_CHECKING:
    from perflex.timing.results import Measured


def main(spec: str | None, scale: float | None, trials: int) -> None:
    """Measure twice here and once on the cluster, and compare."""
    device = find_device(spec)
    if scale is None:
        scale = multiply_add_rate(device) / REFERENCE_RATE
    kernels = measurement_kernels(load_model("matmul_overlap"), scale)
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in kernels]
    options = TimingOptions(trials=trials, budget_s=0.2)
    print(f"{len(jobs)} kernels on {device}, {trials} trials at most", flush=True)
    here, again = (_timed(name, lambda: measure(jobs, device, options)) for name in ("here", "here again"))
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            resources={"perflex_device": 1},
        ) as cluster,
        dask_executor(cluster.scheduler_address) as executor,
    ):
        there = _timed("on the cluster", lambda: measure_on(executor, jobs, device, options))
    _compare("here again / here", again, here)
    _compare("cluster / here", there, here)


def _timed(name: str, work) -> Measured:
    started = time.perf_counter()
    measured = work()
    failed = sum(isinstance(outcome, MeasurementFailure) for outcome in measured)
    device_s = sum(sum(one.samples) * one.launches for one in measured if isinstance(one, Timing))
    print(
        f"{name}: {time.perf_counter() - started:.1f} s, of it {device_s:.1f} s of device time in samples; "
        f"{failed} failed; drift {measured.drift.size:.3f}, corrected: {measured.drift.corrected}",
        flush=True,
    )
    return measured


def _compare(name: str, first: Measured, second: Measured) -> None:
    pairs = [
        (a.seconds, b.seconds)
        for a, b in zip(first, second, strict=True)
        if isinstance(a, Timing) and isinstance(b, Timing)
    ]
    ratios = np.array([a / b for a, b in pairs])
    low, middle, high = np.quantile(ratios, (0.1, 0.5, 0.9))
    print(f"{name}: {len(ratios)} medians, ratio {middle:.3f}, 80 % of them between {low:.3f} and {high:.3f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--device", default=None, help="parts of a device's name")
    arguments.add_argument("--scale", type=float, default=None, help="of sizes; else they suit the device")
    arguments.add_argument("--trials", type=int, default=10)
    given = arguments.parse_args()
    main(given.device, given.scale, given.trials)
