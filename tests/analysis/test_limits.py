"""Limits of machines: volumes by rates, and the issue of instructions."""

from dataclasses import replace
from math import nan

import pytest

from perflex import estimate_volumes, load_machine, machine_names, source_kernel
from perflex.analysis.roofline import LIMITERS, ceilings_of, limits_of, place_of
from perflex.features import extract_scop
from sample_kernels import matmul
from support.written_kernels import written
from uipick import ALL_GENERATORS, KernelCollection

A100 = load_machine("A100-40GB")
(LAUNCH,) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:16", "lsize_1:16", "ngroups:16"])
EMPTY = estimate_volumes(LAUNCH.kernel, {"ngroups": 16}, A100)
TOTAL = replace(
    EMPTY.total, l1_wavefronts=1e6, local_wavefronts_load=2e5, local_wavefronts_store=1e5, l2_l1_load=4e9,
    l2_l1_store=1e9, dram_load=1e9, dram_store=4e8,
)  # fmt: skip
VOLUMES = replace(EMPTY, total=TOTAL, loading_waves=1.0)


def test_an_empty_launch_moves_nothing_and_starts_its_groups():
    assert (EMPTY.resident_groups, EMPTY.waves) == (8, pytest.approx(16 / (8 * 108)))
    assert set(EMPTY.features().values()) == {0.0}
    limits = limits_of(EMPTY, extract_scop(LAUNCH.kernel), {"ngroups": 16}, A100)
    assert A100.group_start_rate is not None
    assert (limits.limiter, limits.predicted_s) == ("group start", pytest.approx(16 / A100.group_start_rate))


def test_limits_are_volumes_by_rates():
    scop = extract_scop(matmul(prefetch=False))
    limits = limits_of(VOLUMES, scop, {"n": 1024}, A100)
    assert tuple(limits.seconds) == LIMITERS
    cycles = 108 * 1.41e9
    assert limits.seconds["latency"] == A100.dram_latency == pytest.approx(574.6 / 1.41e9, rel=1e-3)
    assert limits.seconds["DRAM"] == pytest.approx(1.4e9 / 1400e9)
    assert limits.seconds["L2"] == pytest.approx(5e9 / 5000e9)
    assert limits.seconds["L1"] == pytest.approx(1e6 / cycles)
    assert limits.seconds["local memory"] == pytest.approx(3e5 / cycles)
    assert limits.seconds["arithmetic"] == pytest.approx(1024**3 / (64 * cycles), rel=1e-3)
    assert (limits.limiter, limits.uncounted) == ("DRAM", ())
    assert limits.predicted_s == limits.seconds["DRAM"]


def test_arithmetic_without_a_throughput_is_named():
    text = """#include <cuda_bf16.h>
    __global__ void k(__nv_bfloat16 *x, __half *h, float *y) {
        int i = threadIdx.x; x[i] = x[i] * x[i] + x[i]; h[i] = h[i] * h[i]; y[i] = 2 * y[i];
    }"""
    scop = source_kernel(text, "k", local=64, groups=8).scop({})
    found = limits_of(estimate_volumes(scop, {}, A100), scop, {}, A100)
    assert found.uncounted == ("f_op_bfloat16_madd", "f_op_float16_mul")


def test_each_of_several_launches_waits_for_memory():
    text = "for s\n for i\n  y[i] = 2*x[i] {id=a}\n end\n ... gbarrier {dep=a}\nend"
    sizes, waits = {"n": 4096**2}, []
    for number in (1, 7):
        domains = [f"{{[s]: 0<=s<{number}}}", "{[i]: 0<=i<n}"]
        made = written(domains, text, "x, y: float32[n]", "i/256: g.0, l.0", assume="n mod 256 = 0 and n >= 256")
        scop = extract_scop(made)
        waits.append(limits_of(estimate_volumes(scop, sizes, A100), scop, sizes, A100).seconds)
    # 256 x 256 work-groups of 256 work-items, of which a unit has 2048.
    assert waits[0]["latency"] == pytest.approx(256 * 256 / (8 * 108) * A100.dram_latency)
    assert waits[1]["latency"] == pytest.approx(7 * waits[0]["latency"])


