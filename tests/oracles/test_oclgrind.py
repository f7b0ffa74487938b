"""Each systematic difference named in `oracles.oclgrind`, proved on a small hand-written kernel."""

from __future__ import annotations

import pytest

from .oclgrind import (
    Executed,
    OclgrindError,
    SourceJob,
    Traffic,
    needs_oclgrind,
    parse_counts,
    run_jobs,
)

ITEMS = 16


def executed(body: str, *, optimise: bool = False, **job: object) -> Executed:
    return executed_together([body], optimise=optimise, **job)[0]


def executed_together(bodies: list[str], *, optimise: bool = False, **job: object) -> list[Executed]:
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


# Expression, multiply-adds, additions and multiplications of one work-item.
MULTIPLY_ADDS = [
    ("a[i]*a[i+1] + a[i+2]", 1, 0, 0),
    ("a[i] + a[i+1]*a[i+2]", 1, 0, 0),
    ("a[i]*a[i] + a[i+1]*a[i+2]", 1, 0, 1),
    ("a[i]*a[i] + a[i+1]*a[i+2] + a[i]", 1, 1, 1),
    ("a[i] + a[i]*a[i] + a[i+1]*a[i+2]", 2, 0, 0),
    ("a[i] + (a[i]*a[i] + a[i+1])", 1, 1, 0),
    ("a[i]*a[i+1]*a[i+2] + a[i]", 1, 0, 1),
    ("a[i]*(a[i+1] + a[i+2])", 0, 1, 1),
]


@pytest.fixture(scope="module")
def multiply_adds() -> dict[str, Executed]:
    expressions = [expression for expression, *_ in MULTIPLY_ADDS]
    found = executed_together([f"b[i] = {expression};" for expression in expressions])
    return dict(zip(expressions, found, strict=True))


@needs_oclgrind
@pytest.mark.parametrize(("expression", "madds", "adds", "muls"), MULTIPLY_ADDS)
def test_multiply_adds_from_left_to_right(multiply_adds, expression, madds, adds, muls):
    counts = multiply_adds[expression]
    assert (counts.madds("float32"), counts.adds, counts.muls) == (ITEMS * madds, ITEMS * adds, ITEMS * muls)
    assert counts.madds("float64") == 0


@needs_oclgrind
def test_signs():
    bodies = ["b[i] = a[i] - a[i+1]*a[i+2];", "b[i] = a[i] + -1.0f * a[i+1]*a[i+2];", "b[i] = a[i] + -1.0f * a[i+1];"]
    subtracted, written, difference = executed_together(bodies)
    assert (subtracted.madds(), subtracted.muls, subtracted.instructions["fneg"]) == (ITEMS, 0, ITEMS)
    assert (written.madds(), written.muls) == (ITEMS, ITEMS)
    assert (difference.madds(), difference.adds) == (ITEMS, 0)


@needs_oclgrind
def test_functions_are_calls_by_mangled_name():
    body = "b[i] = exp(a[i]) + native_exp(a[i]) + pow(a[i], a[i]) + pown(a[i], 3) + fma(a[i], a[i], a[i]);"
    counts = executed(body)
    for name in ("exp", "native_exp", "pow", "pown", "fma"):
        assert counts.called(name, "float32") == counts.called(name) == ITEMS
    assert counts.madds() == 0
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
def test_invalid_access_is_an_error():
    with pytest.raises(OclgrindError, match="Invalid"):
        executed("b[i] = a[i + 1000];")


@needs_oclgrind
def test_build_failure_is_an_error():
    with pytest.raises(OclgrindError, match="nonsense"):
        executed("b[i] = nonsense;")
