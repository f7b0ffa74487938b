"""Do intervals and promises of a general calibration hold, on kernels that it never saw? And its cheap refits.

    python tests/bench/any_kernel.py record --device DEVICE --label NAME --half develop --out times.jsonl
    perflex calibrate general --device DEVICE -o general.yaml
    python tests/bench/general_coverage.py intervals general.yaml times.jsonl
    python tests/bench/general_coverage.py promise general.yaml times.jsonl --families odd
    python tests/bench/general_coverage.py refits general.yaml --out refits.json --seconds 90

Nothing is timed. About a minute each, most of it counting, which ``PERFLEX_STORE`` keeps.

``intervals``: the share of the cases of `any_kernel.py` (a variant at a size) whose recorded time lies within their
intervals of 50, 80 and 95 %, and how wide these are: the factor between the prediction and a limit, the median.

``promise``: each family at each size is pruned with a promise that rests on the calibration alone. In which share of
them a variant within the stated loss of the fastest is kept, and how many variants that are. Beside it the fewest k
such that keeping the k predicted fastest of each would have held as often (which needs the times that are judged by),
and keeping all, which always holds. The three sizes of a family are no independent trials. ``--families even`` or
``odd`` are every other family by name: what is decided by one half can be judged by the other.

``refits``: intervals and promises rest on predictions of generators that were left out, from refits by a few cheap
steps (`perflex.fit.nearby`). They are compared with refits by `fit_model`, which take seconds each: the share of
kernels whose predictions differ by more than 5 %, and the quantiles of the errors by both. A run goes on where the file
ends.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from any_kernel_parts.cases import Case, kernel_of, sizes_of, times_of_half
from any_kernel_parts.families import HALVES

from perflex import Calibration, PerflexWarning, Promise
from perflex.calibration.held_out import refits_by_generator, relative_errors
from perflex.calibration.interval import interval_at
from perflex.search.pruning.unmeasured import keep_unmeasured
from perflex.search.spaces.candidates import candidates_of, columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

CONFIDENCES = (0.5, 0.8, 0.9, 0.95)
INTERVALS = (0.5, 0.8, 0.95)
# Predictions by both refits that differ by more are counted.
DIFFERENT = 0.05


def groups(
    calibration: Calibration, path: Path, half: str, which: str
) -> Iterator[tuple[str, Mapping[str, np.ndarray], np.ndarray, np.ndarray]]:
    """Yield each family and size: name, feature values, predicted and measured seconds of its variants."""
    _, times = times_of_half(path, half)
    names = sorted({case.family for case in times})
    chosen = {"all": names, "even": names[::2], "odd": names[1::2]}[which]
    for family, size in sorted({(case.family, case.size) for case in times if case.family in chosen}):
        cases = [case for case in times if (case.family, case.size) == (family, size)]
        found = candidates_of({case.variant: kernel_of(case) for case in cases}, calibration, sizes_of(cases[0]))
        columns = columns_of(found, calibration.model.input_features())
        predicted = np.broadcast_to(calibration.model.evaluate(calibration.params, columns), (len(found),))
        measured = np.array([times[Case(family, variant, size)] for variant in found.names])
        yield family, columns, predicted, measured


def intervals(arguments: argparse.Namespace) -> None:
    """Print the coverage of prediction intervals, for all and by family."""
    calibration = Calibration.load(arguments.calibration)
    rows: dict[str, list[np.ndarray]] = {}
    for family, columns, _, measured in groups(calibration, arguments.times, arguments.half, arguments.families):
        found = [interval_at(calibration, columns, level) for level in INTERVALS]
        held = [(one.low <= measured) & (measured <= one.high) for one in found]
        widths = [np.log(np.asarray(one.high) / np.asarray(one.low)) / 2 for one in found]
        rows.setdefault(family, []).append(np.array([*held, *widths], dtype=float))
    heads = [f"in {100 * level:g} %" for level in INTERVALS] + [f"width {100 * level:g} %" for level in INTERVALS]
    print(f"| family | cases | {' | '.join(heads)} |\n|" + " --- |" * (2 + len(heads)))
    every = np.concatenate([part for parts in rows.values() for part in parts], axis=1)
    for name, part in [("all", every), *((name, np.concatenate(parts, axis=1)) for name, parts in rows.items())]:
        count = len(INTERVALS)
        shares = [f"{100 * value:.1f}" for value in part[:count].mean(axis=1)]
        widths = [f"{math.exp(value):.2f}" for value in np.median(part[count:], axis=1)]
        print(f"| {name} | {part.shape[1]} | {' | '.join([*shares, *widths])} |")


def promise(arguments: argparse.Namespace) -> None:
    """Print how often promises hold, what they keep, and what simpler choices would."""
    calibration = Calibration.load(arguments.calibration)
    found = list(groups(calibration, arguments.times, arguments.half, arguments.families))
    near = 1 + arguments.loss
    # By how many of the predicted fastest each is held.
    needed = np.array([1 + int(np.argmax(t[np.argsort(p, kind="stable")] <= near * t.min())) for _, _, p, t in found])
    sizes = np.array([len(t) for _, _, _, t in found])
    print(f"{len(found)} families and sizes, {len({name for name, *_ in found})} families, {sizes.sum()} cases")
    print(
        "| confidence | held | kept: mean, worst | predicted best k that held as often | its share |\n|" + " --- |" * 5
    )
    for confidence in CONFIDENCES:
        wanted = Promise(arguments.loss, confidence)
        decisions = [keep_unmeasured(predicted, calibration, wanted) for _, _, predicted, _ in found]
        held = np.mean([t[d.kept].min() <= near * t.min() for d, (*_, t) in zip(decisions, found, strict=True)])
        kept = np.array([len(decision.kept) for decision in decisions]) / sizes
        fixed = next(k for k in range(1, sizes.max() + 1) if np.mean(needed <= k) >= held)
        share = np.mean(np.minimum(fixed, sizes) / sizes)
        print(
            f"| {100 * confidence:g} % | {100 * held:.1f} % | {100 * kept.mean():.0f}, {100 * kept.max():.0f} % "
            f"| {fixed} | {100 * share:.0f} % |"
        )
    shares = [f"{k}: {100 * np.mean(needed <= k):.0f} %" for k in range(1, sizes.max() + 1)]
    print("the k predicted fastest hold " + ", ".join(shares))


def refits(arguments: argparse.Namespace) -> None:
    """Compare predictions of left-out generators by cheap and by full refits."""
    calibration = Calibration.load(arguments.calibration)
    fit, table, begun = calibration.fit, calibration.table, time.perf_counter()
    assert table is not None
    known = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    cheap = calibration.left_out_kernels
    spent = time.perf_counter() - begun
    assert cheap is not None
    names = list(dict.fromkeys(cheap.owners.tolist()))
    options = {"nonnegative": bool(fit.nonnegative), "start": fit, "loss": fit.loss, "bounds": fit.bounds}
    for name in names:
        if name in known or time.perf_counter() - begun > arguments.seconds:
            continue
        own = cheap.owners == name
        # Two owners are enough: what is left out, and the rest.
        both = replace(table, groups=tuple(name if mine else "rest" for mine in own.tolist()))
        found = next(one for one in refits_by_generator(calibration.model, both, **options) if one.generator == name)
        errors = None if found.fit is None else relative_errors(calibration.model, found.fit, found.own)
        known[name] = {"errors": errors, "reason": found.reason}
        arguments.out.write_text(json.dumps(known))
    compared = [name for name in names if name in known and known[name]["errors"] is not None]
    for name in names:
        if name in known and name not in compared:
            print(f"{name} has no full refit: {known[name]['reason']}")
    print(f"{len(names) - len(known)} of {len(names)} generators are left for another run; cheap refits: {spent:.1f} s")
    if not compared:
        return
    full = np.concatenate([-np.log1p(known[name]["errors"]) for name in compared])
    near = np.concatenate([cheap.errors[cheap.owners == name] for name in compared])
    tells = np.concatenate([cheap.known[cheap.owners == name] for name in compared])
    for what, rows in (("all kernels", np.isfinite(near)), ("those that intervals and promises rest on", tells)):
        off = np.abs(near - full)[rows]
        print(f"{what}: {rows.sum()}, of {len(compared)} generators")
        print(f"  predictions more than {100 * DIFFERENT:g} % apart: {100 * np.mean(off > np.log1p(DIFFERENT)):.1f} %")
        for title, errors in (("cheap", near), ("full", full)):
            quantiles = np.exp(np.quantile(np.abs(errors[rows]), (0.5, 0.8, 0.95)))
            print(
                f"  factors of 50, 80, 95 % of the kernels, {title} refits: " + ", ".join(f"{q:.2f}" for q in quantiles)
            )


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    for name, function in (("intervals", intervals), ("promise", promise), ("refits", refits)):
        command = commands.add_parser(name)
        command.add_argument("calibration", type=Path)
        command.set_defaults(run=function)
        if name == "refits":
            command.add_argument("--out", type=Path, required=True)
            command.add_argument("--seconds", type=float, default=math.inf, help="no refit is begun after them")
            continue
        command.add_argument("times", type=Path, help="recorded by any_kernel.py")
        command.add_argument("--half", choices=HALVES, default="develop")
        command.add_argument("--families", choices=("all", "even", "odd"), default="all")
        command.add_argument("--loss", type=float, default=0.05)
    arguments = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        arguments.run(arguments)


if __name__ == "__main__":
    main()
