"""Work-groups that differ by alignment alone are looked at together; accesses of vectors are coalesced together."""

import loopy as lp
import pytest

from perflex import estimate_volumes, load_machine
from perflex.errors import FeatureError
from perflex.features import Scop, Target, extract_scop, parse_feature
from perflex.features.gpu import l1
from support.ecm_kernels import loopy_kernel, on_grid, star_offsets, terms
from support.written_kernels import written


def star(radius):
    shifted = [tuple(step + radius for step in at) for at in [(0, 0, 0), *star_offsets(3, radius)]]
    shape = f"(n+{2 * radius},n+{2 * radius},n+{2 * radius})"
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=i,j,k<n}", f"b[k,j,i] = {terms('a', 'kji', shifted)}", {"a": shape, "b": "(n,n,n)"}
    )
    return extract_scop(on_grid(kernel, i=(0, 16), j=(1, 4), k=(2, 2)))


@pytest.mark.parametrize("machine", ["V100", "MI210"])
@pytest.mark.parametrize(("radius", "n"), [(1, 64), (1, 67), (2, 45), (1, 50)])
def test_volumes_are_those_of_each_alignment_by_itself(machine, radius, n, monkeypatch):
    together = estimate_volumes(star(radius), {"n": n}, load_machine(machine))
    monkeypatch.setattr(l1, "shifts", lambda _: None)
    alone = estimate_volumes(star(radius), {"n": n}, load_machine(machine))
    assert together == alone


def test_offsets_are_those_of_arrays_there_are():
    scop = extract_scop(on_grid(loopy_kernel("{[i]: 0<=i<64}", "b[i] = a[i]", {"a": "64", "b": "64"}), i=(0, 32)))
    whole, moved = (estimate_volumes(scop, {}, "V100", offsets=offsets).total for offsets in ({}, {"a": 8}))
    # Two sub-groups with 32 doubles each, that lie in eight sectors, or in nine.
    assert (whole.l1_load, moved.l1_load) == (2 * 8 * 32, 2 * 9 * 32)
    for offsets, words in (({"aa": 8}, "no array 'aa'.*offsets are of a, b"), ({"a": 0.5}, "byte 0.5.*whole number")):
        with pytest.raises(FeatureError, match=words):
            estimate_volumes(scop, {}, "V100", offsets=offsets)


ITEMS, GROUPS = 64, 8


def copy(dtype, stride=1):
    """Return a copy of whole vectors, ``stride`` apart."""
    cltypes = pytest.importorskip("pyopencl.cltypes", reason="vector types come with pyopencl")
    place = f"{stride}*({ITEMS}*g + l)"
    vectors = [lp.GlobalArg("x,y", getattr(cltypes, dtype), shape=(f"{stride * ITEMS}*n",))]
    domain = f"{{[g,l]: 0<=g<n and 0<=l<{ITEMS}}}"
    return written(domain, f"y[{place}] = x[{place}]", "", "g: g.0; l: l.0", more=vectors)


def value(kernel, identifier):
    scop = kernel if isinstance(kernel, Scop) else extract_scop(kernel)
    return float(parse_feature(identifier).value(scop, {"n": GROUPS}, Target(32, load_machine("A100-40GB"))))


def sectors(stride_bytes, width, pieces):
    """Sectors of all sub-groups' instructions of one array, enumerated: `pieces` instructions of `width` bytes."""
    total = 0
    for first in range(0, ITEMS * GROUPS, 32):
        for piece in range(pieces):
            starts = [stride_bytes * item + piece * width for item in range(first, first + 32)]
            total += len({byte // 32 for start in starts for byte in range(start, start + width)})
    return total


@pytest.mark.parametrize(("dtype", "size", "width"), [
    ("float2", 8, 8), ("float4", 16, 16), ("double2", 16, 16), ("float8", 32, 16), ("char16", 16, 16),
    ("float3", 16, 16),
])  # fmt: skip
@pytest.mark.parametrize("stride", [1, 3])
def test_sectors_are_those_of_wide_instructions(dtype, size, width, stride):
    kernel = copy(dtype, stride)
    assert value(kernel, "f_txn_global") == 2 * sectors(stride * size, width, size // width)


@pytest.mark.parametrize(("dtype", "each"), [("float2", 2), ("float4", 4), ("double2", 4), ("char16", 4)])
def test_a_sub_group_moves_128_bytes_in_a_cycle(dtype, each):
    assert value(copy(dtype), "f_l1_wavefronts") == 2 * GROUPS * (ITEMS // 32) * each


def test_neighbours_in_a_loop_are_instructions_of_their_own():
    place = f"4*({ITEMS}*g + l) + lane"
    domain = f"{{[g,l,lane]: 0<=g<n and 0<=l<{ITEMS} and 0<=lane<4}}"
    # A loop is no vector, whatever its name.
    kernel = written(domain, f"y[{place}] = x[{place}]", f"x,y: float32[{4 * ITEMS}*n]", "g: g.0; l: l.0")
    assert value(kernel, "f_inst_ldst_global") == 2 * 4 * GROUPS * (ITEMS // 32)
    assert value(kernel, "f_txn_global") == 2 * sectors(16, 4, 4)
