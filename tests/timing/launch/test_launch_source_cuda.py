"""Kernels in CUDA C++ are launched as they are written, templates and dynamic shared memory included."""

import sys
from dataclasses import replace

import numpy as np
import pytest

from perflex.errors import MeasurementError, MissingExtraError
from perflex.features import SizedKernel, source_kernel
from perflex.timing.launch.cuda import CudaBackend
from perflex.timing.launch.cuda_code import compilation
from perflex.timing.launch.cuda_context import _architecture_of
from perflex.timing.launch.request import launch_request
from support.building import built
from support.cuda_for_tests import fake_cupy, fake_gpu, state
from support.source_kernels import axpy

__all__ = ["fake_cupy", "fake_gpu"]

SOURCE = """
namespace tools {
template <typename T, int ITEMS> __global__ void scale(const T *x, T *y, int n, T factor)
{
  for (int k = 0; k < ITEMS; ++k) {
    int i = (blockIdx.x * ITEMS + k) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
  }
}
}

__global__ void row_sums(const float *x, float *sums, int columns)
{
  extern __shared__ float partial[];
  float sum = 0;
  for (int j = threadIdx.x; j < columns; j += blockDim.x) sum += x[blockIdx.x * columns + j];
  partial[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    float total = 0;
    for (int k = 0; k < blockDim.x; ++k) total += partial[k];
    sums[blockIdx.x] = total;
  }
}

extern "C" __global__ void update(double *x) { x[threadIdx.x] += 1; }
"""


def scale(arguments="double, 4"):
    return source_kernel(SOURCE, f"scale<{arguments}>", local=[32], groups=["ceil_div(n, 128)"], defines={"SIZE": 4})


def row_sums():
    return source_kernel(SOURCE, "row_sums", local=[16], groups=["rows"])


@pytest.fixture
def cuda(fake_gpu):
    opened = CudaBackend(fake_gpu)
    yield opened
    opened.close()
    assert not state().allocated


@pytest.mark.parametrize("arguments", ["double, 4", "float, SIZE"])
def test_an_instance_of_a_template(arguments, cuda):
    runnable = built(cuda, scale(arguments), {"n": 1000}, "x")
    assert min(runnable.run(3).seconds) > 0
    assert len(runnable.read("x")) == len(runnable.read("y")) == 1000
    assert runnable.read("y").dtype == (np.float64 if arguments[0] == "d" else np.float32)
    np.testing.assert_allclose(runnable.read("y"), 0.75 * runnable.read("x"), rtol=1e-6)


def test_dynamic_shared_memory(cuda):
    state().dynamic_bytes.clear()
    runnable = built(cuda, row_sums(), {"columns": 37, "rows": 5}, "x")
    runnable.run(1)
    np.testing.assert_allclose(runnable.read("sums"), runnable.read("x").reshape(5, 37).sum(axis=1), rtol=1e-5)
    assert set(state().dynamic_bytes) == {runnable._request.local_bytes} == {16 * 4}


REVERSED = """
__global__ void reversed(const float *x, float *y, int tile)
{
  extern __shared__ float t[];
  for (int i = threadIdx.x; i < tile; i += 64) t[i] = x[i];
  __syncthreads();
  for (int i = threadIdx.x; i < tile; i += 64) y[i] = t[tile - 1 - i];
}
"""


def test_dynamic_shared_memory_beyond_what_a_kernel_may_declare(cuda, fake_gpu):
    kernel = source_kernel(REVERSED, "reversed", local=[64], groups=[1])
    # An H100 lets launches ask for 227 KiB; the limit set last is that of the smaller tile.
    large, small = (built(cuda, kernel, {"tile": tile}, "x") for tile in (16384, 256))
    for runnable in (large, small, large):
        runnable.run(1)
        np.testing.assert_array_equal(runnable.read("y"), runnable.read("x")[::-1])
    with pytest.raises(MeasurementError, match=r"x: needs 262144 B of local memory, .* allows 232448 B"):
        built(cuda, kernel, {"tile": 65536}, "x")


