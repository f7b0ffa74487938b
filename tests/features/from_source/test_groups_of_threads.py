"""Barriers of sub-groups, CUDA's cooperative groups, and what GNU adds to C."""

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import count_features, source_kernel

SIZES = {"n": 64}
HEAD = """
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
struct Best { float value; int at; };
__device__ Best better(Best one, Best two) { bool first = one.value > two.value; return first ? one : two; }
__global__ void k(float *a, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::grid_group grid = cg::this_grid();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);
    cg::coalesced_group active = cg::coalesced_threads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = a[i];
"""
ADDS, SHUFFLES, VOTES = "f_op_float32_add", "f_op_float32_shuffle", "f_op_int32_vote"
LOCAL, GLOBAL, SUB_GROUP = (f"f_sync_barrier_{kind}" for kind in ("local", "global", "sub_group"))


# 8 work-groups of 64 work-items; operations and accesses of sub-groups of 32.
@pytest.mark.parametrize(("body", "counts"), [
    ("__syncwarp(); __syncthreads(); __syncwarp(0xff); a[i] = x;", {SUB_GROUP: 2, LOCAL: 1}),
    ("warp.sync(); tile.sync(); cg::sync(tile); active.sync(); a[i] = x;", {SUB_GROUP: 4}),
    ("block.sync(); cg::sync(block); grid.sync(); cg::sync(grid); a[i] = x;", {LOCAL: 2, GLOBAL: 2}),
    ("a[i] = cg::reduce(warp, x, cg::plus<float>());", {ADDS: 80, SHUFFLES: 80}),
    ("a[i] = cg::reduce(tile, x, cg::greater<float>{});", {"f_op_float32_max": 48, SHUFFLES: 48}),
    ("a[i] = warp.shfl_down(x, 1) + tile.shfl(x, 0);", {ADDS: 16, SHUFFLES: 32}),
    # A struct is shuffled word by word; which of two is the larger decides no work.
    ("Best b = cg::reduce(warp, Best{x, i}, better); a[i] = b.value;", {"f_op_uint32_shuffle": 160}),
    ("if (warp.thread_rank() == 0) a[grid.block_rank() * warp.meta_group_size() + warp.meta_group_rank()] = x;",
     {"f_mem_footprint_array:a": 512}),
    ("if (tile.meta_group_rank() < tile.num_threads() / 4) a[grid.thread_rank() + grid.size()] = x;",
     {"f_mem_footprint_array:a": 512 + 256}),  # of each sub-group two tiles
    (("cg::thread_group part = cg::tiled_partition(block, 16), all = block; part.sync(); all.sync(); cg::sync(part);"
     "if (part.thread_rank() < 4) a[grid.thread_rank() + grid.size()] = x + all.size();"),
     {SUB_GROUP: 2, LOCAL: 1, "f_mem_footprint_array:a": 512 + 128}),
    ("auto same = cg::labeled_partition(active, i); a[i] = x + same.size(); tile = cg::tiled_partition<8>(block);",
     {"f_op_uint32_vote": 32, "f_op_uint32_bit": 16, ADDS: 16}),
    ("register float y = x + 1.0f; a[i] = y;", {ADDS: 16}),
])  # fmt: skip
def test_groups_of_threads_in_cuda(body, counts):
    kernel = source_kernel(f"{HEAD} {body} }}\n", "k", local=64, groups="n / 8")
    found = count_features(kernel, SIZES, identifiers=list(counts), sub_group_size=32)
    assert {each.identifier: each.value for each in found} == counts
    assert all(each.certainty.exact for each in found)
    assert not kernel.unstated(SIZES)


@pytest.mark.parametrize(("arch", "counts"), [
    (750, {"f_op_int32_min": 80, "f_op_uint32_shuffle": 80}), (800, {"f_op_uint32_call:__reduce_min_sync": 16}),
])  # fmt: skip
def test_new_devices_reduce_integers_at_once(arch, counts):
    body = "int least = cg::reduce(warp, (int)x, cg::less<int>()); if (i == 0) a[i] = least; }\n"
    kernel = source_kernel(HEAD + body, "k", local=64, groups="n / 8", defines={"__CUDA_ARCH__": arch})
    found = count_features(kernel, SIZES, sub_group_size=32)
    named = {each.identifier: each.value for each in found if "int32" in each.identifier}
    assert {name: value for name, value in named.items() if "vote" not in name} == counts


def test_statements_in_expressions_are_read():
    least = "({ __typeof__(n) one = (n); int two = 10; one < two ? one : two; })"
    text = f"__global__ void k(float *a, int n) {{ for (int i = 0; i < {least}; i++) a[i] += 1.0f; }}\n"
    kernel = source_kernel(text, "k", local=1, groups=1)
    for n in (7, 12):
        [count] = count_features(kernel, {"n": n}, identifiers=[ADDS])
        assert (count.value, count.certainty.exact) == (min(n, 10), True)


def test_the_first_error_of_a_file_without_the_kernel_is_its_own():
    text = "#include <hal/list.h>\n__global__ void k(hal::list<int> a) { a[0] = 1; }\n"
    with pytest.raises(UnsupportedKernelError, match=r"no kernel 'k'.* use of undeclared identifier 'hal'"):
        source_kernel(text, "k", local=1, groups=1).scop()
