"""The paper's matmul: symbolic counts against executed instructions and against enumeration."""

from __future__ import annotations

import pytest

from oracles import brute, oclgrind
from oracles.kernels import matmul
from perflex.features import Target, extract_scop, parse_feature

N = 48
SUB_GROUP = 32


def value(kernel, identifier):
    return parse_feature(identifier).value(extract_scop(kernel), {"n": N}, Target(SUB_GROUP))


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("prefetch", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_counts_are_what_oclgrind_executes(prefetch, dtype):
    kernel = matmul(prefetch=prefetch, dtype=dtype)
    executed = oclgrind.run(kernel, {"n": N})
    assert value(kernel, f"f_op_{dtype}_madd") * SUB_GROUP == executed.madds(dtype) == N**3
    assert executed.adds == executed.muls == 0
    # The uniform loads of a are counted per sub-group, those of b per work-item.
    a_items = SUB_GROUP if not prefetch else 1
    loads = [
        value(kernel, f"f_mem_access_global_{dtype}_load_lstrides:{{0:{stride}}}") * items
        for stride, items in (((0, a_items), (1, 1)) if not prefetch else ((1, 1),))
    ]
    width = {"float32": 4, "float64": 8}[dtype]
    assert sum(loads) == executed.load("global").count
    assert sum(loads) * width == executed.load("global").bytes
    assert value(kernel, f"f_mem_access_global_{dtype}_store") == executed.store("global").count == N**2
    if prefetch:
        for direction, counted in (("load", executed.load("local")), ("store", executed.store("local"))):
            assert value(kernel, f"f_mem_access_local_{dtype}_{direction}") * SUB_GROUP == counted.count


@pytest.mark.parametrize("prefetch", [False, True])
def test_counts_are_what_enumeration_finds(prefetch):
    kernel = matmul(prefetch=prefetch)
    counted = brute.count(kernel, {"n": N}, SUB_GROUP)
    assert value(kernel, "f_op_float32_madd") == counted.operations("madd", "float32", sub_group=True)
    loads = sum(
        access.per_sub_group if access.uniform else access.per_work_item for access in counted.select("global", "load")
    )
    assert value(kernel, "f_mem_access_global_float32_load") == loads
    assert value(kernel, "f_mem_access_global_float32_store") == counted.accessed("global", "store")
    local = sum(access.per_sub_group for access in counted.select("local"))
    if prefetch:
        assert value(kernel, "f_mem_access_local_float32") == local
    assert value(kernel, "f_thread_groups") == counted.groups
