"""Loops that begin at the work-item, the work-group or an outer loop: what sub-groups execute in lock step."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from oracles.lock_step_compare import differences
from oracles.shifted_kernels import make_shifted_kernel
from perflex.features import counts_of, extract_scop, kernel_feature_values

N, LANES = 512, 32


def kernel(domain: str, body: str, **shapes: str) -> lp.TranslationUnit:
    """Return a kernel with a work-item for each i."""
    arrays = [lp.GlobalArg(name, np.float32, shape=shape) for name, shape in {**shapes, "y": "n"}.items()]
    made = lp.make_kernel(
        domain, body, [*arrays, lp.ValueArg("n", np.int32)], assumptions="n >= 1", lang_version=(2018, 2)
    )
    return lp.split_iname(made, "i", 64, outer_tag="g.0", inner_tag="l.0")


# Kernel, the first and last iteration of work-item i, and the element that each array's load has in iteration j.
CASES = {
    "lower triangle": (
        kernel("{[i, j]: 0 <= i < n and 0 <= j <= i}", "y[i] = sum(j, A[j, i]*x[j])", A="n,n", x="n"),
        (lambda _: 0, lambda i: i),
        {"A": lambda i, j: j * N + i, "x": lambda _, j: j},
    ),
    "upper triangle": (
        kernel("{[i, j]: 0 <= i < n and i <= j < n}", "y[i] = sum(j, A[j, i]*x[j])", A="n,n", x="n"),
        (lambda i: i, lambda _: N - 1),
        {"A": lambda i, j: j * N + i, "x": lambda _, j: j},
    ),
    "band": (
        kernel("{[i, j]: 0 <= i < n and i <= j < i + 9}", "y[i] = sum(j, A[j-i, i]*x[j])", A="9,n", x="n+9"),
        (lambda i: i, lambda i: i + 8),
        {"A": lambda i, j: (j - i) * N + i, "x": lambda _, j: j},
    ),
    "windows": (
        kernel("{[i, j]: 0 <= i < n and 2*i <= j < 2*i + 3}", "y[i] = sum(j, w[j-2*i]*x[j])", w="3", x="2*n+3"),
        (lambda i: 2 * i, lambda i: 2 * i + 2),
        {"w": lambda i, j: j - 2 * i, "x": lambda _, j: j},
    ),
    "segments": (
        kernel("{[i, j]: 0 <= i < n and 64*i <= j < 64*i + 64}", "y[i] = sum(j, 0.5*x[j])", x="64*n"),
        (lambda i: 64 * i, lambda i: 64 * i + 63),
        {"x": lambda _, j: j},
    ),
    # Some work-items of the first sub-group begin elsewhere than others: their loads are one instruction all the same.
    "windows that stop at the array's ends": (
        kernel("{[i, j]: 0 <= i, j < n and i - 4 <= j <= i + 4}", "y[i] = sum(j, w[j-i+4]*x[j])", w="9", x="n"),
        (lambda i: max(0, i - 4), lambda i: min(N - 1, i + 4)),
        {"w": lambda i, j: j - i + 4, "x": lambda _, j: j},
    ),
    "tiles without the first element": (
        kernel("{[i, j]: 0 <= i < n and 1 <= j and 4*i <= j < 4*i + 4}", "y[i] = sum(j, 0.5*x[j])", x="4*n"),
        (lambda i: max(1, 4 * i), lambda i: 4 * i + 3),
        {"x": lambda _, j: j},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_step_is_the_next_iteration_of_all(name):
    made, (first, last), loads = CASES[name]
    steps = 0
    sectors = N * 4 // 32
    for start in range(0, N, LANES):
        lanes = range(start, start + LANES)
        for step in range(max(last(i) - first(i) + 1 for i in lanes)):
            active = [i for i in lanes if first(i) + step <= last(i)]
            steps += 1
            sectors += sum(len({4 * load(i, first(i) + step) // 32 for i in active}) for load in loads.values())
    expected = {"f_op_float32_madd": steps, "f_txn_global": sectors}
    assert kernel_feature_values(expected, made, {"n": N}, machine="V100") == expected


@pytest.mark.parametrize("seed", range(9))
def test_counts_are_those_of_the_printed_code_in_lock_step(seed):
    drawn = make_shifted_kernel(seed)
    assert not differences(drawn), drawn


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 312))
def test_counts_of_more_kernels_are_those_of_the_printed_code(seed):
    drawn = make_shifted_kernel(seed)
    assert not differences(drawn), drawn


def test_both_forms_of_a_kernel_have_the_same_counts():
    absolute = kernel(
        "{[i, j]: 0 <= i < n and 16*i <= j < 16*i + 16}", "y[i] = sum(j, x[j]*w[j-16*i])", x="16*n", w="16"
    )
    numbered = kernel("{[i, j]: 0 <= i < n and 0 <= j < 16}", "y[i] = sum(j, x[16*i+j]*w[j])", x="16*n", w="16")
    one, other = extract_scop(absolute), extract_scop(numbered)
    for mine, same in zip(one.statements, other.statements, strict=True):
        assert mine.domain.is_equal(same.domain)
        for access, equal in zip(mine.accesses, same.accesses, strict=True):
            assert access.relation.intersect_domain(mine.domain).is_equal(equal.relation.intersect_domain(mine.domain))


def test_a_first_iteration_that_all_have_in_common_leaves_subscripts_affine():
    # The first tile begins at 1, which is the same for all work-items of a group.
    made = kernel(
        "{[i, k, j]: 0 <= i < n and 0 <= 32*k < n and 32*k <= j < 32*k + 32 and 1 <= j}",
        "y[i] = sum((k, j), x[i, j])",
        x="n,n+32",
    )
    (load,) = [item for item in counts_of(extract_scop(made)).accesses if item.array.name == "x"]
    assert load.access.relation.as_pw_multi_aff().n_piece() == 1
    assert load.local_strides[0] is not None
    assert load.local_strides[0].evaluate({"n": 64}) == 96
