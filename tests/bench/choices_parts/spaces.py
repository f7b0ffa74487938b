"""Measured tuning spaces whose kernels are published: settings, times, and how kernels are built."""

from __future__ import annotations

import csv
import gzip
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from perflex import load_space, source_kernel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

_GEMM = ("MWG", "NWG", "MDIMC", "NDIMC", "MDIMA", "NDIMB", "VWM", "VWN", "SA", "SB")
_GEMM_FIXED = {"KWG": 32, "KWI": 2, "STRM": 0, "STRN": 0, "PRECISION": 32}
_CONVOLUTION = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_CONVOLUTION_FIXED = {"filter_width": 15, "filter_height": 15, "use_shmem": 1, "use_cmem": 1}
_PNPOLY = ("block_size_x", "tile_size", "between_method", "use_method")
_COULOMB = ("work_group_size_x", "work_group_size_y", "z_iterations", "inner_unroll_factor", "use_soa")
_IMAGE, _POINTS = 4096, 20_000_000
# Atoms of the direct Coulomb summation: stated for the RTX 2080 Ti, and what fits the GTX 1070.
_ATOMS = {"rtx2080ti": 64}


@dataclass(frozen=True)
class MeasuredSpace:
    """A space on one GPU: seconds by settings, and what makes a kernel of settings."""

    program: str
    gpu: str  # as the data call it
    names: tuple[str, ...]
    seconds: Mapping[Any, float]
    build: Callable[..., Any]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.program} {self.gpu.replace('_', ' ')}"

    def settings(self, key: Any) -> dict[str, Any]:
        return dict(zip(self.names, key, strict=True))


def _rows(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


def _by_column(path: Path, names: tuple[str, ...], ending: str, scale: float) -> Iterator[tuple[str, dict[Any, float]]]:
    """Yield times of a table with a column for each GPU; settings that failed have none."""
    rows = _rows(path)
    known = {name.lower(): name for name in rows[0]}
    for column in rows[0]:
        if column.endswith(ending):
            found = {
                tuple(int(row[known[name.lower()]]) for name in names): scale * float(row[column])
                for row in rows
                if row[column]
            }
            yield column.removesuffix(ending), found


def _by_device(path: Path, names: tuple[str, ...]) -> Iterator[tuple[str, dict[Any, float]]]:
    """Yield times of a table with a row for each GPU and settings, whose columns leave out "size"."""
    found: dict[str, dict[Any, float]] = {}
    for row in _rows(path):
        settings = tuple(int(row[name if name in row else name.replace("_size_", "_")]) for name in names)
        found.setdefault(row["device"], {})[settings] = float(row["time_median_s"])
    yield from found.items()


def _alone(path: Path, names: tuple[str, ...], column: str, scale: float) -> dict[Any, float]:
    rows = (row for row in _rows(path) if row.get("use_shmem", "1") == "1")
    return {tuple(int(row[name]) for name in names): scale * float(row.get(column) or row["time_ms"]) for row in rows}


@lru_cache(maxsize=1)
def _gemm_space(sources: Path) -> Any:
    """Return the space of the script, which takes seconds to enumerate it."""
    return load_space(f"{sources}/hub/currently_unused/kernels/gemm.py any")


def gemm(sources: Path, **settings: int) -> Any:
    space = _gemm_space(sources)
    every = {**_GEMM_FIXED, **settings}
    return space.build(**{name: every[name] for name in space.values})


def convolution(source: Path, **settings: int) -> Any:
    block = settings["block_size_x"], settings["block_size_y"]
    tile = settings["tile_size_x"], settings["tile_size_y"]
    groups = [-(-_IMAGE // (items * outputs)) for items, outputs in zip(block, tile, strict=True)]
    defines = {**_CONVOLUTION_FIXED, **settings}
    return source_kernel(source, "convolution_kernel", local=block, groups=groups, defines=defines)


def pnpoly(source: Path, **settings: int) -> Any:
    groups = [-(-_POINTS // (settings["block_size_x"] * settings["tile_size"]))]
    return source_kernel(source, "cn_pnpoly", local=[settings["block_size_x"]], groups=groups, defines=settings)


def coulomb(source: Path, **settings: int) -> Any:
    block = settings["work_group_size_x"], settings["work_group_size_y"]
    groups = [256 // block[0], 256 // block[1], 256 // settings["z_iterations"]]
    fixed = {"VECTOR_SIZE": 1, "WORK_GROUP_SIZE_Z": 1, "USE_CONSTANT_MEMORY": 0}
    defines = {name.upper(): value for name, value in settings.items()} | fixed
    return source_kernel(source, "directCoulombSum", local=block, groups=groups, defines=defines)


def measured_spaces(data: Path) -> Iterator[MeasuredSpace]:
    """Yield the spaces of a folder with data and sources, as many as are there."""
    sources, hub = data / "kernel_sources", data / "kernel_sources" / "hub"
    gemm_sizes = {"kSizeM": 4096, "kSizeN": 4096, "kSizeK": 4096}
    images = partial(convolution, hub / "kernels" / "convolution_milo.cu")
    bat = partial(convolution, hub / "currently_unused" / "kernels" / "convolution.cu")
    points = partial(pnpoly, hub / "currently_unused" / "kernels" / "pnpoly.cu")
    for path in sorted(data.glob("gpu_tuning/*/*.csv.gz")):
        gpu, what = path.name.split(".")[0], path.parent.name
        if what == "gemm":
            times = _alone(path, _GEMM, "time_ms_median", 1e-3)
            yield MeasuredSpace("gemm", gpu, _GEMM, times, partial(gemm, sources), gemm_sizes)
        elif what == "convolution_milo":
            times = _alone(path, _CONVOLUTION, "time_ms_median", 1e-3)
            yield MeasuredSpace("convolution", gpu, _CONVOLUTION, times, images)
        elif what == "pnpoly":
            times = _alone(path, _PNPOLY, "time_ms_median", 1e-3)
            yield MeasuredSpace("pnpoly", gpu, _PNPOLY, times, points, {"n": _POINTS})
    for path in sorted(data.glob("gpu_kernels/hub/*.csv.gz")):
        program, names, build, sizes = {
            "convolution_bat": ("convolution (BAT)", _CONVOLUTION, bat, {}),
            "convolution_milo_MI50": ("convolution", _CONVOLUTION, images, {}),
            "pnpoly": ("pnpoly", _PNPOLY, points, {"n": _POINTS}),
        }[path.name.split(".")[0]]
        for gpu, times in _by_device(path, names):
            yield MeasuredSpace(program, gpu, names, times, build, sizes)
    for path in sorted(data.glob("new_times/kernel_tuner_2021/*.csv.gz")):
        what = path.name.split(".")[0]
        names, build, sizes = {
            "gemm": (_GEMM, partial(gemm, sources), gemm_sizes),
            "convolution": (_CONVOLUTION, bat, {}),
        }[what]
        for gpu, times in _by_column(path, names, "_ms", 1e-3):
            yield MeasuredSpace(f"{what} (2021)", gpu, names, times, build, sizes)
    for path in sorted(data.glob("new_times/ktt_coulomb3d/*.csv.gz")):
        gpu = path.name.split(".")[0]
        column = "time_min_s" if "time_min_s" in _rows(path)[0] else "time_s"
        source = sources / "ktt_coulomb3d" / "CoulombSum3d.cu"
        sizes = {"numberOfAtoms": _ATOMS.get(gpu, 256), "gridSize": 256}
        yield MeasuredSpace(
            "coulomb3d", gpu, _COULOMB, _alone(path, _COULOMB, column, 1.0), partial(coulomb, source), sizes
        )
