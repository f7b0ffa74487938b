"""Subscripts that are stated in the place of those that data decide: against the subscript itself, and by hand."""

import pytest

from perflex import PerflexError, estimate_volumes, source_kernel
from perflex.features import count_features

N, ROW = 512, 8
# A product of a sparse matrix in rows and a vector: a row for each work-item, and for each sub-group.
SOURCE = """
struct pair { float a, b; };
__global__ void rows(const int *rowptr, const int *col, const float *vals, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    for (int j = rowptr[i]; j < rowptr[i + 1]; j++)
        s += vals[j] * x[ col[j] ];
    y[i] = s;
}
__global__ void warps(const int *rowptr, const int *col, const float *vals, const float *x, float *y, int n)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    int j = rowptr[row] + lane;
    float s = 0;
    while (j < rowptr[row + 1]) {
        s += vals[j] * __ldg(&x[col[j]]);
        j += warpSize;
    }
    y[row * 32 + lane] = s;
}
__global__ void pairs(const pair *p, const int *at, float *y, int n, int m)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    const pair *q = p + at[i];
    y[i] = p[at[i]].b + q->a + (*q).b;
}
"""


FOR, WHILE = (
    str(next(number for number, line in enumerate(SOURCE.splitlines(), 1) if f"{word} (" in line))
    for word in ("for", "while")
)


def kernel(name, groups, **stated):
    return source_kernel(SOURCE, name, local=64, groups=groups, stated=stated)


def counts(found, *identifiers, **sizes):
    return [entry.value for entry in count_features(found, {"n": N, **sizes}, identifiers=identifiers)]


VALS, LOADS = "f_mem_footprint_array:vals", "f_mem_access_array:vals_global_float32_load_lstrides:{0:%s}"


@pytest.mark.parametrize(
    ("stated", "stride", "footprint"),
    [
        ("8*i + j", 8, N * ROW),
        ("8 * (64*gid0 + lid0) + j", 8, N * ROW),
        ("i + n*j", 1, N * ROW),
        ("2*i", 2, N),
        ("j + i", 1, N + ROW - 1),
        ("8*i + 7 - j", 8, N * ROW),
    ],
)
def test_a_row_for_each_work_item(stated, stride, footprint):
    found = kernel("rows", N // 64, **{FOR: ROW, "vals[j]": stated, "col[j]": "anywhere"})
    assert counts(found, VALS, LOADS % stride) == [footprint, N * ROW]
    (entry,) = count_features(found, {"n": N}, identifiers=[VALS])
    assert entry.certainty.stated


def test_volumes_follow_and_are_those_of_the_subscript_itself():
    text = SOURCE.replace("vals[j] * x[ col[j] ]", "vals[8*i + j] * x[col[8*i + j]]").replace(
        "int j = rowptr[i]", "int j = 0"
    )
    text = text.replace("col[8*i + j]", "i + col[8*i + j]*0").replace("j < rowptr[i + 1]", "j < 8")
    text = text.replace("x[i + col[8*i + j]*0]", "x[i]")
    stated = {FOR: ROW, "vals[j]": "8*i + j", "col[j]": "8*i + j", "x[col[j]]": "i"}
    volumes = estimate_volumes(kernel("rows", N // 64, **stated), {"n": N}, "A100-40GB")
    same = estimate_volumes(source_kernel(text, "rows", local=64, groups=N // 64), {"n": N}, "A100-40GB")
    for name in ("vals", "y"):
        one, other = volumes.arrays[name], same.arrays[name]
        assert (one.l1_load, one.l2_l1_compulsory) == (other.l1_load, other.l2_l1_compulsory)


def test_a_row_for_each_sub_group():
    # 2 iterations of 32 elements of each row.
    stated = {WHILE: 2, "vals[j]": "64*row + lane + j", "col[j]": "64*row + lane + j", "x[col[j]]": "lane"}
    found = kernel("warps", N // 64 * 32, **stated)
    assert counts(found, VALS, "f_mem_footprint_array:x", "f_mem_access_array:vals") == [N * 64, 32, N * 64]


def test_elements_are_of_the_type_that_is_accessed():
    stated = {"p[at[i]]": "3*i + m", "q[0]": "0", "*q": "3*i + m"}
    with pytest.raises(PerflexError, match=r"stated for 'q\[0\]' fits no access"):
        counts(kernel("pairs", N // 64, **stated), "f_mem_footprint_array:p", m=5)
    del stated["q[0]"]
    found = kernel("pairs", N // 64, **stated)
    # Of the pairs the second number; the first one is somewhere.
    (store,) = counts(found, "f_mem_access_array:p_global_float32_load_lstrides:{0:6}", m=5)
    assert store == 2 * N


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        (
            {"vals[j]": "8*q + j"},
            r"'8\*q \+ j', stated for vals\[j\], names 'q', which is not known there; known: gid0, i, j",
        ),
        ({"vals[k]": "i"}, r"stated for 'vals\[k\]' fits no access"),
        ({"vals[j]": "i +"}, r"stated for vals\[j\]: cannot read the formula"),
        ({"vals[j]": "s"}, "names 's'"),
    ],
)
def test_what_cannot_be_read_is_refused(stated, message):
    with pytest.raises(PerflexError, match=message):
        counts(kernel("rows", 8, **{FOR: ROW}, **stated), VALS)
