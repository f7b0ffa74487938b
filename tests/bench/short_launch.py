"""How well short launches predict, beside plain scaling of the same launches, and what they cost.

Run with the families of ``any_kernel_parts`` on a quiet machine::

    python tests/bench/short_launch.py DEVICE --out results.jsonl [--half report] [--every 3] [--seconds 200]

Each case is timed whole, probed, and timed whole again at once: a shared host can be half as fast a second later. Where
both timings differ, or others used the processors, all three are taken again, and a case that never was steady is left
out and counted. The rules of
short launches (`perflex/timing/short_launch.py`) were decided on the families of even number of the half ``develop``,
in the order of their names: ``--parity odd`` takes the others, ``--half report`` families that nobody developed with. A
results file that is there is gone on with; ``--show`` only reads it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections import defaultdict
from contextlib import closing
from itertools import combinations, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import PerflexError, TimingOptions, find_device
from perflex.features.sized_kernel import SizedKernel
from perflex.store.records import Sample
from perflex.timing.disturbance import disturbed
from perflex.timing.launch.request import request_for
from perflex.timing.measuring import open_backend
from perflex.timing.short_launch import ShortLauncher

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Row = dict[str, Any]
# Whole launches before and after a probe: so many at least, and for so long. Both may differ by so much.
LAUNCHES, WHOLE_S, STEADY, ATTEMPTS = 3, 6e-3, 1.08, 4
# Times that differ by less are not ranked, and a choice this near the best is as good.
APART, NEAR = 1.07, 1.05
PREDICTIONS = ("seconds", "scaled_s", "smallest_s")


def cases(half: str, parity: str) -> Iterator[tuple[int, Any, list[tuple[str, int, SizedKernel]]]]:
    """Yield each family with its cases: variant, index of the size, and the kernel with sizes."""
    sys.path.insert(0, str(Path(__file__).parent))
    from any_kernel_parts.families import families

    for number, family in enumerate(families(half)):
        if parity != "all" and (number % 2 == 1) != (parity == "odd"):
            continue
        found = []
        for variant, make in family.variants.items():
            kernel = make()
            for index, sizes in enumerate(family.sizes):
                found.append((variant, index, SizedKernel(kernel, sizes, f"{family.name} {variant} {index}")))
        yield number, family, found


def record(arguments: argparse.Namespace) -> None:
    """Probe and time the cases that the results file does not hold."""
    device = find_device(arguments.device)
    known = {(row["family"], row["variant"], row["size"]) for row in read(arguments.out)}
    end = time.monotonic() + arguments.seconds
    options = TimingOptions()
    with (
        ShortLauncher(device) as launcher,
        closing(open_backend(device, options)) as backend,
        arguments.out.open("a", encoding="utf-8") as file,
    ):
        for number, family, found in cases(arguments.half, arguments.parity):
            taken = islice(found, number % arguments.every, None, arguments.every)
            left = [case for case in taken if (family.name, case[0], case[1]) not in known]
            for variant, index, job in left:
                if time.monotonic() > end:
                    print("time is up; run it again to go on")
                    return
                try:
                    found_row = compared(launcher, backend, device, job)
                except PerflexError as error:
                    print(error)
                    continue
                row = {"family": family.name, "number": number, "variant": variant, "size": index, **found_row}
                file.write(json.dumps(row) + "\n")
                file.flush()


def compared(launcher: ShortLauncher, backend: Any, device: Any, job: SizedKernel) -> Row:
    """Return what a short launch says and how long the whole launch takes; the latter is nan where it is not steady."""
    whole = backend.build(request_for(job, device))
    whole.run(2)
    for _ in range(ATTEMPTS):
        (before, quiet), probe, (after, still) = timed(whole), launcher.probe(job), timed(whole)
        steady = quiet and still and max(before, after) < STEADY * min(before, after)
        if steady:
            break
    # What timing it as calibrations do takes on the device: a warm-up before each of five samples of a millisecond.
    timing_s = 5 * (before + max(before, 1e-3))
    measured = (before + after) / 2 if steady else math.nan
    return {**vars(probe), "measured_s": measured, "timing_s": timing_s, "work": math.prod(job.sizes.values())}


def timed(whole: Any) -> tuple[float, bool]:
    """Return the median time of whole launches, arrays restored before each, and whether nobody disturbed them."""
    seconds = whole.run(1)[0]
    times = whole.run(max(LAUNCHES, min(40, math.ceil(WHOLE_S / max(seconds, 1e-6)))))
    sample = Sample(statistics.fmean(times), len(times), 0.0, "", 0, getattr(times, "activity", None))
    return statistics.median(times), not disturbed([sample])[0]


def read(path: Path) -> list[Row]:
    """Return the rows of a results file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def with_smallest(rows: Sequence[Row]) -> None:
    """Add to each row the prediction from a timing at the smallest size, scaled by the product of the sizes."""
    smallest = {(row["family"], row["variant"]): row for row in rows if row["size"] == 0}
    for row in rows:
        base = smallest.get((row["family"], row["variant"]))
        row["smallest_s"] = base["measured_s"] * row["work"] / base["work"] if base and row["size"] else math.nan


