"""Kernels of files with host code compile as if somebody had written their own code alone."""

from dataclasses import astuple, replace

import pytest

from perflex.compiled.nvidia.cubin import compile_cuda, disassembled, supported_architectures
from perflex.errors import UnsupportedKernelError
from perflex.features import SizedKernel, source_kernel
from perflex.features.from_source.kernel_text import kernel_text
from perflex.features.from_source.launching import identity_of
from perflex.timing.launch.cuda_code import OPTIONS, compilation

needs_compiler = pytest.mark.skipif(not supported_architectures(), reason="no NVRTC: pip install nvidia-cuda-nvrtc")
# What surrounds the kernels; its names are theirs, too, where that is possible.
HOST = """#include <stdio.h>
#include <sys/time.h>
#include <cuda_runtime.h>
#include <vector>
#define CHECK(call) if ((call) != cudaSuccess) { printf("%s\\n", cudaGetErrorString(cudaGetLastError())); exit(1); }
using namespace std;
static struct timeval begin_time, end_time;
cudaEvent_t start, stop;
float *x, y[9]; int i, n, steps = 3;
double factor(double scale) { gettimeofday(&begin_time, 0); return rand() / scale; }
template <typename T> std::vector<T> sum(std::vector<T> values) { return values; }
"""
MAIN = """
int main(int argc, char **argv)
{
  float *x; CHECK(cudaMalloc(&x, 4 * n)); dim3 grid(n / 256); cudaEventCreate(&start);
  k<<<grid, 256>>>(x, 1.0f); cudaDeviceSynchronize(); printf("%f\\n", factor(2)); return 0;
}
"""
GIVEN = {"I": "(blockIdx.x * blockDim.x + threadIdx.x)", "STEP": "5"}
HEADERS = {
    "bench.h": """#ifndef BENCH_H
#define BENCH_H
#include "deep/types.h"
#include <time.h>
#ifdef SMALL
# define N 10
#else
# define N \\
    1000
#endif
void report(FILE *file);
__device__ REAL scaled(REAL x, REAL a);
inline double seconds() { return clock() / 1e6; }
#endif
""",
    "deep/types.h": "#pragma once\n#define REAL float\nstruct Options { std::string name; };\n",
    "unread.h": "#error it must not be read\n",
}
# By what they have: the kernel, the code of the device in its file, and the same written by hand.
CASES = {
    "headers": ("k", """
#include "bench.h"
#include <deep/types.h>
#if 0
#include "unread.h"
#endif
__device__ REAL scaled(REAL x, REAL a) { return a * x; }
__global__ void k(REAL *x, REAL a) { if (I < N) x[I] = scaled(x[I], a); }
""", "__global__ void k(float *x, float a) { if (I < 1000) x[I] = a * x[I]; }"),
    "macros": ("k", """
#define DEVICE static __device__ __forceinline__
#define PASTE(a, b) a##_##b
#define SCALED(T) DEVICE T scaled_##T(T x) { return x * STEP; } DEVICE T twice_##T(T x) { return PASTE(own, T)(x); }
DEVICE float own_float(float x) { return 2 * x; }
SCALED(float)
__global__ void k(float *x, float a) { x[I] = PASTE(scaled, float)(x[I]) + PASTE(twice, float)(a); }
""", "__global__ void k(float *x, float a) { x[I] = x[I] * 5 + 2 * a; }"),
    "templates": ("k<float, 7>", """
template <typename T> struct Sum { __device__ static T of(T a, T b) { return a + b; } };
template <> struct Sum<float> { __device__ static float of(float a, float b) { return a + 2 * b; } };
template <typename T> __device__ T sum(T a, T b) { return Sum<T>::of(a, b); }
__device__ int sum(int a, int b) { return a - b; }
template <typename T, int N> __global__ void k(T *x, T a) { x[I] = sum(x[I], a) + sum(threadIdx.y, N); }
""", "__global__ void k(float *x, float a) { x[I] = x[I] + 2 * a + ((int)threadIdx.y - 7); }"),
    "namespaces": ("k", """
namespace own::deep { __constant__ const float table[2] = {3, 5}, unused = 1; constexpr int two() { return 2; } }
namespace other = own::deep;
namespace { enum Kind { FIRST, SECOND = 4 }; const float shift = 0.5f; }
namespace own {
using deep::two;
extern "C" {
__global__ void k(float *x, float a) { x[I] += a * other::table[1] + two() + SECOND + shift; }
}
}
""", "__global__ void k(float *x, float a) { x[I] += a * 5 + 2 + 4 + 0.5f; }"),
    "classes": ("k", """
typedef struct { float re, im; } Complex, *Pointer;
struct Scale { float by; } host_scale;
using Real = float;
__device__ Complex operator*(Complex a, Complex b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
__global__ void k(Complex *x, Real a)
{ Pointer p = x + I; Scale s = {a}; Complex v = *p * *p; p->re = v.re * s.by; p->im = v.im; }
""", """
struct Two { float x, y; };
__global__ void k(Two *x, float a)
{ float re = x[I].x * x[I].x - x[I].y * x[I].y, im = x[I].x * x[I].y + x[I].y * x[I].x; x[I].x = re * a; x[I].y = im; }
"""),
    "headers of the host": ("k", """
#include <math.h>
#include <float.h>
__global__ void k(float *x, float a)
{ uint i = I; uint8_t n = i; x[i] = std::max(x[i], a) * (float)M_PI + n + (x[i] < FLT_MAX); }
""", """
__global__ void k(float *x, float a)
{ unsigned i = I; unsigned char n = i; x[i] = (x[i] < a ? a : x[i]) * 3.14159265f + n + (x[i] < 3.402823466e+38f); }
"""),
    "cooperative groups": ("k", """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void k(float *x, float a)
{
  __shared__ float t[256];
  cg::thread_block block = cg::this_thread_block(); auto tile = cg::tiled_partition<32>(block);
  t[block.thread_rank()] = x[I]; cg::sync(block); float v = t[255 - threadIdx.x];
  v += tile.shfl_down(v, 4); block.sync(); x[I] = v * tile.meta_group_size() + a;
}
""", """
__global__ void k(float *x, float a)
{
  __shared__ float t[256];
  t[(threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x] = x[I]; __syncthreads();
  float v = t[255 - threadIdx.x]; v += __shfl_down_sync(0xffffffff, v, 4); __syncthreads();
  x[I] = v * ((blockDim.x * blockDim.y * blockDim.z + 31) / 32) + a;
}
"""),
}  # fmt: skip


