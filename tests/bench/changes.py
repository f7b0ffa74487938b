"""Predicted changes of a kernel: ``python tests/bench/changes.py [--further] [--confidence 0.9]``.

Of each measured space of `gpu_spaces.py` variants are drawn, and beside each some that differ in one tunable. Of pairs
of both kinds (*steps*; *any* two that were drawn) the share of measured ratios within the interval that `change_of`
gives, its median width (the factor of each limit), and beside it those of an interval whose ends the errors of two
independent kernels give. Last the median error of a ratio, exp|ln predicted / measured| less 1.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import pickle
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from gpu_spaces import MACHINES, SOURCES, kernel_and_gpu, space_of, spaces
from judging import table

from perflex import Calibration, PerflexWarning, load_machine, load_space
from perflex.calibration.change import change_of
from perflex.calibration.interval import interval_at
from perflex.calibration.prediction import Prediction
from perflex.search.counted_variants import Work, extract_space
from perflex.search.variants import EnumeratedSpace

BESIDE = 3
# Measured spaces of other forms: the file, and by kernel and GPU the rows, and where the time in s or ms stands.
FURTHER = {
    ("convolution", "RTX_2080_Ti"): ("gpu_kernels/hub/convolution_bat.csv.gz", "RTX 2080 Ti", "time_median_s"),
    ("convolution", "RTX_3060_laptop"): ("gpu_kernels/hub/convolution_bat.csv.gz", "RTX 3060 Laptop", "time_median_s"),
    ("pnpoly", "RTX_3060_laptop"): ("gpu_kernels/hub/pnpoly.csv.gz", "RTX 3060 Laptop", "time_median_s"),
    ("gemm", "A100"): ("new_times/kernel_tuner_2021/gemm.csv.gz", "", "A100_ms"),
}
NAMES = {"block_x": "block_size_x", "block_y": "block_size_y", "tile_x": "tile_size_x", "tile_y": "tile_size_y"}


def further(data, folder):
    """Write the spaces of other forms as those of `gpu_spaces.py` are, and return their folder."""
    for (kernel, gpu), (file, device, column) in FURTHER.items():
        space = load_space(f"{data}/kernel_sources/hub/{SOURCES[kernel][0]}")
        with gzip.open(data / file, "rt") as stream:
            rows = [row for row in csv.DictReader(stream) if row.get("device", "") == device and row[column]]
        scale = 1e3 if column.endswith("_s") else 1.0
        (folder / kernel).mkdir(parents=True, exist_ok=True)
        with (folder / kernel / f"{gpu}.csv").open("w") as stream:
            own = {key: name for key in rows[0] if (name := NAMES.get(key, key)) in space.values}
            own |= {key: key.upper() for key in rows[0] if key.upper() in space.values}
            writer = csv.writer(stream)
            writer.writerow([*own.values(), "time_ms"])
            writer.writerows([*(row[key] for key in own), scale * float(row[column])] for row in rows)
    return folder


def drawn(settings, count):
    """Return numbers of settings, and the pairs that one tunable tells apart."""
    random = np.random.default_rng(0)
    rows = np.array([list(each.values()) for each in settings])
    first = random.choice(len(rows), min(count, len(rows)), replace=False).tolist()
    steps = []
    for number in first:
        near = np.flatnonzero((rows != rows[number]).sum(axis=1) == 1)
        steps += [(number, int(other)) for other in random.permutation(near)[:BESIDE]]
    return first, steps


def predicted(path, sources, count, cache):
    """Return seconds by number, predictions, steps, and pairs of any two."""
    kernel, gpu = kernel_and_gpu(path)
    space, settings, times = space_of(path, sources)
    # Without shared memory another source was measured, which is not public.
    kept = [i for i, each in enumerate(settings) if each.get("use_shmem", 1)]
    settings, times = [settings[i] for i in kept], times[kept]
    first, steps = drawn(settings, count)
    numbers = sorted({*first, *(other for _, other in steps)})
    calibration, sizes = Calibration.load("general_gpu"), {**space.sizes, **SOURCES[kernel][1]}
    target = calibration.target(load_machine(MACHINES[gpu]))
    file = cache / f"{kernel}.{gpu}.pickle"
    if not file.exists():
        chosen = [settings[number] for number in numbers]
        every = EnumeratedSpace(kernel, space.build, len(chosen), chosen, Counter(), sizes)
        work = Work(space.build, tuple(calibration.model.input_features()), target)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)
            variants = extract_space(every, work, None)
        file.write_bytes(pickle.dumps((variants.settings, variants.features, variants.values)))
    own, features, values = pickle.loads(file.read_bytes())
    number_of = {tuple(settings[number].values()): number for number in numbers}
    found = {}
    for each, row in zip(own, values, strict=True):
        at = dict(zip(features, row.tolist(), strict=True))
        known = interval_at(calibration, at)
        found[number_of[tuple(each.values())]] = Prediction(
            kernel, sizes, known.predicted, (), "nothing", at, calibration, known
        )
    pairs = {"steps": steps, "any": list(combinations(first, 2))}
    return times, found, {kind: [p for p in own if {*p} <= {*found}] for kind, own in pairs.items()}


def rows_of(path, sources, count, cache, confidence):
    times, found, pairs = predicted(path, sources, count, cache)
    rows = []
    for kind, own in pairs.items():
        cells = []
        for old, new in own:
            change = change_of(found[old], found[new], confidence)
            # Both ends of each kernel's own interval, as if their errors had nothing in common.
            apart = np.hypot(*(np.log(found[i].interval.high / found[i].seconds) for i in (old, new)))
            scale = found[new].calibration.transferred
            apart *= scale.half_width(confidence) / scale.half_width(0.95)
            error = abs(np.log(times[new] / times[old] / change.ratio))
            width = np.log(change.high / change.ratio)
            cells.append((error <= width, width, error <= apart, apart, error))
        inside, width, inside_apart, width_apart, error = np.array(cells, dtype=float).T
        name = " ".join(kernel_and_gpu(path)).replace("_", " ")
        shown = (
            f"{100 * inside.mean():.0f}", f"{np.exp(np.median(width)):.2f}", f"{100 * inside_apart.mean():.0f}",
            f"{np.exp(np.median(width_apart)):.2f}", f"{100 * np.expm1(np.median(error)):.0f}",
        )  # fmt: skip
        rows.append((name, kind, str(len(own)), *shown))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--further", action="store_true", help="spaces that the rule was not made with")
    parser.add_argument("--variants", type=int, default=40)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--cache", type=Path, default=Path("changes"), help="folder of what was counted")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    given.cache.mkdir(exist_ok=True)
    folder = further(given.data, given.cache / "further") if given.further else given.data / "gpu_tuning"
    sources = given.data / "kernel_sources" / "hub"
    work = partial(rows_of, sources=sources, count=given.variants, cache=given.cache, confidence=given.confidence)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = [row for rows in pool.map(work, spaces(folder)) for row in rows]
    heads = ("inside, %", "limits, x", "independent: inside, %", "limits, x", "error of a ratio, %")
    print(table(("space", "pairs", "number", *heads), found))


if __name__ == "__main__":
    main()
