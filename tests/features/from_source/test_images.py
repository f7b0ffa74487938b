"""Textures, surfaces and images: accesses, distinct elements and extents against enumerations of all work-items."""

import itertools

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel
from perflex.features.from_source.launching import source_launch
from support.every_feature import everything

# 24 x 8 work-items.
LAUNCH = {"local": [8, 4], "groups": [3, 2]}
ITEMS = list(itertools.product(range(24), range(8)))
CUDA = """
texture<uchar4, 2> pixels;
texture<uchar4, 2, cudaReadModeNormalizedFloat> colours;
struct Pair {{ cudaTextureObject_t t; float shift; }};
template <typename T> __device__ T at(cudaTextureObject_t t, float x, float y) {{ return tex2D<T>(t, x, y); }}
__global__ void f(float *out, cudaTextureObject_t t, cudaSurfaceObject_t s, Pair pair, float scale, const int *a, int n)
{{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0;
    float4 four;
    {body}
    out[y * 24 + x] = sum;
}}
"""
OPENCL = """
constant sampler_t nearest = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP | CLK_FILTER_NEAREST;
constant sampler_t normalised = CLK_NORMALIZED_COORDS_TRUE;
float4 texel(read_only image2d_t t, int2 at) {{ return read_imagef(t, nearest, at); }}
__kernel void f(__global float *out, read_only image2d_t t, write_only image2d_t s, read_only image3d_t volume,
                read_only image2d_array_t layers, read_only image1d_buffer_t line, sampler_t given) {{
    int x = get_global_id(0);
    int y = get_global_id(1);
    float4 four = 0;
    {body}
    out[y * 24 + x] = four.x;
}}
"""
NAMES = {
    "t": "texture_float32_load", "pair.t": "texture_float32_load", "pixels": "texture_uint8_load",
    "colours": "texture_uint8_load", "volume": "texture_float32_load", "layers": "texture_uint32_load",
    "line": "texture_int32_load",
}  # fmt: skip
# Statements, the image, the numbers of an element, and the elements of a work-item, x first.
CASES = [
    ("sum = tex2D<float>(t, x, y);", "t", 1, lambda x, y: [(x, y)]),
    ("sum = tex2D<float>(t, x + 0.5f, y + 0.5f);", "t", 1, lambda x, y: [(x, y)]),
    ("sum = tex2D<float>(t, (float)x - 1, 2 * y + 0.75f);", "t", 1, lambda x, y: [(x - 1, 2 * y)]),
    ("float u = x, v = y; u *= 3.0f; v -= 0.25f; sum = tex2D<float>(t, u, -v + 9);", "t", 1,
     lambda x, y: [(3 * x, 9 - y)]),
    ("four = tex2D<float4>(t, x - 0.5f, y); sum = four.x;", "t", 4, lambda x, y: [(x - 1, y)]),
    ("for (float i = -1; i <= 1; i++) for (float j = 0.5f; j < 2; j += 1) sum += tex2D<float>(t, x + i + 0.5f, y + j);",
     "t", 1, lambda x, y: [(x + i, y + j) for i in (-1, 0, 1) for j in (0, 1)]),
    ("if (x + 0.5f < 8) sum = at<float>(t, x, y);", "t", 1, lambda x, y: [(x, y)] if x < 8 else []),
    ("sum = tex2D<float>(t, (int)(x / 2 + 0.5f), y);", "t", 1, lambda x, y: [(x // 2, y)]),
    ("float2 c = make_float2(x, y); c.y += 1; c = c + make_float2(0.5f, 0.5f); sum = tex2D<float>(t, c.x, c.y);", "t",
     1, lambda x, y: [(x, y + 1)]),
    ("sum = tex1Dfetch<float>(t, x + 24 * y);", "t", 1, lambda x, y: [(x + 24 * y,)]),
    ("sum = tex1D<float>(t, 0);", "t", 1, lambda *_: [(0,)]),
    ("sum = tex3D<float>(t, x, y, 2.0f);", "t", 1, lambda x, y: [(x, y, 2)]),
    ("sum = tex2DLayered<float>(t, x, y, x / 8);", "t", 1, lambda x, y: [(x, y, x // 8)]),
    ("sum = tex2D<float>(pair.t, x, y);", "pair.t", 1, lambda x, y: [(x, y)]),
    ("sum = tex2D(pixels, x, y).x;", "pixels", 4, lambda x, y: [(x, y)]),
    ("sum = tex2D(colours, x, y).w;", "colours", 4, lambda x, y: [(x, y)]),
    ("sum = surf2Dread<float>(s, x * 4, y);", "s", 1, lambda x, y: [(x, y)]),
    ("surf2Dread(&sum, s, (x + 1) * 4, y);", "s", 1, lambda x, y: [(x + 1, y)]),
    ("surf2Dwrite(four, s, x * (int)sizeof(float4), y, cudaBoundaryModeTrap);", "s", 4, lambda x, y: [(x, y)]),
    ("four = read_imagef(t, nearest, (int2)(x, y));", "t", 4, lambda x, y: [(x, y)]),
    ("int2 c = (int2)(x, y) * 2; c.x += 1; four = texel(t, c);", "t", 4, lambda x, y: [(2 * x + 1, 2 * y)]),
    ("four = read_imagef(t, given, (float2)(x + 0.5f, y + 0.5f));", "t", 4, lambda x, y: [(x, y)]),
    ("four = read_imagef(volume, nearest, (int4)(x, y, 1, 0));", "volume", 4, lambda x, y: [(x, y, 1)]),
    ("four.x = read_imageui(layers, (int4)(x, y, 3, 0)).x;", "layers", 4, lambda x, y: [(x, y, 3)]),
    ("four.x = read_imagei(line, x + y).x;", "line", 4, lambda x, y: [(x + y,)]),
    ("write_imagef(s, (int2)(x, y / 2), four);", "s", 4, lambda x, y: [(x, y // 2)]),
]  # fmt: skip


def kernel_of(body, **stated):
    language = OPENCL if "_image" in body or "texel" in body else CUDA
    return source_kernel(language.format(body=body), "f", **LAUNCH, stated=stated)


@pytest.mark.parametrize(("body", "image", "numbers", "elements"), CASES, ids=[case[0] for case in CASES])
def test_an_access_of_an_image(body, image, numbers, elements):
    touched = [element for item in ITEMS for element in elements(*item)]
    kernel = kernel_of(body)
    scop = kernel.scop()
    [array] = [each for each in scop.arrays if each.name == image]
    word = NAMES.get(image, f"global_float32_{'store' if 'rite' in body else 'load'}")
    assert (array.space, array.dtype) == tuple(word.split("_")[:2])
    names = [f"f_mem_access_array:{image.replace('.', '_')}_{word}", f"f_mem_footprint_array:{image}"]
    if "." not in image:  # which is no name in features
        found = {each.identifier: each for each in count_features(kernel, {"n": 9}, identifiers=names)}
        per = 1 if len(set(touched)) > 1 else 32
        assert found[names[0]].value == len(touched) * numbers / per
        assert found[names[1]].value == len(set(touched)) * numbers
        assert all(each.exact for each in found.values())
    axes = list(zip(*touched, strict=True))
    extents = [max(axis) - min(0, *axis) + 1 for axis in axes[::-1]]
    extents[-1] *= numbers
    assert [extent.evaluate({"n": 9}) for extent in array.shape] == extents


def test_a_texture_is_counted_like_an_array():
    body = "sum = {0}; if (x > 2) sum += {1};"
    fetched = body.format("tex2D<float>(t, x, y)", "tex2D<float>(t, x - 3, y)")
    loaded = body.format("t[y * 24 + x]", "t[y * 24 + x - 3]")
    launched = {"f": kernel_of(fetched), "g": kernel_of(loaded)}
    launched["g"] = source_kernel(
        CUDA.format(body=loaded).replace("f(float *out, cudaTextureObject_t t", "f(float *out, const float *t"), "f",
        **LAUNCH,
    )  # fmt: skip
    texture, array = (dict(everything(kernel.scop(), {})) for kernel in launched.values())
    converted = [name for name in texture if name.endswith("_convert")]
    assert len(converted) == 2
    values = {name.replace("_texture_", "_global_"): value for name, value in texture.items() if name not in converted}
    differing = [name for name in {**values, **array} if values.get(name) != array.get(name)]
    assert not differing
    assert len(values) > 100


UNKNOWN = [
    "sum = tex2D<float>(t, (x + 0.5f) / 96, (y + 0.5f) / 96);", "sum = tex2D<float>(t, x * 0.5f, y);",
    "sum = tex2D<float>(t, x * scale, y);", "sum = tex2D<float>(t, x + 0.1f, y);", "sum = tex2D<float>(t, a[x], y);",
    "sum = tex2D<float>(t, 0.5f, 0.5f);", "sum = tex2DLod<float>(t, x, y, 1);",
    "four = read_imagef(t, normalised, (float2)(x, y));",
]  # fmt: skip


@pytest.mark.parametrize("body", UNKNOWN)
def test_other_coordinates_are_stated(body):
    with pytest.raises(UnsupportedKernelError, match=r"how many elements 't' has is not known.*--state t=N,M "):
        kernel_of(body).scop()
    with pytest.raises(UnsupportedKernelError, match="'t' has 2 axes, but 1 extents are stated"):
        kernel_of(body, t=100).scop()
    kernel = kernel_of(body, t="4*n, 7")
    names = ["f_mem_access_array:t", "f_mem_footprint_array:t"]
    accesses, footprint = count_features(kernel, {"n": 5}, identifiers=names)
    numbers = 4 if "_image" in body else 1
    assert accesses.value == 24 * 8 * numbers
    assert footprint.value == min(4 * 5 * 7, 24 * 8) * numbers
    assert not footprint.exact


def test_extents_are_formulas():
    kernel = kernel_of("for (int i = 0; i < n; i++) sum += tex2D<float>(t, x + i, y - i);")
    [array] = [each for each in kernel.scop().arrays if each.name == "t"]
    assert [extent.evaluate({"n": 9}) for extent in array.shape] == [8 + 8, 24 + 8]
    (found,) = count_features(kernel, {"n": 9}, identifiers=["f_mem_footprint_array:t"])
    assert found.value == len({(x + i, y - i) for x, y in ITEMS for i in range(9)})


@pytest.mark.parametrize(("body", "cause"), [
    ("four = tex2Dgather<float4>(t, x, y, 0);", "kernel.cu:12: tex2Dgather is not read"),
    ("sum = tex2D<float>(x > 3 ? t : pair.t, x, y);", "which image .* accesses is not known"),
    ("sum = tex2D<float>(t, x, y) + tex3D<float>(t, x, y, 1);", "image 't' has different numbers of axes"),
    ("sum = tex2D<float>(t, x, y * n);", "image 't' multiplies sizes; give numbers for them"),
])  # fmt: skip
def test_what_is_refused(body, cause):
    with pytest.raises(UnsupportedKernelError, match=cause):
        kernel_of(body).scop()


def test_images_are_not_launched():
    with pytest.raises(UnsupportedKernelError, match="argument 't' is an image; only arrays and scalars are given"):
        source_launch(kernel_of("sum = tex2D<float>(t, x, y);"), {"n": 9}, "k")