@pytest.mark.parametrize(
    ("part", "limiter"),
    [
        ("dram_store", "DRAM"), ("l2_l1_load", "L2"), ("l1_wavefronts", "L1"),
        ("local_wavefronts_load", "local memory"), ("", "arithmetic"),
    ],
)  # fmt: skip
def test_each_part_can_be_the_limiter(part, limiter):
    volumes = replace(EMPTY, total=replace(EMPTY.total, **{part: 1e13} if part else {}))
    assert limits_of(volumes, extract_scop(matmul(prefetch=False)), {"n": 512}, A100).limiter == limiter


@pytest.mark.parametrize(
    ("fact", "lacking"),
    [
        ("dram_bandwidth", {"DRAM"}), ("l2_bandwidth", {"L2"}), ("clock_hz", {"L1", "local memory", "arithmetic"}),
        ("compute_units", {"L1", "local memory", "arithmetic"}), ("fp32_per_cycle", {"arithmetic"}),
        ("group_start_rate", {"group start"}), ("dram_latency", {"latency"}),
    ],
)  # fmt: skip
def test_limits_name_the_fact_they_lack(fact, lacking):
    scop = extract_scop(matmul(prefetch=False))
    all_known = limits_of(VOLUMES, scop, {"n": 64}, A100).seconds
    found = limits_of(VOLUMES, scop, {"n": 64}, replace(A100, **{fact: None}))
    assert found.missing == dict.fromkeys((name for name in LIMITERS if name in lacking), (fact,))
    # The others stay what they are.
    assert found.seconds == {name: value for name, value in all_known.items() if name not in lacking}
    assert found.predicted_s == max(found.seconds.values())


def test_cycles_of_an_unknown_first_cache_are_no_limit():
    found = limits_of(
        replace(VOLUMES, total=replace(TOTAL, l1_wavefronts=nan)), extract_scop(matmul(prefetch=False)), {"n": 64}, A100
    )
    assert found.missing == {"L1": ("l1_rules",)}
    assert set(found.seconds) == set(LIMITERS) - {"L1"}


GPUS = [name for name in machine_names() if load_machine(name).kind == "gpu"]


# By hand: compute units, instructions of sub-groups that each starts per cycle, and the clock.
@pytest.mark.parametrize(
    ("name", "gips"),
    [
        ("MI210", 104 * 1 * 1.7), ("MI250X", 110 * 1 * 1.7), ("MI50", 60 * 1 * 1.725), ("W6600", 28 * 2 * 2.903),
        ("W7800", 70 * 4 * 2.525), ("A100-40GB", 108 * 4 * 1.41),
    ],
)  # fmt: skip
def test_instructions_that_start_per_second(name, gips):
    assert ceilings_of(load_machine(name)).peak.rate == pytest.approx(1e9 * gips)


@pytest.mark.parametrize("name", GPUS)
def test_machines_start_the_multiply_adds_that_they_execute(name):
    machine = load_machine(name)
    started = machine.need("schedulers_per_unit") * machine.need("sub_group_size")
    # Not fewer, nor more than twice as many: all of these have at least half as many lanes as they start.
    assert 0.5 <= machine.need("fp32_per_cycle") / 2 / started <= 1


@pytest.mark.parametrize("name", GPUS)
def test_roofline_and_volumes_say_the_same_of_arithmetic_and_which_limits_are_known(name):
    machine, scop, sizes = load_machine(name), extract_scop(matmul(prefetch=False)), {"n": 256}
    place = place_of(scop, sizes, machine, ceilings_of(machine))
    limits = limits_of(estimate_volumes(scop, sizes, machine), scop, sizes, machine)
    assert place.limits["arithmetic"] == limits.seconds["arithmetic"] > 0
    assert place.bound_s >= limits.seconds["arithmetic"]
    assert not limits.missing
    assert set(limits.seconds) == set(LIMITERS)
    assert limits.limiter in limits.seconds
