"""Predictions a second of the matmul model: ``python tests/bench/prediction_speed.py``.

The shipped calibration predicts a tiled matrix multiplication over an array of sizes, and at one size at a time, on
one core; beside it loopy's own evaluation of one polynomial, the count of multiplications. The kernel is known: it was
predicted once before.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import loopy as lp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(Path(__file__).parents[2])]
sys.path.append(str(Path(__file__).parents[1]))
os.environ["PERFLEX_STORE"] = "off"

CALIBRATION = Path(__file__).parents[2] / "calib_data" / "calibrations" / "matmul_sq_amd_epyc_4cores_intel_opencl.yaml"
REPEATS = 7
SCALARS = 300


def median(function: Callable[[], object]) -> float:
    """Return the median time of a call, in seconds."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Print rates and ratios."""
    from perflex import Calibration
    from sample_kernels import matmul

    warnings.simplefilter("ignore")
    calibration = Calibration.load(CALIBRATION)
    kernel = matmul(prefetch=True)
    calibration.predict(kernel, {"n": 512})
    print(f"model with {len(calibration.model.input_features())} features")

    polynomial = lp.get_op_map(kernel, subgroup_size=32).filter_by(name=["mul"], dtype=[np.float32]).sum()
    sizes = [16 * size for size in range(1, SCALARS + 1)]
    loopy_s = median(lambda: [polynomial.eval_with_dict({"n": n}) for n in sizes]) / SCALARS
    print(f"loopy, one polynomial at one size:   {1e6 * loopy_s:10.2f} us, {1e-6 / loopy_s:8.3f} million a second")

    scalar_s = median(lambda: [calibration.predict(kernel, {"n": n}) for n in sizes]) / SCALARS
    print(f"perflex, predict at one size:        {1e6 * scalar_s:10.2f} us, {1e-6 / scalar_s:8.3f} million a second")

    random = np.random.default_rng(0)
    for count in (1_000, 100_000, 2_000_000):
        array = 16 * random.integers(1, 1024, count)
        each = median(lambda array=array: calibration.predict(kernel, {"n": array})) / count
        print(
            f"perflex, predict {count:8} sizes:      {1e6 * each:10.4f} us, {1e-6 / each:8.3f} million a second,"
            f" {loopy_s / each:6.1f} predictions while loopy evaluates one polynomial"
        )


if __name__ == "__main__":
    main()
