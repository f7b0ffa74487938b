"""A device's peaks for the roofline: the rates of two measurement kernels of the catalog."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from perflex.features.sized_kernel import sized_kernels
from perflex.studies.baselines import Peaks, copy_bandwidth, copy_kernel, work_of
from perflex.timing.measuring import measure
from perflex.timing.results import Timing
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from pathlib import Path

    from perflex import Device

_MADD = (
    "flops_madd_pattern",
    "dtype:float32",
    "lsize_0:64",
    "lsize_1:1",
    "groups_fit:True",
    "nelements:131072",
    "m:64",
)


def measure_peaks(device: Device) -> Peaks:
    """Measure a device's peaks.

    Raises
    ------
    PerflexError
        A measurement kernel cannot be timed.
    """
    kernels = [*KernelCollection(ALL_GENERATORS).generate_kernels(_MADD), copy_kernel()]
    arithmetic, copy = measure(sized_kernels(kernels), device)
    for outcome in (arithmetic, copy):
        if not isinstance(outcome, Timing):
            raise outcome.error
    operations = work_of(kernels[0], kernels[0].sizes).operations
    return Peaks(operations / arithmetic.seconds, copy_bandwidth(copy.seconds))


def write_peaks(path: Path, label: str, peaks: Peaks) -> None:
    """Write peaks with the device's label as JSON."""
    path.write_text(json.dumps({"device": label} | asdict(peaks)) + "\n", encoding="utf-8")


def read_peaks(path: Path) -> tuple[str, Peaks]:
    """Return the device's label and its peaks."""
    found = json.loads(path.read_text(encoding="utf-8"))
    return found.pop("device"), Peaks(**found)
