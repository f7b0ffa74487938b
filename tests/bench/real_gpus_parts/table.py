"""One data set with its counts, as arrays, and which rows belong together."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from perflex import FeatureTable
from perflex.studies.baselines import Peaks, Work

from .reading import place_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex import Machine, Model

    from .counting import Counted
    from .row import MeasuredRow

    Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DataSet:
    """Rows of one data set whose features are known.

    Attributes
    ----------
    name
        Of the data set.
    model
        Whose features were counted.
    machines
        By the name that rows give them.
    rows
        What was measured.
    values
        Features, shape ``(rows, features)``.
    roofline
        Seconds at the peaks of the machine, shape ``(rows,)``; nan where bytes or operations cannot be counted.
    folder
        Where machine files lie beside perflex's own; None for nowhere.
    references
        Seconds of all rows that were read, short ones too, by GPU and label: what the one-factor baseline scales.
    programs_alike
        Whether each program counts as much as any other in fits, however many rows it has.
    """

    name: str
    model: Model
    machines: Mapping[str, Machine]
    rows: tuple[MeasuredRow, ...]
    values: Array
    roofline: Array
    references: Mapping[str, Mapping[str, float]]
    folder: Path | None = None
    programs_alike: bool = False

    @cached_property
    def seconds(self) -> Array:
        """Measured times, shape ``(rows,)``."""
        return np.array([row.seconds for row in self.rows])

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """All GPUs, as they appear."""
        return tuple(dict.fromkeys(row.gpu for row in self.rows))

    def of(self, gpu: str, programs: Sequence[str] = ()) -> tuple[int, ...]:
        """Return the row numbers of a GPU, of all programs or some."""
        return tuple(
            i for i, row in enumerate(self.rows) if row.gpu == gpu and (not programs or row.program in programs)
        )

    def machine(self, gpu: str) -> Machine:
        """Return the machine of a GPU."""
        return self.machines[next(row.machine for row in self.rows if row.gpu == gpu)]

    def table(self, chosen: Sequence[int], *, output: bool = True) -> FeatureTable:
        """Return rows of one GPU as a feature table, with the measured times or without."""
        rows = [self.rows[i] for i in chosen]
        names, values = tuple(self.model.input_features()), self.values[list(chosen)]
        if output:
            names = (self.model.output_feature, *names)
            values = np.column_stack([self.seconds[list(chosen)], values])
        return FeatureTable(
            self.model.output_feature if output else None,
            names,
            tuple(row.label for row in rows),
            values,
            groups=tuple(row.program for row in rows),
            sub_group_size=rows[0].sub_group_size if rows else 32,
            device=rows[0].gpu if rows else "",
            machine=str(place_of(rows[0].machine, self.folder)) if rows else "",
        )

    def nearest_first(self, gpu: str) -> list[str]:
        """Return the other GPUs, that with the most similar peaks first.

        The distance of two is the sum of what the logarithms of their DRAM bandwidths and of their single-precision
        peaks differ by.
        """
        own = self.machine(gpu)

        def distance(other: str) -> float:
            there = peaks_of(self.machine(other))
            here = peaks_of(own)
            return abs(math.log(there.bytes_per_s / here.bytes_per_s)) + abs(
                math.log(there.operations_per_s / here.operations_per_s)
            )

        # By name where two are equally near.
        return sorted((other for other in self.gpus if other != gpu), key=lambda other: (distance(other), other))


def peaks_of(machine: Machine) -> Peaks:
    """Return the peaks of a machine's file: single-precision multiply-adds, and bytes from memory, per second.

    Raises
    ------
    MachineError
        The file does not state one of the facts.
    """
    need = machine.need
    return Peaks(
        operations_per_s=need("compute_units") * need("fp32_per_cycle") * need("clock_hz"),
        bytes_per_s=need("dram_bandwidth"),
    )


def roofline_of(machine: Machine, work: Sequence[tuple[float, float, int]] | None) -> float:
    """Return the seconds of a row's launches at the machine's peaks; nan where their work is not known, or nothing."""
    if work is None or any(not (operations > 0 or moved > 0) for operations, moved, _ in work):
        return math.nan
    peaks = peaks_of(machine)
    return sum(times * peaks.roofline(Work(0.0, operations), moved) for operations, moved, times in work)


def data_sets(
    rows: Sequence[MeasuredRow],
    short: Sequence[MeasuredRow],
    counted: Counted,
    model: Model,
    machines: Mapping[str, Machine],
    folder: Path | None = None,
) -> list[DataSet]:
    """Return the data sets among rows, without those rows that were refused.

    Parameters
    ----------
    rows
        Those that were counted.
    short
        Rows that are too short to judge by, but whose times other GPUs may be compared with.
    counted
        What was counted of `rows`.
    model
        Whose features those are.
    machines, folder
        Machines by the name that rows give them, and the folder of those that do not come with perflex.
    """
    found = []
    for name in dict.fromkeys(row.data for row in rows):
        own = [i for i, row in enumerate(rows) if row.data == name and counted.values[i] is not None]
        if not own:
            continue
        references: dict[str, dict[str, float]] = {}
        for row in (*short, *rows):
            if row.data == name:
                references.setdefault(row.gpu, {})[row.label] = row.seconds
        found.append(
            DataSet(
                name,
                model,
                machines,
                tuple(rows[i] for i in own),
                np.array([counted.values[i] for i in own], dtype=np.float64),
                np.array([roofline_of(machines[rows[i].machine], counted.work[i]) for i in own]),
                references,
                folder,
            )
        )
    return found


def joined(sets: Sequence[DataSet]) -> DataSet:
    """Return the rows of several data sets as one, with the first one's name; those of the first one come first.

    Parameters
    ----------
    sets
        At least one, all of one model.
    """
    first = sets[0]
    references: dict[str, dict[str, float]] = {}
    machines: dict[str, Machine] = {}
    for data in sets:
        machines |= data.machines
        for gpu, known in data.references.items():
            references.setdefault(gpu, {}).update(known)
    return DataSet(
        first.name,
        first.model,
        machines,
        tuple(row for data in sets for row in data.rows),
        np.concatenate([data.values for data in sets]),
        np.concatenate([data.roofline for data in sets]),
        references,
        first.folder,
        first.programs_alike,
    )
