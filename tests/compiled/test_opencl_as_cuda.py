"""OpenCL C as CUDA C++: what NVIDIA's compiler makes of it, or an error, but never other code."""

import re

import pytest

from perflex import machine_code, source_kernel
from perflex.compiled.nvidia.cubin import GpuCode, compile_cuda, disassembled, supported_architectures

needs_compiler = pytest.mark.skipif("sm_90" not in supported_architectures(), reason="needs NVRTC")
# As those of OpenCL's compiler.
OPTIONS = ("--std=c++17", "-default-device", "-ftz=false", "-prec-div=false", "-prec-sqrt=false")


def made(body, arguments="__global float4 *a, __global float *b, const int n", before=""):
    source = f"{before}\n__kernel void k({arguments}) {{ const int i = get_global_id(0); {body} }}\n"
    return of(source_kernel(source, "k", local=64, groups=8))


def of(kernel):
    (found,) = machine_code([(kernel, dict.fromkeys(kernel.sizes, 512))], "H100-SXM")
    return found if not isinstance(found, tuple) else shown(found[0].gpu)


def shown(code):
    return [(one.predicate, one.name, one.modifiers, one.operands) for one in disassembled(code)]


def cuda_code(text):
    found = compile_cuda(text, "sm_90", OPTIONS, ("k",))
    assert found.cubin, found.log
    return shown(GpuCode("sm_90", found.cubin, found.names["k"], (8,), (64,)))


def cuda(body, arguments="float4 *a, float *b, const int n"):
    return f"__global__ void k({arguments}) {{ const int i = blockIdx.x * blockDim.x + threadIdx.x; {body} }}"


SAME = {
    "vectors of elements": ("a[i] = (float4)(b[i], b[1], b[2], b[3]);", "a[i] = make_float4(b[i], b[1], b[2], b[3]);"),
    "a vector in memory": ("a[i] = a[n];", "a[i] = a[n];"),
    "arithmetic": (
        "a[i] = a[i] * 2 + a[n];",
        "float4 v = a[i], w = a[n]; a[i] = make_float4(v.x*2 + w.x, v.y*2 + w.y, v.z*2 + w.z, v.w*2 + w.w);",
    ),
    "parts": (
        "float4 v = a[n]; v.xw = v.hi; v.s1 = v.x; v.lo = v.odd; a[i] = v;",
        "float4 v = a[n]; a[i] = make_float4(v.z, v.w, v.z, v.w);",
    ),
    "a vector of truth values": (
        "float4 v = a[i], w = a[n]; a[i] = select(v, w, v < w);",
        """float4 v = a[i], w = a[n];
        a[i] = make_float4(v.x < w.x ? w.x : v.x, v.y < w.y ? w.y : v.y, v.z < w.z ? w.z : v.z, v.w < w.w ? w.w : v.w);
        """,
    ),
    "functions": (
        "b[i] = mad(native_exp(b[n]), clamp(b[i], 0.0f, 2.0f), fma(b[1], b[2], rsqrt(b[3])));",
        "b[i] = fma(__expf(b[n]), min(max(b[i], 0.0f), 2.0f), fma(b[1], b[2], rsqrtf(b[3])));",
    ),
    "conversions": (
        "b[i] = convert_float(as_int(b[n])) + convert_int_rtz(b[1]) + as_float(n);",
        "b[i] = (float)__float_as_int(b[n]) + (int)b[1] + __int_as_float(n);",
    ),
    "local memory": (
        "local float t[64]; t[get_local_id(0)] = b[i]; barrier(CLK_LOCAL_MEM_FENCE); b[i] = t[n];",
        "__shared__ float t[64]; t[threadIdx.x] = b[i]; __syncthreads(); b[i] = t[n];",
    ),
    "atomics": (
        "atomic_add((__global int *)b, n); atom_inc((__global uint *)b + 1);",
        "atomicAdd((int *)b, n); atomicAdd((unsigned *)b + 1, 1u);",
    ),
}


# Each takes two runs of the compiler.
QUICK = {"parts", "functions", "local memory"}


@needs_compiler
@pytest.mark.parametrize("what", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in SAME])
def test_it_compiles_to_the_code_of_the_same_in_cuda(what):
    opencl, own = SAME[what]
    assert made(opencl) == cuda_code(cuda(own))


@needs_compiler
def test_what_macros_and_headers_hide_is_found():
    code = made(
        "LOCAL real t[64], u[64]; t[get_local_id(0)] = b[i]; barrier(1); u[0] = t[n]; V v = MADE(b[i], u[0]);"
        " constant int s[3] = {4, 5, 6}; a[i] = (V)(v.lo, table[n], inner(s[n], t));",
        before="#define LOCAL __local\n#define V float4\n#define MADE(x, y)  (V)(x, y, 0, 1)\ntypedef float real;\n"
        "constant real table[2] = {1, 2}; float inner(int class, LOCAL float *p) { return class + p[1]; }\n"
        "__kernel void other(read_only image2d_t x) {}",
    )
    # Of the other kernel, whose images have no word in CUDA, nothing is compiled.
    assert [name for _, name, *_ in code].count("STS") == 2


@needs_compiler
def test_a_stated_work_group_is_known_to_the_compiler():
    kernel = "__kernel %s void k(__global int *x) { x[get_global_id(0)] = get_local_size(0); }"
    stated = kernel % "__attribute__((reqd_work_group_size(32, 1, 1)))"
    code = of(source_kernel(stated, "k", groups=8))
    plain = of(source_kernel(kernel % "", "k", local=32, groups=8))
    # Elsewhere it is what the launch says, in a place of the constant bank.
    found = [re.search(r"c\[0x0\]\[(RZ|0x0)\]", str(each)) for each in (code, plain)]
    assert list(map(bool, found)) == [False, True]


@needs_compiler
@pytest.mark.parametrize(
    ("body", "before", "why"),
    [
        ("a[i] = V(b[1], b[2], b[3], b[4]);", "#define V (float4)", "a macro makes a vector of its elements"),
        ("__local float t[4], *p; p = t; b[i] = p[n];", "", "declares pointers together"),
        ("TILE(t); t[0] = b[i]; b[i] = t[n];", "#define TILE(x) __local float x##_[4], x[4]", "a macro declares 't"),
    ],
)
def test_what_c_plus_plus_would_read_in_another_way_is_refused(body, before, why):
    assert why in made(body, before=before).reason


@needs_compiler
@pytest.mark.parametrize("body", ["b[i] = convert_uchar_sat(b[1]);", "b[i] = convert_float_rtp(n);"])
def test_what_has_no_word_in_cuda_does_not_compile(body):
    reason = made(body).reason
    assert ("does not compile for sm_90" in reason, "is undefined" in reason) == (True, True)
