"""Counts of a kernel at given sizes, and of the kernel with these sizes in its code: the work is the same."""

import loopy as lp
import numpy as np
import pytest

from perflex.features import extract_scop, kernel_feature_values, parse_feature
from uipick import ALL_GENERATORS, KernelCollection

KERNELS = {
    "stencil2d": "shape:star radius:1 dtype:float32 lsize_0:32 lsize_1:8 groups_fit:False nx:200 ny:100",
    "matmul_sq": "dtype:float32 prefetch:True lsize_0:8 lsize_1:8 groups_fit:True n:64",
    "matmul_rb": "dtype:float32 rows:2 columns:4 lsize:4 groups_fit:True n:160",
    "transpose": "dtype:float32 variant:tiled lsize:8 rows:4 groups_fit:False n:70",
    "gemv": "dtype:float64 lsize_0:8 groups_fit:True n:64 m:48",
    "nbody": "dtype:float32 lsize_0:8 groups_fit:False n:68",
    "fdiff": "dtype:float32 tile:6 groups_fit:True n:48",
}
# One identifier of each family.
FAMILIES = (
    "f_op_float32_add", "f_chain_float32_add", "f_mem_access_array:a", "f_mem_footprint_global",
    "f_sync_barrier_local", "f_thread_groups", "f_vol_dram_load",
)  # fmt: skip
# Of instructions, those that are no integer arithmetic: a compiler that knows the sizes makes less of it.
INSTRUCTIONS = ("fp32", "fp64", "ldst_global", "ldst_local")


def scaled():
    """Return a kernel whose work-groups of 9 x 22 leave sub-groups with parts of rows, and its sizes."""
    knl = lp.make_kernel(
        "{ [i, j]: 0 <= i < n and 0 <= j < 10 }",
        "out[i, j] = 2 * a[i, j]",
        [lp.GlobalArg("a,out", np.float64, shape=("n", 10)), lp.ValueArg("n", np.int32)],
        name="scaled",
        lang_version=(2018, 2),
    )
    knl = lp.split_iname(knl, "i", 22, outer_tag="g.0", inner_tag="l.1")
    return lp.split_iname(lp.assume(knl, "n >= 1"), "j", 9, inner_tag="l.0"), {"n": 1003}


def kernels():
    yield pytest.param(*scaled(), id="scaled")
    for name, tags in KERNELS.items():
        made, *_ = KernelCollection(ALL_GENERATORS).generate_kernels([name, *tags.split()])
        yield pytest.param(made.kernel, dict(made.sizes), id=name)


CASES = list(kernels())


@pytest.mark.parametrize(("kernel", "sizes"), CASES)
def test_work_and_data_are_the_same_with_sizes_in_the_code(kernel, sizes):
    fixed = lp.fix_parameters(kernel, **sizes)
    scop = extract_scop(fixed)
    assert not scop.parameters
    names = {name for one in FAMILIES for name in parse_feature(one).inventory(scop) if "f_su_" not in name}
    names |= {f"f_inst_{kind}" for kind in INSTRUCTIONS}
    given, known = (kernel_feature_values(names, one, sizes, machine="A100-40GB") for one in (kernel, fixed))
    assert given == known
    assert sum(map(bool, known.values())) > 8


@pytest.mark.parametrize(("kernel", "sizes"), CASES)
def test_a_compiler_that_knows_the_sizes_leaves_fewer_integer_instructions(kernel, sizes):
    """Distances of rows become constants of addresses, and tests that always hold are left out."""
    fixed = lp.fix_parameters(kernel, **sizes)
    given, known = (kernel_feature_values(["f_inst_int"], one, sizes)["f_inst_int"] for one in (kernel, fixed))
    assert 0 < known <= given
