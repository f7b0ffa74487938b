"""Configurations of Triton's matrix products on two GPUs, chosen and predicted: `general_tile` beside what costs less.

    python tests/bench/triton_configurations.py --data DIR [--sets hf,random] [--out FILE.json] [--every N]

DIR holds ``<GPU>_<set>.csv.gz``: a row for each problem and configuration. Set ``hf`` are layers of language models,
``random`` random shapes. Each method orders the configurations of each problem:

* ``other GPU``: calibrated with the problems of the other GPU's first set (300 at most), and carried over (`transfer`);
* ``usual values``: those of the model's file, with no calibration;
* ``20 problems``: those of the same set and GPU, drawn five times, judged on the others;
* baselines. What learns from this GPU's problems without draws predicts each half of the problems (even and odd
  numbers) from the other half, and from the other sets: the fixed order from all of them, trees from 200. Trees from
  the other GPU see 300 problems of each set.

Configurations of which perflex says that the GPU cannot run them come last in all orders but matmul_perf_model's, which
has a rule of its own. A choice that cannot run counts as a loss of 1000 %. Mean of draws, largest loss of all draws.

``--promise`` judges ``keep="promise"`` alone: calibrated with 20 problems, drawn 40 times, and judged by the others.
``--ttir`` compares tile programs in closed form, which all of this rests on, with those made of Triton's code, and
``--compiled`` first choices by formulas with those by registers and shared memory of compiled code. With ``--every N``
it takes each N-th problem, one draw and few trees. ``--picture`` draws predicted and published times.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from judging import table
from triton_parts import baselines
from triton_parts.problems import MACHINES, Product, Rows, features, read_rows

from perflex import Calibration, PerflexWarning, Promise, calibrate, load_machine, transfer
from perflex.calibration.interval import interval_at
from perflex.calibration.times.table import TimedKernel, TimesTable
from perflex.features.target import using_machine
from perflex.models import load_model
from perflex.pictures import COLOURS, new_figure, save_figure
from perflex.search.promise import kept_ratio

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray


MODEL = load_model("general_tile")
ALL, FEW, MANY = 300, 20, 200
PROMISES = 40
NEAR, FIRST = 1.05, 5
WORST = 10.0  # Loss of a choice that cannot run; none is larger.
MEASURES = "problems", "top", "loss_median", "loss_mean", "loss_max", "factor_rms", "factor_median", "inside"
HEADINGS = ("top 5", "loss: median, mean, max", "factor: rms, median", "inside")
Key = tuple[str, str]  # GPU and set


@dataclass(frozen=True)
class Draw:
    """Predictions of all rows, infinite where none, ends of 95 % intervals, and which rows are judged."""

    seconds: NDArray[np.float64]
    limits: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    judged: NDArray[np.bool_] | None = None


@dataclass(frozen=True)
class Method:
    """A way to order configurations; `timed` says whether its numbers are seconds."""

    name: str
    seen: str
    draws: Sequence[Draw]
    timed: bool = True

    def scores(self, rows: Rows, asked: NDArray[np.bool_]) -> dict[str, float]:
        """Return the mean of all draws, of the largest loss the largest; nan where there is no number."""
        judged = [(draw, asked if draw.judged is None else asked & draw.judged) for draw in self.draws]
        found = [self._draw_scores(draw, rows, own) for draw, own in judged if own.any()]
        means = {name: float(np.mean([one[name] for one in found] or [np.nan])) for name in MEASURES}
        return means | {"loss_max": max((one["loss_max"] for one in found), default=np.nan)}

    def _draw_scores(self, draw: Draw, rows: Rows, own: NDArray[np.bool_]) -> dict[str, float]:
        seconds, predicted, inside = rows["seconds"][own], draw.seconds[own], np.nan
        losses, near = choices(seconds, predicted, rows["problem"][own])
        there = np.isfinite(seconds) & np.isfinite(predicted)
        errors = np.abs(np.log(predicted[there] / seconds[there])) if self.timed else np.array([np.nan])
        if draw.limits is not None:
            low, high = (end[own][there] for end in draw.limits)
            inside = np.mean((low <= seconds[there]) & (seconds[there] <= high))
        numbers = (
            len(losses), np.mean(near), np.median(losses), np.mean(losses), np.max(losses),
            np.exp(np.sqrt(np.mean(errors**2))), np.exp(np.median(errors)), inside,
        )  # fmt: skip
        return dict(zip(MEASURES, numbers, strict=True))


def choices(seconds: NDArray[Any], predicted: NDArray[Any], problems: NDArray[Any]) -> tuple[Any, Any]:
    """Return for each problem what the first choice loses, and whether one of the first five is near the best."""
    order = np.lexsort((predicted, problems))
    parts = np.split(seconds[order], np.flatnonzero(np.diff(problems[order])) + 1)
    losses = np.array([min(part[0] / part.min() - 1, WORST) for part in parts])
    return losses, np.array([part[:FIRST].min() <= NEAR * part.min() for part in parts])


def cells(found: Mapping[str, float]) -> list[str]:
    loss = f"{100 * found['loss_median']:.1f}, {100 * found['loss_mean']:.1f}, {100 * found['loss_max']:.0f} %"
    factor = f"{found['factor_rms']:.2f}, {found['factor_median']:.2f}"
    shown = (f"{100 * found['top']:.1f} %", loss, factor, f"{100 * found['inside']:.0f} %")
    return ["-" if "nan" in cell else cell for cell in shown]


class Benchmark:
    """Rows, their feature values, and all methods' predictions of them."""

    def __init__(self, rows: Mapping[Key, Rows], draws: int, trees: int) -> None:
        self.rows, self.draws, self.trees = rows, draws, trees
        names = MODEL.model().input_features()
        self.values = {key: features(each, names) for key, each in rows.items()}
        self.fits = {key: ~np.isnan(next(iter(values.values()))) for key, values in self.values.items()}
        self.first = next(iter(rows))[1]
        sources = {gpu: calibrated(drawn(rows[gpu, self.first], ALL)) for gpu in MACHINES}
        self.carried = {
            gpu: transfer([one for name, one in sources.items() if name != gpu], machine=machine)
            for gpu, machine in MACHINES.items()
        }

    def spread(self, key: Key, predict: Any) -> list[NDArray[np.float64]]:
        """Return what is predicted of rows that the GPU can run, infinite for the others."""
        fits = self.fits[key]
        parts = predict({name: column[fits] for name, column in self.values[key].items()})
        found = np.full((len(parts), len(fits)), np.inf)
        found[:, fits] = parts
        return list(found)

    def draw(self, key: Key, calibration: Calibration, judged: NDArray[np.bool_] | None = None) -> Draw:
        def predict(values: Mapping[str, Any]) -> tuple[Any, ...]:
            found = interval_at(calibration, values)
            return found.predicted, found.low, found.high

        seconds, *limits = self.spread(key, predict)
        return Draw(seconds, (limits[0], limits[1]), judged)

    def halves(self, key: Key, learn: Any) -> NDArray[np.float64]:
        """Return what a learner predicts of each half of the problems from the other half and from other sets."""
        rows = self.rows[key]
        others = [each for (gpu, part), each in self.rows.items() if gpu == key[0] and part != key[1]]
        found = np.full(len(rows), np.inf)
        for half in (0, 1):
            mine = rows["problem"] % 2 == half
            found[mine] = learn([rows.take(~mine), *others], rows.take(mine))
        return found

    def methods(self, key: Key) -> list[Method]:
        rows, other = self.rows[key], next(name for name, _ in self.rows if name != key[0])
        few = [drawn(rows, FEW, seed) for seed in range(self.draws)]
        pairs = [(each, ~np.isin(rows["problem"], each["problem"])) for each in few]
        theirs = [each for (gpu, _), each in self.rows.items() if gpu == other]
        random = np.random.default_rng(0)

        def trees(known: list[Rows], asked: Rows, most: int = MANY) -> NDArray[np.float64]:
            return baselines.trees([drawn(each, most // len(known)) for each in known], asked, self.trees)

        def one(seconds: NDArray[np.float64], judged: NDArray[np.bool_] | None = None) -> Draw:
            return Draw(np.where(self.fits[key], seconds, np.inf), judged=judged)

        usual = replace(Calibration.load("general_tile"), machine=MACHINES[key[0]].name)
        return [
            Method("other GPU", "other GPU", [self.draw(key, self.carried[key[0]])]),
            Method("usual values", "code", [self.draw(key, usual)]),
            Method("20 problems", "20 problems", [self.draw(key, calibrated(each), mask) for each, mask in pairs]),
            Method("random order", "nothing", [one(random.random(len(rows))) for _ in range(20)], timed=False),
            Method("largest tile", "code", [one(baselines.largest_tile(rows))], timed=False),
            Method("matmul_perf_model", "code", [Draw(baselines.matmul_perf_model(rows))]),
            Method("Origami", "code", [one(baselines.origami(rows))]),
            Method("trees", "other GPU", [one(trees(theirs, rows, ALL * len(theirs)))]),
            Method("trees", "20 problems", [one(trees([each], rows, ALL), mask) for each, mask in pairs]),
            Method("trees", "200 problems", [one(self.halves(key, trees))]),
            Method("fixed order", "half or more", [one(self.halves(key, baselines.fixed_order))], timed=False),
        ]

    def alarms(self, key: Key) -> list[str]:
        fits, runs = self.fits[key], np.isfinite(self.rows[key]["seconds"])
        counts = [(~runs).sum(), (~fits & ~runs).sum(), runs.sum(), (~fits & runs).sum()]
        return [" ".join(key), *map("{:,}".format, counts)]


def drawn(rows: Rows, most: int, seed: int = 0) -> Rows:
    """Return the rows of so many random problems; of few problems half is left to be judged where 20 are asked for."""
    problems = np.unique(rows["problem"])
    most = min(most, max(1, len(problems) // 2)) if most == FEW else most
    return rows.take(np.isin(rows["problem"], np.random.default_rng(seed).permutation(problems)[:most]))


def calibrated(rows: Rows) -> Calibration:
    times = []
    for number in np.flatnonzero(np.isfinite(rows["seconds"])).tolist():
        kernel, seconds = Product(rows, number), float(rows["seconds"][number])
        times.append(TimedKernel(kernel, {}, seconds, name=kernel.label, generator=kernel.group))
    with using_machine(load_machine(MACHINES[rows.gpu])):
        found = calibrate(MODEL.name, times=TimesTable(tuple(times), device=rows.gpu))
    values = ", ".join(f"{name} {value:.3g}" for name, value in found.fit.items())
    print(f"{rows.gpu} {rows.part}, {len(np.unique(rows['problem']))} problems: {values}", flush=True)
    return found


def report(bench: Benchmark) -> list[dict[str, Any]]:
    """Print all tables; return their numbers."""
    found: list[dict[str, Any]] = []
    for key, rows in bench.rows.items():
        methods = bench.methods(key)
        # Odd problems of the first set were not looked at while the model was made.
        for parity in ("all", "odd") if key[1] == bench.first else ("all",):
            asked = np.full(len(rows), True) if parity == "all" else rows["problem"] % 2 == 1
            for kind in ("all", *dict.fromkeys(rows["type"][asked].tolist())):
                own = asked if kind == "all" else asked & (rows["type"] == kind)
                about = {"gpu": key[0], "set": key[1], "half": parity, "type": kind}
                scores = [method.scores(rows, own) for method in methods]
                names = [{"method": method.name, "seen": method.seen} for method in methods]
                lines = [[*name.values(), *cells(one)] for name, one in zip(names, scores, strict=True)]
                print(f"\n{' '.join(key)}, {parity} problems, types: {kind}: {len(np.unique(rows['problem'][own]))}\n")
                print(table((*names[0], *HEADINGS), lines), flush=True)
                found += [about | name | one for name, one in zip(names, scores, strict=True)]
    print(table(("rows", "cannot run", "of them named", "run", "false alarms"), map(bench.alarms, bench.rows)))
    return found


def promised(rows: Rows) -> list[str]:
    """Return in how many further problems the promise of 20 holds, over draws, and how many configurations it keeps."""
    model, held, kept, there = MODEL.model(), [], [], len(rows)
    values = features(rows, model.input_features())
    possible = ~np.isnan(next(iter(values.values())))
    rows, values = rows.take(possible), {name: column[possible] for name, column in values.items()}
    for seed in range(PROMISES):
        known = drawn(rows, FEW, seed)
        found = calibrated(known)
        seen = found.evaluate(found.table.columns(model.input_features()))
        ratio = kept_ratio(seen, found.table.column(model.output_feature), found.table.generators, Promise())
        judged = ~np.isin(rows["problem"], known["problem"])
        predicted, draws = found.evaluate(values), []
        for problem in np.unique(rows["problem"][judged]):
            own = rows["problem"] == problem
            seconds, chosen = rows["seconds"][own], predicted[own] <= ratio * predicted[own].min()
            draws.append((seconds[chosen].min() <= NEAR * seconds.min(), chosen.sum()))
        held.append(np.mean([draw[0] for draw in draws]))
        kept.append(np.mean([draw[1] for draw in draws]))
    shares = [100 * np.mean(held), 100 * np.std(held) / PROMISES**0.5, 100 * min(held), 100 * max(held)]
    numbers = [np.mean(kept), min(kept), max(kept), there / len(np.unique(rows["problem"]))]
    return [
        f"{rows.gpu} {rows.part}",
        "{:.1f} +- {:.1f} % ({:.0f} to {:.0f})".format(*shares),
        "{:.1f} ({:.1f} to {:.1f}) of {:.0f}".format(*numbers),
    ]


def draw_picture(bench: Benchmark, path: Path) -> None:
    """Draw predicted and published times, with parameters of the other GPU."""
    gpus, figure = list(MACHINES), new_figure(8.0, 4.2)
    for place, gpu in enumerate(gpus):
        rows, other = bench.rows[gpu, bench.first], gpus[1 - place]
        predicted, runs = bench.draw((gpu, bench.first), bench.carried[gpu]).seconds, np.isfinite(rows["seconds"])
        axes = figure.add_subplot(1, 2, 1 + place)
        for kind, colour in zip(dict.fromkeys(rows["type"].tolist()), COLOURS, strict=False):
            chosen = runs & (rows["type"] == kind)
            axes.plot(1e6 * rows["seconds"][chosen], 1e6 * predicted[chosen], ".", ms=1.5, alpha=0.4, c=colour)
            axes.plot([], [], "o", ms=4, c=colour, label=kind)
        ends = 1e6 * rows["seconds"][runs].min() / 1.2, 1e6 * rows["seconds"][runs].max() * 1.2
        for factor, style in ((1.0, "-"), (1.25, ":"), (0.8, ":")):
            axes.plot(ends, [factor * end for end in ends], style, c="black", lw=0.8)
        axes.set(xscale="log", yscale="log", xlabel="published time in us", ylabel="predicted time in us")
        axes.set_title(f"{gpu}, parameters of the {other}", fontsize=10)
        axes.legend(loc="upper left", fontsize=8)
    save_figure(figure, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default="hf,random")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--promise", action="store_true", help="judge promises, and end")
    parser.add_argument("--ttir", action="store_true", help="compare with tile programs made of code, and end")
    parser.add_argument("--compiled", action="store_true", help="choose by compiled code, and end")
    given = parser.parse_args()
    warnings.simplefilter("ignore", PerflexWarning)
    keys = [(gpu, part) for part in given.sets.split(",") for gpu in MACHINES]
    rows = {key: read_rows(given.data, *key, given.every) for key in keys}
    if given.ttir or given.compiled:
        if find_spec("triton") is None:
            sys.exit("this needs Triton; install it with: pip install triton")
        from triton_parts import from_code

        if given.ttir:
            from_code.compare(list(rows.values()))
        else:
            heads = "rows", "problems", "loss with formulas: median, mean, largest", "with compiled code"
            print(table(heads, map(from_code.choose, rows.values())))
        return
    if given.promise:
        print(table(("rows", "held: mean, draws", "kept: mean, draws"), map(promised, rows.values())))
        return
    bench = Benchmark(rows, *((5, 150) if given.every == 1 else (1, 10)))
    if given.picture:
        draw_picture(bench, given.picture)
    found = report(bench)
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
