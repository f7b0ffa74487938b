"""Loads below the L1 cache from stack distances: sweeps, sharing, and waves beyond the L2."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracles.l1_lru import loads_below_l1
from perflex import estimate_volumes
from perflex.features import scop_from_yaml
from perflex.features.gpu.l1_reuse import stack_distances
from perflex.features.gpu.volume_rules import reuse_beyond
from support.l1_kernels import sweep
from support.machines_for_tests import V100
from support.volume_kernels import box, star, stencil

KIB = 1024


def counted(lines: list[int]) -> list[int]:
    """Distinct other lines since the last touch, one by one."""
    found = []
    for now, line in enumerate(lines):
        before = max((n for n in range(now) if lines[n] == line), default=None)
        found.append(0 if before is None else len(set(lines[before + 1 : now])))
    return found


def test_stack_distances_of_a_short_trace_are_exact() -> None:
    lines = [1, 2, 3, 1, 1, 4, 2, 3, 3, 2]
    order, first, distance = stack_distances(np.array(lines))
    assert order.tolist() == sorted(range(len(lines)), key=lambda n: (lines[n], n))
    assert first.tolist() == [True, True, True, False, False, True, False, False, False, False]
    assert np.all(np.abs(distance - counted(lines)) <= 2)


def test_stack_distances_of_a_long_trace_are_near() -> None:
    lines = np.random.default_rng(3).integers(0, 200, 3000)
    _, _, distance = stack_distances(lines)
    exact = np.array(counted(lines.tolist()))
    assert np.abs(distance - exact).mean() < 2
    assert np.abs(distance - exact).max() < 3000 / 250 + 2


@pytest.mark.parametrize("planes", [4, 32])
def test_a_sweep_needs_each_plane_once_however_many_there_are(planes: int) -> None:
    scop, grid, loads_of = sweep(star(3, 1), (64, 32, planes), (32, 8))
    machine = replace(V100, compute_units=2, max_items_per_unit=512)
    found = estimate_volumes(scop, {}, machine)
    truth = loads_below_l1(grid, loads_of, units=2, resident=found.resident_groups, capacity=128 * KIB)
    assert found.total.l2_l1_load == pytest.approx(truth, rel=0.3)
    # All that a work-group loads is far more than the cache holds.
    assert (found.oversub_l1 > 1.5) == (planes == 32)


# Bytes per update between L2 and L1: hardware counters of a V100, 15,000 x 15,000, work-groups of 32 x 8 (notebook
# history of te42kyfo/warpspeed).
@pytest.mark.parametrize(("reach", "counted"), [(1, 12.46), (3, 17.38), (6, 29.48), (9, 45.14)])
def test_box_stencils_on_hardware(reach: int, counted: float) -> None:
    n = 15000
    scop = stencil(box(2, reach), [n, n], [32, 8], shape=[n, n])
    found = estimate_volumes(scop, {}, V100, registers=32).total
    assert found.l2_l1_load / n**2 == pytest.approx(counted, rel=0.03)


def test_repeated_loads_of_a_wave_miss_beyond_the_capacity_only() -> None:
    assert [reuse_beyond(share) for share in (0.0, 0.5, 1.0)] == [0.0, 0.0, 0.0]
    # Twice the capacity: of two times in the wave, a quarter lies more than half of it apart.
    assert reuse_beyond(2.0) == 0.25
    times = np.random.default_rng(0).random((200_000, 2))
    assert reuse_beyond(3.0) == pytest.approx(np.mean(np.abs(times[:, 0] - times[:, 1]) > 1 / 3), abs=0.01)


TWICE = """
schema: perflex-scop/1
name: twice
parameters: [n]
launches:
- {groups: ["floor(n/64)"], items: [64]}
arrays:
- {name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}
statements:
- name: first
  domain: "[n] -> { [g, l, k] : 0 <= g and 64g < n and 0 <= l < 64 and 0 <= k < n }"
  schedule: [0, k, 0]
  accesses: [{array: a, direction: load, relation: "{ [g, l, k] -> [64g + l, k] }"}]
"""


def test_a_statement_whose_values_are_all_in_registers_loads_nothing() -> None:
    again = TWICE[TWICE.index("- name") :].replace("first", "again").replace("k, 0]\n", "k, 1]\n")
    once, twice = (estimate_volumes(scop_from_yaml(text), {"n": 512}, V100) for text in (TWICE, TWICE + again))
    assert twice.features() == once.features()
