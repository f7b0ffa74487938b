"""Confined loads: what is refused, and what stays as it was."""

import loopy as lp
import numpy as np
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import kernel_feature_values
from support.written_kernels import written
from uipick import confine_loads


def _kernel(update, domain="{[i]: 0<=i<n}"):
    source = lp.GlobalArg("x", np.float32, shape="n", is_input=True)
    fits = "n >= 1 and n mod 16 = 0"
    return written(domain, update, "y: float32[n]", "i/16: g.0, l.0", more=[source], assume=fits, name="line")


def test_counts_stay_and_the_footprint_of_loads_shrinks():
    kernel = _kernel("y[i] = 2*x[i] + 1")
    near = confine_loads(kernel, 3)
    assert near.default_entrypoint.name == "line_core"
    names = ["f_mem_access_global_float32_load", "f_mem_access_global_float32_store", "f_op_float32_madd"]
    footprints = ["f_mem_footprint_array:x", "f_mem_footprint_array:y"]
    before = kernel_feature_values([*names, *footprints], kernel, {"n": 160}, 8)
    after = kernel_feature_values([*names, *footprints], near, {"n": 160}, 8)
    assert [after[name] for name in names] == [before[name] for name in names]
    assert [before[name] for name in footprints] == [160, 160]
    assert [after[name] for name in footprints] == [48, 160]


@pytest.mark.parametrize(("kernel", "groups", "words"), [
    (lambda: _kernel("y[i] = 2*y[i]"), 4, "both loads and stores y; confined loads would race"),
    (lambda: _kernel("y[i] = 3"), 4, "loads nothing from global memory that depends on the work-group"),
    (lambda: _kernel("y[i] = x[0]"), 4, "loads nothing from global memory that depends on the work-group"),
    (lambda: _kernel("y[i] = x[i]"), 0, "at least 1, not 0"),
])  # fmt: skip
def test_what_cannot_be_confined(kernel, groups, words):
    with pytest.raises(UnsupportedKernelError, match=words):
        confine_loads(kernel(), groups)
