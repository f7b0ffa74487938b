"""How long a thousand loopy variants take from their settings to a ranking: python tests/bench/prune_speed.py."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]


def main() -> None:
    from perflex import Calibration, VariantSpace, prune

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--variants", type=int, default=1000)
    parser.add_argument(
        "--calibration", default=TOP / "calib_data/calibrations/matmul_incore_amd_epyc_4cores_intel_opencl.yaml"
    )
    arguments = parser.parse_args()
    sys.path.insert(0, str(TOP / "examples"))
    from matmul_space import matmul

    space = VariantSpace(
        matmul,
        {
            "wide": (4, 8, 16, 32),
            "high": (1, 2, 4, 8, 16),
            "columns": (1, 2, 4, 8),
            "rows": (1, 2, 4, 8),
            "depth": (16, 32, 64),
            "unroll": (1, 2, 4),
        },
        ["depth % wide == 0 and depth % high == 0", "rows * columns * unroll <= 32", "8 <= wide * high <= 256"],
    )
    chosen = [tuple(settings.values()) for settings in space][: arguments.variants]
    names = space.parameters
    part = VariantSpace(
        _Numbered(matmul, names, chosen), {"number": range(len(chosen))}, name=f"{len(chosen)} matrix multiplications"
    )
    calibration = Calibration.load(arguments.calibration)
    start = time.perf_counter()
    with ProcessPoolExecutor(arguments.workers) as executor:
        found = prune(part, calibration, {"n": 1024}, keep=0.05, executor=executor, store="off")
    seconds = time.perf_counter() - start
    print(f"{len(found.variants)} variants described, predicted and ranked in {seconds:.1f} s by {arguments.workers}")


class _Numbered:
    """Builds a variant from its place in a list of settings."""

    def __init__(self, build: object, names: tuple[str, ...], settings: list[tuple[object, ...]]) -> None:
        self.build, self.names, self.settings = build, names, settings

    def __call__(self, number: int) -> object:
        return self.build(**dict(zip(self.names, self.settings[number], strict=True)))


if __name__ == "__main__":
    main()
