"""Cache volumes of irregular kernels against all their accesses, enumerated and run through a cache."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from oracles.lru import lru_crossings
from oracles.traces import scop_trace
from perflex import estimate_ecm
from perflex.features import extract_scop
from support.ecm_kernels import loopy_kernel, on_grid, small_machine
from support.irregular_kernels import irregular, triangular

# Not near to sizes of arrays or rows.
CACHES = (1280, 2560, 5120, 10240)
LARGE = {"remainder": 4096, "no loads": 4096, "butterfly": 4096, "two divisors": 4096, "scattered": 4096}
SMALL = {
    "trmm": 64,
    "syrk": 64,
    "syrk guarded": 64,
    "lu": 64,
    "four loops": 16,
    "product in lanes": 64,
    "two nests": 64,
}
# Noted are those that are followed approximately.
NOTED = {"gathered", "scattered", "skewed", "diagonal", "two divisors", "checkerboard", "band", "hexagon"}


@cache
def ratios(kind: str, lanes: int) -> dict[str, list[float]]:
    """Estimated bytes beyond each cache over those of the simulation, by kernel."""
    found = {}
    for name, kernel in (triangular() if kind == "triangular" else irregular()).items():
        scop = extract_scop(kernel)
        sizes = dict.fromkeys(scop.parameters, LARGE.get(name, SMALL.get(name, 128)))
        lines, stores = scop_trace(scop, sizes, lanes=lanes)
        found[name] = []
        for capacity in CACHES:
            estimate = estimate_ecm(scop, sizes, small_machine(capacity), lanes=lanes)
            assert bool(estimate.approximated) == (name in NOTED), name
            wanted = lru_crossings(lines, stores, capacity)
            # A cache that holds all data is warm in the estimate, empty at first in the simulation.
            if len(np.unique(lines)) * 64 > 1.5 * capacity:
                found[name].append(estimate.levels[1].launch_bytes / (64 * (wanted.loads + wanted.evicts)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("kind", ["triangular", "irregular"])
def test_volumes_are_those_of_the_simulation(kind: str, lanes: int) -> None:
    off = {name: [abs(np.log(ratio)) for ratio in found] for name, found in ratios(kind, lanes).items()}
    every = [value for found in off.values() for value in found]
    assert len(every) >= 30
    assert np.exp(np.median(every)) < 1.05
    worst = {name: float(np.exp(max(found))) for name, found in off.items() if found}
    # The elimination is off most in a cache that holds all but its first steps; what is noted is known less well.
    allowed = {name: 1.6 if name == "lu" or name in NOTED else 1.35 for name in worst}
    assert {name: ratio for name, ratio in worst.items() if ratio > allowed[name]} == {}


def test_a_guard_on_every_other_work_item_counts_all_lines() -> None:
    code = "if i % 2 == 0\n    b[i] = a[i]\nend"
    kernel = on_grid(loopy_kernel("{[i]: 0<=i<n}", code, {"a": "(n)", "b": "(n)"}), i=(0, 64))
    found = estimate_ecm(extract_scop(kernel), {"n": 1 << 20}, "clx")
    # Half of the work-items, but all of the cache lines.
    assert found.iterations == 1 << 19
    assert found.level("L2").launch_load_bytes == pytest.approx(16 * (1 << 20), rel=0.02)
    assert "leaves out iterations" in found.approximated[0]


def test_accesses_that_data_decide_hit_with_the_part_that_the_cache_holds() -> None:
    scop = extract_scop(irregular()["scattered"])
    sizes = {"n": 1 << 16}
    beyond = [
        estimate_ecm(scop, sizes, small_machine(capacity)).levels[1].launch_load_bytes
        for capacity in (1 << 10, 1 << 18, 1 << 19, 1 << 24)
    ]
    # Two streams of 8 and 4 B bring in their lines; a tiny cache holds nothing of h, a huge one all of everything.
    assert beyond[0] == pytest.approx((12 + 64) * (1 << 16), rel=0.02)
    assert beyond[0] > beyond[1] > beyond[2] > beyond[3] == 0
