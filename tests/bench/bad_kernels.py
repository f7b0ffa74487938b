"""What kernels that hang, crash and do not compile cost a calibration: ``python tests/bench/bad_kernels.py``.

On each device that keeps time:

* a calibration of the shipped model of matrix multiplication, and the same with three bad kernels in its pool, the
  last of all: how much longer it takes, what it says of them, and whether it still has every other kernel;
* what isolation costs: starting the process, host time of a launch in it and in this process, and the device time of
  the same kernel in both, launched in turn.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(Path(__file__).parents[2])]
sys.path.append(str(Path(__file__).parents[1]))
os.environ["PERFLEX_STORE"] = "off"

from support.building import built  # noqa: E402 - the folder above holds it

if TYPE_CHECKING:
    from perflex import Device

LAUNCHES = 300
MOST_EXTRA_S = 20.0


def main() -> int:
    """Print times; return 1 if a calibration takes too much longer or loses a good kernel."""
    from perflex import list_devices

    warnings.simplefilter("ignore")
    devices = [info.device for info in list_devices() if info.usable and not info.device.is_simulator]
    fine = True
    for device in devices:
        print(f"\n{device}")
        fine = calibrations(device) and fine
        isolation(device)
    return 0 if fine else 1


def calibrations(device: Device) -> bool:
    """Calibrate with and without the bad kernels; return whether the difference is small enough."""
    from failing_kernels import crashing, endless, not_compiling
    from perflex import TimingOptions, calibrate
    from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
    from perflex.devices.wall_time import wall_time_identifier
    from perflex.models import load_model
    from perflex.models.kernel_sets import measurement_kernels

    description = load_model("matmul_sq")
    model = description.model(wall_time_identifier(device))
    pool: list[Any] = list(measurement_kernels(description, multiply_add_rate(device) / REFERENCE_RATE))
    bad = [(kernel, {"n": 4096}) for kernel in (endless(), crashing(), not_compiling())]
    # At the end, where the process that is lost has built all the others, which have to be built again.
    mixed = [*pool, *bad]
    # A fixed number of trials: how long it takes until all times are known varies more than what is looked for.
    options = TimingOptions(precision=0, trials=10, min_trials=5, budget_s=0.3)
    seconds, kernels = [], []
    for kernels_in in (pool, pool, mixed):  # the first run fills caches of compilers
        start = time.perf_counter()
        calibration = calibrate(model, kernels_in, device=device, timing=options)
        seconds.append(time.perf_counter() - start)
        kernels.append(set(calibration.fit.kernels))
    extra = seconds[2] - seconds[1]
    print(f"calibration with {len(pool)} kernels {seconds[1]:.1f} s, with three bad ones more {seconds[2]:.1f} s")
    print(f"  longer by {extra:.1f} s (at most {MOST_EXTRA_S:g} s); good kernels lost: {len(kernels[1] - kernels[2])}")
    for label, reason in calibration.dropped:
        print(f"  {label} {reason[:160]}")
    return extra <= MOST_EXTRA_S and kernels[1] == kernels[2] and len(calibration.dropped) == 3


def isolation(device: Device) -> None:
    """Time launches in a process of their own and in this one, in turn."""
    from failing_kernels import good
    from perflex.timing.isolation.backend import IsolatedBackend
    from perflex.timing.launch.backend import RunLimits
    from perflex.timing.launch.opencl import OpenCLBackend

    kernel, sizes = good(), {"n": 1 << 20}
    inside = OpenCLBackend(device)
    built(inside, kernel, sizes, "good").run(2)
    outside = IsolatedBackend(device, RunLimits(10, 60))
    start = time.perf_counter()
    theirs = built(outside, kernel, sizes, "good")
    print(f"process started, device opened and a kernel built in {time.perf_counter() - start:.2f} s")
    runnables = {"in its own process": theirs, "in this process": built(inside, kernel, sizes, "good")}
    host: dict[str, list[float]] = {name: [] for name in runnables}
    on_device: dict[str, list[float]] = {name: [] for name in runnables}
    for number in range(LAUNCHES):
        for name, runnable in runnables.items():
            start = time.perf_counter()
            seconds = runnable.run(1)[0]
            if number >= 5:
                host[name].append(time.perf_counter() - start - seconds)
                on_device[name].append(seconds)
    for name in runnables:
        print(
            f"  {name:18}: device {1e6 * statistics.median(on_device[name]):7.1f} us, "
            f"host beside it {1e6 * statistics.median(host[name]):6.1f} us a launch (medians of {LAUNCHES - 5})"
        )
    outside.close()
    inside.close()


if __name__ == "__main__":
    raise SystemExit(main())
