"""Launches in the host code of a file, offered where none is given; and negative values of arguments."""

import pytest

from perflex import PerflexError, source_kernel
from perflex.features import count_features
from perflex.features.from_source.host_launches import offered_launch

SOURCE = """
#define BLOCK 256
template <int B> __global__ void tiled(float *a, int n) {}
__global__ void f(float *a, int n) { a[blockIdx.x * blockDim.x + threadIdx.x] = n; }
// f<<<1, 2>>>(a, n);
int main() {
    const int threads = BLOCK * 2, step = 3;
    int n = 100, later = 7;
    dim3 block(16, 16), grid((n + block.x - 1) / 16, n / 16);
    dim3 big = dim3(32, step + 5), some;
    some.x = 4; later = 9;
    f<<<(n + BLOCK - 1) / BLOCK, threads>>>(a, n);
    tiled<16><<<grid, block, 0, stream>>>(a, n); f<<<1, 2>>>(a, n);
    rounded<<<div_up(n, 4), big>>>(a, n);
    hipLaunchKernelGGL(hip, dim3(n / 4), dim3(BLOCK), 0, 0, a, n);
    hipLaunchKernelGGL((both<3, 4>), grid, big, 0, 0, a, n);
    wrapped<<<dim3(big), dim3(block)>>>(a);
    unknown<<<some, 1 << 7>>>(); open<<<8, later>>>();
}
"""


@pytest.mark.parametrize(
    ("name", "offer"),
    [
        ("f", "line 12 .* <<<(n + BLOCK - 1) / BLOCK, threads>>> (and 1 more): .* local=512, groups='(n + 256 - 1)"),
        (
            "tiled",
            "<<<grid, block>>>: .* local=[16, 16], groups=['(n + 16 - 1) / 16', 'n / 16'], or --local 16,16 --groups '",
        ),
        ("rounded", "groups='div_up(n, 4)', local=[32, 8]: write it with numbers and sizes"),
        ("hip", "give local=256, groups='n / 4'"),
        ("both", "give local=[32, 8], groups=['(n + 16 - 1) / 16', 'n / 16']"),
        ("wrapped", "give local=[16, 16], groups=[32, 8], or --local 16,16 --groups 32,8"),
        ("unknown", "give local=128, groups='some'"),
        ("open", "groups=8, local=9, or"),
        ("main", ""),
    ],
)
def test_the_launch_of_the_file_is_offered(name, offer):
    found = offered_launch(SOURCE, name)
    assert all(part in found for part in offer.split(" .* "))
    assert bool(found) == bool(offer)


@pytest.mark.parametrize("given", [{}, {"local": 256}, {"global_size": "n"}])
def test_errors_that_ask_for_the_launch_offer_it(given):
    with pytest.raises(PerflexError, match=r"launches it with <<<.*give local=512, groups='\(n \+ 256 - 1\) / 256'"):
        source_kernel(SOURCE, "f", **given)
    # Which is then taken as it is.
    found = source_kernel(SOURCE, "f", local=512, groups="(n + 256 - 1) / 256")
    assert [e.value for e in count_features(found, {"n": 1000}, identifiers=["f_thread_items"])] == [2048]


NEGATIVE = """
kernel void moved(global float *a, int shift) { int i = get_global_id(0) + shift; if (i >= 0) a[i] = 1; }
kernel void between(global float *a, int low, int high) { for (int k = low; k < high; k++) a[get_global_id(0)] += k; }
kernel void natural(global float *a, uint low) { for (int k = low; k < 4; k++) a[get_global_id(0)] += k; }
"""


@pytest.mark.parametrize(
    ("name", "sizes", "stores"),
    [
        ("moved", {"shift": -1}, 127),
        ("moved", {"shift": 1}, 128),
        ("moved", {"shift": -200}, 0),
        ("between", {"low": -3, "high": 4}, 7 * 128),
        ("between", {"low": -3, "high": -4}, 0),
    ],
)
def test_arguments_may_be_negative(name, sizes, stores):
    kernel = source_kernel(NEGATIVE, name, local=64, groups=2)
    found = count_features(kernel, sizes, identifiers=["f_mem_access_global_float32_store"])
    assert [entry.value for entry in found] == [stores]


@pytest.mark.parametrize(("name", "groups"), [("natural", 2), ("moved", "low")])
def test_extents_and_unsigned_arguments_may_not_be_negative(name, groups):
    kernel = source_kernel(NEGATIVE, name, local=64, groups=groups)
    with pytest.raises(PerflexError, match=r"'low' .* unsigned|it assumes low >= 0"):
        count_features(kernel, {"low": -1, "shift": 0})
