"""Published times of matrix products by Triton, and each row as a kernel."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MachineError
from perflex.features import kernel_feature_values
from perflex.features.tiles.products import Matrices, ProductKernel
from perflex.machines.files import load_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

# The H100 of the times has slower memory than an H100-SXM: the vendor's library never moves more than 2,279 GB/s there.
# On the A100 that is 1,702 GB/s, of 1,732 that its memory was measured to have; the H100's to have more likewise.
MACHINES = {
    "A100": load_machine("A100-80GB"),
    "H100": replace(load_machine("H100-SXM"), dram_bandwidth=2279e9 * 1732 / 1702),
}
_NUMBERS = (
    "m", "n", "k", "block_m", "block_n", "block_k", "num_stages", "num_warps",
    "stride_a0", "stride_a1", "stride_b0", "stride_b1",
)  # fmt: skip
_KINDS = ("float16", ""), ("bfloat16", ""), ("float32", "true"), ("float32", "false")
_TYPES = dict(zip(_KINDS, ("fp16", "bf16", "tf32", "fp32"), strict=True))


@dataclass(frozen=True)
class Rows:
    """Rows of one GPU and set: columns of numbers, times in s, which are infinite where a kernel could not be built."""

    gpu: str
    part: str
    columns: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.columns["seconds"])

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def take(self, chosen: NDArray[Any]) -> Rows:
        return Rows(self.gpu, self.part, {name: column[chosen] for name, column in self.columns.items()})


def read_rows(folder: Path, gpu: str, part: str, every: int) -> Rows:
    """Return the rows of each so-many-th problem, even and odd ones in turn."""
    with gzip.open(folder / f"{gpu}_{part}.csv.gz", "rt", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    columns: dict[str, Any] = {name: np.array([int(row[name]) for row in rows]) for name in (*_NUMBERS, "problem")}
    columns["seconds"] = np.array([float(row["seconds"]) for row in rows])
    columns["type"] = np.array([_TYPES[row["dtype"], row["allow_tf32"]] for row in rows])
    turn, place = np.divmod(columns["problem"], every)
    return Rows(gpu, part, columns).take(place == turn % 2 % every)


def features(rows: Rows, names: Iterable[str]) -> dict[str, NDArray[np.float64]]:
    """Return feature values, shape ``(n,)``; nan where perflex says that the GPU cannot run the configuration."""
    names, machine = tuple(names), MACHINES[rows.gpu]
    found = np.full((len(names), len(rows)), np.nan)
    for number in range(len(rows)):
        try:
            values = kernel_feature_values(names, Product(rows, number), {}, machine=machine)
        except MachineError:
            continue
        found[:, number] = [values[name] for name in names]
    return dict(zip(names, found, strict=True))


class Product(ProductKernel):
    """One row as a kernel."""

    def __init__(self, rows: Rows, number: int) -> None:
        self.row: dict[str, Any] = {name: rows[name][number].item() for name in (*_NUMBERS, "type")}
        m, n, k, *tile, stages, warps, a0, a1, b0, b1, kind = self.row.values()
        element = {"fp16": "f16", "fp32": "f32"}.get(kind, kind)
        super().__init__(Matrices(m, n, k, element, (a0, a1), (b0, b1)), (tile[0], tile[1], tile[2]), warps, stages)
        self.group = f"{rows.gpu} {rows.part} {rows['problem'][number]}"
        self.label = f"{self.group} {number}"
