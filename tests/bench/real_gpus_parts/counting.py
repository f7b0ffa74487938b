"""Features of rows, and what their rooflines take, counted by several processes; the store keeps what it can."""

from __future__ import annotations

import math
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import PerflexError, PerflexWarning, load_machine
from perflex.features import Target, parse_feature
from perflex.features.sized_kernel import SizedKernel
from perflex.features.values import count_rows
from perflex.studies.evaluation.baselines import Peaks, Work, distinct_bytes_of, work_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex import Machine
    from perflex.progress import Progress

    from .rows import MeasuredRow

    Array = NDArray[np.float64]


def count(
    rows: Sequence[MeasuredRow], features: Sequence[str], workers: int = 2, progress: Progress | None = None
) -> tuple[Array, Array]:
    """Return features, shape ``(rows, features)``, and seconds of a roofline, shape ``(rows,)``.

    Several launches of a row are added up. A row that cannot be described is nan; so is the roofline of one without
    bytes or operations that can be counted.
    """
    machines = {row.machine: load_machine(row.machine) for row in rows}
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, row in enumerate(rows):
        groups.setdefault((row.machine, row.sub_group_size, row.registers, row.warm), []).append(number)
    values, seconds = np.zeros((len(rows), len(features))), np.zeros(len(rows))
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        for (name, size, registers, warm), own in groups.items():
            parsed, caches = [parse_feature(each) for each in features], "warm" if warm else "cold"
            launches = [(number, *launch) for number in own for launch in rows[number].launches]
            kernels = [SizedKernel(kernel, sizes, rows[n].label, rows[n].program) for n, kernel, sizes, _ in launches]
            target = Target(size, machines[name], registers, caches=caches)
            counted = count_rows(parsed, kernels, target, pool, progress)
            for (number, _, _, times), one in zip(launches, counted, strict=True):
                values[number] += math.nan if one.refusal else times * np.array(one.values)
        work = _work(rows, pool)
    for number, row in enumerate(rows):
        peaks = peaks_of(machines[row.machine])
        seconds[number] = sum(
            times * _roofline(peaks, *work[id(kernel), tuple(sizes.items())]) for kernel, sizes, times in row.launches
        )
    return values, seconds


def _work(rows: Iterable[MeasuredRow], pool: ProcessPoolExecutor) -> dict[tuple[int, Any], tuple[float, float]]:
    """Return operations and distinct bytes by kernel and sizes: the same on all GPUs."""
    kernels: dict[int, tuple[Any, dict[Any, Mapping[str, int]]]] = {}
    for row in rows:
        for kernel, sizes, _ in row.launches:
            kernels.setdefault(id(kernel), (kernel, {}))[1][tuple(sizes.items())] = sizes
    parts = [(kernel, list(every.values())) for kernel, every in kernels.values()]
    keys = [[(key, sizes) for sizes in every] for key, (_, every) in kernels.items()]
    found = pool.map(_work_of, *zip(*parts, strict=True))
    return {key: one for keys_of, ones in zip(keys, found, strict=True) for key, one in zip(keys_of, ones, strict=True)}


def _work_of(kernel: Any, every: Sequence[Mapping[str, int]]) -> list[tuple[float, float]]:
    found = []
    for sizes in every:
        try:
            found.append((work_of(kernel, sizes).operations, distinct_bytes_of(kernel, sizes)))
        except PerflexError:
            found.append((math.nan, math.nan))
    return found


def _roofline(peaks: Peaks, operations: float, moved: float) -> float:
    known = operations >= 0 and moved >= 0 and operations + moved > 0
    return peaks.roofline(Work(0.0, operations), moved) if known else math.nan


def peaks_of(machine: Machine) -> Peaks:
    """Return the peaks of a machine's file: single-precision multiply-adds, and bytes from memory, per second."""
    need = machine.need
    return Peaks(
        operations_per_s=need("compute_units") * need("fp32_per_cycle") * need("clock_hz"),
        bytes_per_s=need("dram_bandwidth"),
    )