@pytest.mark.parametrize(
    ("source", "arguments", "reason"),
    [
        ("__constant__ int n;", "float *y", "variable 'n' is no argument, and only the host program knows its value"),
        ("__device__ float *z; const int n = 1;", "float *y", "array 'z' is no argument, and only the host program"),
        ("const int n = 1;", "float **y", "argument 'y' holds pointers"),
    ],
)
def test_what_the_host_program_decides_is_refused(source, arguments, reason, fake_gpu):
    store = "z[n] = 1;" if "z" in source else "y[n] = 1;" if "**" not in arguments else ""
    made = source_kernel(f"\n{source}\n__global__ void k({arguments}) {{ {store} }}", "k", local=[16], groups=[1])
    with pytest.raises(MeasurementError, match=reason):
        launch_request(SizedKernel(made, {}, "x"), fake_gpu)
    with pytest.raises(MeasurementError, match="is written in OpenCL C and cannot be launched through CUDA"):
        launch_request(SizedKernel(axpy(), {"n": 64}, "x"), fake_gpu)


QUOTIENTS = "__global__ void quotients(float *x) { x[threadIdx.x] /= x[threadIdx.x + 32]; }"


@pytest.mark.parametrize("given", [(), ("-ftz=true",), ("--use_fast_math",)])
def test_options_are_those_of_nvcc_and_the_users(given, cuda, monkeypatch):
    options = sys.modules["cupy._compiler"].OPTIONS
    kernel = source_kernel(QUOTIENTS, "quotients", local=32, groups=1, options=given)
    assert built(cuda, kernel, {}, "x").run(1)
    *own, headers = options[-1]
    assert own == ["--gpu-architecture=sm_90", "--std=c++17", "-default-device", "--ptxas-options=-v", *given]
    assert headers == "-I/headers/of/cupy"
    monkeypatch.setenv("FAKE_CUDA_HEADERS", "0")  # most kernels need none
    assert built(cuda, source_kernel(QUOTIENTS.replace("32", "16"), "quotients", local=32, groups=1), {}, "x").run(1)
    assert "-I/headers/of/cupy" not in options[-1]


def test_a_source_is_compiled_once_for_all_its_sizes(cuda):
    options = sys.modules["cupy._compiler"].OPTIONS
    first = built(cuda, scale(), {"n": 1000}, "x")
    count = len(options)
    request = launch_request(SizedKernel(scale(), {"n": 300}, "y"), cuda.device)
    [program] = cuda.code(request)
    assert cuda.build(request).run(1)
    assert first.run(1)
    assert len(options) == count
    assert (program.gpu.architecture, program.gpu.name, program.gpu.groups) == (
        "sm_90",
        "tools__scale_double__4_",
        (3,),
    )


@pytest.mark.parametrize(
    ("capability", "architecture"), [("9.0", "sm_90"), ("8.9", "sm_89"), ("8.7", "sm_86"), ("12.0", "sm_120")]
)
def test_newer_gpus_run_code_for_older_ones_of_their_generation(capability, architecture, fake_cupy, fake_gpu):
    assert _architecture_of(fake_cupy, replace(fake_gpu, compute_capability=capability)) == architecture


@pytest.mark.machine
def test_denormal_numbers_are_kept_unless_a_user_wants_none():
    made = {}
    for options in ((), ("-ftz=false",), ("-ftz=true",), ("--use_fast_math",)):
        kernel = source_kernel(QUOTIENTS, "quotients", local=32, groups=1, options=options)
        try:
            one = compilation(SizedKernel(kernel, {}, "x"), "sm_90")
        except MissingExtraError as error:
            pytest.skip(error.message)
        made[options] = one.code(one.make(*one.arguments))[0].gpu.digest
    assert made[()] == made["-ftz=false",]
    assert len(set(made.values())) == 3


@pytest.mark.machine
@pytest.mark.parametrize(
    ("made", "sizes", "entry", "arguments"),
    [
        (scale(), {"n": 64}, "_ZN5tools5scaleIdLi4EEEvPKT_PS1_iS1_", 4),
        (row_sums(), {"columns": 9, "rows": 3}, "_Z8row_sumsPKfPfi", 3),
        (source_kernel(SOURCE, "update", local=[32], groups=[1]), {}, "update", 1),
    ],
)
def test_nvidias_compiler_takes_them(made, sizes, entry, arguments):
    try:
        one = compilation(SizedKernel(made, sizes, "x"), "sm_90")
        [program] = one.code(one.make(*one.arguments))
    except MissingExtraError as error:
        pytest.skip(error.message)
    assert program.gpu is not None
    assert program.gpu.name == entry
    assert entry.encode() in program.gpu.cubin
    assert len(program.arguments) == arguments
    assert program.gpu.spill_bytes == 0
