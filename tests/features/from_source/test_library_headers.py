"""What kernels use of libraries: copies of memory, C++'s standard library, Thrust, complex numbers."""

import re

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

HEAD = """
#include <algorithm>
#include <cub/block/block_reduce.cuh>
#include <cuda/barrier>
#include <type_traits>
#include <cuComplex.h>
#include <cuda_fp8.h>
#include <curand_kernel.h>
#include <math_constants.h>
struct S { float x; double y; };
struct Sums { __device__ S operator()(const S &a, const S &b) const { return S{a.x + b.x, a.y + b.y}; } };
template <class T> __device__ std::enable_if_t<std::is_integral_v<T>, T> f(T x) { return x + 1; }
template <class T> __device__ std::enable_if_t<std::is_floating_point<T>::value, T> f(T x) { return 3 * x; }
__device__ float tagged(float x, std::true_type) { return x + 1.0f; }
__device__ float tagged(float x, std::false_type) { return x * 2.0f; }
template <class F, class... A> __device__ float call(F &&f, A &&...x) { return f(std::forward<A>(x)...); }
__device__ float changes(float &x, int &n) { n += 1; x = 3; return n; }
template <typename T> constexpr T ratio = T(3.5);
template <typename T> __constant__ T weights[4];
"""
ARGUMENTS = "const float *__restrict__ x, float *__restrict__ y, int *__restrict__ m, int n"
# Of one of 64 work-items: bytes loaded and stored, in accesses by type; and operations.
CASES = {
    # A copy between variables is none of memory.
    "float f = x[i]; int j; memcpy(&j, &f, 4); y[i] = j;": {"load float32": 1, "store float32": 1},
    "memcpy(y + 4 * i, x + 4 * i, 16);": {"load float32": 4, "store float32": 4},
    "std::memcpy(m + i, x + i, sizeof(int));": {"load uint32": 1, "store uint32": 1},
    "__builtin_memcpy((void *)(y + i), (void *)(x + i), 6);": {"load uint8": 6, "store uint8": 6},
    "float4 v; memcpy(&v, x + 4 * i, 16); y[i] = v.x;": {"load uint32": 4, "store float32": 1},
    "memset(m + 2 * i, 0, 8); std::memset((S *)y + i, 0, sizeof(S));": {"store int32": 2, "store uint64": 2},
    "if (i < 32) memcpy(y + n * i, x + n * i, n * sizeof(float));": {"load float32": 3.5, "store float32": 3.5},
    "float r[2]; memset(r, 0, 8); y[i] = r[1] + x[i];": {"load float32": 1, "store float32": 1, "add float32": 1},
    "y[i] = weights<float>[2];": {"store float32": 1},  # of constant memory
    # C++'s standard library
    "y[i] = f(x[i]); m[i] = f(m[i]);":
        {"load float32": 1, "load int32": 1, "store float32": 1, "store int32": 1, "mul float32": 1, "add int32": 1},
    "y[i] = tagged(x[i], std::is_same<int, int>()) + tagged(x[i + 64], std::is_pointer<int>{});":
        {"load float32": 2, "store float32": 1, "add float32": 2, "mul float32": 1},
    "if constexpr (std::is_same_v<float, double>) y[i] = x[i] * x[i]; else y[i] = ratio<float> + x[i];":
        {"load float32": 1, "store float32": 1, "add float32": 1},
    "std::make_unsigned_t<signed char> u = -1; y[std::is_enum<S>::value + (u == 255) * i] = 1;": {"store float32": 1},
    "std::swap(y[i], y[i + 64]);": {"load float32": 2, "store float32": 2},
    "int c = 2; call(changes, y[i], c); if (c == 3) y[i + 64] = 1;": {"store float32": 2},
    "std::pair<float, int> p(x[i], i); auto q = std::make_pair(3, p.first); y[p.second + q.first] = q.second;":
        {"load float32": 1, "store float32": 1},
    "std::array<float, 2> v = {x[i], 3}; float s = 0; for (int j = 0; j < v.size(); ++j) s += v[j]; y[i] = s;":
        {"load float32": 1, "store float32": 1, "add float32": 2},
    "y[i] = std::multiplies<>()(std::plus<float>()(x[i], 1), 2.0f) + std::clamp(x[i + 64], 0.0f, 1.0f);":
        {"load float32": 2, "store float32": 1, "mul float32": 1, "add float32": 2, "min float32": 1,
         "max float32": 1},
    # Thrust and complex numbers
    "y[i] = thrust::maximum<float>()(x[i], 2) / thrust::device_ptr<const float>(x)[i + 64];":
        {"load float32": 2, "store float32": 1, "max float32": 1, "div float32": 1},
    "thrust::complex<float> z(x[i], x[i + 64]), w = z * z; w += z; y[i] = w.real() + thrust::abs(w / 2.0f);":
        {"load float32": 2, "store float32": 1, "mul float32": 2, "madd float32": 2, "add float32": 3, "div float32": 2,
         "hypot float32": 1},
    "cuFloatComplex z{x[i], x[i + 64]}, w = cuCmulf(z, cuConjf(z)); y[i] = cuCrealf(cuCdivf(w, z));":
        {"load float32": 2, "store float32": 1, "mul float32": 11, "madd float32": 5, "add float32": 1,
         "abs float32": 2, "div float32": 2},
    # Two and four integers in one; numbers of eight bits
    "m[i] = __vmaxs4(m[i], 0); m[i + 64] = __vabsdiffu2(m[i + 64], n); m[i + 128] = __vsetgts2(n, m[i + 128]);":
        {"load int32": 3, "store int32": 3, "max int8": 4, "add uint16": 2, "abs uint16": 2, "cmp int16": 2},
    "__nv_fp8_e4m3 *p = (__nv_fp8_e4m3 *)m; p[i] = __nv_fp8_e4m3((float)p[i + 64] * 2.0f);":
        {"load uint8": 1, "store uint8": 1, "mul float32": 1},
    "((__nv_fp8x4_e5m2 *)m)[i] = __nv_fp8x4_e5m2(__half2(1, 2), __half2(x[i], x[i + 64]));":
        {"load float32": 2, "store uint32": 1},
    # Asynchronous copies
    "__shared__ float s[256]; __pipeline_memcpy_async(s + 4 * i, x + 4 * i, 16); __pipeline_wait_prior(0);":
        {"load float32": 4, "store local float32": 4 / 32},
    "__shared__ float4 s[64]; auto p = cuda::make_pipeline(); p.producer_acquire(); p.consumer_wait();"
    "cuda::memcpy_async(s + i, (const float4 *)x + i, cuda::aligned_size_t<16>(sizeof(float4)), p);":
        {"load float32": 4, "store local float32": 4 / 32},
    "__shared__ float s[64]; __shared__ cuda::barrier<cuda::thread_scope_block> b; if (i == 0) init(&b, 64);"
    "cuda::memcpy_async(s + i, x + i, 4, b); auto t = b.arrive(); b.wait(std::move(t)); b.arrive_and_wait();":
        {"load float32": 1, "store local float32": 1 / 32, "local": 2},
    # cuRAND: the state is 36 bytes and a double; numbers come from six integers
    "curandState s = ((curandState *)m)[i]; y[i] = curand_uniform(&s);":
        {"load uint32": 11, "store float32": 1, "shift uint32": 3, "bit uint32": 4, "add uint32": 2, "madd float32": 1},
    "curandState s; s.boxmuller_flag = 0; y[i] = curand_normal(&s); y[i + 64] = curand_normal(&s);":
        {"store float32": 2, "shift uint32": 6, "bit uint32": 8, "add uint32": 4, "madd float32": 2, "mul float32": 3,
         "log float32": 1, "sqrt float32": 1, "native_sin float32": 1, "native_cos float32": 1},
    # Special registers
    'unsigned lane, at; asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane)); asm("mov.u32 %0, " "%%tid.x;" : "=r"(at));'
    'int mask; asm("mov.u32 %0, %%lanemask_lt;" : "=r"(mask)); if (lane < 8) m[at] = mask;': {"store int32": 1 / 4},
    # Integers are taken for double; what compilers are told is the first operand.
    "y[i] = sqrt(n) + pow(i, 2) + fmin(x[i], 2.0);":
        {"load float32": 1, "store float32": 1, "sqrt float64": 1, "pow float64": 1, "min float64": 1,
         "add float64": 2},
    "const float *p = (const float *)__builtin_assume_aligned(x, 16); __builtin_assume(i < n * n);"
    "if (__builtin_expect(i < 16, 1)) y[i] = p[i];": {"load float32": 1 / 4, "store float32": 1 / 4},
    "cuda::atomic_ref<int, cuda::thread_scope_block> r(m[i]); r.fetch_max(n); atomicAdd_block(m + i, 1);":
        {"store int32": 2, "atomic int32": 2},
    # Constants of headers are computed with.
    "y[i] = x[i] * (CUDART_SQRT_TWO_F * 2.0f) + M_PI_F / FLT_RADIX;":
        {"load float32": 1, "store float32": 1, "madd float32": 1},
    "std::tuple<int_fast8_t, float> t(2, x[i]); auto u = std::make_tuple(std::get<0>(t), 3, 4.0);"
    "thrust::get<1>(u) += std::numeric_limits<float>::digits10; if (std::get<1>(u) == 9) y[i] = std::get<1>(t);":
        {"load float32": 1, "store float32": 1},
    # CUB: five steps in each of two warps; their first lanes store, the first thread adds the second warp's.
    "__shared__ cub::BlockReduce<float, 64>::TempStorage t; float s = cub::BlockReduce<float, 64>(t).Sum(x[i]);"
    "if (i == 0) y[0] = s;":
        {"load float32": 1, "store float32": 1 / 64, "store local float32": 2 / 64,
         "load local float32": 1 / 64, "add float32": 5.5, "shuffle float32": 5, "local": 1},
    # Of eight threads the last reduces three lanes; those behind the last one add nothing.
    "__shared__ cub::WarpReduce<float, 4>::TempStorage t; y[i] = cub::WarpReduce<float, 4>(t).Sum(x[i], 3);":
        {"load float32": 1, "store float32": 1, "add float32": 2, "shuffle float32": 2},
    "cub::WarpScan<float>::TempStorage t; float s; cub::WarpScan<float>(t).InclusiveScan(x[i], s, cub::Max());"
    "y[i] = s;":
        {"load float32": 1, "store float32": 1, "max float32": 5, "shuffle float32": 5},
    "float v[2]; cub::BlockLoad<float, 64, 2>().Load(x, v, 96); cub::StoreDirectStriped<64>(i, y, v);":
        {"load float32": 1.5, "store float32": 2},
    # Structs go word by word.
    "cub::WarpReduce<S, 2>::TempStorage t; y[i] = cub::WarpReduce<S, 2>(t).Reduce(S{x[i], 2}, Sums()).x;":
        {"load float32": 1, "store float32": 1, "shuffle uint32": 4, "add float32": 1, "add float64": 1},
}  # fmt: skip


