"""Loops that begin at the work-item, the work-group or an outer loop: what sub-groups execute in lock step."""

import pytest

from oracles.lock_step_compare import differences
from oracles.shifted_kernels import make_shifted_kernel
from perflex.features import counts_of, extract_scop
from support.written_kernels import written


def kernel(domain, body, **shapes):
    """Return a kernel with a work-item for each i."""
    data = "; ".join(f"{name}: float32[{shape}]" for name, shape in {**shapes, "y": "n"}.items())
    return written(domain, body, data, "i/64: g.0, l.0")


@pytest.mark.parametrize("seed", range(9))
def test_counts_are_those_of_the_printed_code_in_lock_step(seed):
    drawn = make_shifted_kernel(seed)
    assert not differences(drawn), drawn


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(9, 160))
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
