"""Short launches: a kernel's time from parts of its grid, in much less time than the whole launch takes.

A few slabs of the grid, spread evenly over it, are launched one after another at the real sizes and on the real data
(`perflex.timing.launch.slabs`), and that round is repeated. In the first round all data come from afar. In later ones
they come from where data lie that were used a round ago. In whole launches that follow one another data come from where
they lie after being used a whole launch ago: where all of them fit into the caches next to the cores a few times over,
as in later rounds; where they do not, from farther away than in later rounds and from nearer than in the first, so that
the time is taken from between. Arrays that a kernel updates are restored before each round, as they are before each
launch where kernels are timed: what they hold then comes from where the copy left it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, cast

from perflex.devices.device import Device
from perflex.errors import MeasurementError
from perflex.features.sized_kernel import sized_kernels
from perflex.timing.launch.plan import plan_launch
from perflex.timing.launch.request import launch_request
from perflex.timing.launch.sizes import size_launch
from perflex.timing.measuring import chosen_device, open_backend
from perflex.timing.options import TimingOptions
from perflex.timing.slab_rounds import Launching, kernel_time, program_time

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.devices.device import Api
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.backend import Runnable, SlabRunnable, TimedDevice
    from perflex.timing.launch.plan import LaunchPlan
    from perflex.timing.launch.sizes import Grid

Knowledge: TypeAlias = Literal["short launch", "timing"]

# GPUs start work-groups in waves; the last is partly filled. A multiprocessor holds 2048 work-items at most (NVIDIA,
# compute capability 7.0, 8.0 and 9.0; 1024 or 1536 in others, which then have more waves). Never tried on a GPU.
_WAVES = 2
_ITEMS_PER_UNIT = 2048
# All data this many times as large as the caches next to the cores: the time is that of later rounds; from between.
# By trial on the families of even number of the half `develop` of tests/bench/short_launch.py, on two CPU runtimes with
# 2 MiB next to each of two cores. So is how far from later rounds towards the first the time is at most.
_FITS, _EXCEEDS = 2.0, 4.0
_FARTHEST = 0.5
# Caches next to one core where the system does not tell, in bytes: 1 MiB of L2 as Intel's server processors have since
# Skylake-SP (later ones 2 MiB, AMD's Zen 0.5 to 1 MiB). On GPUs it stands for a share of the L2, untried.
_USUAL_NEAR_BYTES = 1 << 20


@dataclass(frozen=True)
class Probe:
    """A kernel's time by a short launch.

    Attributes
    ----------
    label
        Which kernel and sizes.
    seconds
        Time of a whole launch, in seconds, as it would be measured in repeated launches.
    deviation
        Standard deviation of its logarithm: how far a measurement is expected to be from it.
    scaled_s
        What the longest slab of the grid's middle, launched again at once, gives when its time is scaled by the number
        of work-groups: the plainest prediction that one short launch allows, in seconds.
    device_s
        Seconds that its launches took on the device, all of them together.
    cost_s
        Seconds that it took in all: generating and building code, filling buffers, launching.
    launches
        How many launches of slabs.
    groups
        Work-groups that were launched, as a share of a whole launch's.
    knowledge
        ``"short launch"``, or ``"timing"`` where the kernel ran whole: its launch is short, or a device program of it
        reads integers that another writes.
    """

    label: str
    seconds: float
    deviation: float
    scaled_s: float
    device_s: float
    cost_s: float
    launches: int
    groups: float
    knowledge: Knowledge


class ShortLauncher:
    """Predicts kernels by short launches on a device, which stays open until the end of the ``with`` block.

    Parameters
    ----------
    device
        Where to run: a device, parts of its name, or None for the default one.
    timing
        Its limits of builds and launches, and whether kernels run in a process of their own.

    Raises
    ------
    DeviceError
        No working device fits, several do, or it cannot be opened.
    """

    def __init__(self, device: str | TimedDevice | None = None, timing: TimingOptions | None = None) -> None:
        self.device = chosen_device(device)
        self._backend = open_backend(self.device, timing or TimingOptions())
        self._near_bytes = near_cache_bytes(self.device)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the device back."""
        self._backend.close()

    def probe(self, job: SizedKernel) -> Probe:
        """Return a kernel's time from short launches.

        Raises
        ------
        MeasurementError
            It does not build or run, its code asks for the extent of its grid, or the device cannot launch parts of it.
        MissingSizeError
            A size parameter has no value.
        DeviceError
            The device is lost.
        """
        start = time.perf_counter()
        request: Any = job
        api: Api = "opencl"
        if isinstance(self.device, Device):
            request = launch_request(job, self.device, in_slabs=True)
            api = self.device.api
        plan = plan_launch(job.translation_unit, api)
        launch = size_launch(plan, job.sizes, job.label)
        held = sum(launch.lengths[name] * array.dtype.itemsize for name, array in plan.arrays.items())
        updates = any(array.read and array.written for array in plan.arrays.values())
        counts = tuple(prod(grid.groups) for grid in launch.grids)
        launching = Launching(_in_slabs(self._backend.build(request), self.device, job.label), counts, updates)
        # What is restored comes from where the copy left it, in each round as in each launch.
        far = 0.0 if updates else self._far_weight(held)
        if _hands_integers_on(plan):
            found = [kernel_time(launching)]
        else:
            found = [program_time(launching, n, grid, self._least(grid), far) for n, grid in enumerate(launch.grids)]
        seconds = math.fsum(each.seconds for each in found)
        return Probe(
            label=job.label,
            seconds=seconds,
            deviation=math.sqrt(math.fsum(each.variance * each.seconds**2 for each in found)) / seconds,
            scaled_s=math.fsum(each.scaled_s for each in found),
            device_s=launching.device_s,
            cost_s=time.perf_counter() - start,
            launches=launching.launches,
            groups=launching.launched / sum(counts),
            knowledge="timing" if all(each.whole for each in found) else "short launch",
        )

    def _least(self, grid: Grid) -> int:
        """Return how many work-groups keep all of the device busy."""
        units = int(getattr(self.device, "compute_units", 1))
        if getattr(self.device, "kind", "cpu") != "gpu":
            return units
        return _WAVES * units * max(1, _ITEMS_PER_UNIT // prod(grid.work_group))

    def _far_weight(self, held_bytes: int) -> float:
        """Return the weight of the first round's time: how far data come from when whole launches are repeated."""
        ratio = max(held_bytes, 1) / self._near_bytes
        share = math.log(ratio / _FITS) / math.log(_EXCEEDS / _FITS)
        return _FARTHEST * min(1.0, max(0.0, share))


def probe_kernel(
    kernel: Any,
    sizes: Mapping[str, Any],
    device: str | TimedDevice | None = None,
    timing: TimingOptions | None = None,
) -> Probe:
    """Predict a kernel's time by launching small parts of its grid, at the real sizes and on the real data.

    It needs no calibration, and works for kernels that update their arrays in place and for those whose work-groups do
    different amounts of work. Where a launch is so short that parts of it would tell no more, it runs whole a few
    times. For many kernels, `ShortLauncher` opens the device once.

    Parameters
    ----------
    kernel
        A loopy translation unit, or what `annotate` returned for one.
    sizes
        Value of each size parameter.
    device
        Where to run: a device, or parts of its name; by default the default one.
    timing
        Its limits of builds and launches, and whether kernels run in a process of their own.

    Returns
    -------
    Probe
        The time of a whole launch in seconds, and what finding it cost.

    Raises
    ------
    DeviceError, MeasurementError, MissingSizeError
        As for `ShortLauncher` and its `probe`.
    """
    with closing(ShortLauncher(device, timing)) as launcher:
        return launcher.probe(sized_kernels([(kernel, sizes)])[0])


def _hands_integers_on(plan: LaunchPlan) -> bool:
    """Return whether a device program reads integers that another writes.

    They may be subscripts, trip counts or conditions, and those that parts of a launch leave are not the real ones.
    """
    taken = Counter(name for program in plan.programs for name in program.argument_names if name in plan.arrays)
    return any(
        count > 1 and plan.arrays[name].read and plan.arrays[name].written and plan.arrays[name].dtype.kind in "iub"
        for name, count in taken.items()
    )


def _in_slabs(runnable: Runnable, device: TimedDevice, label: str) -> SlabRunnable:
    if not hasattr(runnable, "run_slabs"):
        msg = f"{label}: the back end of {device} cannot launch parts of a grid (run_slabs); time the kernel whole"
        raise MeasurementError(msg, kernel=label)
    return cast("SlabRunnable", runnable)


def near_cache_bytes(device: TimedDevice) -> int:
    """Return the bytes of a device's caches next to its cores, all together; an estimate where it is not known."""
    units = max(1, int(getattr(device, "compute_units", 1)))
    each = _private_cache_bytes() if getattr(device, "kind", "") == "cpu" else None
    return units * (each or _USUAL_NEAR_BYTES)


@lru_cache(maxsize=1)
def _private_cache_bytes(folder: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> int | None:
    """Return the bytes of the second-level cache of a core of this machine; None where the system does not tell."""
    for index in sorted(folder.glob("index*")):
        try:
            level, text = (index.joinpath(name).read_text(encoding="ascii").strip() for name in ("level", "size"))
        except OSError:
            continue
        if level == "2" and text[:-1].isdecimal() and text[-1] in "KM":
            return int(text[:-1]) << (10 if text[-1] == "K" else 20)
    return None