def show(rows: Sequence[Row], title: str) -> None:
    """Print accuracy and choices of each prediction, and what short launches cost."""
    print(f"\n{title}: {len(rows)} cases, {sum(r['knowledge'] == 'timing' for r in rows)} ran whole")
    for name in PREDICTIONS:
        use = [row for row in rows if math.isfinite(row[name])]
        if not use:
            continue
        logs = np.array([math.log(row[name] / row["measured_s"]) for row in use])
        relative = np.abs(np.exp(logs) - 1)
        right, losses, tenth = choices(use, name)
        print(
            f"  {name:10} n {len(use):4}  factor {math.exp(np.abs(logs).mean()):.3f}  gmean "
            f"{100 * math.exp(np.log(np.maximum(relative, 1e-4)).mean()):5.1f} %  median "
            f"{100 * np.median(relative):5.1f} %  rms {100 * math.sqrt((relative**2).mean()):6.1f} %  max "
            f"{100 * relative.max():6.0f} %  bias {math.exp(logs.mean()):.3f}  pairs {right:.3f}  loss "
            + " ".join(f"{100 * value:.1f}" for value in losses)
            + f" %  first tenth {100 * tenth:.0f} %"
        )
    shares = [row["device_s"] / row["measured_s"] for row in rows]
    total = sum(row["device_s"] for row in rows)
    inside = [abs(math.log(row["seconds"] / row["measured_s"])) < 1.96 * row["deviation"] for row in rows]
    whole, timings = (math.fsum(row[name] for row in rows) for name in ("measured_s", "timing_s"))
    cost_ms = 1e3 * statistics.median(row["cost_s"] for row in rows)
    print(
        f"  cost: device time {total:.3f} s, {100 * total / whole:.0f} % of one whole launch each (median "
        f"{100 * statistics.median(shares):.0f} %), {100 * total / timings:.1f} % of timing them; in all {cost_ms:.0f} "
        f"ms a case; 95 % intervals held {100 * statistics.fmean(inside):.0f} %"
    )


def choices(rows: Sequence[Row], name: str) -> tuple[float, list[float], float]:
    """Return the share of pairs ranked right, losses of the choice (median, mean, p90, worst), and first tenth."""
    groups: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["family"], row["size"]].append(row)
    pairs, losses, tenth = [], [], []
    for group in groups.values():
        if len(group) < 2:
            continue
        for one, other in combinations(group, 2):
            ratio = one["measured_s"] / other["measured_s"]
            if max(ratio, 1 / ratio) > APART:
                pairs.append((one[name] < other[name]) == (ratio < 1))
        best = min(row["measured_s"] for row in group)
        order = sorted(group, key=lambda row: row[name])
        losses.append(order[0]["measured_s"] / best - 1)
        few = order[: math.ceil(len(order) / 10)]
        tenth.append(min(row["measured_s"] for row in few) <= NEAR * best)
    if not losses:
        return math.nan, [math.nan], math.nan
    found = [statistics.median(losses), statistics.fmean(losses), float(np.percentile(losses, 90)), max(losses)]
    return statistics.fmean(pairs), found, statistics.fmean(tenth)


def main() -> None:
    """Record, and show the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--half", choices=("develop", "report"), default="develop")
    parser.add_argument("--parity", choices=("even", "odd", "all"), default="all")
    parser.add_argument("--every", type=int, default=1, help="take every so manyth case")
    parser.add_argument("--seconds", type=float, default=200, help="begin nothing new after so long")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    if not arguments.show:
        record(arguments)
    every = read(arguments.out)
    rows = [row for row in every if math.isfinite(row["measured_s"])]
    print(f"{len(every) - len(rows)} of {len(every)} cases were never steady and are left out")
    with_smallest(rows)
    parities = {0: "even families (rules decided on them)", 1: "odd families"}
    parts = {title: [row for row in rows if row["number"] % 2 == number] for number, title in parities.items()}
    for title, half in (parts if arguments.half == "develop" else {"families nobody developed with": rows}).items():
        if half:
            show(half, title)
            for knowledge in ("short launch", "timing"):
                part = [row for row in half if row["knowledge"] == knowledge]
                if part:
                    show(part, f"  of them by {knowledge}")


if __name__ == "__main__":
    main()