def counted(body, head=HEAD, arguments=ARGUMENTS, **given):
    """Accesses and operations of one work-item in 64 of two sub-groups, and whether they are exact."""
    text = f"{head}__global__ void k({arguments}) {{ int i = threadIdx.x; {body} }}\n"
    kernel = source_kernel(text, "k", local=64, groups=1, **given)
    found: dict[str, float] = {}
    entries = count_features(kernel, {"n": 7}, sub_group_size=32)
    for entry in entries:
        if access := re.search(r"(global|local)_([a-z]+\d+)_(load|store)", entry.identifier):
            name = f"{access[3]} {access[1]} {access[2]}".replace(" global", "")
            found[name] = found.get(name, 0) + entry.value / 64
        elif words := re.match(r"f_op_([a-z]+\d+)_(.*)|f_(sync)_barrier_(.*)", entry.identifier):
            found[f"{words[2]} {words[1]}" if words[1] else words[4]] = entry.value / (2 if words[1] else 1)
    return found, all(entry.certainty.exact for entry in entries)


@pytest.mark.parametrize("body", CASES)
def test_what_libraries_do_is_counted(body):
    found, exact = counted(body)
    assert found == CASES[body]
    assert exact


def test_an_error_in_an_instance_of_a_library_is_refused():
    with pytest.raises(UnsupportedKernelError, match=r"standard\.h.*invalid operands"):
        counted("S s; y[i] = std::plus<S>()(s, s).x;")


