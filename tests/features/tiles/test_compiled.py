"""Shared memory and registers of attention and quantised products, as Triton 3.9 and ptxas compiled them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from perflex import load_machine
from perflex.features.tiles.costs import TileCosts
from perflex.features.tiles.tile_program import (
    OPERAND_BYTES,
    TileAccess,
    TileDot,
    TileLoop,
    TileOperand,
    TileOperations,
    TileProgram,
    TileResources,
)

STEPS = 32


def load(name: str, itemsize: int, *shape: int, loop: int = 0, **more: Any) -> TileAccess:
    return TileAccess(
        array=name, direction="load", itemsize=itemsize, shape=shape, loop=loop, executions=STEPS, elements=STEPS,
        sectors=STEPS, **more,
    )  # fmt: skip


def program(loads: list[TileAccess], dots: list[TileDot], warps: int, stages: int, work: float = 0.0) -> TileProgram:
    done = TileOperations(kind="elementwise", dtype="f32", loop=0, count=STEPS * work)
    loops = (TileLoop(entries=1, iterations=STEPS),)
    return TileProgram(
        name="tiles", grid=(1, 1, 1), warps=warps, stages=stages, loops=loops, accesses=tuple(loads), dots=tuple(dots),
        operations=(done,),
    )  # fmt: skip


def dot(m: int, n: int, k: int, kind: str, first: TileOperand, second: TileOperand) -> TileDot:
    return TileDot(shape=(m, n, k), types=(kind, kind, "f32"), loop=0, executions=STEPS, operands=(first, second))


def plain(m: int, n: int, k: int, warps: int, stages: int, kind: str = "f16") -> TileProgram:
    """Return a product of two matrices that lie along their rows."""
    loads = [load("a", OPERAND_BYTES[kind], m, k, axis=1), load("b", OPERAND_BYTES[kind], k, n, axis=1)]
    found = dot(m, n, k, kind, TileOperand(access=0), TileOperand(access=1, along_k=False))
    return program(loads, [found], warps, stages)


def attention(m: int, n: int, d: int, warps: int, stages: int) -> TileProgram:
    loads = [load("q", 2, m, d, loop=-1), load("k", 2, d, n, axis=0), load("v", 2, n, d, axis=1)]
    first = dot(m, n, d, "f16", TileOperand(access=0), TileOperand(access=1))
    second = dot(m, d, n, "f16", TileOperand(direct=False), TileOperand(access=2, along_k=False))
    return program(loads, [first, second], warps, stages, 6.0 * m * n)


def scaled(m: int, n: int, k: int, warps: int, stages: int) -> TileProgram:
    """Return a product of 8-bit blocks, each with factors of its rows and columns."""
    loads = [load("a", 1, m, k), load("b", 1, k, n), load("sa", 4, m, vector=4), load("sb", 4, n, vector=4)]
    found = dot(m, n, k, "f8E4M3FN", TileOperand(access=0), TileOperand(access=1))
    return program(loads, [found], warps, stages, 3.0 * m * n)


def converted(m: int, n: int, k: int, warps: int, stages: int, *, factors: bool) -> TileProgram:
    """Return a product with integers that become float16, with or without factors of groups of them."""
    loads = [load("a", 2, m, k), load("b", 1, k, n, vector=1 if factors else 16)]
    loads += [load("s", 2, k, n)] if factors else []
    found = dot(m, n, k, "f16", TileOperand(access=0), TileOperand(access=1, direct=False))
    return program(loads, [found], warps, stages)


def four_bits(m: int, n: int, k: int, warps: int, stages: int) -> TileProgram:
    """Return a product with eight weights in each integer, with factors and zero points of columns."""
    loads = [load("a", 2, m, k), load("b", 4, k, n), load("s", 2, n), load("z", 4, n, vector=4)]
    found = dot(m, n, k, "f16", TileOperand(access=0), TileOperand(access=1, direct=False))
    return program(loads, [found], warps, stages)


@pytest.mark.parametrize(
    ("tiles", "machine", "local_bytes"),
    [
        (attention(128, 64, 128, 8, 3), "A100-80GB", 98304),
        (attention(128, 64, 64, 4, 3), "A100-80GB", 49152),
        # Sub-groups share rows where the sum is wider than it is high: weights go through shared memory.
        (attention(64, 32, 128, 4, 2), "A100-80GB", 36864),
        (attention(32, 64, 64, 4, 3), "A100-80GB", 40960),
        (attention(64, 128, 64, 4, 3), "A100-80GB", 73728),
        # With one stage keys and values take turns.
        (attention(128, 32, 64, 2, 1), "A100-80GB", 20480),
        (attention(128, 128, 128, 8, 1), "A100-80GB", 65536),
        (attention(128, 64, 128, 8, 3), "H100-SXM", 131072),
        (attention(64, 64, 128, 4, 2), "H100-SXM", 81920),
        (attention(32, 64, 128, 4, 3), "H100-SXM", 77824),
        (scaled(16, 128, 128, 4, 2), "L40S", 18944),
        (scaled(128, 64, 128, 8, 4), "L40S", 73728),
        (scaled(32, 256, 128, 8, 2), "L40S", 37888),
        (scaled(64, 128, 128, 4, 3), "H100-SXM", 74240),
        (converted(128, 32, 64, 4, 4, factors=True), "A100-80GB", 65536),
        (converted(128, 32, 64, 4, 4, factors=True), "H100-SXM", 81920),
        (converted(16, 64, 64, 8, 4, factors=True), "A100-80GB", 38912),
        (converted(64, 128, 128, 4, 3, factors=False), "A100-80GB", 65536),
        (converted(64, 128, 128, 4, 3, factors=False), "H100-SXM", 114688),
        # Factors of columns are copied ahead, too, unless that is 2 bytes of a work-item.
        (four_bits(32, 64, 64, 4, 2), "A100-80GB", 29056),
        (four_bits(32, 128, 32, 8, 3), "A100-80GB", 46592),
        (four_bits(64, 256, 64, 8, 3), "A100-80GB", 182272),
        (four_bits(64, 64, 64, 4, 2), "H100-SXM", 41344),
        (four_bits(128, 256, 32, 4, 4), "H100-SXM", 152064),
        (four_bits(256, 128, 128, 4, 2), "H100-SXM", 229888),
    ],
)
def test_shared_memory_is_that_of_the_compiler(tiles: TileProgram, machine: str, local_bytes: int) -> None:
    assert TileCosts(tiles, load_machine(machine)).local_bytes == local_bytes


@pytest.mark.parametrize(
    ("m", "n", "k", "warps", "stages", "machine", "local_bytes"),
    [
        (128, 128, 64, 4, 4, "A100-80GB", 98304),
        (256, 128, 128, 8, 3, "A100-80GB", 196608),
        (128, 128, 64, 4, 4, "H100-SXM", 131072),
        (256, 128, 128, 8, 3, "H100-SXM", 294912),
    ],
)
@pytest.mark.parametrize("steps", [0, 1, 64])
def test_loops_need_their_memory_however_often_they_run(
    m: int, n: int, k: int, warps: int, stages: int, machine: str, local_bytes: int, steps: int
) -> None:
    """K is an argument of the compiled kernel: 4096, 48, and, with a rest behind the loop, none within."""
    loop = TileLoop(entries=1, iterations=steps)
    tiles = structs.replace(plain(m, n, k, warps, stages), loops=(loop,))
    (found,) = tiles.dots
    rest = [structs.replace(one, loop=-1) for one in tiles.accesses]
    behind = structs.replace(found, loop=-1, operands=(TileOperand(access=2), TileOperand(access=3, along_k=False)))
    whole = structs.replace(tiles, accesses=(*tiles.accesses, *rest), dots=(found, behind))
    for one in (tiles, whole):
        assert TileCosts(one, load_machine(machine)).local_bytes == local_bytes


@pytest.mark.parametrize(
    ("m", "n", "k", "warps", "stages", "local_bytes", "registers"),
    [
        (128, 128, 64, 4, 3, 98320, 146),
        (128, 256, 64, 4, 3, 147472, 230),
        (256, 128, 64, 8, 3, 147472, 162),
        (64, 128, 64, 4, 4, 98320, 86),
        (256, 256, 64, 8, 2, 131088, 222),
        (32, 128, 64, 4, 3, 40960, 96),  # by Ampere's instructions
    ],
)
def test_products_of_a_b200_are_those_of_its_compiler(
    m: int, n: int, k: int, warps: int, stages: int, local_bytes: int, registers: int
) -> None:
    """Sums stand in tensor memory, and all stages in shared memory; TF32 needs no turning there."""
    machine = load_machine("B200")
    costs = TileCosts(plain(m, n, k, warps, stages), machine)
    assert costs.local_bytes == local_bytes
    assert costs.registers == (pytest.approx(registers, rel=0.25), 0)
    if m >= 128:
        wide = TileCosts(plain(m, n, k, warps, stages, "tf32"), machine)
        assert wide.local_bytes == 2 * local_bytes - 16
        assert costs.step["tensor"] == 2 * m * n * k / 8192


@pytest.mark.parametrize(
    ("tiles", "machine", "registers", "spilt"),
    [
        (attention(64, 32, 128, 4, 2), "A100-80GB", 172, False),
        (attention(128, 64, 128, 8, 3), "A100-80GB", 249, False),
        (attention(128, 32, 64, 2, 1), "A100-80GB", 255, True),
        (attention(128, 128, 128, 2, 3), "A100-80GB", 255, True),
        (attention(64, 32, 128, 4, 2), "H100-SXM", 128, False),
        (attention(128, 32, 128, 4, 3), "H100-SXM", 243, False),
        (scaled(16, 32, 128, 4, 4), "L40S", 70, False),
        (scaled(128, 32, 128, 4, 3), "L40S", 164, False),
        (converted(128, 32, 64, 4, 4, factors=True), "A100-80GB", 140, False),
    ],
)
def test_registers_are_about_those_of_the_compiler(
    tiles: TileProgram, machine: str, registers: int, spilt: bool
) -> None:
    found, lacking = TileCosts(tiles, load_machine(machine)).registers
    assert min(found, 255) == pytest.approx(registers, rel=0.2)
    assert (lacking > 8) == spilt


def test_many_sub_groups_leave_few_registers_to_each() -> None:
    """A compute unit has 65,536: with 512 work-items each has 128 at most, with 1024 half of that."""
    machine = load_machine("A100-80GB")
    found = [TileCosts(attention(256, 64, 128, warps, 2), machine) for warps in (8, 16, 32)]
    assert [one.most_registers for one in found] == [255, 128, 64]
    assert all(one.registers[1] == max(0.0, one.registers[0] - one.most_registers) for one in found[1:])


def test_attention_takes_as_long_as_its_products_and_what_lies_between() -> None:
    machine = load_machine("A100-80GB")
    four, eight = (TileCosts(attention(128, 64, 64, warps, 3), machine) for warps in (4, 8))
    assert four.step["tensor"] == 2 * 2 * 128 * 64 * 64 / 2048
    assert four.step["chain"] > four.step["tensor"]
    # Sub-groups do not wait for one another: each has half of the work.
    assert eight.step["chain"] - 240 == pytest.approx((four.step["chain"] - 240) / 2)
    # Products of factors, too, are added up behind them, those of plain tiles are not.
    assert TileCosts(scaled(64, 64, 128, 4, 3), load_machine("L40S")).step["chain"] > 0


def test_all_loops_are_paid_for() -> None:
    """Causal attention has a loop of whole blocks and one of those that the mask cuts."""
    whole = attention(128, 64, 64, 4, 3)
    cut = [structs.replace(one, loop=1, executions=8, elements=8) for one in whole.accesses if one.loop == 0]
    more = [structs.replace(one, loop=1, executions=8) for one in whole.dots]
    loops = (*whole.loops, TileLoop(entries=1, iterations=8))
    both = structs.replace(whole, loops=loops, accesses=(*whole.accesses, *cut), dots=(*whole.dots, *more))
    machine = load_machine("A100-80GB")
    steps = [TileCosts(one, machine).features()["steps"] for one in (whole, both)]
    assert steps == pytest.approx([STEPS, STEPS + 8])


@pytest.mark.parametrize(
    ("shape", "kind", "machine", "words"),
    [
        # (m, n, k, warps, stages); words of 4 bytes that Triton 3.9's code loads and stores in a step, by its SASS
        ((256, 128, 32, 4, 3), "f16", "A100-80GB", 489),
        ((256, 128, 64, 4, 3), "f16", "A100-80GB", 874),
        ((256, 128, 128, 4, 2), "f16", "A100-80GB", 1653),
        ((64, 256, 64, 2, 2), "f16", "A100-80GB", 978),
        ((256, 256, 32, 4, 2), "f16", "A100-80GB", 2056),
        ((128, 128, 32, 2, 3), "tf32", "A100-80GB", 813),
        ((256, 256, 32, 4, 2), "tf32", "A100-80GB", 3850),
        ((128, 128, 32, 2, 3), "f32", "A100-80GB", 742),
        ((256, 128, 64, 4, 3), "f16", "H100-SXM", 268),
        ((128, 256, 64, 4, 2), "f16", "H100-SXM", 512),
        ((256, 256, 32, 4, 2), "f16", "H100-SXM", 1280),
        ((128, 128, 64, 4, 3), "f16", "A100-80GB", 0),
        ((256, 128, 64, 8, 3), "f16", "H100-SXM", 0),
    ],
)
def test_sums_that_registers_do_not_hold_are_moved(
    shape: tuple[int, int, int, int, int], kind: str, machine: str, words: int
) -> None:
    assert TileCosts(plain(*shape, kind), load_machine(machine)).moved_registers == pytest.approx(words, rel=0.35)


@pytest.mark.parametrize("machine", ["A100-80GB", "H100-SXM"])
def test_spilt_registers_cost_time(machine: str) -> None:
    """A tile of 256 x 128 in four sub-groups has 256 sums a work-item, and takes longer than in eight."""
    facts = load_machine(machine)
    few, many = (TileCosts(plain(256, 128, 64, warps, 3), facts).features() for warps in (4, 8))
    assert few["full_added"] > 2 * few["full_tensor"]
    assert many["full_added"] < 0.1 * many["full_tensor"]


def test_what_compiled_code_spills_costs_time() -> None:
    machine, tiles = load_machine("A100-80GB"), plain(64, 64, 64, 4, 3)
    known = [TileResources(registers=255, local_bytes=65536, spilt_bytes=spilt) for spilt in (0, 4584)]
    one, other = (TileCosts(structs.replace(tiles, resources=found), machine) for found in known)
    # 1,146 registers of 128 work-items are stored and loaded, 64 bytes in a cycle.
    cycles = (other.features()["full_added"] - one.features()["full_added"]) * machine.need("clock_hz")
    assert cycles == pytest.approx(other.resident * 2 * 1146 * 128 * 4 / 64)
