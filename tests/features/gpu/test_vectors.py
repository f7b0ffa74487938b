"""Accesses of vector types: an instruction moves 16 bytes of each work-item, which are coalesced together."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pytest

from perflex import load_machine
from perflex.features import Scop, Target, extract_scop, parse_feature

ITEMS, GROUPS = 64, 8


def copy(dtype: str, stride: int = 1) -> Any:
    """Return a copy of whole vectors, ``stride`` apart."""
    cltypes = pytest.importorskip("pyopencl.cltypes", reason="vector types come with pyopencl")
    place = f"{stride}*({ITEMS}*g + l)"
    arrays = [lp.GlobalArg("x,y", getattr(cltypes, dtype), shape=(f"{stride * ITEMS}*n",))]
    kernel = lp.make_kernel(
        f"{{[g,l]: 0<=g<n and 0<=l<{ITEMS}}}",
        f"y[{place}] = x[{place}]",
        [*arrays, ...],
        assumptions="n >= 1",
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
    )
    return lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"})


def value(kernel: Any, identifier: str) -> float:
    scop = kernel if isinstance(kernel, Scop) else extract_scop(kernel)
    return float(parse_feature(identifier).value(scop, {"n": GROUPS}, Target(32, load_machine("A100-40GB"))))


def sectors(stride_bytes: int, width: int, pieces: int) -> int:
    """Sectors of all sub-groups' instructions of one array, enumerated: `pieces` instructions of `width` bytes."""
    total = 0
    for first in range(0, ITEMS * GROUPS, 32):
        for piece in range(pieces):
            starts = [stride_bytes * item + piece * width for item in range(first, first + 32)]
            total += len({byte // 32 for start in starts for byte in range(start, start + width)})
    return total


@pytest.mark.parametrize(
    ("dtype", "size", "width"),
    [
        ("float2", 8, 8),
        ("float4", 16, 16),
        ("double2", 16, 16),
        ("float8", 32, 16),
        ("char16", 16, 16),
        ("float3", 16, 16),
    ],
)
@pytest.mark.parametrize("stride", [1, 3])
def test_sectors_are_those_of_wide_instructions(dtype: str, size: int, width: int, stride: int) -> None:
    kernel = copy(dtype, stride)
    assert value(kernel, "f_txn_global") == 2 * sectors(stride * size, width, size // width)


@pytest.mark.parametrize(("dtype", "each"), [("float2", 2), ("float4", 4), ("double2", 4), ("char16", 4)])
def test_a_sub_group_moves_128_bytes_in_a_cycle(dtype: str, each: int) -> None:
    assert value(copy(dtype), "f_l1_wavefronts") == 2 * GROUPS * (ITEMS // 32) * each


def test_neighbours_in_a_loop_are_instructions_of_their_own() -> None:
    place = f"4*({ITEMS}*g + l) + lane"
    kernel = lp.make_kernel(
        f"{{[g,l,lane]: 0<=g<n and 0<=l<{ITEMS} and 0<=lane<4}}",
        f"y[{place}] = x[{place}]",
        [lp.GlobalArg("x,y", np.float32, shape=(f"{4 * ITEMS}*n",)), ...],
        assumptions="n >= 1",
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
    )
    # A loop is no vector, whatever its name.
    kernel = lp.tag_inames(kernel, {"g": "g.0", "l": "l.0"})
    assert value(kernel, "f_inst_ldst_global") == 2 * 4 * GROUPS * (ITEMS // 32)
    assert value(kernel, "f_txn_global") == 2 * sectors(16, 4, 4)
