"""Pointers that change, early returns and unsigned contents: counts of Triton's interpreter, by hand beside."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton.counting import TileCode
from perflex.features.from_triton.interpreter import Launch

SWAPPED = """\
module {
  tt.func public @swapped(%a: !tt.ptr<f32>, %b: !tt.ptr<f32>, %o: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %c1_i32 = arith.constant 1 : i32
    %c0_i32 = arith.constant 0 : i32
    %0:2 = scf.for %i = %c0_i32 to %n step %c1_i32 iter_args(%q = %a, %r = %b) -> (!tt.ptr<f32>, !tt.ptr<f32>)  : i32 {
      %4 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
      %5 = tt.splat %q : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
      %6 = tt.addptr %5, %4 : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
      %9 = tt.load %6 : tensor<32x!tt.ptr<f32>>
      scf.yield %r, %q : !tt.ptr<f32>, !tt.ptr<f32>
    }
    tt.return
  }
}
"""
RETURNS = """\
module {
  tt.func public @returns(%o: !tt.ptr<f32>, %n: i32) attributes {noinline = false} {
    %cst = arith.constant dense<1.000000e+00> : tensor<32xf32>
    %c3_i32 = arith.constant 3 : i32
    %0 = tt.get_program_id x : i32
    %1 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %2 = arith.cmpi sgt, %0, %c3_i32 : i32
    cf.cond_br %2, ^bb1, ^bb2
  ^bb1:  // 2 preds: ^bb0, ^bb2
    tt.return
  ^bb2:  // pred: ^bb0
    %3 = arith.cmpi eq, %0, %n : i32
    cf.cond_br %3, ^bb1, ^bb3
  ^bb3:  // pred: ^bb2
    %4 = tt.splat %o : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %5 = tt.addptr %4, %1 : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    tt.store %5, %cst : tensor<32x!tt.ptr<f32>>
    tt.return
  }
}
"""
BYTES = """\
module {
  tt.func public @bytes(%ix: !tt.ptr<i8>, %o: !tt.ptr<f32>) attributes {noinline = false} {
    %cst = arith.constant dense<1.000000e+00> : tensor<32xf32>
    %cst_0 = arith.constant dense<-1> : tensor<32xi8>
    %0 = tt.make_range {end = 32 : i32, start = 0 : i32} : tensor<32xi32>
    %1 = tt.splat %ix : !tt.ptr<i8> -> tensor<32x!tt.ptr<i8>>
    %2 = tt.addptr %1, %0 : tensor<32x!tt.ptr<i8>>, tensor<32xi32>
    %3 = tt.load %2 : tensor<32x!tt.ptr<i8>>
    %4 = arith.cmpi eq, %3, %cst_0 : tensor<32xi8>
    %5 = tt.splat %o : !tt.ptr<f32> -> tensor<32x!tt.ptr<f32>>
    %6 = tt.addptr %5, %0 : tensor<32x!tt.ptr<f32>>, tensor<32xi32>
    tt.store %6, %cst, %4 : tensor<32x!tt.ptr<f32>>
    tt.return
  }
}
"""


def test_pointers_that_a_loop_swaps_lead_to_both_arrays() -> None:
    program = TileCode(SWAPPED).program(Launch({"n": 7}, {}, (1, 1, 1)))
    assert {one.array: one.executions for one in program.accesses} == {"a": 4, "b": 3}


def test_programs_that_return_early_do_not_store() -> None:
    # Of 9 programs those from 4 on return at once, and the third afterwards.
    program = TileCode(RETURNS).program(Launch({"n": 3}, {}, (9, 1, 1)))
    assert [(one.executions, one.elements) for one in program.accesses] == [(3, 96)]


def test_contents_of_unsigned_arrays_are_their_bits() -> None:
    held = np.array([255, 1, 255, 200, 100, 255, 7, 8] * 4, np.uint8)
    program = TileCode(BYTES).program(Launch({}, {"ix": held}, (1, 1, 1)))
    assert next(one.elements for one in program.accesses if one.array == "o") == 12


def test_contents_that_the_kernel_overwrites_are_not_believed() -> None:
    stored = "    tt.store %2, %cst_0 : tensor<32x!tt.ptr<i8>>\n    %3 ="
    code = TileCode(BYTES.replace("    %3 =", stored))
    with pytest.raises(UnsupportedKernelError, match="a mask depends on array ix"):
        code.program(Launch({}, {"ix": np.zeros(32, np.uint8)}, (1, 1, 1)))


def test_masks_of_half_precision_contents_are_refused() -> None:
    """Triton compares them as they are rounded, and NumPy does not round so."""
    text = BYTES.replace("!tt.ptr<i8>", "!tt.ptr<f16>").replace(
        "dense<-1> : tensor<32xi8>", "dense<1.0> : tensor<32xf16>"
    )
    text = text.replace("arith.cmpi eq, %3, %cst_0 : tensor<32xi8>", "arith.cmpf oeq, %3, %cst_0 : tensor<32xf16>")
    with pytest.raises(UnsupportedKernelError, match=r"a mask depends on operation tt\.load in line"):
        TileCode(text).program(Launch({}, {"ix": np.ones(32, np.float16)}, (1, 1, 1)))


def test_addresses_that_are_loaded_stay_whole() -> None:
    """Beyond 2**24 a float of single precision, which they point to, would not hold them."""
    text = BYTES.replace("!tt.ptr<i8>", "!tt.ptr<!tt.ptr<f32>>").replace(
        "%5 = tt.splat %o : !tt.ptr<f32>", "%7 = tt.splat %o : !tt.ptr<f32>"
    )
    text = text.replace("    %4 = arith.cmpi eq, %3, %cst_0 : tensor<32xi8>\n", "").replace(", %4 :", " :")
    text = text.replace("%6 = tt.addptr %5, %0", "%6 = tt.addptr %3, %0")
    places = (1 << 24) + 36 * np.arange(32, dtype=np.int64) + 2
    program = TileCode(text).program(Launch({}, {"ix": places}, (1, 1, 1)))
    (store,) = (one for one in program.accesses if one.direction == "store")
    # Addresses 40 B apart, each of which is half a word off: of 4 B, those at 30 B of a sector lie in two.
    touched = {byte // 32 for place in places + 4 * np.arange(32) for byte in (place, place + 3)}
    assert store.sectors == len(touched)
