"""How long perflex takes, beside loopy and alone: ``python tests/bench/speeds.py [--only TEXT] [--runs 5]``.

* Counting the first variant of each generator of the catalog, with the store off and loopy's caches off, as a ratio to
  loopy's four calls (operations, memory accesses, synchronisation, footprints) on the same kernel, one after the other.
  Kernels on which loopy fails are left out, and counted.
* ``perflex --help`` and ``perflex predict`` of a kernel with a shipped calibration, each in a process of its own.
* Value and gradient of the expression of ``general_cpu`` at 500 rows.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import warnings
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import loopy as lp
import numpy as np

from perflex import load_model, using_store
from perflex.expression.tree import evaluate
from perflex.features import count_features, extract_scop
from uipick import ALL_GENERATORS

ROOT = Path(__file__).resolve().parents[2]
ROWS = 500
COMMANDS = {
    "perflex --help": ["--help"],
    "perflex predict": [
        "predict", str(ROOT / "calib_data/calibrations/matmul_sq_amd_epyc_4cores_pocl.yaml"),
        f"{ROOT / 'examples/matmul.py'}:prefetching", "n=1056",
    ],
}  # fmt: skip


def seconds(call: Any, *given: Any) -> float:
    begun = time.perf_counter()
    call(*given)
    return time.perf_counter() - begun


def by_perflex(kernel: lp.TranslationUnit) -> None:
    count_features(extract_scop(kernel))


def by_loopy(kernel: lp.TranslationUnit) -> None:
    for count in (lp.get_op_map, lp.get_mem_access_map, lp.get_synchronization_map):
        count(kernel, subgroup_size=32)
    lp.gather_access_footprints(kernel)


def first_kernel(generator: Any) -> lp.TranslationUnit:
    """Return the first variant of a generator, made anew."""
    arguments = next(each for each in generator.combinations({}) if generator.violated(each) is None)
    return generator.generate(arguments).kernel


def counting(only: str) -> dict[str, tuple[float, float]]:
    """Return the seconds that perflex and loopy take for each kernel that loopy can count."""
    found, failed = {}, []
    warm = lp.make_kernel("{[i]: 0 <= i < n}", "y[i] = 2*x[i]", lang_version=(2018, 2))
    warm = lp.add_dtypes(warm, dict.fromkeys("xy", np.float32))
    with using_store("off"), lp.CacheMode(False), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        by_perflex(warm)
        by_loopy(warm)
        for generator in (each for each in ALL_GENERATORS if only in each.name):
            own = seconds(by_perflex, first_kernel(generator))
            try:
                found[generator.name] = own, seconds(by_loopy, first_kernel(generator))
            except Exception as failure:  # noqa: BLE001 - it raises errors of all kinds
                failed.append(f"{generator.name}: {type(failure).__name__}")
    print(f"loopy fails on {len(failed)} of {len(found) + len(failed)} kernels: {', '.join(failed) or 'none'}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="count only generators with this in their names")
    parser.add_argument("--runs", type=int, default=5, help="of each command")
    given = parser.parse_args()
    found = counting(given.only) or parser.error("loopy counts none of these kernels")
    own, others = (np.array(column) for column in zip(*found.values(), strict=True))
    rows = [(name, 1e3 * mine, f"{mine / theirs:6.2f} of loopy's") for name, (mine, theirs) in found.items()]
    rows.append(("median of kernels", 1e3 * median(own), f"{median(own / others):6.2f} of loopy's"))
    rows.append(("all kernels", 1e3 * own.sum(), f"{own.sum() / others.sum():6.2f} of loopy's"))
    # Compiled modules lie beside the sources, as they do for users; a first run, which is not timed, writes them.
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    run = partial(subprocess.run, env=env | {"PERFLEX_STORE": "off"}, capture_output=True, check=True)
    alone = {
        name: (partial(run, [sys.executable, "-m", "perflex", *words]), given.runs) for name, words in COMMANDS.items()
    }
    for call, _ in alone.values():
        call()
    model, random = load_model("general_cpu").model(), np.random.default_rng(0)
    values = {name: 10 ** random.uniform(2, 8, ROWS) for name in model.input_features()}
    values |= {name: 10 ** random.uniform(-12, -9) for name in model.params()}
    alone[f"value of {len(model.params())} parameters"] = partial(evaluate, model.tree, values), 50
    alone["its gradient"] = partial(model.derivatives, values, ROWS), 50
    for name, (call, runs) in alone.items():
        rows.append((name, 1e3 * median(seconds(call) for _ in range(runs)), f"median of {runs}"))
    for name, milliseconds, remark in rows:
        print(f"{name:32} {milliseconds:10.2f} ms  {remark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