def written(folder, text, headers=()):
    for header, content in dict(headers).items():
        (folder / header).parent.mkdir(exist_ok=True)
        (folder / header).write_text(content, encoding="utf-8")
    file = folder / "bench.cu"
    file.write_text(text, encoding="utf-8")
    return file


def taken(file, name="k", **given):
    return source_kernel(file, name, **{"local": 256, "groups": 4, "defines": GIVEN} | given)


@needs_compiler
@pytest.mark.parametrize("case", CASES)
def test_machine_code_is_that_of_the_same_kernel_without_host_code(case, tmp_path):
    name, code, alone = CASES[case]
    file = written(tmp_path, f"// Größe\n{HOST}{code}\n{MAIN}", HEADERS)
    one = compilation(SizedKernel(taken(file, name), {}, "x"), "sm_90")
    [program] = one.code(compile_cuda(*one.arguments))
    macros = "".join(f"#define {macro} {value}\n" for macro, value in GIVEN.items())
    compiled = compile_cuda(macros + alone, "sm_90", OPTIONS, ("k",))
    expected = replace(program.gpu, cubin=compiled.cubin, name=compiled.names["k"])
    found, own = ([astuple(one) for one in disassembled(code)] for code in (program.gpu, expected))
    assert found == own


@needs_compiler
def test_messages_of_the_compiler_keep_file_and_line(tmp_path):
    # Clang knows it, which reads kernels, and NVIDIA's compiler does not.
    body = "return __builtin_elementwise_abs(x); }\n"
    kernel = f'#include "own.h"\n\n__device__ float g(float x) {{ {body}'
    kernel += "__global__ void k(float *x) { if (sizeof(f(0) + g(0)) == 1) x[0] = 1; }"
    file = written(tmp_path, HOST + kernel, {"own.h": f"\n\n__device__ float f(float x) {{ {body}"})
    log = compile_cuda(kernel_text(taken(file)), "sm_90").log
    for place in ("own.h(3)", f"bench.cu({HOST.count(chr(10)) + 3})"):
        assert f'{place}: error: identifier "__builtin_elementwise_abs" is undefined' in log


