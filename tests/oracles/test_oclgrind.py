"""Each systematic difference named in `oracles.oclgrind`, proved on a small hand-written kernel."""

from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest

from .oclgrind import OclgrindError, SourceJob, Traffic, compiled, needs_oclgrind, parse_counts, run_jobs

ITEMS = 16


def executed(body, *, optimise=False, **job):
    return executed_together([body], optimise=optimise, **job)[0]


def executed_together(bodies, *, optimise=False, **job):
    """Return what each body executes; all run in one process, whose start takes most of the time."""
    dtype = job.get("dtypes", ("float32", "float32"))[0]
    name = {"float32": "float", "float64": "double"}[dtype]
    local = ", __local float *l" if "local_bytes" in job else ""
    head = f"""
    #pragma OPENCL EXTENSION cl_khr_fp64 : enable
    __kernel void tested(__global const {name} *a, __global {name} *b{local})"""
    jobs = [SourceJob(f"{head} {{ int i = get_global_id(0); {body} }}", **job) for body in bodies]
    return run_jobs(jobs, options=() if optimise else ("-cl-opt-disable",))


def test_histogram_is_read():
    text = """Instructions executed for kernel 'one':
             320 - br
              80 - load private (320 bytes)
              16 - call _Z3expf()

Instructions executed for kernel 'two':
               4 - br
              16 - store global (64 bytes)
              10 - call llvm.fmuladd.f64()
"""
    counts = parse_counts(text)
    assert counts.launches == ("one", "two")
    assert counts.instructions == {"br": 324}
    assert counts.load("private") == Traffic(80, 320)
    assert counts.store("global") == Traffic(16, 64)
    assert counts.load("global") == Traffic()
    assert counts.called("exp") == 16
    assert counts.called("exp", "float64") == 0
    assert counts.madds("float64") == counts.madds() == 10
    assert counts.madds("float32") == 0


# What a work-item executes: multiply-adds, additions, multiplications, and what else is named.
PER_ITEM = {
    "b[i] = a[i]*a[i+1] + a[i+2];": (1, 0, 0),
    "b[i] = a[i] + a[i+1]*a[i+2];": (1, 0, 0),
    "b[i] = a[i]*a[i] + a[i+1]*a[i+2];": (1, 0, 1),
    "b[i] = a[i]*a[i] + a[i+1]*a[i+2] + a[i];": (1, 1, 1),
    "b[i] = a[i] + a[i]*a[i] + a[i+1]*a[i+2];": (2, 0, 0),
    "b[i] = a[i] + (a[i]*a[i] + a[i+1]);": (1, 1, 0),
    "b[i] = a[i]*a[i+1]*a[i+2] + a[i];": (1, 0, 1),
    "b[i] = a[i]*(a[i+1] + a[i+2]);": (0, 1, 1),
    # Signs.
    "b[i] = a[i] - a[i+1]*a[i+2];": (1, 0, 0, "fneg"),
    "b[i] = a[i] + -1.0f * a[i+1]*a[i+2];": (1, 0, 1),
    "b[i] = a[i] + -1.0f * a[i+1];": (1, 0, 0),
    # Functions are calls by mangled name.
    "b[i] = exp(a[i]) + native_exp(a[i]);": (0, 1, 0, "exp", "native_exp"),
    "b[i] = pow(a[i], a[i]) + pown(a[i], 3) + fma(a[i], a[i], a[i]);": (0, 2, 0, "pow", "pown", "fma"),
}


@needs_oclgrind
def test_what_is_executed_from_left_to_right():
    for (body, (madds, adds, muls, *more)), counts in zip(
        PER_ITEM.items(), executed_together([*PER_ITEM]), strict=True
    ):
        found = (counts.madds("float32"), counts.adds, counts.muls)
        assert found == (ITEMS * madds, ITEMS * adds, ITEMS * muls), body
        for name in more:
            times = counts.instructions.get(name, 0) + counts.called(name, "float32")
            assert times == ITEMS, name
    double = executed("b[i] = exp(a[i]);", dtypes=("float64", "float64"))
    assert (double.called("exp", "float64"), double.called("exp", "float32")) == (ITEMS, 0)
    assert double.load("global") == Traffic(ITEMS, 8 * ITEMS)


@needs_oclgrind
def test_barriers_count_per_work_item_and_local_memory_is_apart():
    body = "l[get_local_id(0)] = a[i]; barrier(CLK_LOCAL_MEM_FENCE); b[i] = l[7 - get_local_id(0)];"
    counts = executed(body, local_bytes=(32,))
    assert counts.barriers == ITEMS
    assert counts.load("local") == counts.store("local") == Traffic(ITEMS, 4 * ITEMS)


@needs_oclgrind
@pytest.mark.parametrize(("body", "words"), [("b[i] = a[i + 1000];", "Invalid"), ("b[i] = nonsense;", "nonsense")])
def test_an_invalid_access_and_a_build_failure_are_errors(body, words):
    with pytest.raises(OclgrindError, match=words):
        executed(body)


@needs_oclgrind
def test_files_of_other_processes_stay():
    source = "__kernel void tested(__global float *a) { a[0] = 1; }"
    with NamedTemporaryFile("w", prefix="oclgrind_", suffix=".cl", dir="/tmp") as other:
        other.write(source)
        other.flush()
        assert "@tested" in compiled([source])[0]
        assert Path(other.name).exists()
