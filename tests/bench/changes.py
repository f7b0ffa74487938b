"""Predicted changes of a kernel: ``python tests/bench/changes.py [--only TEXT] [--confidence 0.9]``.

Of each measured space of `choices_parts` variants are drawn, and beside each some that differ in one tunable. Of pairs
of both kinds (*steps*; *any* two that were drawn) the share of measured ratios within the interval that `change_of`
gives, its median width (the factor of each limit), and beside it those of an interval whose ends the errors of two
independent kernels give. Last the median error of a ratio, exp|ln predicted / measured| less 1.
"""

from __future__ import annotations

import argparse
import pickle
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import combinations
from pathlib import Path

import numpy as np
from choices import SHARED, machine_for
from choices_parts.spaces import measured_spaces
from judging import table

from perflex import Calibration, PerflexWarning
from perflex.calibration.change import change_of
from perflex.calibration.interval import interval_at
from perflex.calibration.prediction import Prediction
from perflex.search.counted_variants import Work, extract_space
from perflex.search.variants import EnumeratedSpace

BESIDE = 3


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


def predicted(space, machine, count, cache):
    """Return seconds by number, predictions, steps, and pairs of any two."""
    settings, times = [space.settings(key) for key in space.seconds], np.array(list(space.seconds.values()))
    first, steps = drawn(settings, count)
    numbers = sorted({*first, *(other for _, other in steps)})
    calibration = Calibration.load("general_gpu")
    file = cache / f"{space.name}.pickle"
    if not file.exists():
        chosen = [settings[number] for number in numbers]
        every = EnumeratedSpace(space.program, space.build, len(chosen), chosen, Counter(), space.sizes)
        work = Work(space.build, tuple(calibration.model.input_features()), calibration.target(machine))
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
            space.program, space.sizes, known.predicted, (), "nothing", at, calibration, known
        )
    pairs = {"steps": steps, "any": list(combinations(first, 2))}
    return times, found, {kind: [p for p in own if {*p} <= {*found}] for kind, own in pairs.items()}


def rows_of(space, count, cache, confidence):
    times, found, pairs = predicted(space, machine_for(space.gpu, None), count, cache)
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
        shown = (
            f"{100 * inside.mean():.0f}", f"{np.exp(np.median(width)):.2f}", f"{100 * inside_apart.mean():.0f}",
            f"{np.exp(np.median(width_apart)):.2f}", f"{100 * np.expm1(np.median(error)):.0f}",
        )  # fmt: skip
        rows.append((space.name, kind, str(len(own)), *shown))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=SHARED)
    parser.add_argument("--only", default="", help="Only spaces whose names contain this.")
    parser.add_argument("--variants", type=int, default=40)
    parser.add_argument("--confidence", type=float, default=0.9)
    parser.add_argument("--cache", type=Path, default=Path("changes"), help="folder of what was counted")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    given.cache.mkdir(exist_ok=True)
    named = (each for each in measured_spaces(given.data) if given.only in each.name)
    spaces = [each for each in named if machine_for(each.gpu, None) is not None]
    work = partial(rows_of, count=given.variants, cache=given.cache, confidence=given.confidence)
    with ProcessPoolExecutor(given.jobs) as pool:
        found = [row for rows in pool.map(work, spaces) for row in rows]
    heads = ("inside, %", "limits, x", "independent: inside, %", "limits, x", "error of a ratio, %")
    print(table(("space", "pairs", "number", *heads), found))


if __name__ == "__main__":
    main()
