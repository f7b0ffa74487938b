"""In which language a file is: by its suffix, its text, or as stated; HIP; macros of the compiler's target."""

import pytest

from perflex import PerflexError, source_kernel
from perflex.features import count_features
from perflex.features.from_source.launching import source_launch

CUDA = "__global__ void f(float *a) { a[threadIdx.x] = 1; }"
OPENCL = "__kernel void f(__global float *a) { a[get_global_id(0)] = 1; }"
HIDDEN = "KERNEL void f(GLOBAL float *a) { a[get_global_id(0)] = 1; }"
HIP = """
#include <hip/hip_runtime.h>
#include <hip/hip_fp16.h>
template <typename T> __global__ void __launch_bounds__(256) f(T *a, const T *b)
{
    HIP_DYNAMIC_SHARED(T, s)
    int i = hipBlockIdx_x * hipBlockDim_x + hipThreadIdx_x;
    s[hipThreadIdx_x] = b[i];
    __syncthreads();
    for (int k = 0; k < warpSize; ++k)
        a[i] = s[k] + T(2);
#if defined(__CUDA_ARCH__) || !defined(__HIP_PLATFORM_AMD__)
    a[i] = 3;
#endif
}
"""
STORES = "f_mem_access_global_{}_store"


def stores(kernel, dtype="float32"):
    return [entry.value for entry in count_features(kernel, {}, identifiers=[STORES.format(dtype)])]


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("f.cpp", CUDA, "cuda"),
        ("f.h", OPENCL, "opencl"),
        ("f.hpp", HIP, "hip"),
        ("f.cu", HIP, "cuda"),
        ("f.hip", CUDA, "hip"),
        ("f.inc", HIDDEN, None),
    ],
)
def test_suffix_or_text_say_the_language(tmp_path, name, text, language):
    (tmp_path / name).write_text(text, encoding="utf-8")
    if language is None:
        with pytest.raises(PerflexError, match="give language='cuda', say"):
            source_kernel(tmp_path / name, "f", local=32, groups=2)
        return
    assert source_kernel(tmp_path / name, "f", local=32, groups=2).language == language


def test_a_stated_language_goes_before(tmp_path):
    (tmp_path / "f.inc").write_text(HIDDEN, encoding="utf-8")
    given = {"defines": {"KERNEL": "kernel", "GLOBAL": "global"}, "language": "opencl"}
    assert stores(source_kernel(tmp_path / "f.inc", "f", local=32, groups=2, **given)) == [64]
    with pytest.raises(PerflexError, match="no language 'rust'"):
        source_kernel(CUDA, "f", local=32, groups=2, language="rust")


@pytest.mark.parametrize(
    ("dtype", "defines", "each"),
    [
        ("float", {}, 64),
        ("float", {"__AMDGCN_WAVEFRONT_SIZE": 32}, 32),
        # HIP for a GPU of NVIDIA.
        ("float", {"__CUDA_ARCH__": 900, "__AMDGCN_WAVEFRONT_SIZE": 32}, 33),
        ("__half", {}, 64),
    ],
)
def test_hip_is_cuda_with_other_names(dtype, defines, each):
    kernel = source_kernel(HIP, f"f<{dtype}>", local=256, groups=2, defines=defines, language="hip")
    assert stores(kernel, "float16" if "half" in dtype else "float32") == [512 * each]
    with pytest.raises(PerflexError, match="cannot be launched: it is written in HIP"):
        source_launch(kernel, {}, "f")


def test_a_kernel_for_other_gpus_alone_is_not_taken_for_one_that_does_nothing():
    text = "__global__ void f(float *a) {\n#if __CUDA_ARCH__ >= 800\n  a[0] = 1;\n#endif\n}\n"
    with pytest.raises(PerflexError, match=r"does nothing on compute capability 7.0, .* with --machine"):
        source_kernel(text, "f", local=1, groups=1).scop()
    for capability, count in ((750, 0), (800, 1)):
        kernel = source_kernel(text, "f", local=1, groups=1, defines={"__CUDA_ARCH__": capability})
        assert len(kernel.scop().statements) == count
    assert not source_kernel("__global__ void f() {}", "f", local=1, groups=1).scop().statements


ARCHITECTURE = "__global__ void f(float *a) { a[0] = 1; if (__CUDA_ARCH__ >= 800) a[0] = 1; }"


@pytest.mark.parametrize(("defines", "count"), [({}, 1), ({"__CUDA_ARCH__": 860}, 2), ({"__CUDA_ARCH__": 750}, 1)])
def test_the_architecture_is_a_macro(defines, count):
    assert stores(source_kernel(ARCHITECTURE, "f", local=32, groups=1, defines=defines)) == [count]


def test_macros_of_the_compilers():
    head = "#if defined(__NVCC__) && defined(__CUDACC__) && !defined(__clang__) && !defined(__HIP__)"
    text = f"__global__ void f(float *a) {{ a[0] = 1;\n{head}\na[1] = 2;\n#endif\n}}\n"
    for language, count in (("cuda", 2), ("hip", 1)):
        assert stores(source_kernel(text, "f", local=32, groups=1, language=language)) == [count]


@pytest.mark.parametrize(("head", "cause"), [
    ('#include "config.h"', r"kernel.cu:4: whether macro 'WIDE' is defined is not known \(config.h: not found\)"),
    ('#include "a/b.cuh"', r"'WIDE' is defined is not known \(a/b.cuh: not found\)"),
    ('#include "config.h"\n#define WIDE 0', None), ("#include <vector>\n#include <getopt.h>", None),
    ('#include "cub/cub.cuh"', None), ("", None),
])  # fmt: skip
def test_macros_that_a_missing_header_may_define(head, cause):
    body = "\n#if WIDE // or NARROW\na[1] = 2;\n#endif\na[0] = 1;"
    other = "__device__ void other(float *a) {\n#ifdef NARROW\na[1] = 2;\n#endif\n}"
    text = f"{head}\n__global__ void f(float *a) {{\n{body} }}\n{other}\n"
    kernel = source_kernel(text, "f", local=32, groups=1)
    if cause is None:
        assert stores(kernel) == [1]
        return
    with pytest.raises(PerflexError, match=cause):
        stores(kernel)
    assert stores(source_kernel(text, "f", local=32, groups=1, defines={"WIDE": 1})) == [2]
