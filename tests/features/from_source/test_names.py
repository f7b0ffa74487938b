"""Names that arguments and functions may have, and attributes that stand where the compiler does not see them."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, scop_from_yaml, scop_to_yaml, source_kernel

STORES = ["f_mem_access_array:a_global_store", "f_mem_footprint_array:a"]


@pytest.mark.parametrize("name", ["l0", "g0", "i1", "i1_0", "e0", "lane", "lid0", "size", "n"])
def test_sizes_of_any_name(name):
    body = f"for (int k = 0; k < {name}; k++) a[get_global_id(0) * {name} + k] = 1;"
    kernel = source_kernel(f"kernel void f(global float *a, int {name}) {{ {body} }}\n", "f", local=64, groups=4)
    for each in (kernel, scop_from_yaml(scop_to_yaml(kernel.scop()))):
        assert [(one.value, one.exact) for one in count_features(each, {name: 5}, identifiers=STORES)] == [
            (1280, True)
        ] * 2


MACROS = "#define SIDE 4\n#if SIDE > 2\n#define WIDE(n) (2 * n)\n#else\n#define WIDE(n) n\n#endif\n"


@pytest.mark.parametrize(("before", "local"), [
    ("__attribute__((reqd_work_group_size(32, 2, 1)))", (32, 2, 1)),
    ("// __attribute__((reqd_work_group_size(32, 1, 1)))\n", None),
    ("#if 0\n__attribute__((reqd_work_group_size(32, 1, 1)))\n#endif\n", None),
    (f"{MACROS}__attribute__((reqd_work_group_size(WIDE(SIDE), sizeof(int), 1)))", (8, 4, 1)),
    ("__attribute__((reqd_work_group_size(8, 1, 1))) kernel void other(global float *a) {}\n", None),
])  # fmt: skip
def test_the_work_group_that_a_kernel_requires(before, local):
    text = before + " kernel void f(global float *a) { a[get_global_id(0)] = 1; }\n"
    if local is None:
        with pytest.raises(UnsupportedKernelError, match="kernel 'f' needs its work-group; give local"):
            source_kernel(text, "f", groups=4)
    else:
        assert source_kernel(text, "f", groups=4).local == local
