"""The nvbench data: 27 textbook kernels on five GPUs of NVIDIA, each configuration on each GPU.

Each program is a loopy kernel that names its work-groups and work-items; the histograms are Scops. What real code does
and these do not:

* strides of reductions and scans are written out (`nvbench_chains`); widths of masks and edges of tiles are numbers
  where an array in local memory depends on them, so that loops of at most 32 iterations count as unrolled;
* reductions and scans were timed with host code: allocations (scans), copies and launches. Copies and the first fill
  are launches of kernels of their own here; allocations are not described. The host waits for each launch of a
  reduction but the fill, and once in a scan;
* data are zero: all elements of the histograms fall into the first bin.

Cold times are taken: L2 was overwritten before each sample. Repetitions of a configuration are left out, and so is what
the data's description calls anomalous: the global-mask 1-D convolution below 4096 elements, whose times alternate.
"""

from __future__ import annotations

import csv
import gzip
from functools import partial
from typing import TYPE_CHECKING, Any

from . import histograms
from . import nvbench_chains as chains
from . import nvbench_kernels as kernels
from .rows import MeasuredRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

# Below, times of this program on four of the GPUs alternate between 7 and 15 us from one size to the next.
_ALTERNATES, _ALTERNATES_BELOW = "conv1d_global_mask", 4096
_SIZES = {"n": "n", "w": "mask_width", "c": "channels"}
_WHOLE = ("n", "mask_width", "channels", "block_x", "block_y", "repeat")
# What several programs compute.
_FAMILIES = ("array_add", "conv1d", "conv2d", "histogram", "matmul", "matvec", "reduction", "scan")


def kernels_of(b: int, w: int) -> Mapping[str, tuple[Callable[[], Any], str]]:
    """Return the kernel of each program of one launch, and its sizes; of work-groups of b, and masks of w elements."""

    def counted(plain: Callable[[], Any], mask: str) -> Any:
        return kernels.counted(plain(), constant_mask=mask == "constant")

    conv1d, conv2d = partial(kernels.conv1d_plain, b), partial(kernels.conv2d_plain, b)
    return {
        "array_add_contiguous": (partial(kernels.array_add, strided=False), "n"),
        "array_add_strided": (partial(kernels.array_add, strided=True), "n"),
        "rgb_to_gray": (kernels.rgb_to_gray, "n"),
        "conv1d_global_mask": (partial(counted, partial(conv1d, guarded=True), "global"), "nw"),
        "conv1d_constant_mask": (partial(counted, partial(conv1d, guarded=False), "constant"), "nw"),
        "conv1d_tiled": (partial(counted, partial(kernels.conv1d_tiled, b, w), "constant"), "n"),
        "conv1d_tiled_halo_global": (partial(counted, partial(kernels.conv1d_halo_global, b, w), "constant"), "n"),
        "conv2d_global_mask": (partial(counted, conv2d, "global"), "nwc"),
        "conv2d_constant_mask": (partial(counted, conv2d, "constant"), "nwc"),
        "conv2d_tiled": (partial(counted, partial(kernels.conv2d_tiled, b, w), "constant"), "nc"),
        "histogram_global": (partial(histograms.histogram_global, b), "n"),
        "histogram_shared": (partial(histograms.histogram_shared, b), "n"),
        "matmul_naive": (partial(kernels.matmul_naive, b), "n"),
        "matmul_tiled": (partial(kernels.matmul_tiled, b), "n"),
        "matmul_tiled_double": (partial(kernels.matmul_tiled_double, b), "n"),
        "matvec_naive": (partial(kernels.matvec_naive, b), "n"),
        "matvec_shared": (partial(kernels.matvec_shared, b), "n"),
    }


def launches_of(name: str, row: Mapping[str, int]) -> tuple[tuple[Any, Mapping[str, int], int], ...]:
    if name.startswith("reduction_"):
        return tuple(chains.reduction_launches(int(name.removeprefix("reduction_")), row["n"]))
    if name in chains.SCANS:
        return tuple(chains.scan_launches(name, row["n"]))
    kernel, sizes = kernels_of(row["block_x"], row.get("mask_width", 0))[name]
    return ((kernel(), {size: row[_SIZES[size]] for size in sizes}, 1),)


def rows(folder: Path) -> Iterator[MeasuredRow]:
    with gzip.open(folder / "nvbench.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            values = {name: int(line[name]) for name in _WHOLE if line[name]}
            name = line["kernel"]
            if values["repeat"] or (name == _ALTERNATES and values["n"] < _ALTERNATES_BELOW):
                continue
            shape = " ".join(f"{key}={values[word]}" for key, word in _SIZES.items() if word in values)
            launches = launches_of(name, values)
            waits = len(launches) - 1 if name.startswith("reduction_") else 1 if name in chains.SCANS else None
            yield MeasuredRow(
                data="nvbench",
                gpu=line["device"],
                machine=line["device"].replace(" ", "-"),
                program=name,
                case=f"{next((one for one in _FAMILIES if name.startswith(one)), name)} {shape}",
                label=f"{name} {shape} block={values['block_x']}x{values['block_y']}",
                launches=launches,
                seconds=float(line["time_s"]),
                warm=False,
                timed="events" if waits is None else "code",
                waits=waits,
            )
