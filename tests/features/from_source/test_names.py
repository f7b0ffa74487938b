"""Names that arguments and functions may have, and attributes that stand where the compiler does not see them."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, counts_of, scop_from_yaml, scop_to_yaml, source_kernel

STORES = ["f_mem_access_array:a_global_store", "f_mem_footprint_array:a"]


@pytest.mark.parametrize("name", ["l0", "g0", "i1", "i1_0", "e0", "lane", "lid0", "size", "n"])
def test_sizes_of_any_name(name):
    body = f"for (int k = 0; k < {name}; k++) a[get_global_id(0) * {name} + k] = 1;"
    kernel = source_kernel(f"kernel void f(global float *a, int {name}) {{ {body} }}\n", "f", local=64, groups=4)
    for each in (kernel, scop_from_yaml(scop_to_yaml(kernel.scop()))):
        assert [(one.value, one.exact) for one in count_features(each, {name: 5}, identifiers=STORES)] == [
            (1280, True)
        ] * 2


def moved(text, **launch):
    """Return the bytes that are loaded and stored by array, in 8 work-items."""
    scop = source_kernel(text, "k", **{"local": 8, "groups": 1, **launch}).scop({})
    counts, found = counts_of(scop), {}
    for item in counts.accesses:
        at = f"{item.access.direction} {item.array.name} {item.array.space}"
        found[at] = found.get(at, 0) + item.array.itemsize * int(item.work_item_count.evaluate({}))
    return found


def test_shared_variables_are_not_arguments_of_their_names():
    text = """__device__ float f(float v) { __shared__ float x; x = v; return x; }
    __device__ double g(double v) { __shared__ double s; s = v; return s; }
    __device__ float h(float v) { __shared__ float s[8]; s[threadIdx.x] = v; return s[0]; }
    namespace a { __constant__ float c[4]; } namespace b { __constant__ int c[16]; }
    __global__ void k(float *x) { f(x[threadIdx.x]); g(2.0); h(a::c[1] + b::c[2]); }"""
    assert moved(text) == {
        "load x global": 32, "load x_ local": 32, "store x_ local": 32, "load s local": 64, "store s local": 64,
        "load s_ local": 32, "store s_ local": 32, "load c constant": 32, "load c_ constant": 32,
    }  # fmt: skip


def test_variables_of_the_device_are_memory():
    text = """__device__ float total; __device__ int count = 2; struct P { float a, b; }; __device__ P p;
    __device__ const int WIDTH = 3; __shared__ float s;
    __device__ int calls() {
      static int n = 0; static const int step = 2; static int t[2] = {1, 2}; t[0] = step; return n; }
    __global__ void k(float *x) { total = x[threadIdx.x]; count++; p.b = p.a; atomicAdd(&count, 1); s = total; calls();
      if (count == 2) for (int j = 0; j < WIDTH; j++) x[j] = s; }"""
    assert moved(text) == {
        "load x global": 32, "store total global": 32, "load total global": 32, "load count global": 64,
        "store count global": 64, "load p global": 32, "store p global": 32, "store s local": 32, "load s local": 96,
        "store x global": 96, "load n global": 32, "store t global": 32,
    }  # fmt: skip
    [entry] = count_features(
        source_kernel(text, "k", local=8, groups=1), {}, identifiers=["f_mem_access_array:x_store"]
    )
    assert not entry.exact


def test_variables_that_are_templates_are_memory():
    text = """template <class T> __constant__ T mask[10]; template <class T> __device__ T total;
    template <class T> __global__ void k(T *x) { x[threadIdx.x] = mask<T>[threadIdx.x & 3]; total<T> = mask<T>[1]; }"""
    kernel = source_kernel(text, "k<double>", local=8, groups=1)
    found = {
        (each.array.name, each.access.direction): each.array.itemsize for each in counts_of(kernel.scop({})).accesses
    }
    assert found == {("mask", "load"): 8, ("x", "store"): 8, ("total", "store"): 8}


def test_a_constant_and_an_argument_of_one_name():
    text = "__constant__ int n; __device__ int f() { return n; } __global__ void k(float *x, int n) { x[n + f()] = 1; }"
    with pytest.raises(UnsupportedKernelError, match="'n' and 'n' would both be called 'n'"):
        source_kernel(text, "k", local=8, groups=1).scop({"n": 5})


def test_structs_that_are_called_like_vectors():
    text = """struct float8 { float4 a, b; }; struct int8 { int x, y, z, w, a, b, c, d; };
    union float16 { float f[16]; int i[16]; }; struct bool4 { float pad, x; };
    __global__ void k(float *x, const float8 *p, const int8 *q, const float16 *r, const bool4 *s) {
      int i = threadIdx.x; float8 v = p[i]; x[i] = v.b.w + q[i].c + r[i].f[9] + s[i].x; }"""
    assert moved(text) == {
        "load p global": 256, "load q global": 32, "load r global": 32, "load s global": 32, "store x global": 32,
    }  # fmt: skip


MACROS = "#define SIDE 4\n#if SIDE > 2\n#define WIDE(n) (2 * n)\n#else\n#define WIDE(n) n\n#endif\n"


@pytest.mark.parametrize(("before", "local"), [
    ("__attribute__((reqd_work_group_size(32, 2, 1)))", (32, 2, 1)),
    ("// __attribute__((reqd_work_group_size(32, 1, 1)))\n", None),
    ("#if 0\n__attribute__((reqd_work_group_size(32, 1, 1)))\n#endif\n", None),
    (f"{MACROS}__attribute__((reqd_work_group_size(WIDE(SIDE), sizeof(int), 1)))", (8, 4, 1)),
    ("__attribute__((reqd_work_group_size(8, 1, 1))) kernel void other(global float *a) {}\n", None),
])  # fmt: skip
def test_the_work_group_that_a_kernel_requires(before, local):
    text = before + " kernel void f(global float *a) { a[get_global_id(0)] = 1; }\n"
    if local is None:
        with pytest.raises(UnsupportedKernelError, match="kernel 'f' needs its launch; give local"):
            source_kernel(text, "f", groups=4)
    else:
        assert source_kernel(text, "f", groups=4).local == local


def test_arrays_behind_pointers_are_not_shared_ones_of_their_names():
    text = """template <int N> __device__ float f(float v) {
      __shared__ float s[N]; s[threadIdx.x % N] = v; return s[0]; }
    __global__ void k(float **rows) { __shared__ float rows_1[8]; rows_1[threadIdx.x] = f<2>(1.f) + f<4>(2.f);
      rows[0][1] = rows_1[1]; }"""
    assert moved(text) == {
        "load rows global": 64, "store rows_0 global": 32, "load rows_1 local": 32, "store rows_1 local": 32,
        "load s local": 32, "store s local": 32, "load s_ local": 32, "store s_ local": 32,
    }  # fmt: skip
    with pytest.raises(UnsupportedKernelError, match="which array"):
        moved(text.replace("rows[0]", "rows[1]"))
