"""Rows of the data sets, and the machines that they were measured on."""

from __future__ import annotations

import zlib
from collections import Counter
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from perflex import load_machine
from perflex.errors import FileFormatError, MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from perflex import Machine

    from .row import MeasuredRow

FOLDERS = {
    "nvbench": "nvbench",
    "gpuperf": "gpuperf",
    "sgemm_variants": "sgemm",
    "neusight": "neusight",
    "hub": "hub",
    "simulated_gpu": "simulated",
}
"""Folders of data, and the module that reads each."""

_SPACES = ("hub",)
CONFIGURATIONS = 200
"""So many are drawn of each tuning space: whole spaces have thousands, and each is a kernel of its own."""

LEAST_SECONDS = 20e-6
"""Shorter times are those of launching more than of the kernel; a simulator's are exact, however short."""
EXACT = ("simulated",)


@dataclass(frozen=True)
class Chosen:
    """The rows to work with, and what was left out of the data.

    Attributes
    ----------
    rows
        Measured in at least `LEAST_SECONDS`, each label once per GPU.
    short
        Shorter ones: no method is fitted to or judged by them.
    repeats
        How many rows repeat another one of the same GPU.
    thinned
        How many are left out because their program has too many.
    """

    rows: tuple[MeasuredRow, ...]
    short: tuple[MeasuredRow, ...]
    repeats: int
    thinned: int = 0


def read_rows(data: Path, sets: Sequence[str] = (), configurations: int = CONFIGURATIONS) -> list[MeasuredRow]:
    """Read the folders of data that are there.

    Parameters
    ----------
    data
        The folder that holds them.
    sets
        Names of some; all that are there if empty.
    configurations
        To draw of each tuning space.

    Raises
    ------
    FileFormatError
        A folder is not there, is none of `FOLDERS`, or there is none at all.
    """
    names = list(sets) or [name for name in FOLDERS if (data / name).is_dir()]
    rows: list[MeasuredRow] = []
    for name in names:
        if name not in FOLDERS or not (data / name).is_dir():
            msg = f"{data} has no folder {name!r} of known data; there can be {', '.join(FOLDERS)}"
            raise FileFormatError(msg, path=data / name)
        reader: Any = import_module(f".{FOLDERS[name]}", __package__)
        rows += reader.rows(data / name, *((configurations,) if name in _SPACES else ()))
    if not rows:
        msg = f"{data} has none of the folders {', '.join(FOLDERS)}; give the folder that holds them (--data DIR)"
        raise FileFormatError(msg, path=data)
    return rows


def choose(rows: Sequence[MeasuredRow], gpus: Sequence[str] = (), most: int = 0) -> Chosen:
    """Take the rows that are long enough, once each.

    Parameters
    ----------
    rows
        All rows.
    gpus
        GPUs that are to be judged; that each is in the data is checked here, and the others stay in as sources.
    most
        So many rows of each program and GPU are kept, of the same labels on all GPUs; 0 for all.

    Raises
    ------
    MachineError
        The data have no such GPU.
    FileFormatError
        Two rows of a GPU have one label and neither is marked as a repeat.
    """
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
    kept = _thinned(once, most) if most else once
    long = tuple(row for row in kept if row.seconds >= LEAST_SECONDS or row.data in EXACT)
    short = tuple(row for row in kept if row.seconds < LEAST_SECONDS and row.data not in EXACT)
    return Chosen(long, short, len(rows) - len(once), len(once) - len(kept))


def _thinned(rows: Sequence[MeasuredRow], most: int) -> list[MeasuredRow]:
    """Return at most so many rows of each program and GPU: those whose labels have the lowest checksums."""
    groups: dict[tuple[str, str, str], list[MeasuredRow]] = {}
    for row in rows:
        groups.setdefault((row.data, row.gpu, row.program), []).append(row)
    # By label, so that GPUs keep the same configurations; in the order of the data.
    last = {key: sorted(map(_checksum, own))[:most][-1] for key, own in groups.items()}
    return [row for row in rows if _checksum(row) <= last[row.data, row.gpu, row.program]]


def _checksum(row: MeasuredRow) -> int:
    return zlib.crc32(row.label.encode())


def machines_of(rows: Sequence[MeasuredRow], folder: Path | None = None) -> dict[str, Machine]:
    """Return the machine of each row's GPU, by the name that rows give it.

    Parameters
    ----------
    rows
        What was measured.
    folder
        Where to look for ``NAME.yaml`` before the machines that come with perflex.

    Raises
    ------
    MachineError
        A machine has no file; the message says how to give one.
    """
    found: dict[str, Machine] = {}
    gpus: Mapping[str, str] = {row.machine: row.gpu for row in rows}
    for name, gpu in gpus.items():
        try:
            found[name] = load_machine(place_of(name, folder))
        except MachineError as error:
            msg = (
                f"there is no machine file {name}.yaml for the GPU {gpu!r}; write one with its facts, as in "
                "calib_data/machines, and give its folder: --machines DIR"
            )
            raise MachineError(msg, machine=name) from error
    return found


def place_of(name: str, folder: Path | None) -> str | Path:
    """Return the file of a machine in a folder; its name if it has none there."""
    path = None if folder is None else folder / f"{name}.yaml"
    return path if path is not None and path.is_file() else name
