"""Executed instructions on Oclgrind after optimisation: no compiler removes or merges what is measured."""

from __future__ import annotations

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import KernelCollection
from uipick.generators import ALL_GENERATORS

pytestmark = needs_oclgrind
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
    "add and mul": ["flops_mixed_pattern", "dtype:float32", "mix:add_mul", "groups_fit:True", *PLACE, "m:128"],
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


def test_mixed(executed):
    found = executed["add and mul"]
    assert found.muls == 16 * 128 * GROUP
    assert found.adds == 16 * 128 * GROUP + 31 * GROUP
