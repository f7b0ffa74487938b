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
        ("open", "give local=9, groups=8, or"),
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


KERNELS = """
#define BLOCK 256
#define DIV(a, b) (((a) + (b) - 1) / (b))
static int up(int a, int b) { return a % b != 0 ? a / b + 1 : a / b; }
template <typename T, int TILE> __global__ void f(T *a, int n, int m) { a[blockIdx.x] = n + m; }
__global__ void g(float *a, int n) { a[threadIdx.x] = n; }
"""
CASES = {
    # The grid of what is called with other names, through variables, macros, functions and casts.
    "void run(float *a, int N) { int grid = (N + BLOCK - 1) / BLOCK; g<<<grid, BLOCK>>>(a, N); }": (4, 256),
    "void run(float *a, size_t N) { g<<<DIV((int)N, BLOCK), dim3(BLOCK / 2, 2)>>>(a, (int)N); }": (4, (128, 2)),
    "void run(float *a, int N) { dim3 b(8, 4), g1(up(N, b.x), up(7, b.y)); g<<<g1, b>>>(a, N); }": ((125, 2), (8, 4)),
    "void run(float *a, int N) { g<<<ceil((float)N / 64), 64>>>(a, N); }": (16, 64),
    "void run(float *a, int N) { g<<<N / 64 + (N % 64 ? 1 : 0), 64>>>(a, N); }": (16, 64),
    "void run(float *a, int N) { g<<<ceil(N / 64), 64>>>(a, N); }": (15, 64),
    "void run(float *a, int N) { g<<<N >> 6, 1 << 6>>>(a, N); }": (15, 64),
    "void run(float *a, int N) { int b; b = 64; g<<<N / b, b>>>(a, N); b = 32; }": (15, 64),
    "void run(float *a, int N) { g<<<8, 32>>>(a, N); for (int i = 0; i < 3; i++) g<<<16 / 2, 32>>>(a, N); }": (8, 32),
    "void run(float *a, int N) { hipLaunchKernelGGL(g, dim3(N / 8), 32, 0, 0, a, N); }": (125, 32),
    # Other launches, sizes that change or are not the kernel's, values that are not certain.
    "void run(float *a, int N) { g<<<8, 32>>>(a, N); g<<<8, 64>>>(a, N); }": None,
    "void run(float *a, int N) { int b = 64; for (;;) { g<<<N / b, b>>>(a, N); b /= 2; } }": None,
    "void run(float *a, int N) { int k = N / 8; N *= 2; g<<<k, 8>>>(a, N); }": None,
    "void run(float *a, int N) { int k = N / 8; for (;;) { g<<<k, 8>>>(a, N); N /= 2; } }": None,
    "void run(float *a, int N) { int b = 64; read(&b); g<<<N / b, b>>>(a, N); }": None,
    "void run(float *a, int N) { int b = 64; read(b); g<<<N / b, b>>>(a, N); }": None,
    "void run(float *a, int N) { int b = 64; if (N > 9) b = 32; g<<<N / b, b>>>(a, N); }": None,
    "#ifdef X\nint b = 1;\n#else\nint b = 2;\n#endif\nvoid run(float *a, int N) { g<<<N, b>>>(a, N); }": None,
    "#ifdef X\n#define B 1\n#else\n#define B 2\n#endif\nvoid run(float *a, int N) { g<<<N, B>>>(a, N); }": None,
    "void other() { int b = 64; } void run(float *a, int N, int b) { g<<<N / b, b>>>(a, N); }": None,
    "void run(float *a, int N, int n) { g<<<n / 64, 64>>>(a, N); }": None,
    "#define N 1024\nvoid run(float *a) { g<<<N / 64, 64>>>(a, N * N); }": None,
    "void run(float *a, int N) { g<<<N * 0.3, 64>>>(a, N); }": None,
    "void run(float *a, int N) { g<<<N / 64, 64>>>(a, N); bench(g, 128); }": None,
    "void run(float *a, int N) { g<<<ceil(N / 2 / 64.0 / 2), 64>>>(a, N); }": None,
    "#if 0\nvoid run(float *a, int N) { g<<<8, 32>>>(a, N); }\n#endif": None,
}


@pytest.mark.parametrize("host", CASES)
def test_a_launch_of_the_file_is_taken_where_it_is_certain(host):
    if CASES[host] is None:
        with pytest.raises(PerflexError, match="needs its launch"):
            source_kernel(KERNELS + host, "g")
        return
    groups, local = CASES[host]
    kernel = source_kernel(KERNELS + host, "g")
    assert kernel.host_launch.startswith("line ")
    expected = source_kernel(KERNELS + host, "g", local=local, groups=groups)
    wanted = ["f_thread_groups", "f_thread_items"]
    found, given = (
        [entry.value for entry in count_features(one, {"n": 1000}, identifiers=wanted)] for one in (kernel, expected)
    )
    assert (found, kernel.local) == (given, expected.local)


@pytest.mark.parametrize(
    ("host", "name", "groups", "local"),
    [
        ("f<float, 8><<<n / 8, 8>>>(a, n, m); f<float, 4><<<m / 4, 4>>>(a, n, m);", "f<float, 4>", ("(m / 4)",), 4),
        ("f<T, 8><<<n / 8, 8>>>(a, n, m); f<T, 4><<<m / 4, 4>>>(a, n, m);", "f<double, 8>", ("(n / 8)",), 8),
        ("f<T, B><<<dim3(m / B, n), B>>>(a, n, m);", "f<float, 16>", ("(m / 16)", "n"), 16),
        ("f<float, 8><<<n / 8, 8>>>(a, m, n);", "f<float, 8>", ("(m / 8)",), 8),
        ("f<float, 8><<<n / 8, 8>>>(a, n, n);", "f<float, 8>", None, 8),
        ("f<float, 4><<<n / 4, 4>>>(a, n, m);", "f<float, 8>", None, 8),
    ],
)
def test_launches_of_templates_are_those_of_the_arguments(host, name, groups, local):
    text = f"{KERNELS}template <typename T, int B> void run(T *a, int n, int m) {{ {host} }}"
    if groups is None:
        with pytest.raises(PerflexError, match="needs its launch"):
            source_kernel(text, name)
        return
    kernel = source_kernel(text, name)
    assert (kernel.groups, kernel.local[0]) == (groups, local)


def test_macros_that_are_given_come_first():
    text = KERNELS + "void run(float *a, int N) { g<<<N / BLOCK, BLOCK>>>(a, N); }"
    assert source_kernel(text, "g", defines={"BLOCK": 32}).local == (32,)
    assert source_kernel(text, "g", local=8, groups=1).host_launch == ""
