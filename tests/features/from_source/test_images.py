"""Kernels that use textures, surfaces or images are refused by the function's name; others are not."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

CUDA = """
texture<uchar4, 2> pixels; texture<uchar4, 2, cudaReadModeNormalizedFloat> colours;
struct Pair {{ cudaTextureObject_t t; float shift; }};
__device__ float2 operator+(float2 a, float2 b) {{ return {{a.x + b.x, a.y + b.y}}; }}
template <typename T> __device__ T at(cudaTextureObject_t t, float x, float y) {{ return tex2D<T>(t, x, y); }}
__global__ void f(float *out, cudaTextureObject_t t, cudaSurfaceObject_t s, Pair pair, const int *a) {{
    int x = threadIdx.x; float sum = 0; float4 four;
    {body}
    out[x] = sum;
}}
"""
OPENCL = """
constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
float4 texel(read_only image2d_t t, int2 at) {{ return read_imagef(t, nearest, at); }}
kernel void f(global float *out, read_only image2d_t t, write_only image2d_t s, sampler_t given) {{
    int x = get_global_id(0); float4 four = 0;
    {body}
    out[x] = four.x;
}}
"""


def kernel_of(body: str, language: str):
    return source_kernel(language.format(body=body), "f", local=32, groups=1)


@pytest.mark.parametrize(("body", "place"), [
    ("sum += tex2D(pixels, x, x).x;", "cu:8: tex2D"), ("four = tex2D(colours, x, x);", "cu:8: tex2D"),
    ("sum = at<float>(t, x, x);", "cu:5: tex2D"), ("sum = tex3D<float>(pair.t, x, 1, 2);", "cu:8: tex3D"),
    ("sum = a[tex1Dfetch<int>(t, x)];", "cu:8: tex1Dfetch"),
    ("four = tex2DLod<float4>(t, x, x, 0);", "cu:8: tex2DLod"),
    ("surf2Dread(&sum, s, x * 4, x);", "cu:8: surf2Dread"),
    ("sum = surf2Dread<float>(s, x * 4, x);", "cu:8: surf2Dread"),
    ("surf2Dwrite(sum, s, x * 4, x, cudaBoundaryModeTrap);", "cu:8: surf2Dwrite"),
    ("four = read_imagef(t, given, (int2)(x, x));", "cl:6: read_imagef"),
    ("four = texel(t, (int2)(x, x));", "cl:3: read_imagef"),
    ("write_imagef(s, (int2)(x, x), four);", "cl:6: write_imagef"),
    ("four.x = get_image_width(t);", "cl:6: get_image_width"),
])  # fmt: skip
def test_a_fetch_is_refused(body, place):
    said = rf"kernel\.{place} accesses a texture, surface or image; write the fetch as a load from a buffer"
    with pytest.raises(UnsupportedKernelError, match=said):
        kernel_of(body, CUDA if place.startswith("cu") else OPENCL).scop()


@pytest.mark.parametrize("language", [CUDA, OPENCL])
def test_an_image_that_nothing_fetches_from(language):
    kernel = kernel_of("", language)
    (found,) = count_features(kernel, {}, identifiers=["f_mem_access_global_store"])
    assert (found.value, found.exact, kernel.scop().parameters) == (32, True, ())
