"""Counts of thousands of random kernels against enumeration: ``python tests/bench/random_counts.py [COUNT [FIRST]]``.

Prints every mismatch and, at the end, how many there were. Some kernels a second and process.
"""

from __future__ import annotations

import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

# The tests have a folder called perflex, too: the package must come first.
sys.path[:0] = [str(Path(__file__).parents[2])]
sys.path.append(str(Path(__file__).parents[1]))
os.environ["PERFLEX_STORE"] = "off"


def outcome(seed: int) -> tuple[int, str, float]:
    """Return the seed, what is wrong (or nothing), and the seconds it took."""
    from oracles.brute import NotEnumerableError
    from oracles.compare import check_counts
    from oracles.random_kernels import make_random_kernel
    from perflex.errors import UnsupportedKernelError

    start = time.perf_counter()
    wrong = ""
    try:
        check_counts(make_random_kernel(seed))
    except AssertionError as error:
        wrong = f"MISMATCH {error}"
    except UnsupportedKernelError as error:
        wrong = f"refused: {error}"
    except NotEnumerableError as error:
        wrong = f"not enumerable: {error}"
    return seed, wrong, time.perf_counter() - start


def main(count: int, first: int) -> None:
    """Check the kernels of seeds first to first + count - 1."""
    mismatches = refused = 0
    slowest = (0.0, 0)
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for seed, wrong, seconds in pool.map(outcome, range(first, first + count), chunksize=4):
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
