"""Counts of random kernels in OpenCL C and CUDA C against an interpreter of their text.

``python tests/bench/random_sources.py --count 300 --seed 0`` prints each kernel whose count is wrong although it is
called exact, or lies above an upper bound, made as small as it still fails; then how many were right and refused.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from oracles.c_text.comparing import compared
from oracles.c_text.programs import minimised
from oracles.c_text.random_texts import KINDS, random_program


def main():
    """Compare, and print what was found; the exit status is 1 if a count is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--without", default="", help=f"kinds of statements to leave out, with commas: {', '.join(KINDS)}"
    )
    parser.add_argument("--refusals", action="store_true", help="print why kernels are refused")
    given = parser.parse_args()
    words = Counter()
    for seed in range(given.seed, given.seed + given.count):
        program = random_program(seed, given.without.split(","))
        outcome = compared(program.text())
        words[outcome.word] += 1
        if outcome.word == "wrong":
            small = minimised(program, lambda text: compared(text).word == "wrong").text()
            print(f"seed {seed}: {outcome.why}\n{small}\n{compared(small).why}\n", flush=True)
        elif outcome.word == "refused" and given.refusals:
            print(f"seed {seed}: {outcome.why}")
    print(dict(words))
    return int(words["wrong"] > 0)


if __name__ == "__main__":
    sys.exit(main())
