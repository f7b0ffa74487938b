"""Counts of thousands of random kernels against enumeration: ``python tests/bench/random_counts.py [COUNT [FIRST]]``.

Prints every mismatch and, at the end, how many there were. Some kernels a second and process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(Path(__file__).parents[2])]
sys.path.append(str(Path(__file__).parents[1]))
os.environ["PERFLEX_STORE"] = "off"


def main(count: int, first: int) -> None:
    """Check the kernels of seeds first to first + count - 1."""
    from oracles.outcomes import outcomes

    mismatches = refused = 0
    slowest = (0.0, 0)
    for seed, wrong, seconds in outcomes(range(first, first + count)):
        slowest = max(slowest, (seconds, seed))
        mismatches += wrong.startswith("MISMATCH")
        refused += bool(wrong) and not wrong.startswith("MISMATCH")
        if wrong:
            print(f"seed {seed}: {wrong.splitlines()[0][:300]}", flush=True)
    print(
        f"{count} kernels, {mismatches} mismatches, {refused} refused; slowest {slowest[0]:.1f} s (seed {slowest[1]})"
    )


if __name__ == "__main__":
    main(*(int(word) for word in (sys.argv[1:] + ["1000", "0"][len(sys.argv) - 1 :])[:2]))
