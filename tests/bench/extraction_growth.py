"""How cold extraction grows with the number of statements: ``python tests/bench/extraction_growth.py [MOST]``.

Kernels of 1 to 200 statements of four kinds, nothing remembered and no store: the time of loopy's preprocessing and
scheduling, of perflex's description, and of counting everything. Printed per statement, with the exponent e of
``time = c * statements**e`` fitted over the kernels of at least ten statements, and a curve.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from typing import TYPE_CHECKING

import loopy as lp
import numpy as np

os.environ["PERFLEX_STORE"] = "off"

from perflex.features import CountingOptions, count_features
from perflex.features.from_loopy.extract import _Extraction, _linearized

if TYPE_CHECKING:
    from collections.abc import Callable

COUNTS = (1, 2, 5, 10, 20, 50, 100, 200)
WIDTH = 50


def independent(count: int) -> str:
    """Return statements on rows of one array, in no order."""
    return "\n".join(f"y[{k}, i] = x[{k}, i]*{k + 2}.5f + z[i]" for k in range(count))


def updates(count: int) -> str:
    """Return statements that update the same elements one after the other."""
    return "\n".join(f"y[i] = y[i]*{k + 2}.5f + x[i]" for k in range(count))


def private(count: int) -> str:
    """Return a chain of private variables."""
    steps = [f"<> t{k} = t{k - 1}*{k + 2}.5f" for k in range(1, count)]
    return "\n".join(["<> t0 = x[i]", *steps, f"y[i] = t{count - 1}"])


def loops(count: int) -> str:
    """Return loops one after the other."""
    return "\n".join(f"for j{k}\n y[i, j{k}] = x[i, j{k}]*{k + 2}.5f\nend" for k in range(count))


KINDS: tuple[Callable[[int], str], ...] = (independent, updates, private, loops)


def make(kind: Callable[[int], str], count: int) -> lp.TranslationUnit:
    """Return a kernel of so many statements."""
    domains = ["{[i]: 0<=i<n}"] + [f"{{[j{k}]: 0<=j{k}<m}}" for k in range(count if kind is loops else 0)]
    kernel = lp.make_kernel(
        domains,
        kind(count),
        name="growth",
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=kind is not independent,
    )
    arrays = {argument.name: np.float32 for argument in kernel["growth"].args if argument.name[0] in "xyz"}
    kernel = lp.assume(lp.add_dtypes(kernel, arrays), "n >= 32 and n % 32 = 0")
    return lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0")


def seconds(kernel: lp.TranslationUnit) -> tuple[float, float, float]:
    """Return the time of scheduling, describing and counting."""
    times = [time.perf_counter()]
    scheduled = _linearized(kernel)
    times.append(time.perf_counter())
    scop = _Extraction(*scheduled, CountingOptions()).scop()
    times.append(time.perf_counter())
    count_features(scop, dict.fromkeys(scop.parameters, 1024))
    times.append(time.perf_counter())
    first, second, third = np.diff(times)
    return float(first), float(second), float(third)


def exponent(counts: list[int], times: list[float]) -> float:
    """Return the slope of log time over log count, from ten statements on."""
    used = [i for i, count in enumerate(counts) if count >= 10]
    return float(np.polyfit(np.log([counts[i] for i in used]), np.log([times[i] for i in used]), 1)[0])


def main(most: int) -> None:
    """Print a table and a curve for each kind."""
    warnings.simplefilter("ignore")
    lp.set_caching_enabled(False)
    seconds(make(independent, 3))  # loads what is loaded once
    counts = [count for count in COUNTS if count <= most]
    for kind in KINDS:
        print(f"{kind.__name__}: {kind.__doc__.removeprefix('Return ').rstrip('.')}")
        print("statements  loopy ms  describe ms  count ms  all ms  all per statement")
        rows = []
        for count in counts:
            parts = min((seconds(make(kind, count)) for _ in range(3)), key=sum)
            rows.append((*parts, sum(parts)))
            shown = "  ".join(f"{1e3 * part:{width}.1f}" for part, width in zip(rows[-1], (8, 11, 8, 6), strict=True))
            print(f"{count:10}  {shown}  {1e3 * sum(parts) / count:9.2f} ms")
        slopes = [exponent(counts, [row[i] for row in rows]) for i in range(4)]
        print("exponents: " + ", ".join(
            f"{name} {slope:.2f}" for name, slope in zip(("loopy", "describe", "count", "all"), slopes, strict=True)
        ))  # fmt: skip
        slowest = rows[-1][3]
        for count, row in zip(counts, rows, strict=True):
            print(f"{count:10} |{'#' * max(1, round(WIDTH * row[3] / slowest))}")
        print()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNTS[-1])
