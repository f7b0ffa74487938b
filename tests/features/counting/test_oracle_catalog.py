"""Every generator of the catalog: counts per work-item against what Oclgrind executes."""

from math import prod

import pytest

from oracles import oclgrind
from oracles.nasty.rows import counted_rows, executed_rows, mismatches
from perflex.features import extract_scop, kernel_feature_values
from support.small_kernels import SMALL
from uipick import ALL_GENERATORS, KernelCollection

PROCESSES = 8


def test_every_generator_is_checked():
    assert set(SMALL) == {generator.name for generator in ALL_GENERATORS}


def signs(kernel):
    """Differences a - b: loopy writes a + -1.0f * b, which counts as an addition, and -1 as a sign.

    To Oclgrind, which does not optimise here, it is a product, or one with a sum. Returns how many it takes for the
    first, because the sum is fused with another product already, and how many for the second.
    """
    points = prod(kernel.sizes.values())
    if kernel.generator == "wave3d":  # 2 u - old
        return points, 0
    if kernel.generator == "pirk" and kernel.arguments["problem"] == "wave3d":  # the same in each of four stages
        return 4 * points if kernel.arguments["kernel"] == "rhs_lc" else 0, 0
    if kernel.generator == "lbm_d3q15" and kernel.arguments["collide"] == "bgk":  # velocity, and diagonals
        return 0, 6 * points
    if kernel.generator == "nbody":  # three coordinates of each pair
        return 0, 3 * kernel.sizes["n"] ** 2
    return 0, 0


def differing(kernel, run):
    """Return what is not executed as often as it is counted."""
    found = executed_rows(run)
    products, fused = signs(kernel)
    for row in ("add", "mul", "global load", "global store", "local load", "local store"):
        # One instruction for all lanes of a vector.
        found[row] *= int(kernel.arguments.get("width", 1))
    found["add"], found["madd"] = found["add"] + fused, found["madd"] - fused
    # The only exponentials are of negated variables, generated as exp(-1.0f * x): a sign, executed as a product.
    found["mul"] -= products + found["exp"]
    return mismatches(counted_rows(extract_scop(kernel.kernel), kernel.sizes), found)


def run_all(tags):
    """Return kernels with what Oclgrind executed, all in one process, since starting one takes longer than they do."""
    catalog = KernelCollection(ALL_GENERATORS)
    kernels = [kernel for name, more in tags.items() for kernel in catalog.generate_kernels([name, *more.split()])]
    runs = oclgrind.run_jobs([(kernel.kernel, dict(kernel.sizes)) for kernel in kernels])
    return list(zip(kernels, runs, strict=True))


@pytest.mark.slow
@oclgrind.needs_oclgrind
@pytest.mark.parametrize("first", range(PROCESSES))
def test_counts_are_what_oclgrind_executes(first):
    found = run_all({name: SMALL[name] for name in list(SMALL)[first::PROCESSES]})
    wrong = {kernel.name: different for kernel, run in found if (different := differing(kernel, run))}
    assert wrong == {}


@pytest.mark.slow
@oclgrind.needs_oclgrind
def test_integer_operations_are_what_more_iterations_execute():
    """Oclgrind counts integer arithmetic together with that of subscripts and loops: one long loop does little."""
    opcodes = {"add": ["add"], "mul": ["mul"], "madd": ["mul", "add"], "bit": ["xor", "and"], "shift": ["shl"]}
    runs = run_all({f"iops_{operation}_pattern": SMALL[f"iops_{operation}_pattern"] for operation in opcodes})
    for operation, (few, before), (many, after) in zip(opcodes, runs[::2], runs[1::2], strict=True):
        name, shared = f"f_op_int32_{operation}", 2 if operation == "bit" else 1
        values = [kernel_feature_values([name], kernel, kernel.sizes, 1)[name] for kernel in (few, many)]
        expected = values[1] - values[0]
        assert expected == 256 * 16 * 64 * shared
        for opcode in opcodes[operation]:
            more = after.instructions[opcode] - before.instructions[opcode]
            # Counting the loop is one addition, and comparing one more, per work-item.
            assert 0 <= more - expected // shared <= (2 * 256 if opcode == "add" else 0), opcode
