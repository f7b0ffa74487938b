"""Time to generate and describe all measurement kernels of the studies: ``python tests/bench/measurement_set.py``.

Twice in fresh processes: with an empty store (cold), and with what that left behind (warm).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from perflex.features import SizedKernel, Target, parse_feature
from perflex.features.many import count_rows
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.studies.evaluation.studies import STUDIES


def main() -> None:
    """Generate the kernels of every model of every study, and count every feature of the models."""
    started = time.perf_counter()
    descriptions = [load_model(name) for study in STUDIES.values() for name in study.models.values()]
    kernels = {kernel.name: kernel for each in descriptions for kernel in measurement_kernels(each)}
    names = dict.fromkeys(name for each in descriptions for name in each.model("f_cl_wall_time").input_features())
    generated = time.perf_counter()
    jobs = [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in kernels.values()]
    counted = count_rows([parse_feature(name) for name in names], jobs, Target(16))
    refused = [row.refusal for row in counted if row.refusal]
    done = time.perf_counter()
    print(
        f"{len(kernels)} kernels, {len(names)} features: built in {generated - started:.1f} s, described and counted "
        f"in {done - generated:.1f} s, together {done - started:.1f} s; {len(refused)} refused",
        flush=True,
    )


def _in_fresh_process(store: Path) -> None:
    environment = {**os.environ, "PERFLEX_STORE": str(store)}
    subprocess.run([sys.executable, __file__, "once"], env=environment, check=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["once"]:
        main()
    else:
        with tempfile.TemporaryDirectory() as folder:
            for what in ("cold", "warm"):
                print(what, end=": ", flush=True)
                _in_fresh_process(Path(folder) / "store.sqlite")
