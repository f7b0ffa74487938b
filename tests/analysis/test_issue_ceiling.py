"""Issue of instructions against the rate of arithmetic of the same machine, and arithmetic in roofline and volumes."""

from __future__ import annotations

import pytest

from perflex import estimate_volumes, load_machine, machine_names
from perflex.analysis.roofline import LIMITERS, ceilings_of, limits_of, place_of
from perflex.features import extract_scop
from sample_kernels import matmul

GPUS = [name for name in machine_names() if load_machine(name).kind == "gpu"]


# By hand: compute units, instructions of sub-groups that each starts per cycle, and the clock.
@pytest.mark.parametrize(
    ("name", "gips"),
    [
        ("MI210", 104 * 1 * 1.7),
        ("MI250X", 110 * 1 * 1.7),
        ("MI50", 60 * 1 * 1.725),
        ("W6600", 28 * 2 * 2.903),
        ("W7800", 70 * 4 * 2.525),
        ("A100-40GB", 108 * 4 * 1.41),
    ],
)
def test_instructions_that_start_per_second(name: str, gips: float) -> None:
    assert ceilings_of(load_machine(name)).peak.rate == pytest.approx(1e9 * gips)


@pytest.mark.parametrize("name", GPUS)
def test_machines_start_the_multiply_adds_that_they_execute(name: str) -> None:
    machine = load_machine(name)
    started = machine.need("schedulers_per_unit") * machine.need("sub_group_size")
    # Not fewer, nor more than twice as many: all of these have at least half as many lanes as they start.
    assert 0.5 <= machine.need("fp32_per_cycle") / 2 / started <= 1


@pytest.mark.parametrize("name", GPUS)
def test_roofline_and_volumes_say_the_same_of_arithmetic(name: str) -> None:
    machine, scop, sizes = load_machine(name), extract_scop(matmul(prefetch=False)), {"n": 256}
    place = place_of(scop, sizes, machine, ceilings_of(machine))
    limits = limits_of(estimate_volumes(scop, sizes, machine).features(), scop, sizes, machine)
    assert place.limits["arithmetic"] == limits.seconds["arithmetic"] > 0
    assert place.bound_s >= limits.seconds["arithmetic"]


@pytest.mark.parametrize("name", GPUS)
def test_which_limits_of_machines_are_known(name: str) -> None:
    machine, scop, sizes = load_machine(name), extract_scop(matmul(prefetch=False)), {"n": 256}
    limits = limits_of(estimate_volumes(scop, sizes, machine).features(), scop, sizes, machine)
    # What has no source yet is named, and the rest is known.
    missing = {"L1": ("l1_rules",)} if name == "W7800" else {}
    assert dict(limits.missing) == missing
    assert set(limits.seconds) == set(LIMITERS) - set(missing)
    assert limits.limiter in limits.seconds
