"""The nvbench data: 27 textbook kernels on five GPUs of NVIDIA, each configuration on each GPU.

Each program is a loopy kernel that names its work-groups and work-items; the histograms are Scops. What real code does
and these do not:

* the mask in constant memory is an operand of instructions: it has no accesses;
* strides of reductions and scans are written out (`nvbench_chains`); widths of masks and edges of tiles are numbers
  where an array in local memory depends on them, so that loops of at most 32 iterations count as unrolled;
* reductions and scans were timed with host code: allocations (scans), copies and launches. Copies and the first fill
  are launches of kernels of their own here; allocations are not described;
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

    Launches = tuple[tuple[Any, Mapping[str, int], int], ...]

# Below, times of this program on four of the GPUs alternate between 7 and 15 us from one size to the next.
_ALTERNATES, _ALTERNATES_BELOW = "conv1d_global_mask", 4096


def programs() -> Mapping[str, Callable[[Mapping[str, int]], Launches]]:
    """Return for each program what it launches, as a function of the columns of a row that are numbers."""
    return {
        "array_add_contiguous": lambda row: _once(kernels.array_add(strided=False), row, "n"),
        "array_add_strided": lambda row: _once(kernels.array_add(strided=True), row, "n"),
        "rgb_to_gray": lambda row: _once(kernels.rgb_to_gray(), row, "n"),
        "conv1d_global_mask": partial(_conv1d, "global"),
        "conv1d_constant_mask": partial(_conv1d, "constant"),
        "conv1d_tiled": partial(_conv1d, "tiled"),
        "conv1d_tiled_halo_global": partial(_conv1d, "halo"),
        "conv2d_global_mask": partial(_conv2d, "global"),
        "conv2d_constant_mask": partial(_conv2d, "constant"),
        "conv2d_tiled": partial(_conv2d, "tiled"),
        "histogram_global": lambda row: _once(histograms.histogram_global(row["block_x"]), row, "n"),
        "histogram_shared": lambda row: _once(histograms.histogram_shared(row["block_x"]), row, "n"),
        "matmul_naive": lambda row: _once(kernels.matmul_naive(row["block_x"]), row, "n"),
        "matmul_tiled": lambda row: _once(kernels.matmul_tiled(row["block_x"]), row, "n"),
        "matmul_tiled_double": lambda row: _once(kernels.matmul_tiled_double(row["block_x"]), row, "n"),
        "matvec_naive": lambda row: _once(kernels.matvec_naive(row["block_x"]), row, "n"),
        "matvec_shared": lambda row: _once(kernels.matvec_shared(row["block_x"]), row, "n"),
        **{f"reduction_{number}": partial(_reduction, number) for number in range(1, 8)},
        **{name: partial(_scan, name) for name in chains.SCANS},
    }


def rows(folder: Path) -> Iterator[MeasuredRow]:
    """Yield the configurations of the data in `folder`, those that the module's description names left out."""
    known = programs()
    with gzip.open(folder / "nvbench.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            values = {name: int(line[name]) for name in _WHOLE if line[name]}
            name = line["kernel"]
            if values["repeat"] or (name == _ALTERNATES and values["n"] < _ALTERNATES_BELOW):
                continue
            shape = " ".join(f"{key}={values[word]}" for key, word in _SIZES.items() if word in values)
            yield MeasuredRow(
                data="nvbench",
                gpu=line["device"],
                machine=line["device"].replace(" ", "-"),
                program=name,
                case=f"{_family(name)} {shape}",
                label=f"{name} {shape} block={values['block_x']}x{values['block_y']}",
                launches=known[name](values),
                seconds=float(line["time_s"]),
                warm=False,
            )


_SIZES = {"n": "n", "w": "mask_width", "c": "channels"}
_WHOLE = ("n", "mask_width", "channels", "block_x", "block_y", "repeat")


def _family(program: str) -> str:
    """Return what a program computes, which others compute as well."""
    known = ("array_add", "conv1d", "conv2d", "histogram", "matmul", "matvec", "reduction", "scan")
    return next((family for family in known if program.startswith(family)), program)


def _once(kernel: Any, row: Mapping[str, int], *names: str) -> Launches:
    return ((kernel, {name: row[_SIZES[name]] for name in names}, 1),)


def _conv1d(kind: str, row: Mapping[str, int]) -> Launches:
    b, w = row["block_x"], row["mask_width"]
    if kind in {"global", "constant"}:
        plain = kernels.conv1d_plain(b, guarded=kind == "global")
        return _once(kernels.counted(plain, constant_mask=kind == "constant"), row, "n", "w")
    kernel = kernels.conv1d_tiled if kind == "tiled" else kernels.conv1d_halo_global
    return _once(kernels.counted(kernel(b, w), constant_mask=True), row, "n")


def _conv2d(kind: str, row: Mapping[str, int]) -> Launches:
    b, w = row["block_x"], row["mask_width"]
    if kind == "tiled":
        return _once(kernels.counted(kernels.conv2d_tiled(b, w), constant_mask=True), row, "n", "c")
    kernel = kernels.counted(kernels.conv2d_plain(b), constant_mask=kind == "constant")
    return _once(kernel, row, "n", "w", "c")


def _reduction(number: int, row: Mapping[str, int]) -> Launches:
    return tuple(chains.reduction_launches(number, row["n"]))


def _scan(name: str, row: Mapping[str, int]) -> Launches:
    return tuple(chains.scan_launches(name, row["n"]))
