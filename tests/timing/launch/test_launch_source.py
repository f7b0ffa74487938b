"""Kernels in OpenCL C are launched as they are written: results against numpy, and refusals where data decide."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from perflex.errors import MeasurementError, MissingSizeError
from perflex.features import SizedKernel, source_kernel
from perflex.timing.launch.backend import backend_of
from perflex.timing.launch.request import launch_request
from support.building import built
from support.source_kernels import AXPY, LAUNCHED, axpy, kernel

pytestmark = pytest.mark.machine
FLOATS = "__global float *x, __global float *y"
INDEX = f"{FLOATS}, __global int *at"
ID = "int i = get_global_id(0); "


@pytest.fixture(scope="module", params=[0, 1])
def opencl(request, real_devices):
    """Two runtimes, where there are so many."""
    if request.param >= len(real_devices):
        pytest.skip("no other OpenCL device")
    opened = backend_of(real_devices[request.param])
    yield opened
    opened.close()


def before(backend, request):
    """What the arrays hold when a launch begins."""
    pool = backend._pool
    buffers = pool.buffers(request.slot_bytes, "x")
    found = {}
    for name, (slot, origin) in request.slots.items():
        found[name] = np.empty(request.lengths[name], request.dtypes[name])
        pool.memory.read(buffers[origin or slot], found[name])
    return found


@pytest.mark.parametrize("name", LAUNCHED)
def test_results_are_those_of_numpy(name, opencl):
    case = LAUNCHED[name]
    request = launch_request(SizedKernel(case.kernel, case.sizes, "x"), opencl.device)
    assert dict(request.lengths) == dict(case.lengths)
    assert request.local_bytes == case.local_bytes
    held = before(opencl, request)
    runnable = opencl.build(request)
    # Twice: arrays that are updated begin anew.
    assert min(runnable.run(2).seconds) > 0
    for array, expected in case.result(held).items():
        np.testing.assert_allclose(runnable.read(array), expected, rtol=1e-4)


def test_headers_beside_the_file_and_in_folders(tmp_path, opencl):
    folder = tmp_path / "headers"
    folder.mkdir()
    (tmp_path / "factor.h").write_text("#define FACTOR 3.0f\n")
    (folder / "shift.h").write_text("inline float shifted(float x) { return x + SHIFT; }\n")
    file = tmp_path / "k.cl"
    file.write_text(
        '#include "factor.h"\n#include <shift.h>\n__kernel void k(__global float *x, __global float *y)\n'
        "{ int i = get_global_id(0); y[i] = FACTOR * shifted(x[i]); }\n"
    )
    made = source_kernel(file, "k", local=[8], groups=[4], folders=[folder], defines={"SHIFT": "2.0f"})
    runnable = built(opencl, made, {}, "x")
    runnable.run(1)
    np.testing.assert_allclose(runnable.read("y"), 3 * (runnable.read("x") + 2), rtol=1e-6)


def test_a_build_error_names_the_line_of_the_file(opencl):
    source = "\n__kernel void k(__global float *y)\n{ y[get_global_id(0)] = 1; }\nfloat f() { return missing(); }\n"
    made = source_kernel(source, "k", local=[8], groups=[1], defines={"A": 1, "B": 2})
    with pytest.raises(MeasurementError, match=r"x: does not build on .*:4:.*missing"):
        built(opencl, made, {}, "x")


TABLE = "__constant int t[2] = {0, 99};\n__kernel void k(__global float *y) { y[t[get_local_id(0)]] = 1; }"
CUDA = "\n__global__ void k(float *y) { y[threadIdx.x] = 1; }"
DATA = "line 2: data decide what '.*' accesses"
REFUSED = [
    (kernel(ID + "y[(int)x[i]] = 1;", FLOATS, stated={"y": 100}), DATA),
    # What other work-items wrote decides.
    (kernel(ID + "at[i] = i; y[at[31 - i]] = x[i];", INDEX, stated={"y": 32}), DATA),
    (source_kernel(TABLE, "k", local=[16], groups=[2], stated={"y": 32}), DATA),
    (kernel(ID + "y[atomic_inc(at)] = x[i];", INDEX, stated={"y": 32}), DATA),
    (kernel(ID + "float s = x[i]; while (s < 9) s *= 2; y[i] = s;", FLOATS, stated={"2": 4}), "trip count of line 2"),
    (kernel(ID + "for (int k = 0; k < x[i]; ++k) y[k] = 1;", FLOATS, stated={"y": 9}), "line 2: trip count of"),
    (kernel(ID + "y[i] = x[i - 1];", FLOATS), "line 2 reaches 4 bytes before the first element of 'x'"),
    (kernel(ID + "__local float t[31]; t[i] = x[i]; y[i] = t[i];", FLOATS, local=[32]), "reaches byte 256 of 't'"),
    (kernel(ID + "y[i] = p.a;", "__global float *y, struct { float a; } p"), "argument 'p' is a struct"),
    (kernel(ID + "y[i] = p.x;", "__global float *y, float4 p"), "argument 'p' is a vector"),
    (
        source_kernel(CUDA, "k", local=[16], groups=[1]),
        r"in CUDA C and .* through OpenCL; .*pip install 'perflex\[cuda\]'",
    ),
]


@pytest.mark.parametrize(("refused", "reason"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_launched_is_refused_in_one_line(refused, reason, default_device):
    with pytest.raises(MeasurementError, match=reason) as caught:
        launch_request(SizedKernel(refused, {}, "x"), default_device)
    assert "\n" not in caught.value.message


def test_sizes_are_asked_for(default_device):
    with pytest.raises(MissingSizeError, match=r"x: no value for size parameter n; given: none"):
        launch_request(SizedKernel(axpy(), {}, "x"), default_device)
    with pytest.raises(MissingSizeError, match="whole number"):
        launch_request(SizedKernel(axpy(), {"n": 1.5}, "x"), default_device)
    with pytest.raises(MeasurementError, match="nothing to launch"):
        launch_request(SizedKernel(axpy(), {"n": 0}, "x"), default_device)
    with pytest.raises(MeasurementError, match="n = 2000000000000 does not fit the kernel's argument of type int32"):
        launch_request(SizedKernel(axpy(), {"n": 2 * 10**12}, "x"), default_device)
    small = replace(default_device, max_allocation_bytes=3999)
    with pytest.raises(MeasurementError, match=r"array x of 4000 B, .* 3999 B per buffer"):
        launch_request(SizedKernel(axpy(), {"n": 1000}, "x"), small)
    # The kernel needs no m, its launch does.
    grid = kernel(ID + "y[i] = x[i];", FLOATS, local=[16], groups=["m"])
    with pytest.raises(MissingSizeError, match="parameter m"):
        launch_request(SizedKernel(grid, {}, "x"), default_device)
    assert launch_request(SizedKernel(grid, {"m": 3}, "x"), default_device).lengths["y"] == 48


def test_kernels_go_to_other_processes(default_device):
    made, refused = axpy(), kernel("for (;;) y[0] = 1;", "__global float *y")
    job = SizedKernel(made, {"n": 100}, "x")
    requests = [launch_request(job, default_device)]
    with pytest.raises(Exception, match="never ends"):
        refused.scop()
    text = pickle.dumps((made, refused))
    assert b"clang" not in text
    sent, other = pickle.loads(text)
    assert requests == [launch_request(SizedKernel(sent, {"n": 100}, "x"), default_device)]
    assert (other.source, AXPY in sent.source) == (refused.source, True)
