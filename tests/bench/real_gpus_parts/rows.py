"""Timed configurations of data sets: which there are, and which of them are worked with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from perflex.errors import FileFormatError, MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

FOLDERS = ("nvbench", "gpuperf", "sgemm_variants", "hub", "small_kernels", "hecbench_rtx3080")
CONFIGURATIONS = 200
"""So many are drawn of each tuning space: whole spaces have thousands, and each is a kernel of its own."""
LEAST_SECONDS = 20e-6
"""Shorter times are those of launching more than of the kernel."""


@dataclass(frozen=True)
class MeasuredRow:
    """What ran where, and how long it took.

    `program` is what is left out as a whole, and variants of one `case` (same result, same size) compete on a GPU. The
    `label` of a configuration (program, sizes, launch shape) is unique on a GPU and the same on others. `launches` are
    kernels (loopy kernel or Scop), their sizes, and how often each is launched; nearly always one, launched once.
    `seconds` is the time of all together, of which shorter ones than `least_seconds` are left out; `warm` says whether
    data may still lie in L2. What was timed: ``"gpu"`` the GPU's own duration, ``"queued"`` launches back to back,
    ``"graph"`` the same in a graph, ``"events"`` launches between two events, ``"host"`` launches that the host waits
    for, ``"code"`` launches with host code between them. The `note` is "repeat" for a row that repeats another one.
    `registers` are those of a work-item, where known. The host `waits` so often in the time, if not for each launch.
    """

    data: str
    gpu: str
    machine: str
    program: str
    case: str
    label: str
    launches: tuple[tuple[Any, Mapping[str, int], int], ...]
    seconds: float
    warm: bool = True
    timed: str = "queued"
    least_seconds: float = LEAST_SECONDS
    note: str = ""
    registers: int | None = None
    sub_group_size: int = 32
    waits: int | None = None


def read_rows(data: Path, sets: Sequence[str] = (), configurations: int = CONFIGURATIONS) -> list[MeasuredRow]:
    """Read folders of data, all that are there if none is named; of tuning spaces so many configurations each."""
    from . import gpuperf, hecbench_rows, hub, nvbench, streaming

    readers = {
        "nvbench": nvbench.rows,
        "gpuperf": gpuperf.rows,
        "sgemm_variants": gpuperf.rows_of_products,
        "hub": partial(hub.rows, most=configurations),
        "small_kernels": streaming.rows,
        "hecbench_rtx3080": hecbench_rows.rows,
    }
    names = list(sets) or [name for name in FOLDERS if (data / name).is_dir()]
    rows: list[MeasuredRow] = []
    for name in names:
        if name not in FOLDERS or not (data / name).is_dir():
            msg = f"{data} has no folder {name!r} of known data; there can be {', '.join(FOLDERS)}"
            raise FileFormatError(msg, path=data / name)
        rows += readers[name](data / name)
    if not rows:
        msg = f"{data} has none of the folders {', '.join(FOLDERS)}; give the folder that holds them (--data DIR)"
        raise FileFormatError(msg, path=data)
    return rows


def choose(rows: Sequence[MeasuredRow], gpus: Sequence[str] = ()) -> tuple[list[MeasuredRow], list[MeasuredRow]]:
    known = sorted({row.gpu for row in rows})
    for gpu in gpus:
        if gpu not in known:
            msg = f"the data have no times of the GPU {gpu!r}; they have {', '.join(known)}"
            raise MachineError(msg, machine=gpu)
    once = [row for row in rows if row.note != "repeat"]
    seen = Counter((row.data, row.gpu, row.label) for row in once)
    twice = [key for key, count in seen.items() if count > 1]
    if twice:
        msg = f"{len(twice)} labels stand for several rows of one GPU, as {'/'.join(twice[0])}; labels are unique"
        raise FileFormatError(msg, path=twice[0][0])
    long = [row for row in once if row.seconds >= row.least_seconds]
    return long, [row for row in once if row.seconds < row.least_seconds]