@pytest.mark.parametrize("used", [
    "cub::BlockReduce<float, 64, cub::BLOCK_REDUCE_RAKING>", "cub::BlockScan<float, 64>", "cub::WarpReduce<float, 12>",
    "cub::BlockLoad<float, 64, 2, cub::BLOCK_LOAD_TRANSPOSE>", "cuda::pipeline<cuda::thread_scope_block>",
])  # fmt: skip
def test_algorithms_of_which_no_steps_are_known_are_refused(used):
    with pytest.raises(UnsupportedKernelError, match=r"undefined template|no member named"):
        counted(f"{used} r; y[i] = 1;")
    assert counted("y[i] = 1;")


@pytest.mark.parametrize("text", ["bfind.u32 %0, %1;", "mov.u32 %0, %1;", "mov.u32 %0, %%reg;"])
def test_other_assembly_is_refused(text):
    with pytest.raises(UnsupportedKernelError, match="assembly is not read"):
        counted(f'int j; asm("{text}" : "=r"(j) : "r"(i)); y[j] = 1;')


@pytest.mark.parametrize("line", [
    "__int128 *p = (__int128 *)m; p[i] = 1;", "m[i] = (int)((unsigned __int128)m[i] * m[i] >> 64);",
    "struct { __int128 a; } s, *p = (decltype(s) *)m; p[i] = s;", "_Complex float z = x[i]; y[i] = 1;",
])  # fmt: skip
def test_numbers_of_unusual_types_are_refused(line):
    with pytest.raises(UnsupportedKernelError, match=r"kernel\.cu:.* are not read"):
        counted(line)
    assert counted("long double d = x[i]; y[i] = d * 2;")[0]["mul float64"] == 1


