"""The worked numbers of Ding and Williams, An Instruction Roofline Model for GPUs (2019), from loopy kernels."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import pytest

from perflex import Model, load_machine
from perflex.analysis.roofline import ceilings_of, global_walls, local_walls, pattern_transactions, place_of
from perflex.analysis.roofline_report import roofline_tables
from perflex.errors import MachineError
from perflex.features import extract_scop
from uipick import ALL_GENERATORS, KernelCollection

V100 = load_machine("v100")
GIGA = 1e9


@cache
def place(*tags):
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    scop = extract_scop(kernel.kernel)
    return place_of(scop, kernel.sizes, V100, ceilings_of(V100), name=kernel.arguments["variant"])


def transpose(variant):
    # 1024 x 1024 floats, 32 x 8 work-items on tiles of 32 x 32.
    return place("transpose", f"variant:{variant}", "lsize:32", "rows:4", "dtype:float32", "groups_fit:True", "n:1024")


def gsrb(variant):
    return place("gsrb", f"variant:{variant}", "colour:0", "dtype:float64", "lsize_0:32", "lsize_1:4", "lsize_2:1",
                 "chunk:8", "groups_fit:True", "nx:128", "ny:128", "nz:128")  # fmt: skip


def test_ceilings_of_the_v100():
    found = ceilings_of(V100)
    # Printed: 489.6 GIPS; 437, 93.6 and 25.9 GTXN/s. That of shared memory is only said to be below L1's.
    expected = {"instructions": 489.6, "l1": 437.5, "l2": 93.625, "dram": 25.875, "local": 14000 / 128}
    assert {level: ceiling.rate / GIGA for level, ceiling in found.known.items()} == pytest.approx(expected)
    assert found.peak.rate == pytest.approx(80 * 4 * 1 * 1.53e9)
    assert all("Ding and Williams" in ceiling.source for ceiling in found.known.values())
    ridges = {level: found.peak.rate / found.known[level].rate for level in ("l1", "l2", "dram", "local")}
    assert ridges == pytest.approx({"l1": 1.119086, "l2": 5.229372, "dram": 18.921739, "local": 4.476343}, rel=1e-6)
    assert not found.absent


def test_ceilings_from_facts_say_so():
    found = ceilings_of(replace(V100, ceilings={}))
    assert found.known["instructions"].rate == pytest.approx(80 * 4 * 1.38e9)
    assert found.known["local"].rate == pytest.approx(80 * 1.38e9)
    assert found.known["l1"].rate == pytest.approx(80 * 1.38e9 * 4)
    assert "compute_units x schedulers_per_unit x clock_hz" in found.known["instructions"].source
    assert "white paper" in found.known["instructions"].source
    without = ceilings_of(replace(V100, ceilings={}, l2_bandwidth=None))
    assert "l2" not in without.known
    assert "no fact l2_bandwidth" in without.absent["l2"]
    nothing = ceilings_of(replace(V100, ceilings={}, schedulers_per_unit=None))
    with pytest.raises(MachineError, match="schedulers_per_unit"):
        _ = nothing.peak


def test_a_calibrated_parameter_gives_a_missing_ceiling():
    machine = replace(load_machine("H100-SXM"), l2_bandwidth=None)
    params = {"p_l2": 1 / 60e9, "p_dram": 1e-10}

    def calibrated(text):
        made = SimpleNamespace(model=Model("f_cl_wall_time", text), params=params, device={"name": "some GPU"})
        return ceilings_of(machine, made)

    linear = calibrated("1e-6 + p_l2 * f_txn_l2 + p_dram * f_txn_dram")
    assert linear.known["l2"].rate == pytest.approx(60e9)
    assert linear.known["l2"].source == "calibrated: f_txn_l2 on some GPU"
    # What the machine states goes first.
    assert linear.known["dram"].rate == pytest.approx(3352e9 / 32)
    assert "l2" in calibrated("p_l2 * f_txn_l2 ** 2 + p_dram * f_txn_dram").absent
    assert "l2" in calibrated("p_dram * f_txn_dram").absent


@pytest.mark.parametrize(
    ("itemsize", "counts"),
    [(4, {0: 1, 1: 4, 2: 8, 4: 16, 8: 32, 16: 32}), (8, {0: 1, 1: 8, 2: 16, 4: 32, 8: 32}), (16, {1: 16})],
)
def test_transactions_by_stride(itemsize, counts):
    # 16 bytes are the eight half-precision numbers that each work-item of the tensor-core product loads.
    assert {stride: pattern_transactions(stride, itemsize) for stride in counts} == counts


def test_walls():
    walls = [[(w.name, w.intensity) for w in walls] for walls in (global_walls(4), global_walls(8), local_walls())]
    assert walls[0] == [("stride-0", 1.0), ("stride-1", 0.25), ("stride-8", 1 / 32)]
    assert walls[1] == [("stride-0", 1.0), ("stride-1", 0.125), ("stride-4", 1 / 32)]
    assert walls[2] == [("no conflict", 1.0), *((f"{2**k}-way", 1 / 2**k) for k in range(1, 6))]


def test_naive_transpose_is_far_from_unit_stride():
    found = transpose("naive")
    warps = 1024 * 1024 / 32
    # Loads take 4 transactions per sub-group; stores, 4096 bytes apart, 32.
    assert found.transactions["f_txn_global"] == warps * (4 + 32)
    assert found.intensities["global"] == pytest.approx(2 / 36)
    assert "local" not in found.intensities
    # Level by level: no reuse in L1, good reuse in L2.
    assert found.transactions["f_txn_l2"] == pytest.approx(found.transactions["f_txn_l1"], rel=0.01)
    assert found.transactions["f_txn_dram"] < 0.3 * found.transactions["f_txn_l2"]


def test_transpose_through_a_tile_conflicts_32_ways():
    """The text and its figure say 16-way; a column of a 32-wide float tile lies in one bank of 32, which is 32-way.

    The figure's marker is the mean of stores without conflict and loads with one: two instructions in 33 transactions.
    """
    found = transpose("tiled")
    warps = 1024 * 1024 / 32
    assert found.transactions["f_txn_local"] == warps * (1 + 32)
    assert found.intensities["local"] == pytest.approx(2 / 33)
    assert found.intensities["global"] == pytest.approx(0.25)
    assert found.transactions["f_txn_l1"] == found.transactions["f_txn_global"] + 4 * found.transactions["f_txn_local"]
    # Nearly L1-bound, because of local memory.
    assert found.nearest == "l1"
    padded = transpose("padded")
    assert padded.transactions["f_txn_local"] == warps * 2
    assert padded.intensities["local"] == 1.0
    assert padded.intensities["global"] == found.intensities["global"]
    assert padded.nearest == "dram"
    assert padded.bound_s < found.bound_s < transpose("naive").bound_s


@pytest.mark.slow
def test_smoother_in_three_forms():
    fp, branch, pairs = gsrb("fp"), gsrb("branch"), gsrb("stride2")
    # The same rate of sub-groups' instructions; in the branch, half of the work-items are active.
    ratio = branch.instructions["f_inst_total"] / fp.instructions["f_inst_total"]
    assert ratio == pytest.approx(1, abs=0.05)
    assert fp.instructions["f_inst_predication"] == pairs.instructions["f_inst_predication"] == 1
    assert branch.instructions["f_inst_predication"] < 0.75
    assert pairs.instructions["f_inst_total"] < 0.6 * fp.instructions["f_inst_total"]
    # Loads at the stride-1 wall of double precision, but for the halo's alignment; those of pairs are to its left.
    assert fp.intensities["global"] == pytest.approx(1 / 8, rel=0.1)
    assert branch.intensities["global"] == pytest.approx(fp.intensities["global"], rel=0.1)
    assert pairs.intensities["global"] < 0.6 / 8
    assert pairs.intensities["l1"] < 0.7 * fp.intensities["l1"]
    # No more integer instructions than the half of the paper's mix, and more than loads and stores.
    kinds = fp.instructions
    assert kinds["f_inst_ldst_global"] < kinds["f_inst_int"] < 0.5 * kinds["f_inst_total"]


def test_rates_follow_from_the_time():
    found = replace(gsrb("branch"), seconds=1e-3, seconds_kind="measured")
    total, thread = (found.instructions[f"f_inst_{name}"] for name in ("total", "thread"))
    assert found.warp_gips == pytest.approx(total / 1e-3 / GIGA)
    assert found.gips == pytest.approx(thread / 32 / 1e-3 / GIGA)
    assert found.gips / found.warp_gips == pytest.approx(found.instructions["f_inst_predication"])
    assert gsrb("branch").gips is None


def test_a_kernel_without_accesses_has_instructions_only():
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:16", "lsize_1:16", "ngroups:16"])
    machine = load_machine("V100")
    place = place_of(extract_scop(kernel.kernel), {"ngroups": 16}, machine, ceilings_of(machine))
    assert set(place.transactions.values()) == {0.0}
    assert place.intensities == {}
    assert place.nearest == "instructions"
    nothing = replace(place, instructions=dict.fromkeys(place.instructions, 0.0), seconds=0.0, seconds_kind="bound")
    assert (nothing.nearest, nothing.bound_s, nothing.gips) == ("instructions", 0, None)
    assert all(len(table.rows) == 2 for table in roofline_tables([place, nothing]))
