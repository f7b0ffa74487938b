"""Cache volumes of loops that begin where outer loops say, against their accesses one by one, run through a cache."""

from __future__ import annotations

import numpy as np
import pytest

from oracles.lru import lru_crossings
from oracles.traces import scop_trace
from perflex import estimate_ecm
from perflex.features import extract_scop
from support.ecm_kernels import loopy_kernel, on_grid, small_machine
from support.moving_loops import MovingKernel, random_moving_kernel

CACHES = (1280, 2560, 5120, 10240, 24576)
# A condition holds or does not; a real cache goes over from one to the other. So any volume counts as right that a
# cache a little smaller or larger has.
AROUND = (0.7, 0.84, 1.0, 1.2, 1.45)
# As far as volumes of stencils and of regular kernels may be off in the other tests; of what is noted, more.
WITHIN, NOTED, LEAST = 1.12, 1.6, 0.25
# Of random kernels, a few (3 in 100) are further off than that, by at most so much.
FURTHER = 1.35


def simulated(lines: np.ndarray, stores: np.ndarray, cache: int, iterations: int) -> list[tuple[float, float]]:
    """Bytes per iteration that a cache and ones a little smaller and larger load and store."""
    found = [lru_crossings(lines, stores, int(cache * factor) // 64 * 64) for factor in AROUND]
    return [(64 * one.loads / iterations, 64 * one.evicts / iterations) for one in found]


def wrong(scop, sizes, traced, caches, tolerance: float = WITHIN, **options) -> list[str]:
    """What of the estimates is wrong."""
    lines, stores, iterations = traced
    found = []
    for cache in caches:
        # A cache that holds all data is warm in the estimate, empty at first in the simulation.
        if len(np.unique(lines)) * 64 <= 1.5 * cache:
            continue
        estimate = estimate_ecm(scop, sizes, small_machine(cache), **options)
        assert estimate.iterations == iterations
        within = NOTED if estimate.approximated else tolerance
        ways = (estimate.levels[1].load_bytes, estimate.levels[1].store_bytes)
        for got, wanted in zip(ways, zip(*simulated(lines, stores, cache, iterations), strict=True), strict=True):
            if not min(wanted) / within - LEAST <= got <= max(wanted) * within + LEAST:
                found.append(f"{cache} B: {got:.2f} instead of {min(wanted):.2f} to {max(wanted):.2f}")
    return found


def check(kernel: MovingKernel, caches: tuple[int, ...]) -> list[str]:
    """What of the estimates is further off than `WITHIN`, but not further than `FURTHER`."""
    sizes, traced = {"n": kernel.n}, kernel.trace()
    plain, shifted = (extract_scop(kernel.loopy(shifted=shifted)) for shifted in (False, True))
    for cache in caches:
        one, other = (estimate_ecm(scop, sizes, small_machine(cache)) for scop in (plain, shifted))
        # Of an access that cases define, that of one case stands for all, which need not be the same one.
        exact = 1e-2 if one.approximated else 1e-9
        assert one.levels[1].bytes == pytest.approx(other.levels[1].bytes, rel=exact), kernel
    found = wrong(plain, sizes, traced, caches)
    if found:
        assert wrong(plain, sizes, traced, caches, FURTHER) == [], kernel
    return found


@pytest.mark.parametrize("seed", range(12))
def test_volumes_of_moving_loops_are_those_of_the_simulation(seed: int) -> None:
    kernel = random_moving_kernel(seed)
    assert check(kernel, (2560, 10240)) == [], kernel


@pytest.mark.slow
@pytest.mark.parametrize("first", range(1000, 1300, 25))
def test_volumes_of_300_kernels_with_moving_loops(first: int) -> None:
    off = [seed for seed in range(first, first + 25) if check(random_moving_kernel(seed), CACHES)]
    assert len(off) <= 2


# Domain, code, arrays and size of kernels of work-items.
WINDOWS = {
    "segments": ("64*i<=j<64*i+64", "y[i] = sum(j, x[j])", {"x": "(64*n)", "y": "(n)"}, 512),
    "segments with gaps": ("100*i<=j<100*i+33", "y[i] = sum(j, x[j])", {"x": "(100*n)", "y": "(n)"}, 512),
    "windows": ("i<=j<i+2000", "y[i] = sum(j, x[j])", {"x": "(n+2000)", "y": "(n)"}, 128),
    "convolution": ("i<=j<i+200", "y[i] = sum(j, x[j]*h[j-i])", {"x": "(n+200)", "h": "(200)", "y": "(n)"}, 1024),
    "overlapping": ("16*i<=j<16*i+64", "y[i] = sum(j, x[j])", {"x": "(16*n+64)", "y": "(n)"}, 1024),
    "upper triangle": ("i<=j<n", "y[i] = sum(j, a[i,j]*x[j])", {"a": "(n,n)", "x": "(n)", "y": "(n)"}, 192),
    "columns of a triangle": ("i<=j<n", "y[i] = sum(j, a[j,i]*x[j])", {"a": "(n,n)", "x": "(n)", "y": "(n)"}, 192),
    "band": ("i-8<=j<=i+8 and 0<=j<n", "y[i] = sum(j, a[i,j]*x[j])", {"a": "(n,n)", "x": "(n)", "y": "(n)"}, 512),
}


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("name", list(WINDOWS))
def test_volumes_of_work_items_that_have_windows_of_their_own(name: str, lanes: int) -> None:
    bounds, code, arrays, n = WINDOWS[name]
    kernel = loopy_kernel(f"{{[i,j]: 0<=i<n and {bounds}}}", code, arrays, dtype=np.float32)
    scop = extract_scop(on_grid(kernel, i=(0, 64)))
    lines, stores = scop_trace(scop, {"n": n}, lanes=lanes)
    iterations = estimate_ecm(scop, {"n": n}, small_machine(1280), lanes=lanes).iterations
    assert wrong(scop, {"n": n}, (lines, stores, iterations), (2560, 10240), lanes=lanes) == []


def test_tiles_that_stop_at_the_end_of_the_array_stream_it_once() -> None:
    around = "a[j,i] + a[j,i-1] + a[j,i+1] + a[j-1,i] + a[j+1,i]"
    bounds = "1<=j<n-1 and 1<=i<n-1 and 16*jo<=j<16*jo+16 and 64*io<=i<64*io+64"
    domain = f"{{[jo,io,j,i]: 0<=jo and 0<=io and {bounds}}}"
    code = f"b[j,i] = {around} {{inames=jo:io:j:i}}"
    kernel = loopy_kernel(domain, code, {"a": "(n,n)", "b": "(n,n)"}, "jo,io,j,i")
    found = estimate_ecm(extract_scop(kernel), {"n": 1002}, small_machine(32 << 10, 1 << 20))
    assert found.iterations == 1000 * 1000
    # Simulated: 17.13 and 16.05 B, of which 8 are the write-allocate, and 8.06 and 8.02 B.
    assert [level.load_bytes for level in found.levels[1:]] == pytest.approx([17.13, 16.05], rel=0.03)
    assert [level.store_bytes for level in found.levels[1:]] == pytest.approx([8.06, 8.02], rel=0.03)
    assert not found.approximated


def test_a_loop_of_one_iteration_inside_does_not_shorten_windows() -> None:
    loads = " + ".join(f"a[j+k+{4 + row},i+{4 + column}]" for row, column in ((-4, 0), (0, -4), (0, 4), (4, 0), (0, 0)))
    arrays = {"a": "(n+8,n+8)", "b": "(n,n)"}
    kernel = loopy_kernel("{[j,i,k]: 0<=j,i<n and 0<=k<1}", f"b[j+k,i] = {loads}", arrays, "j,i,k")
    scop, sizes = extract_scop(kernel), {"n": 128}
    lines, stores = scop_trace(scop, sizes)
    # Less than the accesses of one iteration, and less than a row.
    assert wrong(scop, sizes, (lines, stores, 128 * 128), (256, 2048)) == []
