"""Executed instructions on Oclgrind after optimisation: no compiler removes or merges what is measured."""

from __future__ import annotations

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection

pytestmark = [needs_oclgrind, pytest.mark.slow]
GROUP = 256
PLACE = ["lid_stride_1:16", "nelements:256"]

JOBS = {
    **{
        op: [f"flops_{op}_pattern", "dtype:float32", "groups_fit:True", *PLACE, "m:64", "nvars:16"]
        for op in ("div", "sqrt", "rsqrt", "exp", "sin", "cos")
    },
    **{
        f"int {op}": [f"iops_{op}_pattern", "groups_fit:True", *PLACE, "m:64", "nvars:16"]
        for op in ("add", "mul", "madd", "bit", "shift")
    },
    "load": ["gmem_load", "dtype:float32", "lsize_0:64", "lid_stride_0:2", "nelements:4096", "m:8"],
    "store": ["gmem_store", "dtype:float32", "lsize_0:64", "lid_stride_0:2", "nelements:4096", "m:8"],
    "uniform": ["gmem_uniform", "dtype:float32", "lsize_0:64", "by:launch", "ngroups:4", "m:8"],
    "reuse": ["gmem_reuse", "dtype:float32", "lsize_0:16", "by:items", "afr:4", "nelements:512", "m:8"],
    "working set": ["gmem_working_set", "dtype:float32", "lsize_0:64", "working_set:512", "ngroups:4", "m:3"],
    "triad": ["gmem_triad", "dtype:float32", "lsize_0:64", "groups_fit:True", "width:4", "nelements:1024"],
    "local": ["lmem_load", "dtype:float32", "lsize_0:64", "lid_stride_0:4", "ngroups:4", "m:48"],
    "broadcast": ["lmem_broadcast", "dtype:float32", "lsize_0:64", "ngroups:4", "m:48"],
}
ROUNDS = GROUP * 64 * 16


@pytest.fixture(scope="module")
def executed():
    collection = KernelCollection(ALL_GENERATORS)
    kernels = [collection.generate_kernels(tags)[0] for tags in JOBS.values()]
    return dict(zip(JOBS, run_jobs([(k.kernel, k.sizes) for k in kernels], []), strict=True))


def test_divisions(executed):
    found = executed["div"]
    assert found.divs == ROUNDS
    assert found.adds == 15 * GROUP
    assert found.muls == found.madds() == 0


@pytest.mark.parametrize("function", ["sqrt", "rsqrt", "exp", "sin", "cos"])
def test_functions(executed, function):
    found = executed[function]
    assert found.called(function, "float32") == ROUNDS
    assert found.adds == 15 * GROUP
    # The sign in exp(-x) is no longer a product.
    assert found.muls == found.madds() == found.divs == 0


@pytest.mark.parametrize(
    ("operation", "opcodes"),
    [("add", ["add"]), ("mul", ["mul"]), ("madd", ["mul", "add"]), ("bit", ["xor", "and"]), ("shift", ["shl"])],
)
def test_integer_operations(executed, operation, opcodes):
    found = executed[f"int {operation}"]
    for opcode in opcodes:
        # The rest makes starting values, the sum at the end, and subscripts.
        assert 0 <= found.instructions[opcode] - ROUNDS <= 50 * GROUP, opcode
    assert found.adds == found.muls == found.madds() == 0


@pytest.mark.parametrize(
    ("name", "loads", "stores"),
    [
        ("load", 8 * GROUP, GROUP),
        ("store", 0, 8 * GROUP),
        ("uniform", 8 * GROUP, GROUP),
        ("reuse", 8 * GROUP, GROUP),
        ("working set", 3 * 8 * GROUP, GROUP),
        ("triad", 2 * GROUP, GROUP),
    ],
)
def test_global_accesses(executed, name, loads, stores):
    found = executed[name]
    assert found.load("global").count == loads
    assert found.store("global").count == stores
    # A load is an addition in one of four sums, which are summed at the end; the triad has multiply-adds.
    assert found.adds == (loads + 3 * GROUP if loads and name != "triad" else 0)
    assert found.barriers == (3 * GROUP if name == "working set" else 0)


def test_vectors_move_in_one_access(executed):
    assert executed["triad"].load("global").bytes == 16 * 2 * GROUP
    assert executed["triad"].store("global").bytes == 16 * GROUP


@pytest.mark.parametrize(("name", "stores", "barriers"), [("local", 16, 0), ("broadcast", 1, 1)])
def test_local_loads(executed, name, stores, barriers):
    found = executed[name]
    assert found.load("local").count == 48 * GROUP
    assert found.store("local").count == stores * GROUP
    assert found.adds == (48 + 1) * GROUP
    assert found.barriers == barriers * GROUP
    assert found.load("global").count == 0
