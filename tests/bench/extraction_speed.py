"""Time to count everything in a kernel, against loopy's own counting: ``python tests/bench/extraction_speed.py``.

For one variant of each generator of the catalog on one core:

* cold: perflex's extraction with all operations, accesses at the paper's granularity, footprints, strides and barriers,
  nothing remembered and no store, and loopy's ``get_op_map``, ``get_mem_access_map``, ``get_synchronization_map`` and
  ``gather_access_footprints``; both run in turn, medians.
* warm: everything that ``perflex features`` shows, symbolic and at the kernel's sizes, with a store that an earlier
  process filled; the first time each kernel is seen in a new process, medians over one process for each kernel to begin
  with. What a process does once (imports apart) is printed at the end. ``key`` is the part that finds out which kernel
  it is.
* again: the same once more, in the same process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loopy as lp

from perflex.features import ScopCounts, count_features, extract_scop
from perflex.features.kept import counting_version, kernel_key
from uipick import ALL_GENERATORS

if TYPE_CHECKING:
    from collections.abc import Callable

    from uipick import MeasurementKernel

SUB_GROUP = 32
REPEATS = 5


def catalog() -> list[MeasurementKernel]:
    """Return one variant of each generator."""
    first = [next(a for a in g.combinations({}) if g.violated(a) is None) for g in ALL_GENERATORS]
    return [generator.generate(arguments) for generator, arguments in zip(ALL_GENERATORS, first, strict=True)]


def perflex_counts(kernel: lp.TranslationUnit) -> None:
    """Extract and count everything, from a fresh copy of the kernel."""
    scop = extract_scop(kernel.copy())
    counts = ScopCounts(scop)
    for statement in scop.statements:
        counts.instances(statement, SUB_GROUP)
        counts.instances(statement)
    for access in counts.accesses:
        access.count(SUB_GROUP)
        access.footprint  # noqa: B018 - computed when read
    for barrier in scop.barriers:
        counts.barrier_instances(barrier)


def loopy_counts(kernel: lp.TranslationUnit) -> bool:
    """Call loopy's four functions; return whether the footprints could be had."""
    lp.get_op_map(kernel, subgroup_size=SUB_GROUP, count_redundant_work=True)
    lp.get_mem_access_map(kernel, subgroup_size=SUB_GROUP, count_redundant_work=True)
    lp.get_synchronization_map(kernel, subgroup_size=SUB_GROUP)
    try:
        lp.gather_access_footprints(kernel)
    except Exception:  # noqa: BLE001 - loopy's footprints fail in many ways; the time so far counts
        return False
    return True


def milliseconds(function: Callable[..., Any], *arguments: Any) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    function(*arguments)
    return 1e3 * (time.perf_counter() - start)


def warm(first: int) -> dict[str, list[float]]:
    """Return what each kernel takes in this process, beginning with the kernel of that number.

    By generator: everything, everything again, the key alone. Under an empty name: what is done once, reading the
    sources.
    """
    kernels = catalog()
    taken = {"": [milliseconds(counting_version)]}
    for kernel in kernels[first:] + kernels[:first]:

        def everything(kernel: MeasurementKernel = kernel) -> None:
            count_features(extract_scop(kernel.kernel), dict(kernel.sizes), sub_group_size=SUB_GROUP)

        times = [milliseconds(everything), milliseconds(everything), milliseconds(kernel_key, kernel.kernel)]
        taken[kernel.generator] = times
    return taken


def warm_in_new_processes() -> tuple[dict[str, list[float]], float]:
    """Return medians of `warm` over processes, and by how much the first kernel of a process takes longer."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "PERFLEX_STORE": str(Path(folder, "store.sqlite"))}
        runs = []
        for first in [0, *range(len(ALL_GENERATORS))]:
            command = [sys.executable, __file__, "--warm", str(first)]
            done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
            runs.append(json.loads(done.stdout))
    del runs[0]  # filled the store
    medians = {name: [statistics.median(column) for column in zip(*(run[name] for run in runs), strict=True)]
               for name in runs[0]}  # fmt: skip
    later = [run[name][0] - medians[name][0] for run in runs for name in list(run)[1:2]]
    return medians, statistics.median(later)


def main() -> None:
    """Print a line per generator and the median ratio."""
    os.environ["PERFLEX_STORE"] = "off"
    lp.set_caching_enabled(False)
    remembered, more = warm_in_new_processes()
    ratios = []
    for kernel in catalog():
        ours, theirs = [], []
        footprints = True
        for _ in range(REPEATS):
            ours.append(milliseconds(perflex_counts, kernel.kernel))
            start = time.perf_counter()
            footprints = loopy_counts(kernel.kernel)
            theirs.append(1e3 * (time.perf_counter() - start))
        own, other = statistics.median(ours), statistics.median(theirs)
        ratios.append(own / other)
        first, again, key = remembered[kernel.generator]
        print(
            f"{kernel.generator:20} perflex {own:6.1f} ms  loopy {other:6.1f} ms  ratio {own / other:.2f}"
            f"  warm {first:5.2f} ms (key {key:4.2f})  again {again:4.2f} ms"
            f"{'' if footprints else '  (loopy: no footprints)'}"
        )
    [version] = remembered.pop("")
    slowest = max(remembered, key=lambda name: remembered[name][0])
    print(f"median ratio {statistics.median(ratios):.2f}; slowest warm {slowest} {remembered[slowest][0]:.2f} ms")
    print(f"once per process: sources {version:.2f} ms, the first kernel {more:.2f} ms more")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    if sys.argv[1:2] == ["--warm"]:
        print(json.dumps(warm(int(sys.argv[2]))))
    else:
        main()
