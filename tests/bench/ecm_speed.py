"""Time of one estimate of cache volumes, and of a thousand block sizes at once: ``python tests/bench/ecm_speed.py``.

On one core, after extraction: one estimate of all levels of a machine at one configuration (median of 200 calls, each
at another size), with and without its layer conditions, and 1000 block sizes as arrays (median of 3 calls). The first
estimate, which reads the kernel's nests, is printed beside them.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests")]

from perflex import estimate_ecm  # noqa: E402
from perflex.features import extract_scop  # noqa: E402
from sample_kernels import matmul  # noqa: E402
from support.ecm_kernels import jacobi3d, wave3d  # noqa: E402 - the folders above hold it

if TYPE_CHECKING:
    from collections.abc import Callable

MACHINE = "clx"


def milliseconds(function: Callable[[int], object], times: int) -> float:
    """Return the median time of calls with 0, 1, 2, ..."""
    taken = []
    for number in range(times):
        start = time.perf_counter()
        function(number)
        taken.append(1e3 * (time.perf_counter() - start))
    return statistics.median(taken)


def main() -> None:
    """Print one line for each kernel."""
    blocks = np.arange(8, 1008)
    product = extract_scop(matmul(prefetch=True))
    cases = {
        "7-point Jacobi": (jacobi3d(), {"M": 500}, "N", {"j": blocks % 61 + 4, "i": blocks}),
        "25-point Wave3D": (wave3d(4), {"M": 500}, "n", {"y": blocks % 61 + 4, "z": blocks}),
        "tiled matrix product": (
            product,
            {},
            "n",
            {"lid0": blocks, "lid1": blocks % 31 + 1},
        ),
    }
    print(f"{'ms':24}{'first':>8}{'estimate':>10}{'with conditions':>17}{'1000 blocks':>13}")
    for name, (scop, fixed, size, chosen) in cases.items():

        def estimate(number: int, scop=scop, fixed=fixed, size=size):
            return estimate_ecm(scop, {**fixed, size: 256 + 16 * number}, MACHINE)

        def blocked(number: int, scop=scop, fixed=fixed, size=size, chosen=chosen):
            return estimate_ecm(scop, {**fixed, size: 512 + 16 * number}, MACHINE, blocks=chosen)

        first = milliseconds(estimate, 1)
        single = milliseconds(estimate, 200)
        conditions = milliseconds(lambda number, estimate=estimate: estimate(number).conditions, 50)
        blocked(0)
        print(f"{name:24}{first:8.1f}{single:10.2f}{conditions:17.2f}{milliseconds(blocked, 3):13.2f}")


if __name__ == "__main__":
    main()
