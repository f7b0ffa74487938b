"""Part 2: how finely the device's timer resolves, and what a launch costs."""

from __future__ import annotations

import statistics
import time as clocks
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import TimingOptions
from perflex.features import SizedKernel
from perflex.timing.launch.request import request_for
from perflex.timing.measuring import open_backend

from .keeping import rows_kept

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["launch_cost"]

_COLUMNS = (
    "work_items", "ngroups", "single_median_s", "single_min_s", "back_to_back_median_s", "back_to_back_min_s",
    "host_per_launch_s", "smallest_step_s", "launches",
)  # fmt: skip
_SHAPES = ((16, 16), (32, 32))
_GROUPS = (1, 16, 132, 1056, 16384)
_SINGLES = 30
_MANY = 300
# Timings of this many launches in one go, on slow devices.
_LONGEST_S = 0.5


def launch_cost(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``launch.csv``: device time of empty kernels alone and back to back, and the host's time per launch."""
    from uipick import ALL_GENERATORS, KernelCollection

    backend = open_backend(setting.device, TimingOptions())
    rows: list[dict[str, Any]] = []
    try:
        with rows_kept(setting.folder / "launch.csv", _COLUMNS) as keep:
            for x, y in _SHAPES:
                groups = ",".join(map(str, _GROUPS))
                tags = ["empty", f"lsize_0:{x}", f"lsize_1:{y}", f"ngroups:{groups}"]
                for kernel in KernelCollection(ALL_GENERATORS).generate_kernels(tags):
                    time.check()
                    runnable = backend.build(
                        request_for(SizedKernel(kernel.kernel, kernel.sizes, kernel.name), setting.device)
                    )
                    row = {"work_items": x * y, "ngroups": kernel.sizes["ngroups"], **_timed(runnable)}
                    keep(row)
                    rows.append(row)
    finally:
        if rows:
            run.notes.append(_summary(rows, backend.timer_resolution_s))
        backend.close()


def _summary(rows: Sequence[Mapping[str, Any]], resolution: float) -> str:
    small = rows[0]
    steps = [row["smallest_step_s"] for row in rows if row["smallest_step_s"] > 0]
    return (
        f"Timer: the driver says {1e9 * resolution:.0f} ns"
        + (f", the smallest difference seen is {1e9 * min(steps):.0f} ns. " if steps else ". ")
        + f"An empty launch of one work-group of {small['work_items']} work-items takes "
        f"{1e6 * small['single_median_s']:.2f} us alone and {1e6 * small['back_to_back_median_s']:.2f} us back to "
        f"back; the host needs {1e6 * small['host_per_launch_s']:.2f} us for each of many."
    )


def _timed(runnable: Any) -> dict[str, float]:
    runnable.run(3)
    singles = [runnable.run(1)[0] for _ in range(_SINGLES)]
    many = max(2, min(_MANY, int(_LONGEST_S / max(statistics.median(singles), 1e-9))))
    begun = clocks.perf_counter()
    together = runnable.run(many)
    host = clocks.perf_counter() - begun
    return {
        "single_median_s": statistics.median(singles),
        "single_min_s": min(singles),
        "back_to_back_median_s": statistics.median(together),
        "back_to_back_min_s": min(together),
        "host_per_launch_s": host / many,
        "smallest_step_s": _smallest_step([*singles, *together]),
        "launches": _SINGLES + many,
    }


def _smallest_step(times: list[float]) -> float:
    """Return the smallest difference above rounding between two times; 0 if all are equal."""
    steps = np.diff(np.unique(np.round(np.array(times) * 1e9, 3)))
    steps = steps[steps > 0.01]
    return float(steps.min()) * 1e-9 if steps.size else 0.0
