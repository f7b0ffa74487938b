"""Some programs stand for all, wherever in the grid their work differs; what a program loads again counts once."""

from __future__ import annotations

import pytest
from msgspec import structs

from perflex import load_machine
from perflex.features.from_triton.counting import TileCode
from perflex.features.from_triton.interpreter import Launch
from perflex.features.tiles.costs import TileCosts
from support.triton_data import code_of, launch_of, stored

# Each program stores as often as its place in a row of the grid says, or the number of its row.
TRIANGLE = """\
module {
  tt.func public @triangle(%o: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c1_i32 = arith.constant 1 : i32
    %c0_i32 = arith.constant 0 : i32
    %cst = arith.constant 1.000000e+00 : f32
    %0 = tt.get_program_id AXIS : i32
    %1 = arith.OPERATION %0, %n : i32
    scf.for %i = %c0_i32 to %1 step %c1_i32  : i32 {
      tt.store %o, %cst : !tt.ptr<f32>
    }
    tt.return
  }
}
"""


@pytest.mark.parametrize("most", [16, 64])
@pytest.mark.parametrize(
    ("axis", "operation", "n", "grid"),
    [
        ("x", "remsi", 32, (4096, 1, 1)),
        ("x", "remsi", 1000, (1000, 1, 1)),
        ("x", "divsi", 64, (2048, 1, 1)),
        ("x", "remsi", 48, (48, 64, 1)),
        ("y", "remsi", 128, (32, 128, 1)),
        ("z", "remsi", 32, (8, 4, 32)),
        ("x", "remsi", 7, (7 * 5 * 13 * 16, 1, 1)),
    ],
)
def test_work_that_grows_along_an_axis(
    axis: str, operation: str, n: int, grid: tuple[int, int, int], most: int
) -> None:
    code = TileCode(TRIANGLE.replace("AXIS", axis).replace("OPERATION", operation))
    launch = Launch({"n": n}, {}, grid)
    found, true = code.program(launch, most=most), code.program(launch)
    assert true.exact
    assert not found.exact
    assert found.loops[0].iterations == pytest.approx(true.loops[0].iterations, rel=0.15 if most == 16 else 0.06)


@pytest.mark.parametrize("length", [1024, 2048])
def test_causal_attention(length: int) -> None:
    case = stored("attention_causal")
    numbers = {**launch_of(case).arguments, "N_CTX": length, "stride_h": 64 * length, "stride_z": 128 * length}
    launch = Launch(numbers, {}, (length // 64, 32, 1))
    text = max(max(texts.values()) for texts in case["ttir"].values())
    found, true = (code_of(case, text).program(launch, most=most) for most in (16, None))
    assert [one.flops for one in found.dots] == pytest.approx([one.flops for one in true.dots], rel=0.03)


def test_rows_that_are_loaded_again_come_from_dram_once() -> None:
    """Layer normalisation loads a row for its mean, its variance and the result; products load nothing again."""
    for name, array, again in (("layer_norm_even", "X", 2), ("attention_causal_even", "K", 0)):
        case = stored(name)
        text = max(max(texts.values()) for texts in case["ttir"].values())
        program = code_of(case, text).program(launch_of(case))
        loads = [one for one in program.accesses if (one.array, one.direction) == (array, "load")]
        assert [one.again for one in loads] == [0.0] + [loads[0].tiles if again else 0.0] * (len(loads) - 1)
        assert len(loads) == again + 1 or not again
        machine = load_machine("A100-80GB")
        plain = structs.replace(program, accesses=tuple(structs.replace(one, again=0) for one in program.accesses))
        saved = TileCosts(plain, machine).traffic[0] - TileCosts(program, machine).traffic[0]
        assert saved == again * loads[0].bytes


def test_loops_that_never_run_are_in_the_code() -> None:
    """Where k is 0, a product loads and multiplies nothing, and needs as much shared memory as ever."""
    case = stored("matmul_even")
    text = max(max(texts.values()) for texts in case["ttir"].values())
    launch = launch_of(case)
    none = Launch({**launch.arguments, "K": 0}, {}, launch.grid)
    found, usual = (code_of(case, text).program(one, stages=4) for one in (none, launch))
    assert [one.iterations for one in found.loops] == [0]
    assert [one.flops for one in found.dots] == [0]
    assert {one.array: one.bytes for one in found.accesses if one.bytes} == {"c_ptr": usual.accesses[2].bytes}
    local_bytes = [TileCosts(one, load_machine("A100-80GB")).local_bytes for one in (found, usual)]
    assert local_bytes[0] == local_bytes[1] > 0
