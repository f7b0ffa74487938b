"""Bytes that a load instruction takes, as Triton compiles them: what sm_80 and sm_90 code has is beside."""

from __future__ import annotations

import re

import numpy as np
import pytest

from perflex.features.from_triton.counting import TileCode
from perflex.features.from_triton.interpreter import Launch
from support.triton_data import code_of, launch_of, stored

# y[i] = x[i] for i < n, with a hint or an operation on the indices.
COPY = """\
module {
  tt.func public @copy(%x: !tt.ptr<f16> {tt.divisibility = 16 : i32}, %s: !tt.ptr<i32>, %n: i32) {
    %c1024_i32 = arith.constant 1024 : i32
    %0 = tt.get_program_id x : i32
    %1 = arith.muli %0, %c1024_i32 : i32
    %2 = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %3 = tt.splat %1 : i32 -> tensor<1024xi32>
    %4 = arith.addi %3, %2 : tensor<1024xi32>
    %5 = tt.splat %n : i32 -> tensor<1024xi32>
    %6 = arith.cmpi slt, %4, %5 : tensor<1024xi32>
    %7 = arith.remsi %4, %5 : tensor<1024xi32>
    %8 = tt.splat %x : !tt.ptr<f16> -> tensor<1024x!tt.ptr<f16>>
    %9 = tt.addptr %8, %4 : tensor<1024x!tt.ptr<f16>>, tensor<1024xi32>
    %10 = tt.load %9, %6 : tensor<1024x!tt.ptr<f16>>
    tt.return
  }
}
"""
# x[start + i], where start is loaded.
SHIFTED = """\
module {
  tt.func public @shifted(%x: !tt.ptr<f16>, %s: !tt.ptr<i32>) {
    %0 = tt.load %s : !tt.ptr<i32>
    %1 = tt.make_range {end = 1024 : i32, start = 0 : i32} : tensor<1024xi32>
    %2 = tt.splat %0 : i32 -> tensor<1024xi32>
    %3 = arith.addi %2, %1 : tensor<1024xi32>
    %4 = tt.splat %x : !tt.ptr<f16> -> tensor<1024x!tt.ptr<f16>>
    %5 = tt.addptr %4, %3 : tensor<1024x!tt.ptr<f16>>, tensor<1024xi32>
    %6 = tt.load %5 : tensor<1024x!tt.ptr<f16>>
    tt.return
  }
}
"""
KNOWN = ("%n: i32", "%n: i32 {tt.divisibility = 16 : i32}")
WRAPPED = ("tt.addptr %8, %4", "tt.addptr %8, %7"), ("tt.load %9, %6", "tt.load %9")
HINTS = "{{tt.contiguity = dense<{run}> : tensor<1xi32>, tt.divisibility = dense<{run}> : tensor<1xi32>}} :"


def hinted(run: int) -> tuple[str, str]:
    return "arith.remsi %4, %5 :", f"arith.remsi %4, %5 {HINTS.format(run=run)}"


def vectors(text: str, launch: Launch, most: int | None = None) -> dict[str, int]:
    return {one.array: one.vector for one in TileCode(text).program(launch, most=most).accesses}


@pytest.mark.parametrize(
    ("changes", "n", "bytes_"),
    [
        # A mask is cut anywhere where the compiler knows no multiple, whatever the launch has.
        ((), 4096, 2),
        ((), 4099, 2),
        ((KNOWN,), 4096, 16),
        ((KNOWN,), 4112, 16),
        # Indices that wrap, and what the kernel says of them.
        (WRAPPED, 4096, 2),
        ((KNOWN, *WRAPPED), 4112, 16),
        ((*WRAPPED, hinted(1024)), 4100, 16),
        ((*WRAPPED, hinted(4)), 4100, 8),
        # The constant is known.
        ((("slt, %4, %5", "slt, %4, %k"), ("%0 = tt", "%k = arith.constant dense<4100> : tensor<1024xi32>\n%0 = tt")),
         4096, 8),
    ],
)  # fmt: skip
def test_what_is_known_decides_and_not_numbers_of_the_launch(
    changes: tuple[tuple[str, str], ...], n: int, bytes_: int
) -> None:
    text = COPY
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    assert vectors(text, Launch({"n": n}, {}, (5, 1, 1))) == {"x": bytes_}


def test_few_of_many_programs_see_where_indices_wrap() -> None:
    """The last of 1001 programs wraps, which is not among the four that are counted."""
    text = COPY.replace(*WRAPPED[0]).replace(*WRAPPED[1])
    constant = text.replace("tt.splat %n : i32 -> tensor<1024xi32>", "arith.constant dense<1024004> : tensor<1024xi32>")
    assert vectors(constant, Launch({"n": 1}, {}, (1001, 1, 1)), most=4) == {"x": 8}


def test_what_is_loaded_is_no_known_multiple() -> None:
    held = {"s": np.array([1024], np.int32)}
    assert vectors(SHIFTED, Launch({}, held, (1, 1, 1))) == {"s": 4, "x": 2}


@pytest.mark.parametrize(("name", "known", "bytes_"), [("matmul", False, 2), ("matmul", True, 16)])
def test_products(name: str, known: bool, bytes_: int) -> None:
    """Of a product all of whose sizes are multiples of 1024, if the compiler knows them as multiples of 16 or not."""
    case = stored(name)
    text = case["ttir"]["3.9.0"]["80"]
    if known:
        text = re.sub(r"(%arg\d+: i32)(?=[,)])", r"\1 {tt.divisibility = 16 : i32}", text, count=6)
    launch = launch_of(case)
    sizes = dict.fromkeys(launch.arguments, 1024) | {"stride_ak": 1, "stride_bn": 1, "stride_cn": 1}
    program = code_of(case, text).program(Launch(sizes, {}, (512, 1, 1)), most=16)
    assert {one.vector for one in program.accesses} == {bytes_}