def test_states_of_random_numbers_are_not_made():
    with pytest.raises(UnsupportedKernelError, match="'curand_init' is not defined here"):
        counted("curandStatePhilox4_32_10_t s; curand_init(1, i, 0, &s); y[i] = curand_uniform(&s);")


def test_functions_of_the_program_with_names_of_libraries_are_its_own():
    own = "template <typename T> __device__ T {}(T a, T b, T c) {{ return a * b * c; }}"
    head = "#include <iostream>\nusing namespace std;\n" + own.format("clamp") + own.format("bit_cast")
    found, _ = counted("y[i] = clamp(x[i], 3.0f, x[i + 64]) + bit_cast(x[i], x[i], x[i]);", head)
    assert found["mul float32"] == 4


def test_macros_that_are_given_do_not_change_headers():
    body = "std::array<float, 2> v = {x[i], 3}; y[i] = v[N - 1] + v.size();"
    assert counted(body, "", defines={"N": 1, "T": 2})[0] == {"load float32": 1, "store float32": 1, "add float32": 1}


@pytest.mark.parametrize(("head", "defines", "loads"), [
    ("", {}, 32), ("", {"NDEBUG": 1}, 0), ("#define NDEBUG\n#include <cassert>\n", {}, 0),
])  # fmt: skip
def test_what_assert_tests_is_evaluated(head, defines, loads):
    text = head + "__global__ void k(const float *x, float *y) { assert(x[threadIdx.x] > 0); y[threadIdx.x] = 1; }"
    kernel = source_kernel(text, "k", local=32, groups=1, defines=defines)
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_array:x_load"])
    assert (found.value, found.exact) == (loads, True)
