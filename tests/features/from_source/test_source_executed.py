"""Counts of OpenCL C kernels, with symbolic sizes, against what Oclgrind executes; of CUDA C against their twins."""

import math
from collections import Counter

import pytest

from oracles import oclgrind
from oracles.points import rows_of
from perflex.features import source_kernel
from support.source_samples import SAMPLES


def number_of(domain, sizes):
    return len(rows_of(domain, {"unused": 0, **sizes}))


def counted(scop, sizes):
    """Return what is counted in Oclgrind's words."""
    found = Counter()
    for statement in scop.statements:
        times = number_of(statement.domain, sizes)
        for access in statement.accesses:
            array = scop.array(access.array)
            found[access.direction, array.space] += times // statement.lanes
            found[access.direction, array.space, "bytes"] += times * array.itemsize
        for operation in statement.operations:
            if operation.dtype == "float32":
                # One instruction works on a whole vector; here vectors have four elements.
                found["float", operation.kind] += times * max(operation.count // 4, 1 if operation.count < 4 else 0)
    found["barrier",] = sum(number_of(barrier.domain, sizes) for barrier in scop.barriers)
    return found


def executed(run):
    """Return what Oclgrind executed in the same words."""
    found = {("barrier",): run.barriers}
    for space in ("global", "local", "constant"):
        for direction, traffic in (("load", run.load(space)), ("store", run.store(space))):
            found[direction, space], found[direction, space, "bytes"] = traffic.count, traffic.bytes
    for kind, count in (("add", run.adds), ("mul", run.muls), ("div", run.divs), ("madd", run.madds())):
        found["float", kind] = count + (run.calls.get("llvm.fmuladd.v4f32", 0) if kind == "madd" else 0)
    return found


def scop_of(sample, source, *, numbers=False):
    kernel = source_kernel(source + "\n", "k", local=sample.local, groups=sample.groups, stated=shapes(sample))
    return kernel.scop(sample.sizes if numbers else None)


def shapes(sample):
    return {"x": 64, "y": 64} if sample.bound else {}


@oclgrind.needs_oclgrind
@pytest.mark.parametrize("numbers", [False, True])
def test_counts_are_what_is_executed(*, numbers):
    jobs = [
        oclgrind.SourceJob(
            sample.source, tuple(math.prod(pair) for pair in zip(sample.groups, sample.local, strict=True)),
            sample.local, sample.dtypes, sample.local_bytes, 256, tuple(sample.sizes.values()),
        )
        for sample in SAMPLES.values()
    ]  # fmt: skip
    wrong = {}
    for (name, sample), run in zip(SAMPLES.items(), oclgrind.run_jobs(jobs), strict=True):
        found, truth = counted(scop_of(sample, sample.source, numbers=numbers), sample.sizes), executed(run)
        assert sum(truth.values()) > 0
        right = (lambda one, two: one >= two) if sample.bound else (lambda one, two: one == two)
        wrong |= {(name, *key): (found[key], value) for key, value in truth.items() if not right(found[key], value)}
    assert not wrong


CUDA = {
    "__kernel void": "__global__ void", "__global ": "", "get_local_id(0)": "threadIdx.x",
    "__local float *s)": "int unused) { extern __shared__ float s[];", "get_local_id(1)": "threadIdx.y",
    "get_global_id(0)": "(int)(blockIdx.x * blockDim.x + threadIdx.x)", "get_group_id(1)": "blockIdx.y",
    "get_group_id(0)": "blockIdx.x", "get_local_size(0)": "blockDim.x", "barrier(1)": "__syncthreads()",
    "barrier(CLK_LOCAL_MEM_FENCE)": "__syncthreads()", "__local float t": "__shared__ float t",
    "__constant float w": "__constant__ float w", "float sq": "__device__ float sq", "void put": "__device__ void put",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in SAMPLES if name != "vectors"])
def test_cuda_twins_count_alike(name):
    sample, text = SAMPLES[name], SAMPLES[name].source
    for old, new in CUDA.items():
        text = text.replace(old, new)
    if "unused) {" in text:
        text = text.replace("float s[]; {", "float s[];")
    here, there = (counted(scop_of(sample, source), sample.sizes) for source in (sample.source, text))
    assert here == there
    assert sum(here.values()) > 0
