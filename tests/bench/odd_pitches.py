"""Time of GPU data volumes where rows begin anywhere in a cache line: ``python tests/bench/odd_pitches.py``.

Star stencils of radius 1 and 4 in double precision, work-groups of 32 x 4 x 4, on a V100: the median time of seven
estimates at each size after a first one, and beside it that of 512, the size with the fewest alignments.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests")]

from perflex import estimate_volumes, load_machine  # noqa: E402 - the folder above holds the next ones
from perflex.features import extract_scop  # noqa: E402
from support.ecm_kernels import loopy_kernel, on_grid, star_offsets, terms  # noqa: E402


def main() -> None:
    """Print a line for each stencil and size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[512, 500, 600, 601, 599, 777])
    parser.add_argument("--machine", default="V100")
    options = parser.parse_args()
    machine = load_machine(options.machine)
    for radius in (1, 4):
        shifted = [tuple(step + radius for step in at) for at in [(0, 0, 0), *star_offsets(3, radius)]]
        padded = f"(n+{2 * radius},n+{2 * radius},n+{2 * radius})"
        code = f"b[k,j,i] = {terms('a', 'kji', shifted)}"
        kernel = loopy_kernel("{[i,j,k]: 0<=i,j,k<n}", code, {"a": padded, "b": "(n,n,n)"})
        scop = extract_scop(on_grid(kernel, i=(0, 32), j=(1, 4), k=(2, 4)))
        estimate_volumes(scop, {"n": 256}, machine)
        first = 0.0
        for size in dict.fromkeys((512, *options.sizes)):
            taken = []
            for _ in range(7):
                start = time.perf_counter()
                estimate_volumes(scop, {"n": size}, machine)
                taken.append(1e3 * (time.perf_counter() - start))
            median = statistics.median(taken)
            first = first or median
            print(f"radius {radius}  n = {size:5}  {median:7.1f} ms  {median / first:5.1f} times 512", flush=True)


if __name__ == "__main__":
    main()
