"""Machine code for GPUs that are not here: of many kernels, kept by what it is made of."""

import subprocess
import sys
from dataclasses import replace

import loopy as lp
import pytest
from _pytest.outcomes import Failed

from perflex import load_machine, machine_code, source_kernel, using_store
from perflex.errors import MachineError, MissingExtraError
from perflex.features import Target
from perflex.timing import machine_code as module
from perflex.timing.results import MeasurementFailure

SCALED = "__global__ void scaled(float *x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] *= %s; }"
TILED = """
__kernel void tiled(__global float *x, __constant float *c, __local float *given, const int n) {
  __local float tile[64];
  tile[get_local_id(0)] = x[get_global_id(0)] * c[n];
  given[get_local_id(0)] = 2;
  barrier(CLK_LOCAL_MEM_FENCE);
  x[get_global_id(0)] = tile[63 - get_local_id(0)] + given[3];
}"""


def scaled(by):
    return source_kernel(SCALED % by, "scaled", local=64, groups="n/64"), {"n": 256}


def too_large():
    body = "__shared__ float t[99999]; t[x[1] > 0] = x[1]; __syncthreads(); x[0] = t[3];"
    text = f"__global__ void large(float *x) {{ {body} }}"
    return source_kernel(text, "large", local=64, groups=1), {}


@pytest.fixture(autouse=True)
def _empty_store(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "store.sqlite"))
    try:
        module.compiler_of("sm_90")
    except MissingExtraError as missing:
        pytest.skip(missing.message)


def test_each_kernel_has_its_code_or_why_there_is_none():
    kernel = lp.make_kernel(
        "{[i]: 0<=i<n}", "y[i] = 3*y[i]", [lp.GlobalArg("y", "float32", shape="n"), ...], lang_version=(2018, 2)
    )
    kernel = lp.split_iname(kernel, "i", 128, outer_tag="g.0", inner_tag="l.0")
    told = []
    given = [
        scaled("2.0f"),
        scaled("__nv_none()"),
        too_large(),
        (kernel, {"n": 1024}),
        scaled("2.0f"),
        scaled("(1.0f + 1.0f)"),
    ]
    found = machine_code(given, "H100-SXM", progress=lambda *what: told.append(what))
    first, unread, failed, looped, same, equal = found
    assert isinstance(unread, MeasurementFailure)
    assert "undeclared identifier" in unread.reason
    assert isinstance(failed, MeasurementFailure)
    assert "does not compile for sm_90" in failed.reason
    assert "too much shared data" in failed.reason
    assert (first[0].gpu.groups, first[0].gpu.work_group, first[0].gpu.architecture) == ((4,), (64,), "sm_90")
    assert [argument.name for argument in first[0].arguments] == ["x", "n"]
    assert (looped[0].gpu.groups, looped[0].gpu.work_group) == ((8,), (128,))
    # Other text, same code; not so with another launch.
    assert first[0].digest == same[0].digest == equal[0].digest
    assert first[0].gpu.cubin == same[0].gpu.cubin
    (other,) = machine_code([(given[0][0], {"n": 512})], "H100-SXM")
    assert other[0].digest != first[0].digest
    assert replace(other[0].gpu, groups=(4,)).digest == first[0].digest
    assert told[-1][1] == len(given)


def test_what_was_compiled_is_not_compiled_again(monkeypatch, tmp_path):
    (first,) = machine_code([scaled("2.0f")], "H100-SXM")
    with monkeypatch.context() as patched:
        patched.setattr(module, "RemoteProcess", lambda: pytest.fail("it was compiled before"))
        assert machine_code([scaled("2.0f")], "H100-SXM") == [first]
        # The store of this thread, whichever thread compiles.
        with using_store("off"), pytest.raises(Failed, match="it was compiled before"):
            machine_code([scaled("2.0f")], "H100-SXM")
    # A compiler that crashes fails that kernel alone.
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho broken >&2\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(program))
    (failed,) = machine_code([scaled("3.0f")], "H100-SXM")
    assert "scaled(n=256): the compiler gave nothing" in failed.reason
    assert "broken" in failed.reason


def test_opencl_goes_through_cuda():
    kernel = source_kernel(TILED, "tiled", local=64, groups="n/64")
    (found,) = machine_code([(kernel, {"n": 640})], "H100-SXM")
    assert Target(code=found).built.local_bytes == 64 * 4
    assert [argument.name for argument in found[0].arguments] == ["x", "c", "given", "n"]
    assert found[0].gpu.groups == (10,)


def test_options_of_loopys_kernels_are_kept():
    arguments = [lp.GlobalArg("y", "float32", shape="n"), ...]
    kernel = lp.make_kernel("{[i]: 0<=i<n}", "y[i] = exp(y[i])/y[i+1-1]", arguments, lang_version=(2018, 2))
    kernel = lp.split_iname(kernel, "i", 128, outer_tag="g.0", inner_tag="l.0")
    fast = lp.set_options(kernel, build_options=["-cl-mad-enable -cl-fast-relaxed-math"])
    other = lp.set_options(kernel, build_options=["-cl-opt-disable"])
    plain, quick, refused = machine_code([(one, {"n": 1024}) for one in (kernel, fast, other)], "H100-SXM")
    assert quick[0].digest != plain[0].digest
    assert len(quick[0].gpu.cubin) < len(plain[0].gpu.cubin)
    assert "NVRTC has no option for -cl-opt-disable" in refused.reason


def test_other_machines_are_refused():
    with pytest.raises(MachineError, match="code is compiled for GPUs of NVIDIA and AMD, and machine EPYC-7452 says"):
        machine_code([scaled("2.0f")], "rome")
    unknown = replace(load_machine("MI50"), target=None)
    with pytest.raises(MachineError, match="give a machine file that states compute_capability or target"):
        machine_code([scaled("2.0f")], unknown)


def test_scripts_need_no_guard(tmp_path):
    # Processes that ran the user's main module again would start others without end.
    script = tmp_path / "script.py"
    script.write_text(
        "import perflex\n"
        f"kernel = perflex.source_kernel({SCALED % '4.0f'!r}, 'scaled', local=64, groups=4)\n"
        "print('found', [type(one).__name__ for one in perflex.machine_code([(kernel, {'n': 1})] * 5, 'H100-SXM')])\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False)
    assert done.stdout == f"found {['tuple'] * 5}\n", done.stderr
