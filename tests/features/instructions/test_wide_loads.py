"""Loads of local memory that move several elements, against code of CUDA's compiler; kernels in CUDA C."""

import numpy as np
import pytest

from oracles.nvrtc import nvrtc_library
from oracles.usual_paths import disassembler, functions
from perflex.features import Target, parse_feature, source_kernel
from perflex.features.polynomials.affine import read_constraints
from perflex.features.scop.address_maps import tightened
from perflex.features.scop.scop import Statement

TEXT = """
extern "C" __global__ void {name}(const {dtype} *__restrict__ x, {sum} *__restrict__ z, int n, int m)
{{
  __shared__ {dtype} a{extents};
  int lx = threadIdx.x, ly = threadIdx.y;
  {sum} s = 0;
  a{corner}[lx] = x[lx + n*ly];
  __syncthreads();
  {body}
  z[(blockIdx.y*16 + ly)*n + blockIdx.x*16 + lx] = s;
}}
"""
ROW = "for (int k = 0; k < 16; k++) s += a[ly][k] * (k + 2);"
FOUR = "for (int k = 0; k < 4; k++) s += a[{}] * (k + 2);"
# Type and extents of the array, what is loaded, and the loads in machine code of nvcc 13.0 for sm_75, sm_80 and sm_90.
KERNELS = {
    "a row": ("float", "[16][16]", ROW, 4),  # 4 LDS.128
    "a column": ("float", "[16][16]", ROW.replace("a[ly][k]", "a[k][lx]"), 16),  # 16 LDS
    "a row backwards": ("float", "[16][16]", ROW.replace("[k]", "[15 - k]"), 4),
    "rows of an odd length": ("float", "[16][17]", ROW, 16),
    "rows of an even length": ("float", "[16][18]", ROW, 8),  # 8 LDS.64
    "from the second element": ("float", "[16][32]", ROW.replace("[k]", "[k + 1]"), 5),  # 4 LDS.128, the first for 3
    "from the third element": ("float", "[16][32]", ROW.replace("[k]", "[k + 2]"), 5),  # 3 LDS.128 and 2 LDS.64
    "every other element": ("float", "[16][32]", ROW.replace("[k]", "[2*k]"), 16),
    "a row of all rows": ("float", "[17]", ROW.replace("a[ly][k]", "a[k + 1]"), 5),
    "over ends of rows": ("float", "[3][3]", "for (int k = 0; k < 9; k++) s += a[k / 3][k % 3] * (k + 2);", 3),
    "double": ("double", "[16][16]", ROW, 8),  # 8 LDS.128
    "rows of double of an odd length": ("double", "[16][17]", ROW, 16),
    "short": ("short", "[16][16]", ROW, 4),  # 4 LDS.64
    "rows of short of an even length": ("short", "[16][18]", ROW, 8),  # 8 LDS
    "bytes": ("unsigned char", "[16][16]", ROW, 16),
    "float2": ("float2", "[16][16]", ROW.replace("a[ly][k] *", "a[ly][k].x + a[ly][k].y *"), 8),  # 8 LDS.128
    "float4": ("float4", "[16][4]", "for (int k = 0; k < 4; k++) { float4 v = a[ly][k]; s += v.x + v.y*v.z*v.w; }", 4),
    "a register tile": ("float", "[16][64]", FOUR.format("ly][4*lx + k"), 1),
    "a register tile that is spread": ("float", "[16][64]", FOUR.format("ly][lx + 16*k"), 4),
    "pairs of work-items": ("float", "[256]", FOUR.format("6*lx + k"), 2),  # 2 LDS.64
    "by a size": ("float", "[16][64]", FOUR.format("ly][4*m + k"), 1),
    "by any size": ("float", "[16][64]", FOUR.format("ly][m + k"), 4),
    "by a quotient": ("float", "[256]", FOUR.format("lx/4*4 + k"), 1),
    "three of four": ("float", "[16][16]", "s = a[ly][1] + a[ly][2] * a[ly][3];", 1),  # LDS.128
    "the middle of four": ("float", "[16][16]", "s = a[ly][1] * a[ly][2];", 2),
    "first and third": ("float", "[16][16]", "s = a[ly][0] * a[ly][2];", 2),
    "two statements": ("float", "[16][32]", "s = a[ly][2*lx]; z[n*n + lx] = s; s += a[ly][2*lx + 1];", 1),
    "a barrier between": ("float", "[16][32]", "s = a[ly][2*lx]; __syncthreads(); s += a[ly][2*lx + 1];", 2),
    "a store between": ("float", "[16][32]", "s = a[ly][2*lx]; a[lx][ly] = s; s += a[ly][2*lx + 1];", 2),
    "a barrier in the loop": ("float", "[16][16]", ROW.replace("s +=", "{ s +=") + " __syncthreads(); }", 16),
    "a guard around": ("float", "[16][16]", f"if (lx < n) {ROW}", 4),
    "a guard inside": ("float", "[16][16]", ROW.replace("s +=", "if (lx + k < n) s +="), 16),
    "in a loop over sizes": ("float", "[16][16]",
        f"\n#pragma unroll 1\nfor (int j = 0; j < m; j++) {{ {ROW} __syncthreads(); }}", 4),
}  # fmt: skip


