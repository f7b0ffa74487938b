"""Calls of Kernel Tuner's ``tune_kernel``: macros, grids and configurations are those that Kernel Tuner would use."""

import itertools

import pytest

from perflex import load_space
from perflex.errors import PerflexError
from perflex.features import count_features
from perflex.search.constraints import constraints_of

SOURCE = """
#ifndef DIM
#include "dim.h"
#endif
template <int B> __global__ void cost(const float *x, float *y, int n)
{
    int i = blockIdx.x * B + threadIdx.x;
    float s = 0;
    for (int d = 0; d < DIM; ++d)
        s += x[d * n + i] * x[d * n + i];
    y[i] = s;
}
"""
SCRIPT = """
import numpy as np
from kernel_tuner import run_kernel, tune_kernel
n = 4096
x, y = np.zeros(64 * n, np.float32), np.zeros(n, np.float32)
run_kernel("cost<block_size_x>", "cost.cu", n, [x, y, np.int32(n)], {{"block_size_x": 64}})
tune_kernel("cost<block_size_x>", "cost.cu", n, [x, y, np.int32(n)], dict(block_size_x=[96]), {})
"""


def kernel(folder, more):
    (folder / "include").mkdir()
    (folder / "include" / "dim.h").write_text("#define DIM 16\n", encoding="utf-8")
    (folder / "cost.cu").write_text(SOURCE, encoding="utf-8")
    (folder / "tune.py").write_text(SCRIPT.format(more), encoding="utf-8")
    return load_space(folder / "tune.py").kernel({"block_size_x": 96})


@pytest.mark.parametrize(
    ("options", "dim"),
    [
        ('["-DDIM=64", "-O3"]', 64),
        ('["-D", "DIM=4", "-std=c++11", "--use_fast_math"]', 4),
        ('["-D DIM=4 -Iinclude"]', 4),
        ('"-DDIM=(8 - 1)"', 7),
        ('["-DDIM"]', 1),
        ('["-DDIM=2", "-DDIM=5"]', 5),
        ('["--define-macro=DIM=2", "-U", "DIM", "-I", "include"]', 16),
        ('("--include-path", "include")', 16),
        ('None, defines={"DIM": "block_size_x / 32"}', 3),
        ('["-DDIM=9"], defines={"DIM": lambda p: p["block_size_x"] // 48}', 2),
    ],
)
def test_macros_of_compilers_options_count(tmp_path, options, dim):
    found = kernel(tmp_path, f"compiler_options={options}")
    # 43 blocks of 3 sub-groups.
    assert [e.value for e in count_features(found, {"n": 4096}, identifiers=["f_op_float32_madd"])] == [43 * 3 * dim]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ('compiler_options=["-include", "dim.h"]', "-include.*write #include"),
        ("grid_div_x=['block_size_x / 128']", "divisor of 0"),
        ("lang='Fortran'", "only OpenCL C, CUDA C and HIP"),
    ],
)
def test_what_cannot_be_followed_is_refused(tmp_path, more, message):
    with pytest.raises(PerflexError, match=message):
        kernel(tmp_path, more)


@pytest.mark.parametrize(
    ("divisor", "groups"),
    [
        ('["block_size_x / 64"]', 4096),
        ('["block_size_x / 64", "5 / 2"]', 2048),
        ('"block_size_x / 40"', 2048),
        ("64", 64),
        ("np.int64(64)", 64),
        ('["block_size_x", 2]', 22),
        ('[lambda p: p["block_size_x"] / 64]', 2731),
        ('[["block_size_x", "2"], lambda p: 2]', 11),
        ('["block_size_x & 64", "ceil(block_size_x / 64)"]', 32),
    ],
)
def test_divisors_are_cut_one_by_one(tmp_path, divisor, groups):
    assert kernel(tmp_path, f'compiler_options=["-DDIM=1"], grid_div_x={divisor}').groups == (str(groups),)


TUNABLES = {"a": [8, 16, 32, 64], "b": [0, 1, 2, 3], "p": [0, 1]}


def first(a, b, p):
    return a * b > 20 or p


@pytest.mark.parametrize(
    ("restrictions", "holds"),
    [
        (["b and 6 % b == 0", "(a & 16) == 0"], "b and 6 % b == 0 and not a & 16"),
        (lambda p: p["a"] * p["p"] < 30, "a * p < 30"),
        ([lambda q: q["a"] < 30], "a < 30"),
        ([lambda p, a: p + a > 9, "b"], "p + a > 9 and b"),
        ([lambda q: q["a"] < 30, lambda b: b > 1], "a < 30 and b > 1"),
        ([lambda **q: q["a"] < 30], "a < 30"),
        ([lambda *q: q[0] * q[1] > 20], "a * b > 20"),
        ([lambda a, limit=30: a < limit], "a < 30"),
        ((first, ["a", "b", "p"]), "first(a, b, p)"),
        ([(lambda x, y: x < y, ("b", "p")), first], "b < p and first(a, b, p)"),
        (("a < 30", "p"), "a < 30 and p"),
        (None, "True"),
    ],
)
def test_restrictions_leave_the_same_configurations(restrictions, holds):
    from perflex import VariantSpace

    space = VariantSpace(dict, TUNABLES, constraints_of(restrictions, list(TUNABLES)))
    every = itertools.product(*TUNABLES.values())
    assert [tuple(each.values()) for each in space] == [
        each for each in every if eval(holds, {"first": first}, dict(zip(TUNABLES, each, strict=True)))
    ]
