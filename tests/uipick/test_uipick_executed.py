"""Executed instructions on Oclgrind: after optimisation, too, the kernels do what they measure.

What they execute as written is compared with the symbolic counts of the whole catalog elsewhere.
"""

from __future__ import annotations

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection, remove_work

pytestmark = [needs_oclgrind, pytest.mark.slow]
GROUP = 256

JOBS = {
    "matmul": ["matmul_sq", "dtype:float32", "prefetch:True", "groups_fit:True", "n:32"],
    "plain matmul": ["matmul_sq", "dtype:float32", "prefetch:False", "groups_fit:True", "n:32"],
    "matmul a": ["matmul_sq_mem", "dtype:float32", "prefetch:True", "groups_fit:True", "keep:aLD", "n:32"],
    "matmul ab": ["matmul_sq_mem", "dtype:float32", "prefetch:True", "groups_fit:True", "keep:aLD_bLD", "n:32"],
    "plain a": ["matmul_sq_mem", "dtype:float32", "prefetch:False", "groups_fit:True", "keep:aLD", "n:32"],
    "plain b": ["matmul_sq_mem", "dtype:float32", "prefetch:False", "groups_fit:True", "keep:bLD", "n:32"],
    **{
        op: [f"flops_{op}_pattern", "dtype:float32", "groups_fit:True", "lid_stride_1:16", "nelements:256", "m:64"]
        for op in ("add", "mul", "madd")
    },
    "gmem": ["gmem_pattern", "dtype:float64", "groups_fit:True", "n_arrays:3", "lid_stride_1:32", "nelements:1024"],
    "lmem": ["lmem_move", "dtype:float32", "lid_stride_1:16", "nelements:256", "m:24"],
    "barrier": ["barrier_local", "dtype:float32", "lid_stride_1:16", "nelements:512", "m:5"],
    "empty": ["empty", "ngroups:3"],
    "ratio": ["overlap_ratio", "dtype:float32", "lid_stride_1:16", "nelements:256", "m:16"],
    "mixed": [
        "overlap_madd", "dtype:float32", "load:both", "m:6", "chains:3", "groups_fit:True", "n:16",
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def executed():
    collection = KernelCollection(ALL_GENERATORS)
    kernels = [collection.generate_kernels(tags)[0] for tags in JOBS.values()]
    results = run_jobs([(k.kernel, k.sizes) for k in kernels], options=[])
    return dict(zip(JOBS, results, strict=True))


def test_matmul(executed):
    for name, loads in (("matmul", 2 * 32**3 // 16), ("plain matmul", 2 * 32**3)):
        assert executed[name].madds("float32") == 32**3
        assert executed[name].load("global").count == loads
        assert executed[name].store("global").count == 32**2
    assert executed["matmul"].load("local").count == 2 * 32**3
    assert executed["matmul"].barriers == 2 * 2 * 32**2


@pytest.mark.parametrize(
    ("name", "loads"), [("matmul a", 2048), ("matmul ab", 4096), ("plain a", 32768), ("plain b", 32768)]
)
def test_work_removed_matmul_executes_every_load(executed, name, loads):
    found = executed[name]
    assert found.load("global").count == loads
    assert found.store("global").count == 32**2
    assert found.adds == loads
    assert found.madds() == found.muls == found.barriers == found.load("local").count == 0


@pytest.mark.parametrize("operation", ["add", "mul", "madd"])
def test_flops(executed, operation):
    found = executed[operation]
    counts = {"add": found.adds - 31 * GROUP, "mul": found.muls, "madd": found.madds("float32")}
    assert counts == {other: (GROUP * 64 * 32 if other == operation else 0) for other in counts}
    assert found.store("global").count == GROUP
    assert found.load("global").count == 0


def test_gmem(executed):
    found = executed["gmem"]
    assert (found.load("global").count, found.load("global").bytes) == (3 * 1024, 3 * 1024 * 8)
    assert found.store("global").count == 1024
    assert found.adds == 2 * 1024


@pytest.mark.parametrize(("name", "moves", "loads"), [("lmem", 24, 0), ("ratio", 16, 1)])
def test_local_moves(executed, name, moves, loads):
    found = executed[name]
    assert found.load("local").count == GROUP * (moves + 1)
    assert found.store("local").count == GROUP * (moves + 8)
    assert found.load("global").count == GROUP * loads
    assert found.store("global").count == GROUP
    assert found.barriers == found.adds == found.muls == 0


def test_barriers(executed):
    assert executed["barrier"].barriers == 5 * 512
    assert executed["barrier"].adds == executed["barrier"].muls == 0


def test_empty(executed):
    assert len(executed["empty"].launches) == 1
    assert executed["empty"].store("global").count == executed["empty"].load("global").count == 0


def test_mixed(executed):
    found = executed["mixed"]
    assert found.madds("float32") == GROUP * 16 * 6
    assert found.load("global").count == GROUP * 16 * 2
    assert found.adds == GROUP * 2


def test_work_removal_keeps_the_loads_of_the_guarded_kernel():
    tags = ["matmul_sq", "dtype:float32", "prefetch:False", "groups_fit:False", "n:21"]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    (found,) = run_jobs([(remove_work(kernel.kernel, keep_tags=["bLD"]), kernel.sizes)])
    assert found.load("global").count == 21**3
    assert found.store("global").count == 21**2
