"""Volumes of grids in parts of which statements run, against enumeration of every work-group and every wave."""

from dataclasses import replace

import numpy as np
import pytest
from enumerated_waves import enumerated, true_parts

from oracles.lru import lru_crossings
from perflex import estimate_volumes, load_machine
from perflex.features.gpu.l1 import l1_cycles
from perflex.features.gpu.waves import launch_residency
from support.uneven_kernels import (
    checkerboard,
    halves,
    product_of_matrices,
    ragged_stencil,
    ragged_vector,
    strided,
    triangle,
    triangular_loop,
    with_border,
)

V100 = load_machine("V100")
# So few compute units that small grids have many waves, and as much less of L2.
SMALL = replace(V100, compute_units=2, l2_effective_bytes=V100.l2_effective_bytes // 40)
BY_GROUP = ("l1_wavefronts", "l1_load", "l2_l1_compulsory", "l2_l1_load", "l2_l1_store")
BY_WAVE = ("wave_load", "wave_store", "overlap_x", "overlap_y", "overlap_z", "dram_load", "dram_store")
KERNELS = [
    ragged_vector(20_001, 128),
    ragged_vector(9_000, 256, surplus=40),
    ragged_vector(100, 128),
    # Edges of work-groups in which nothing runs.
    ragged_stencil((300, 70), (32, 1), 8),
    ragged_stencil((200, 60), (16, 4), 5, box=True),
    ragged_stencil((60, 30, 20), (16, 2, 2), 2),
    triangle(256, (16, 16)),
    triangle(256, (32, 4), upper=False),
    triangular_loop(8_192, 128, 16),
    halves((8, 32), (32, 8), 1, 16),
    halves((16, 20), (32, 8), 0, 7),
    halves((300,), (128,), 0, 100),
    halves((4, 8, 10), (32, 4, 2), 2, 5),
    with_border((20, 20), (16, 8), 0),
    with_border((20, 20), (16, 8), 1, only=True),
    checkerboard((24, 24), (16, 8)),
    checkerboard((20, 18), (16, 8), 3),
    strided(400, 64, 3, 4),
    product_of_matrices(64, 16),
    halves((4, 3), (32, 8), 1, 1),
]
# Many waves of a stencil of 121 points take seconds; the other stencils do not.
DEAR = KERNELS[4]
SOME_DEAR = [pytest.param(kernel, marks=pytest.mark.slow) if kernel is DEAR else kernel for kernel in KERNELS]


def both(kernel, machine, **options):
    """The estimate, and what the same rules say of all work-groups and waves."""
    scop = kernel.scop()
    seen = enumerated(kernel, l1_cycles(V100), lanes=32, sector=32, line=128, granule=64)
    found = estimate_volumes(scop, {}, machine, registers=32, **options)
    with true_parts(seen, launch_residency(scop, 0, {}, machine, 32).wave_groups):
        return found, estimate_volumes(scop, {}, machine, registers=32, **options), seen


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("caches", ["cold", "warm"])
def test_few_waves_are_exact(kernel, caches):
    found, true, _ = both(kernel, V100, caches=caches)
    for name in (*BY_GROUP, *BY_WAVE):
        assert getattr(found.total, name) == pytest.approx(getattr(true.total, name), rel=1e-9, abs=1e-6), name
    assert found.l1_alloc == pytest.approx(true.l1_alloc)
    assert found.wave_items == pytest.approx(true.wave_items)
    for name in ("oversub_l1", "oversub_l2_y", "oversub_l2_z", "oversub_l2"):
        assert getattr(found, name) == pytest.approx(getattr(true, name)), name


@pytest.mark.parametrize("kernel", SOME_DEAR, ids=lambda kernel: kernel.name)
def test_some_of_many_waves_stand_for_all(kernel):
    found, true, _ = both(kernel, SMALL, caches="cold")
    for name in BY_GROUP:
        assert getattr(found.total, name) == pytest.approx(getattr(true.total, name), rel=1e-9), name
    for name in ("wave_load", "wave_store", "dram_load", "dram_store"):
        assert getattr(found.total, name) == pytest.approx(getattr(true.total, name), rel=0.02), name


@pytest.mark.slow
@pytest.mark.parametrize("kernel", SOME_DEAR, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("machine", [V100, SMALL], ids=["V100", "two units"])
def test_cold_caches_load_what_is_touched_at_least(kernel, machine):
    cold = estimate_volumes(kernel.scop(), {}, machine, registers=32, caches="cold")
    warm = estimate_volumes(kernel.scop(), {}, machine, registers=32)
    assert (cold.caches, warm.caches) == ("cold", "warm")
    seen = enumerated(kernel, l1_cycles(V100), lanes=32, sector=32, line=128, granule=64)
    for array, volumes in cold.arrays.items():
        touched = {way: len(np.unique(seen.touched.get((way, array), ((), ()))[1])) * 64 for way in ("load", "store")}
        assert volumes.dram_load >= touched["load"] * (1 - 1e-9)
        assert volumes.dram_store >= touched["store"] * (1 - 1e-9)
        assert volumes.hit_again == volumes.kept_store == 0
        assert warm.arrays[array].dram_load <= volumes.dram_load
        # What exceeds L2 cannot stay there.
        exceeding = seen.run_bytes() - machine.need("l2_effective_bytes")
        assert warm.total.dram_load + warm.total.dram_store >= min(exceeding, 0.9 * cold.total.dram_load)


def trace(kernel, resident):
    """Granules in order of time, waves one after the other, what a wave shares once, and store flags."""
    first = {name: number << 40 for number, name in enumerate(kernel.arrays)}
    lines, stores = [], []
    seen = enumerated(kernel, l1_cycles(V100), lanes=32, sector=32, line=128, granule=64)
    running = np.flatnonzero(seen.instances)
    for start in range(0, len(running), resident):
        for (direction, array), (group, granule) in seen.touched.items():
            mine = np.unique(granule[np.isin(group, running[start : start + resident])])
            lines.append(mine + first[array])
            stores.append(np.full(len(mine), direction == "store"))
    return np.concatenate(lines), np.concatenate(stores)


@pytest.mark.parametrize("kernel", [KERNELS[0], KERNELS[6], KERNELS[9], KERNELS[15], KERNELS[18]], ids=lambda k: k.name)
def test_cold_and_warm_loads_are_those_of_a_cache_that_holds_all_or_little(kernel):
    resident = launch_residency(kernel.scop(), 0, {}, V100, 32).wave_groups
    lines, stores = trace(kernel, resident)
    everything = 64 * len(np.unique(lines))
    # Whole sectors are stored without loading them, once each: the simulated cache loads them all the same.
    stored = np.count_nonzero(stores)
    for share, tolerance in ((4.0, 0.01), (0.25, 0.25)):
        capacity = int(share * everything)
        machine = replace(V100, l2_effective_bytes=capacity, l2_bytes=capacity)
        once = lru_crossings(lines, stores, capacity, 64)
        twice = lru_crossings(np.tile(lines, 2), np.tile(stores, 2), capacity, 64)
        cold = estimate_volumes(kernel.scop(), {}, machine, registers=32, caches="cold").total
        warm = estimate_volumes(kernel.scop(), {}, machine, registers=32, caches="warm").total
        again = twice.loads - once.loads
        assert cold.dram_load == pytest.approx(64 * (once.loads - stored), rel=tolerance)
        expected = 64 * max(0, again - stored)
        assert warm.dram_load == pytest.approx(expected, rel=tolerance, abs=0.01 * everything)
