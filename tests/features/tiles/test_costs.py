"""Costs of tile programs at the peaks of machines, by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import pytest
from msgspec import structs

from perflex import load_machine, using_machine
from perflex.errors import FeatureError, MachineError, MissingSizeError
from perflex.features import count_features, kernel_feature_values
from perflex.features.tiles.costs import TileCosts
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import TileAccess, TileDot, TileLoop, TileOperand, TileProgram
from perflex.models import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

SIZE = 4096


def product(m: int = 128, n: int = 128, k: int = 64, **changes: Any) -> TileProgram:
    """Return a product of square matrices of float16, both of which lie along their rows."""
    programs, steps = (SIZE // m) * (SIZE // n), SIZE // k
    runs = programs * steps
    common: dict[str, Any] = {
        "direction": "load",
        "itemsize": 2,
        "loop": 0,
        "executions": runs,
        "tiles": steps,
        "axis": 1,
    }
    # Programs go along the columns of tiles: those of a row share its tile.
    rows = tuple((1 << power, max(1.0, (1 << power) / (SIZE // n))) for power in range(programs.bit_length()))
    columns = tuple((1 << power, float(min(1 << power, SIZE // n))) for power in range(programs.bit_length()))
    first = TileAccess(
        array="a", shared=rows, shape=(m, k), elements=runs * m * k, sectors=runs * m * k // 16, **common
    )
    second = TileAccess(
        array="b", shared=columns, shape=(k, n), elements=runs * k * n, sectors=runs * k * n // 16, **common
    )
    third = TileAccess(
        array="c", direction="store", itemsize=2, shape=(m, n), executions=programs, elements=SIZE**2,
        sectors=SIZE**2 // 16, axis=1,
    )  # fmt: skip
    dot = TileDot(
        shape=(m, n, k), types=("f16", "f16", "f32"), loop=0, executions=runs,
        operands=(TileOperand(access=0), TileOperand(access=1, along_k=False)),
    )  # fmt: skip
    found = TileProgram(
        name="product", grid=(programs, 1, 1), loops=(TileLoop(entries=programs, iterations=runs),),
        accesses=(first, second, third), dots=(dot,),
    )  # fmt: skip
    return structs.replace(found, **changes)


@pytest.mark.parametrize(
    ("machine", "local_bytes", "cycles", "resident"),
    # Ampere holds a step in registers and stages - 1 in shared memory, 164 KiB of which 1 KiB for each program are
    # reserved; Hopper's products read all stages there, of 228 KiB.
    [("A100-80GB", 2 * 32768, 1024, 2), ("H100-SXM", 3 * 32768, 512, 2)],
)
def test_shared_memory_and_tensor_cores(machine: str, local_bytes: int, cycles: float, resident: int) -> None:
    costs = TileCosts(product(), load_machine(machine))
    assert costs.local_bytes == local_bytes
    assert costs.step["tensor"] == pytest.approx(cycles)
    assert costs.resident == resident
    assert costs.steps == 64
    # 1,024 programs in rounds of so many.
    units = load_machine(machine).compute_units
    assert units is not None
    full, last = costs.rounds
    assert full == 1024 // (units * resident)
    assert last == -(-(1024 - full * units * resident) // units)


def test_small_tiles_take_the_old_instructions_of_hopper() -> None:
    costs = TileCosts(product(32, 128, 64), load_machine("H100-SXM"))
    assert costs.step["tensor"] == pytest.approx(2 * 32 * 128 * 64 / 4096 / 0.625)
    assert costs.local_bytes == 2 * (32 + 128) * 64 * 2


def test_dram_gives_each_matrix_once_where_programs_share() -> None:
    given, missing = TileCosts(product(), load_machine("A100-80GB")).traffic
    matrix = SIZE * SIZE * 2
    # A round of 216 programs works on 7 rows of tiles. L2 keeps these, but not the whole second matrix (32 MiB), of
    # which 10 MiB are relied on: each round needs it anew.
    assert given == pytest.approx(matrix * (1 + 1024 / 216 + 1), rel=0.15)
    assert 0 < missing <= 1


def test_stores_across_rows_take_whole_sectors() -> None:
    """Of columns of a matrix each element has a sector of its own in L2; of rows, eight elements share one."""
    machine, common = load_machine("A100-80GB"), {"array": "y", "direction": "store", "itemsize": 4, "shape": (1024,)}
    count = 1 << 24

    def seconds(sectors: int) -> float:
        stores = TileAccess(executions=count >> 10, elements=count, sectors=sectors, **common)
        found = TileCosts(TileProgram(name="columns", grid=(count >> 10, 1, 1), accesses=(stores,)), machine).features()
        return found["full_rounds"] * found["full_ends"] + found["last_rounds"] * found["last_ends"]

    assert seconds(count) == pytest.approx(count * 32 / machine.need("l2_bandwidth"))
    assert seconds(count) == pytest.approx(8 * seconds(count // 8))


class Described(TileKernel):
    """A launch of a tile program; its sizes decide nothing."""

    def __init__(self, program: TileProgram, *sizes: str) -> None:
        self.name, self.parameters, self._program = program.name, sizes, program

    def program(self, sizes: Mapping[str, Any]) -> TileProgram:  # noqa: ARG002 - as said
        return self._program


def test_what_does_not_fit_is_refused_with_a_way_out() -> None:
    shapes = {"a": (256, 64), "b": (64, 256)}
    accesses = tuple(
        TileAccess(
            array=array, direction="load", itemsize=4, shape=shape, loop=0, executions=80, elements=1310720,
            sectors=163840, axis=1,
        ) for array, shape in shapes.items()
    )  # fmt: skip
    dot = TileDot(
        shape=(256, 256, 64), types=("tf32", "tf32", "f32"), loop=0, executions=80,
        operands=(TileOperand(access=0), TileOperand(access=1)),
    )  # fmt: skip
    large = TileProgram(
        name="large", grid=(8, 1, 1), warps=8, stages=4, loops=(TileLoop(entries=8, iterations=80),),
        accesses=accesses, dots=(dot,),
    )  # fmt: skip
    with pytest.raises(MachineError, match="needs 393216 B of shared memory, A100-80GB has 166912 B"):
        kernel_feature_values(["f_tile_full_tensor"], Described(large), {}, machine="A100-80GB")


@pytest.mark.parametrize(("machine", "words"), [
    ("MI210", "MI210 is no GPU of NVIDIA"), ("Gold-6248", "Gold-6248 is no GPU of NVIDIA"),
    ("V100", "V100 is no GPU of compute capability 8.0 or later"),
])  # fmt: skip
def test_machines_that_triton_has_no_costs_for_are_refused(machine: str, words: str) -> None:
    with pytest.raises(MachineError, match=words):
        kernel_feature_values(["f_tile_steps"], Described(product()), {}, machine=machine)


def test_features_of_tiles_and_of_scops_do_not_mix() -> None:
    common: dict[str, Any] = {"itemsize": 4, "shape": (256,), "executions": 16, "elements": 4096, "sectors": 512}
    moved = TileAccess(array="x", direction="load", **common), TileAccess(array="y", direction="store", **common)
    tiles = Described(TileProgram(name="copy", grid=(16, 1, 1), accesses=moved))
    names = ["f_tile_bytes_load", "f_tile_sectors_store", "f_tile_programs", "f_tile_flops", "f_tile_steps"]
    values = kernel_feature_values(names, tiles, {}, machine="A100-80GB")
    assert list(values.values()) == [16384, 512, 16, 0, 1]
    with pytest.raises(FeatureError, match=r"f_op_float32_add is a feature of Scops and kernel 'copy' is none"):
        kernel_feature_values(["f_op_float32_add"], tiles, {})
    with pytest.raises(MachineError, match="f_tile_dram needs a machine"):
        kernel_feature_values(["f_tile_dram"], tiles, {})
    arrays = [lp.GlobalArg("x,y", "float32", shape="n"), ...]
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "y[i] = 2*x[i]", arrays, lang_version=(2018, 2))
    with pytest.raises(FeatureError, match="f_tile_programs is a feature of tile programs"):
        kernel_feature_values(["f_tile_programs"], kernel, {"n": 64})


@pytest.mark.parametrize("exact", [True, False])
def test_costs_and_counts_of_some_programs_are_estimates(exact: bool) -> None:
    tiles = Described(structs.replace(product(), exact=exact))
    with using_machine("A100-80GB"):
        found = count_features(tiles, {}, identifiers=["f_tile_programs", "f_tile_bytes_load", "f_tile_dram"])
    assert [str(one.certainty) for one in found] == ["exact", "exact" if exact else "estimated", "estimated"]


def test_the_model_of_tiles_has_usual_values() -> None:
    description = load_model("general_tile")
    assert set(description.usual) == set(description.parameters)
    model, costs = description.model(), TileCosts(product(), load_machine("A100-80GB")).features()
    values = {name: costs[name.removeprefix("f_tile_")] for name in model.input_features()}
    # At the peak of its tensor cores an A100 takes 0.44 ms for this product.
    assert 0.44e-3 < model.evaluate(description.usual, values) < 0.8e-3


def test_sizes_must_be_given() -> None:
    with pytest.raises(MissingSizeError, match="needs a value for size n"):
        Described(product(), "n").check_sizes({})
