"""Static instructions and transactions: by hand, point by point, and against what Oclgrind executes."""

import pytest

from oracles import oclgrind
from oracles.transactions import accessed
from perflex import load_machine
from perflex.features import Target, extract_scop, parse_feature, source_kernel
from perflex.features.instructions.instruction_counts import instructions_of
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection

V100 = Target(machine=load_machine("V100"))
TXN = ("f_txn_global", "f_txn_local", "f_txn_l1")


def one(*tags):
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return kernel


def scop_of(kernel):
    return extract_scop(kernel.kernel)


def inst(scop, sizes, name, lanes=32):
    return parse_feature(f"f_inst_{name}").value(scop, sizes, Target(lanes))


def test_a_matrix_product_by_hand():
    # Two tiles of 16 x 16 in local memory; 8 sub-groups in each work-group; the inner loop of 16 is unrolled. Rows of
    # one tile are loaded by four elements.
    scop, n = extract_scop(matmul(prefetch=True)), 64
    sub_groups = (n // 16) ** 2 * 8
    sizes = {"n": n}
    assert inst(scop, sizes, "fp32") == sub_groups * n
    assert inst(scop, sizes, "fp64") == 0
    assert inst(scop, sizes, "ldst_local") == sub_groups * (n // 4 + n + 2 * (n // 16))
    assert inst(scop, sizes, "ldst_global") == sub_groups * (2 * (n // 16) + 1)
    # A branch for each iteration of the outer loop, its two barriers, and the end.
    assert inst(scop, sizes, "control") == sub_groups * (3 * (n // 16) + 1)
    assert inst(scop, sizes, "thread") == 32 * inst(scop, sizes, "total")
    assert inst(scop, sizes, "predication") == 1.0
    sums = [inst(scop, sizes, kind) for kind in ("fp32", "fp64", "int", "ldst_global", "ldst_local", "control")]
    assert inst(scop, sizes, "total") == sum(sums)


def test_address_arithmetic_by_hand():
    # a[32 gid1 + lid1, 32 gid0 + lid0] to out[32 gid0 + lid1, 32 gid1 + lid0]: four indices and two axes each.
    naive = one("transpose", "variant:naive", "lsize:8", "dtype:float32", "groups_fit:True", "n:64")
    scop = scop_of(naive)
    assert inst(scop, naive.sizes, "int") == 64 * 2 * (2 + 2 * 2)
    # A loop over m with known trips takes an addition and a comparison, and one addition for each address.
    gemv = one(
        "gemv", "layout:rows", "prefetch:False", "dtype:float32", "lsize_0:32", "groups_fit:True", "n:64", "m:640"
    )
    here = scop_of(gemv)
    more = dict(gemv.sizes, m=672)
    assert inst(here, more, "int") - inst(here, gemv.sizes, "int") == 2 * 32 * (2 + 2)
    assert inst(here, more, "control") - inst(here, gemv.sizes, "control") == 2 * 32


@pytest.mark.parametrize(("text", "loads"), [
    # By nvcc 13 for sm_75 to sm_90: an operand (c[0x3][...]) where the loop is unrolled, else LDC.
    ("for (int k = 0; k < 7; k++) s += mask[k];", 0),
    ("for (int k = 0; k < n; k++) s += mask[k];", 100),
    ("s = mask[threadIdx.x];", 1),
    ("for (int k = 0; k < n; k++) s += mask[3];", 0),
])  # fmt: skip
def test_constants_at_addresses_that_compilers_do_not_know_are_loaded(text, loads):
    source = "__constant__ float mask[128];\n__global__ void f(float *y, int n) { float s = 0; %s y[threadIdx.x] = s; }"
    scop = source_kernel(source % text, "f", local=32, groups=1, language="cuda").scop({"n": 100})
    assert inst(scop, {"n": 100}, "ldst_constant") == loads


@pytest.mark.slow
@pytest.mark.parametrize("tags", [
    ["transpose", "variant:tiled", "lsize:8", "rows:2", "dtype:float32", "groups_fit:False", "n:21"],
    ["transpose", "variant:padded", "lsize:16", "rows:1", "dtype:float32", "groups_fit:True", "n:32"],
    ["conv2d", "filter_size:3", "tile_x:2", "tile_y:1", "local:True", "dtype:float32", "lsize_0:8", "lsize_1:6",
     "groups_fit:False", "nx:21", "ny:7"],
    ["gsrb", "variant:branch", "colour:0", "dtype:float64", "lsize_0:10", "lsize_1:4", "lsize_2:1", "chunk:2",
     "groups_fit:False", "nx:11", "ny:3", "nz:2"],
    ["gsrb", "variant:stride2", "colour:1", "dtype:float32", "lsize_0:10", "lsize_1:4", "lsize_2:1", "chunk:1",
     "groups_fit:False", "nx:22", "ny:3", "nz:1"],
], ids=["tiled", "padded", "convolution", "branch", "stride2"])  # fmt: skip
def test_accesses_and_transactions_point_by_point(tags):
    kernel = one(*tags)
    scop = scop_of(kernel)
    sizes = kernel.sizes
    txn = {name: parse_feature(name).value(scop, sizes, V100) for name in TXN}
    transactions, executed = accessed(scop, sizes)
    sums = dict.fromkeys(("global", "local"), 0)
    for name, number in transactions.items():
        sums[scop.array(name).space] += number
    expected = (*sums.values(), sums["global"] + 4 * sums["local"])
    assert tuple(txn.values()) == expected
    for space in sums:
        sub_groups, work_items = executed[space]
        assert instructions_of(scop, 32)[f"ldst_{space}"].evaluate(sizes) == sub_groups
        assert instructions_of(scop, None)[f"ldst_{space}"].evaluate(sizes) == work_items


def test_a_guard_is_tested_by_all_and_passed_by_some():
    # 100 work-items in four work-groups of 32: in the last one 4 pass. One comparison and branch; the end is a branch.
    kernel = one("axpy", "dtype:float32", "lsize_0:32", "groups_fit:False", "n:100")
    scop = scop_of(kernel)
    assert inst(scop, {"n": 100}, "control") == 4 + 4
    fitting = one("axpy", "dtype:float32", "lsize_0:32", "groups_fit:True", "n:128")
    whole = scop_of(fitting)
    assert inst(whole, {"n": 128}, "control") == 4
    assert inst(scop, {"n": 128}, "int") == inst(whole, {"n": 128}, "int") + 4
    passed = sum(instructions_of(scop, None)[kind].evaluate({"n": 100}) for kind in ("fp32", "ldst_global"))
    assert passed == 100 * 4
    assert instructions_of(scop, 32)["ldst_global"].evaluate({"n": 100}) == 4 * 3
    assert inst(whole, {"n": 128}, "predication") == 1.0
    # A partial sub-group: work-groups of 8 use a quarter of each.
    quarter = one("axpy", "dtype:float32", "lsize_0:8", "groups_fit:True", "n:128")
    assert inst(scop_of(quarter), {"n": 128}, "predication") == 0.25


def test_a_branch_that_every_other_work_item_takes():
    common = ["gsrb", "colour:0", "dtype:float64", "lsize_0:32", "lsize_1:4", "lsize_2:1", "chunk:8",
              "groups_fit:True", "nx:64", "ny:64", "nz:64"]  # fmt: skip
    fp, branch, pairs = (one(*common, f"variant:{name}") for name in ("fp", "branch", "stride2"))
    scops = [scop_of(kernel) for kernel in (fp, branch, pairs)]
    sizes = fp.sizes
    for kind in ("fp64", "ldst_global"):
        warp, thread = (instructions_of(scops[1], lanes)[kind].evaluate(sizes) for lanes in (32, None))
        assert thread == 32 * warp / 2
    assert inst(scops[0], sizes, "predication") == inst(scops[2], sizes, "predication") == 1.0
    assert 0.5 < inst(scops[1], sizes, "predication") < 0.75


@oclgrind.needs_oclgrind
def test_classes_against_executed_instructions():
    """Arithmetic and memory instructions are Oclgrind's; of integers and branches it executes more.

    It executes LLVM's intermediate code as it comes, with address arithmetic that is neither shared between accesses
    nor moved along with loops, and loops that are not unrolled.
    """
    kernels = [
        one("matmul_sq", "prefetch:True", "lsize_0:8", "lsize_1:8", "dtype:float32", "groups_fit:True", "n:32"),
        one("axpy", "dtype:float32", "lsize_0:8", "groups_fit:False", "n:60"),
        one("stencil3d", "points:7", "variant:plain", "chunk:4", "dtype:float64", "groups_fit:True", "lsize_0:8",
            "lsize_1:4", "lsize_2:1", "nx:16", "ny:16", "nz:8"),
        one("gsrb", "variant:branch", "colour:0", "dtype:float64", "lsize_0:8", "lsize_1:4", "lsize_2:1", "chunk:4",
            "groups_fit:True", "nx:16", "ny:8", "nz:8"),
    ]  # fmt: skip
    runs = oclgrind.run_jobs([(kernel.kernel, dict(kernel.sizes)) for kernel in kernels], options=())
    integer = ("add", "sub", "mul", "shl", "lshr", "ashr", "and", "or", "xor", "icmp", "srem", "sdiv", "select")
    # Machine code loads rows of a tile by four elements, and of the four planes of a work-item that the stencil's loop
    # unrolls it keeps each in a register for the next two: 22 loads instead of 28.
    spared = ({"local": 32**3 * 3 // 4}, {}, {"global": 16 * 16 * 8 // 4 * 6}, {})
    for kernel, run, fewer in zip(kernels, runs, spared, strict=True):
        found = {kind: count.evaluate(kernel.sizes) for kind, count in instructions_of(scop_of(kernel), None).items()}
        assert found["fp32"] + found["fp64"] == run.adds + run.muls + run.divs + run.madds()
        for space in ("global", "local"):
            assert found[f"ldst_{space}"] + fewer.get(space, 0) == run.load(space).count + run.store(space).count
        executed_integers = sum(run.instructions.get(opcode, 0) for opcode in integer)
        branches = run.instructions.get("br", 0) + run.instructions.get("ret", 0) + run.barriers
        assert 0.1 < found["int"] / executed_integers < 1.0
        assert 0.05 < found["control"] / branches < 1.0
