"""Cycles of compiled code by perflex's ports and llvm-mca against measured ones, for development families.

The first and last variant of each family at its smallest size, whose data lie in caches, are built, their cycles taken
from each source, and timed. Measured cycles are (time - time of an empty kernel) x clock x cores; the clock is that of
a chain of dependent decrements. Cycles are those of one core, with no cost of memory, calls or work-groups, so that
factors off hold those, too, for all sources alike. The baselines know the instructions: six in a cycle, and any number
fitted as one factor. Nothing else is fitted; kernels that a source refuses are left out for that source and counted,
and all sources are shown for the kernels that all of them know, too.

Run: python tests/bench/cycle_sources.py DEVICE [--count]   (--count: no times, fills the cache of answers)
"""

from __future__ import annotations

import ctypes
import mmap
import sys
import time
import warnings
from itertools import groupby
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

TOP = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP), str(TOP / "tests" / "bench")]

from any_kernel_parts.families import families  # noqa: E402
from any_kernel_parts.kernels import F32, make, updated  # noqa: E402

from perflex.compiled.in_core.source import SOURCES, cycle_source  # noqa: E402
from perflex.errors import MissingExtraError, PerflexWarning, UnsupportedKernelError  # noqa: E402
from perflex.features import extract_scop  # noqa: E402
from perflex.features.families.code import launch_values  # noqa: E402
from perflex.features.sized_kernel import sized_kernels  # noqa: E402
from perflex.timing.compiled_code import compiled_code  # noqa: E402
from perflex.timing.measuring import chosen_device, measure  # noqa: E402
from perflex.timing.options import TimingOptions  # noqa: E402
from perflex.timing.results import MeasurementFailure  # noqa: E402

# mov rax, rdi; again: dec rax; jnz again; ret
DECREMENTS = bytes.fromhex("4889f848ffc875fbc3")
ISSUED = 6.0


def clock() -> float:
    """Return the clock of this core in Hz, from a chain of one decrement each cycle."""
    page = mmap.mmap(-1, len(DECREMENTS), prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(DECREMENTS)
    run = ctypes.CFUNCTYPE(None, ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
    best, count = np.inf, 20_000_000
    for _ in range(15):
        begin = time.perf_counter()
        run(count)
        best = min(best, time.perf_counter() - begin)
    return count / best


def chosen_kernels():
    """Return family and variant of each kernel, and the kernels with their sizes; the last one does nothing."""
    names, kernels = [], []
    for family in families("develop"):
        variants = list(family.variants)
        for variant in dict.fromkeys((variants[0], variants[-1])):
            names.append((family.name, variant))
            kernels.append((family.variants[variant](), dict(family.sizes[0])))
    import loopy as lp

    empty = lp.tag_inames(make("empty", "{[i]: 0<=i<n}", "x[i] = 1", [updated("x", F32, "n")]), {"i": "g.0"})
    return names, sized_kernels([*kernels, (empty, {"n": 2})])


def counted(job, code, sources):
    """Return cycles by source (None where one refuses) and the instructions of a kernel."""
    scop = extract_scop(job.kernel)
    sizes = {name: int(value) for name, value in scop.checked(job.sizes).items()}
    found = {}
    for name, source in sources.items():
        try:
            found[name] = launch_values(scop, sizes, code, source).cycles
        except UnsupportedKernelError as error:
            print(f"  {job.label}: {error}", flush=True)
            found[name] = None
    found["instructions"] = launch_values(scop, sizes, code).counts["instructions"]
    return found


def line(name, predicted, actual, names) -> str:
    """Return what there is to say of one source for some kernels."""
    ratios = np.log(np.asarray(predicted) / np.asarray(actual))
    parts = [f"{name:22} {len(ratios):3}"]
    for shift in (0.0, float(np.median(ratios))):
        off = np.abs(ratios - shift)
        parts.append(f"{np.exp(np.median(off)):6.2f} {np.exp(np.sqrt(np.mean(off**2))):6.2f} {np.exp(off.max()):6.2f}")
    losses = []
    for _, group in groupby(range(len(names)), key=lambda place: names[place][0]):
        places = list(group)
        if len(places) > 1:
            chosen = min(places, key=lambda place: predicted[place])
            losses.append(actual[chosen] / min(actual[place] for place in places) - 1)
    loss = f"{np.mean(losses):7.1%} {max(losses):7.1%}" if losses else "      -       -"
    return " | ".join([*parts, f"{spearmanr(predicted, actual).statistic:5.2f}", loss])


def show(rows, actual, names, sources) -> None:
    """Print the table for some kernels."""
    print(f"{'source':22} {'n':>3} | factor off: med, rms, max | with one fitted factor | rank  | loss: mean, max")
    for source in sources:
        known = [place for place, row in enumerate(rows) if row[source] is not None]
        if len(known) > 2:
            taken = [[one[place] for place in known] for one in ([row[source] for row in rows], actual, names)]
            print(line(source, *taken))
    instructions = [row["instructions"] / ISSUED for row in rows]
    print(line("instructions / 6", instructions, actual, names))


def main() -> None:
    warnings.simplefilter("ignore", PerflexWarning)
    device = chosen_device(sys.argv[1])
    sources = {}
    for name in SOURCES:
        try:
            sources[name] = cycle_source(name)
        except MissingExtraError as error:
            print(error)
    names, jobs = chosen_kernels()
    codes = compiled_code(jobs, device)
    kept = [place for place, code in enumerate(codes[:-1]) if not isinstance(code, MeasurementFailure)]
    rows = [counted(jobs[place], codes[place], sources) for place in kept]
    if "--count" in sys.argv:
        return
    frequency, cores = clock(), device.compute_units
    *times, nothing = measure([*(jobs[place] for place in kept), jobs[-1]], device, TimingOptions(budget_s=0.3))
    told = ", ".join(map(str, filter(None, sources.values())))
    print(f"{device}: {frequency / 1e9:.2f} GHz, {cores} cores, empty kernel {nothing.seconds * 1e6:.1f} us; {told}")
    timed = [place for place, one in enumerate(times) if not isinstance(one, MeasurementFailure)]
    actual = [(times[place].seconds - nothing.seconds) * frequency * cores for place in timed]
    rows, names = [rows[place] for place in timed], [names[kept[place]] for place in timed]
    for row, cycles, name in zip(rows, actual, names, strict=True):
        parts = " ".join("   refused" if row[one] is None else f"{row[one]:10.4g}" for one in sources)
        print(f"{' '.join(name):32} measured {cycles:10.4g}: {parts} instructions {row['instructions']:10.4g}")
    show(rows, actual, names, sources)
    common = [place for place, row in enumerate(rows) if all(row[one] is not None for one in sources)]
    if 2 < len(common) < len(rows):
        print(f"the {len(common)} kernels that all sources know")
        show(*([one[place] for place in common] for one in (rows, actual, names)), sources)


if __name__ == "__main__":
    main()
