"""Time to count everything in a kernel, against loopy's own counting: ``python tests/bench/extraction_speed.py``.

For one variant of each generator of the catalog, cold (nothing remembered), on one core: perflex's extraction with all
operations, accesses at the paper's granularity, footprints, strides and barriers, and loopy's ``get_op_map``,
``get_mem_access_map``, ``get_synchronization_map`` and ``gather_access_footprints``. Both run in turn; medians.
"""

from __future__ import annotations

import statistics
import time
import warnings
from typing import TYPE_CHECKING, Any

import loopy as lp

from perflex.features import ScopCounts
from perflex.features._loopy_extract import extract_scop
from uipick import ALL_GENERATORS

if TYPE_CHECKING:
    from collections.abc import Callable

SUB_GROUP = 32
REPEATS = 5


def perflex_counts(kernel: lp.TranslationUnit) -> None:
    """Extract and count everything, from a fresh copy of the kernel."""
    scop = extract_scop(kernel.copy())
    counts = ScopCounts(scop)
    for statement in scop.statements:
        counts.sub_group_instances(statement, SUB_GROUP)
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


def milliseconds(function: Callable[[Any], Any], kernel: lp.TranslationUnit) -> float:
    """Return the time of one call."""
    start = time.perf_counter()
    function(kernel)
    return 1e3 * (time.perf_counter() - start)


def main() -> None:
    """Print a line per generator and the median ratio."""
    warnings.simplefilter("ignore")
    lp.set_caching_enabled(False)
    ratios = []
    for generator in ALL_GENERATORS:
        arguments = next(a for a in generator.combinations({}) if generator.violated(a) is None)
        kernel = generator.generate(arguments).kernel
        ours, theirs = [], []
        footprints = True
        for _ in range(REPEATS):
            ours.append(milliseconds(perflex_counts, kernel))
            start = time.perf_counter()
            footprints = loopy_counts(kernel)
            theirs.append(1e3 * (time.perf_counter() - start))
        own, other = statistics.median(ours), statistics.median(theirs)
        ratios.append(own / other)
        note = "" if footprints else "  (loopy's footprints failed)"
        print(f"{generator.name:24} perflex {own:7.1f} ms  loopy {other:7.1f} ms  ratio {own / other:.2f}{note}")
    print(f"median ratio {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
