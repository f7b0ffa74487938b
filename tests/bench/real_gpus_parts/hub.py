"""Tuning spaces of a convolution and of a point-in-polygon test (the hub data set), launched back to back.

Kernels are read from their published sources: a folder ``kernel_sources`` beside the data. Times of the same kernels on
further GPUs come from a folder ``gpu_tuning`` there, if there is one.
"""

from __future__ import annotations

import csv
import gzip
from typing import TYPE_CHECKING

import numpy as np

from perflex import source_kernel
from perflex.errors import FileFormatError

from .rows import MeasuredRow

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from perflex.features.from_source.source import SourceKernel

    # Seconds by GPU and settings.
    _Times = dict[str, dict[tuple[int, ...], float]]

# Files of the tuning data. Machine files of the other GPUs there state no rates of integers.
_WIDE = {"A100": "A100 40GB", "A4000": "RTX A4000"}
_POINTS_ELSEWHERE = {"RTX_2080_Ti": "RTX 2080 Ti"}
_CONVOLUTION = ("block_x", "block_y", "tile_x", "tile_y", "read_only", "use_padding")
_CONVOLUTION_THERE = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding")
_PNPOLY = ("block_x", "tile_size", "between_method", "use_method")
_PNPOLY_THERE = ("block_size_x", "tile_size", "between_method", "use_method")
_IMAGE = 4096
_POINTS = 20_000_000
_WAVEFRONT = {"MI50": 64}


def convolution(sources: Path, settings: Sequence[int]) -> SourceKernel:
    """Return a convolution as it ran: with a square filter of 15 in constant memory, by tiles in local memory."""
    defines = dict(zip(_CONVOLUTION_THERE, settings, strict=True))
    defines |= {"filter_width": 15, "filter_height": 15, "use_shmem": 1, "use_cmem": 1}
    block, tile = settings[:2], settings[2:4]
    groups = [-(-_IMAGE // (items * outputs)) for items, outputs in zip(block, tile, strict=True)]
    path = sources / "kernels" / "convolution_milo.cu"
    return source_kernel(path, "convolution_kernel", local=block, groups=groups, defines=defines)


def pnpoly(sources: Path, settings: Sequence[int]) -> SourceKernel:
    """Return a point-in-polygon test as it ran: which of 20 million points lie in a polygon of 600 vertices."""
    groups = [-(-_POINTS // (settings[0] * settings[1]))]
    path = sources / "currently_unused" / "kernels" / "pnpoly.cu"
    defines = dict(zip(_PNPOLY_THERE, settings, strict=True))
    return source_kernel(path, "cn_pnpoly", local=settings[:1], groups=groups, defines=defines)


def _lines(path: Path) -> list[dict[str, str]]:
    with gzip.open(path, "rt", newline="") as stream:
        return list(csv.DictReader(stream))


def _own(path: Path, names: Sequence[str]) -> _Times:
    found: _Times = {}
    for line in _lines(path):
        found.setdefault(line["device"], {})[_settings(line, names)] = float(line["time_median_s"])
    return found


def _tuning(folder: Path, gpus: Mapping[str, str], names: Sequence[str]) -> _Times:
    """Return times of further GPUs, if their files are there: of kernels that stage their input, if not all do."""
    found: _Times = {}
    for stem, gpu in gpus.items():
        path = folder / f"{stem}.csv.gz"
        for line in _lines(path) if path.is_file() else ():
            if line.get("use_shmem", "1") == "1":
                seconds = 1e-3 * float(line.get("time_ms_median", line["time_ms"]))
                found.setdefault(gpu, {})[_settings(line, names)] = seconds
    return found


def _settings(line: Mapping[str, str], names: Sequence[str]) -> tuple[int, ...]:
    return tuple(int(line[name]) for name in names)


def _drawn(times: _Times, most: int) -> list[tuple[int, ...]]:
    """Return configurations at random of those that all GPUs of a space ran; fewer are the first of more."""
    common = sorted(set.intersection(*(set(own) for own in times.values())))
    return [common[place] for place in np.random.default_rng(0).permutation(len(common))[:most]]


def _beside(folder: Path, name: str) -> Path:
    return next((one for up in folder.parents[:2] if (one := up / name).is_dir()), folder)


def times_of(folder: Path) -> dict[str, tuple[_Times, ...]]:
    further = _beside(folder, "gpu_tuning")
    wide = _own(folder / "convolution_milo_MI50.csv.gz", _CONVOLUTION)
    wide |= _tuning(further / "convolution_milo", _WIDE, _CONVOLUTION_THERE)
    points = _own(folder / "pnpoly.csv.gz", _PNPOLY) | _tuning(further / "pnpoly", _POINTS_ELSEWHERE, _PNPOLY_THERE)
    return {"convolution": (_own(folder / "convolution_bat.csv.gz", _CONVOLUTION), wide), "pnpoly": (points,)}


def rows(folder: Path, most: int) -> Iterator[MeasuredRow]:
    """Yield `most` configurations of each space, with the time of every GPU that ran them, in whichever space."""
    sources = _beside(folder, "kernel_sources") / "hub"
    if not sources.is_dir():
        msg = f"no folder kernel_sources/hub beside {folder}: it holds benchmark_hub of AutoTuningAssociation"
        raise FileFormatError(msg, path=sources)
    described = {"convolution": (convolution, _CONVOLUTION, {}), "pnpoly": (pnpoly, _PNPOLY, {"n": _POINTS})}
    for program, spaces in times_of(folder).items():
        describe, names, sizes = described[program]
        for settings in dict.fromkeys(one for space in spaces for one in _drawn(space, most)):
            kernel = describe(sources, settings)
            shown = " ".join(f"{name}={value}" for name, value in zip(names, settings, strict=True))
            for gpu, known in (item for space in spaces for item in space.items()):
                if settings in known:
                    yield MeasuredRow(
                        data=f"hub_{program}",
                        gpu=gpu,
                        machine=gpu.replace(" ", "-"),
                        program=program,
                        case=program,
                        label=f"{program} {shown}",
                        launches=((kernel, sizes, 1),),
                        sub_group_size=_WAVEFRONT.get(gpu, 32),
                        seconds=known[settings],
                        timed="events",
                    )