LIBRARIES = """
#include <algorithm>
#include <math_constants.h>
#include <type_traits>
#include <cuComplex.h>
template <class T> __device__ std::enable_if_t<std::is_integral_v<T>, T> f(T x) { return x + 1; }
template <class T> __device__ std::enable_if_t<!std::is_same<T, int>::value, T> f(T x) { return x * 3; }
template <class F, class... A> __device__ float call(F &&f, A &&...x) { return f(std::forward<A>(x)...); }
__global__ void k(float *x) {
    int i = threadIdx.x;
    std::array<float, 2> v = {x[i], 3};
    std::pair<float, std::make_unsigned_t<int>> p(x[i], 2), q = std::make_pair(v[1], UINT32_C(4));
    std::swap(p, q);
    std::tuple<std::uint_fast8_t, float> t = std::make_tuple(uint_fast8_t(2), CUDART_L2E_F);
    x[1] = std::get<0>(t) + std::get<1>(t) * std::numeric_limits<float>::digits10 + FLT_MAX_EXP;
    if constexpr (std::is_floating_point_v<float>) memcpy(x, &p.first, sizeof(float));
    std::memset(x + 1, 0, 8);
    cuFloatComplex z = cuCmulf(make_cuFloatComplex(1, x[i]), make_cuFloatComplex(std::move(q.first), f(1.5f)));
    x[i] = call(std::plus<float>(), z.x, std::clamp(cuCrealf(z), 0.0f, std::numeric_limits<float>::infinity())) + f(i);
}
"""


@needs_compiler
def test_what_libraries_have_goes_to_the_compiler(tmp_path):
    text = kernel_text(taken(written(tmp_path, HOST + LIBRARIES, {})))
    assert compile_cuda(text, "sm_90").cubin


@needs_compiler
def test_headers_of_the_toolkit_are_named_where_they_are_missing(tmp_path):
    include = "#include <mma.h>\n#include <cub/cub.cuh>\n"
    file = written(tmp_path, HOST + include + "__global__ void k(float *x) { nvcuda::tile s; x[0] = s.x; }")
    with pytest.raises(UnsupportedKernelError, match=r"'nvcuda' \(mma.h: not found\); state"):
        kernel_text(taken(file))


def test_no_operator_goes_with_a_kernel_for_its_words_alone():
    code = "template <typename T, int U> __global__ void k(const T *x, T *y, unsigned n) { y[n] = x[U]; }"
    text = kernel_text(source_kernel(code, "k<double, 4>", local=32, groups=1))
    assert [line for line in text.splitlines() if line and not line.startswith("#")] == [code]


DEVICE = (
    "#define N 4\n__constant__ float c[N];\ntemplate <int M> __global__ void k(float *x) { x[M] = scaled(c[1]); }\n"
)
SCALED = "#pragma once\n__device__ float scaled(float x) { return 3 * x; }\n"
FILE = f'{HOST}#include "scaled.h"\n{DEVICE}{MAIN}'


@pytest.mark.parametrize(
    ("changed", "header", "given", "same"),
    [
        (FILE, SCALED, {}, True),
        (FILE.replace(MAIN, "// as a library\n"), SCALED, {}, True),
        (FILE.replace(HOST, "\n\n"), SCALED, {}, True),
        (FILE.replace("x[M] =", "x[M] /* M */ ="), SCALED + "void report();\n", {}, False),
        (FILE, SCALED + "\n// end\nvoid report();\n", {}, True),
        (FILE.replace("#define N 4", "#define N 5"), SCALED, {}, False),
        (FILE, SCALED.replace("3", "4"), {}, False),
        (FILE, SCALED, {"defines": {"I": 0}}, False),
        (FILE, SCALED, {"name": "k<2>"}, False),
        (FILE, SCALED, {"groups": 5}, False),
    ],
)
def test_samples_are_of_the_same_kernel_as_long_as_its_own_code_is(changed, header, given, same, tmp_path):
    first = identity_of(taken(written(tmp_path, FILE, {"scaled.h": SCALED}), "k<1>"))
    (tmp_path / "other").mkdir()
    other = identity_of(taken(written(tmp_path / "other", changed, {"scaled.h": header}), **{"name": "k<1>"} | given))
    assert (first == other) is same