def text(dtype, extents, body, name="f"):
    corner = "[0]" * (extents.count("[") - 1)
    if "float4" in dtype or "float2" in dtype:
        body = body.replace("(k + 2)", "(k + 2.0f)")
    summed = {"short": "int", "unsigned char": "int", "double": "double"}.get(dtype, "float")
    return TEXT.format(name=name, dtype=dtype, extents=extents, corner=corner, body=body, sum=summed)


@pytest.mark.parametrize("name", KERNELS)
def test_loads_of_neighbours(name):
    *parts, wanted = KERNELS[name]
    scop = source_kernel(text(*parts), "f", local=(16, 16), groups=(1, 1), language="cuda").scop()
    sizes, stores = {size: {"n": 64, "m": 1}[size] for size in scop.parameters}, parts[2].count("] = s;")
    stores -= parts[2].count("z[")
    # Eight sub-groups; the store before the barrier, and others in what is tested.
    assert parse_feature("f_inst_ldst_local").value(scop, sizes, Target(32)) == 8 * (wanted + 1 + stores)


@pytest.mark.skipif(
    nvrtc_library() is None or disassembler() is None,
    reason="no compiler: pip install nvidia-cuda-nvrtc nvidia-cuda-nvdisasm",
)
def test_loads_in_nvidias_code():
    source = "".join(text(*parts, f"f{place}") for place, (*parts, _) in enumerate(KERNELS.values()))
    code = functions(source, "sm_80")
    found = {name: sum(one.name == "LDS" for one in code[f"f{place}"]) for place, name in enumerate(KERNELS)}
    assert found == {name: wanted for name, (*_, wanted) in KERNELS.items()}


OPENCL = """
kernel void f(global const {dtype} *restrict x, global {dtype} *restrict z)
{{
  local {dtype} a[16][64];
  int lx = get_local_id(0), ly = get_local_id(1);
  a[ly][lx] = x[16*ly + lx];
  barrier(CLK_LOCAL_MEM_FENCE);
  {dtype} s = 0;
  for (int k = 0; k < {most}; k++) s += a[ly][k];
  z[16*ly + lx] = s;
}}
"""


# Parts of 16 bytes: vectors have these also where elements are small, and where a loop is not unrolled.
@pytest.mark.parametrize(("dtype", "most", "loads", "stores"), [
    ("float", 16, 4, 1), ("float8", 16, 32, 2), ("float8", 33, 66, 2), ("half2", 16, 4, 1), ("char4", 16, 4, 1),
    ("half8", 16, 16, 1), ("char", 16, 16, 1),
])  # fmt: skip
def test_vectors_of_opencl(dtype, most, loads, stores):
    source = OPENCL.format(dtype=dtype, most=most)
    scop = source_kernel(source, "f", local=(16, 16), groups=(1, 1), language="opencl").scop()
    assert parse_feature("f_inst_ldst_local").value(scop, {}, Target(32)) == 8 * (loads + stores)


DOMAINS = [
    "n mod 4 = 0 and 0 <= k < 4 and j >= 0 and 4j + k < n and 0 <= i < n",
    "0 <= k < 4 and j >= 0 and 4j + k < n and 0 <= i < n",
    "n mod 8 = 0 and 0 <= k < 4 and 0 <= j < 2 and 8i + 4j + k < n and i >= 0",
    "n mod 4 = 0 and 0 <= k < 5 and 4j + k < n and 0 <= j and 0 <= i < 3",
    "n mod 4 = 0 and 1 <= k < 5 and 4j + k <= n and 0 <= j and 0 <= i < 3",
    "n mod 4 = 0 and k = 2 and 4j - k >= 0 and 4j + 3k <= n and 0 <= i < 3",
    "n mod 4 = 0 and 0 <= k < 4 and 4*floor(i/2) + k < n and 0 <= i and 0 <= j < 3",
]


def rows_of(domain):
    (conjunction,) = Statement("s", f"[n] -> {{ [i, j, k] : {domain} }}").domain.compute_divs().get_basic_sets()
    return read_constraints(conjunction)


def members(constraints):
    points = np.ix_(*[np.arange(-3, 14)] * 3)
    inside = []
    for n in range(18):
        values = [(row({"n": n, **dict(enumerate(points))}), equality) for row, equality in constraints]
        rows = [np.broadcast_to(value == 0 if equality else value >= 0, (17, 17, 17)) for value, equality in values]
        inside.append(np.all(rows, axis=0))
    return np.stack(inside)


@pytest.mark.parametrize("domain", DOMAINS)
def test_fewer_dimensions_say_the_same(domain):
    rows = rows_of(domain)
    assert (members(tightened(rows)) == members(rows)).all()


def test_dimensions_that_are_left_out():
    # 4j + k < n is 4j < n where four divides n and k < 4.
    linked = [
        [row for row, _ in tightened(rows_of(domain)) if 2 in row.dims and len(row.terms) > 1] for domain in DOMAINS
    ]
    assert [len(rows) for rows in linked] == [0, 1, 0, 1, 0, 0, 0]
