"""Arrays of which data decide the elements: what is counted without their extents, and with stated ones."""

import pytest

from perflex import PerflexError, load_machine, source_kernel
from perflex.features import count_features
from perflex.features.cpu.ecm_estimate import estimate_ecm

# A product of a sparse matrix in rows and a vector.
SPMV = """
__global__ void spmv(const int *rowptr, const int *col, const float *vals, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float s = 0;
        for (int j = rowptr[i]; j < rowptr[i + 1]; j++)
            s += vals[j] * x[col[j]];
        y[i] = s;
    }
}
"""
N, ROW = 4096, 8
GATHERED = {"vals": "float32", "col": "int32", "x": "float32"}


def spmv(**stated):
    return source_kernel(SPMV, "spmv", local=64, groups="ceil_div(n, 64)", stated={"7": ROW, **stated})


def counts(kernel, identifiers=(), **sizes):
    return {entry.identifier: entry for entry in count_features(kernel, {"n": N, **sizes}, identifiers=identifiers)}


def test_what_does_not_depend_on_extents_is_counted_without_them():
    found = counts(spmv())
    loads = [found[f"f_mem_access_array:{name}_global_{kind}_load"].value for name, kind in GATHERED.items()]
    assert loads == [N * ROW] * 3
    assert found["f_op_float32_madd"].value == N * ROW / 32
    assert (found["f_mem_footprint_array:y"].value, found["f_mem_footprint_array:rowptr"].value) == (N, N + 1)
    for name in GATHERED:
        entry = found[f"f_mem_footprint_array:{name}"]
        assert entry.value is None
        assert f"--state {name}=N" in entry.note


FOOTPRINT = "f_mem_footprint_array:x"


def test_who_needs_an_extent_says_so():
    with pytest.raises(PerflexError, match=f"{FOOTPRINT} depends on how many elements array 'x' .*--state x=N"):
        counts(spmv(), [FOOTPRINT])
    with pytest.raises(PerflexError, match=r"traffic of caches depends on .* array 'vals'"):
        estimate_ecm(spmv().scop(), {"n": N}, load_machine("Gold-6248"))
    # It has a size, which may be given like others.
    assert counts(spmv(), [FOOTPRINT], x_elements=77)[FOOTPRINT].value == 77


@pytest.mark.parametrize(
    ("extent", "sizes", "elements"),
    [
        ("nnz", {"nnz": 30000}, 30000),
        ("n*m", {"m": 3, "nnz": 500}, 3 * N),
        ("max(n, m)", {"m": 5000, "nnz": 500}, 5000),
        ("n//2 + 1", {"nnz": 500}, N // 2 + 1),
        ("999", {"nnz": 500}, 999),
    ],
)
def test_extents_are_formulas_of_sizes(extent, sizes, elements):
    kernel = spmv(x=extent, vals="nnz", col="nnz")
    found = counts(kernel, [FOOTPRINT, "f_mem_access_array:vals"], **sizes)
    assert [entry.value for entry in found.values()] == [elements, N * ROW]
    assert found[FOOTPRINT].certainty.bound


def test_a_size_of_that_name_is_another():
    text = "kernel void f(global int *x, global int *i, int x_elements) { x[i[get_global_id(0)]] = x_elements; }"
    kernel = source_kernel(text, "f", local=64, groups="x_elements")
    assert counts(kernel, ["f_mem_access_array:x"], x_elements=2)["f_mem_access_array:x"].value == 128
    with pytest.raises(PerflexError, match="depends on how many elements array 'x'"):
        counts(kernel, [FOOTPRINT], x_elements=2)
