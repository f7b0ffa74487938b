"""Private arrays in memory: which lie there, and what is moved, counted by hand."""

import pytest

from perflex import estimate_volumes, source_kernel
from perflex.features import count_features
from perflex.features.counting.private_memory import PrivateUse, arrays_in_memory, private_uses

TEXT = """
__global__ void kernel(float *x, const float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s[SIZE], t[4];
  t[0] = t[1] = t[2] = t[3] = 1;
  for (int k = 0; k < SIZE; k++) s[k] = 0;
  for (int j = 0; j < n; j++) {
    HINT
    for (int k = 0; k < SIZE; k++) s[k] += y[j] * k + t[k % 4];
  }
  float sum = 0;
  for (int k = 0; k < SIZE; k++) if (k < i) sum += s[k];
  x[i] = sum;
}"""


def kernel(size=16, hint="", language="cuda"):
    text = TEXT.replace("HINT", hint).replace("SIZE", str(size))
    return source_kernel(text, "kernel", local=64, groups=4, language=language)


# As NVRTC 11 and 13 compile them: private bytes of direct Coulomb summations with 4, 8, 16 and 32 results.
@pytest.mark.parametrize(
    ("size", "hint", "there"),
    [
        (16, "", False), (32, "", False), (40, "", True), (4, "#pragma unroll 1", False),
        (8, "#pragma unroll 1", True), (8, "#pragma nounroll", True), (16, "#pragma unroll 2", False),
        (32, "#pragma unroll 2", True), (32, "#pragma unroll 4", False), (32, "#pragma unroll (16)", False),
        (32, "#pragma unroll WIDTH", False), (8, "#pragma unroll ONE", True),
    ],
)  # fmt: skip
def test_arrays_lie_in_memory_where_loops_stay_loops(size, hint, there):
    text = "#define ONE (1u)\n#define WIDTH 8\n" + TEXT.replace("HINT", hint).replace("SIZE", str(size))
    scop = source_kernel(text, "kernel", local=64, groups=4).scop({"n": 8})
    # A guard in a loop of a known number of iterations keeps no compiler from unrolling it.
    assert ("s" in arrays_in_memory(scop)) == there


def test_an_array_that_ids_choose_from_lies_in_memory():
    text = """__global__ void kernel(float *x) {
      float s[4] = {1, 2, 3, 4};
      x[threadIdx.x] = s[threadIdx.x % 4];
    }"""
    assert arrays_in_memory(source_kernel(text, "kernel", local=64, groups=4).scop({})) == {"s"}


def test_words_are_those_of_each_iteration_of_each_sub_group():
    n, size, sub_groups = 10, 8, 4 * 2
    scop = kernel(size, "#pragma unroll 1").scop({"n": n})
    (use,) = private_uses(scop, {"n": n}, 32).values()
    # In the last loop some work-item of each sub-group reads each element.
    loads, stores = n * size + size + n * size, size + n * size + 4
    assert use == PrivateUse(4.0 * (size + 4), sub_groups * loads, sub_groups * stores)


def test_instructions_and_volumes_have_them():
    n, size = 10, 8
    given = kernel(size, "#pragma unroll 1"), {"n": n}
    (counted,) = count_features(*given, identifiers=["f_inst_ldst_private"])
    (plain,) = count_features(kernel(size), {"n": n}, identifiers=["f_inst_ldst_private"])
    found = estimate_volumes(*given, "A100-40GB").arrays["private memory"]
    assert counted.value == found.l1_wavefronts > 0
    assert plain.value == 0
    # L1 writes through; what fits the caches is moved no farther.
    assert (found.l2_l1_load, found.dram_load, found.dram_store) == (0, 0, 0)
    assert found.l2_l1_store == found.written > 0
    # Pascal's L1 holds none of it.
    older = estimate_volumes(*given, "P100").arrays["private memory"]
    assert older.l2_l1_load == older.l1_load == found.l1_load
    assert "private memory" not in estimate_volumes(kernel(size), {"n": n}, "A100-40GB").arrays


def test_what_no_cache_holds_is_moved_from_memory():
    use = {0: PrivateUse(4096.0, 1e6, 5e5)}
    scop = source_kernel(
        "__global__ void k(float *x) { x[blockIdx.x * 1024 + threadIdx.x] = 1; }", "k", local=1024, groups=4096
    )
    found = estimate_volumes(scop, {}, "A100-40GB", private=use).arrays["private memory"]
    # 2 x 1024 x 4 KiB are far more than any L1, and 108 times that more than L2.
    assert found.l2_l1_load == pytest.approx(128e6, rel=1e-3)
    assert found.dram_store == pytest.approx(64e6, rel=1e-3)
