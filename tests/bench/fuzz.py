"""Mutated inputs of every kind that perflex reads: ``python tests/bench/fuzz.py [--cases N] [--seed TEXT]``.

Each case makes one valid input wrong (its bytes, its lines, its tree, or a word of a text or command line), reads it,
and does with it what users do: predict with a calibration, count a kernel's features, rank a space. Good outcomes are
success and an error of perflex. All else is shown with the number of a case, which ``--case N`` runs alone, with its
traceback:

* an escape: another exception, or a number that is not finite where a prediction or an interval was asked for;
* a hang: a case that takes more than 30 s of processor time, or waits for 60 s;
* execution: a process that an input started, or a file that it made.

The cases of a seed are always the same. ``--first`` goes on with a later one, ``--kind`` takes one kind of input.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz_parts.driver import ALL_KINDS, prepare, run, run_case

if TYPE_CHECKING:
    from fuzz_parts.driver import Bad


def main() -> None:
    """Run the cases and print what ended badly."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="record")
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in ALL_KINDS])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", type=int, help="run this case alone, with its traceback")
    given = parser.parse_args()
    kinds = [kind for kind in ALL_KINDS if given.kind is None or kind.name in given.kind]
    if given.case is not None:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            os.environ["PERFLEX_STORE"] = str(Path(folder, "counts.sqlite"))
            print(run_case(given.case, given.seed, kinds, prepare(), show=True) or "ended well")
            os.chdir("/")
        return
    begun, count = time.monotonic(), 0
    numbers = range(given.first, given.first + given.cases)
    bad: Counter[tuple[str, str]] = Counter()
    examples: dict[tuple[str, str], Bad] = {}
    for outcome in run(numbers, given.seed, kinds, processes=given.processes):
        count += 1
        if outcome is not None:
            bad[outcome.kind, outcome.what] += 1
            examples.setdefault((outcome.kind, outcome.what), outcome)
    for (kind, what), times in bad.most_common():
        print(f"{times:6} {kind}: {what} (case {examples[kind, what].number})")
    hangs = sum(times for (_, what), times in bad.items() if what.startswith("hang"))
    seconds = time.monotonic() - begun
    escapes = sum(bad.values()) - hangs
    print(f"seed {given.seed!r} from {given.first}: {count} cases, {escapes} escapes, {hangs} hangs, {seconds:.0f} s")
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
