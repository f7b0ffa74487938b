"""The paper's matrix multiplication: Section 2, Table 1 and Section 8.3."""

import pytest

from perflex.features import Target, counts_of, extract_scop, parse_feature
from perflex.features.families.memory_accesses import selected
from sample_kernels import matmul

SIZES = (16, 64, 1024)


def access(kernel, array, direction="load"):
    items = counts_of(extract_scop(kernel)).accesses
    (found,) = [item for item in items if (item.array.name, item.access.direction) == (array, direction)]
    return found


@pytest.mark.parametrize(("array", "direction", "strides"), [
    ("a", "load", ["1", "n", "0", "16 * n"]), ("b", "load", ["1", "n", "16", "0"]),
    ("c", "store", ["1", "n", "16", "16 * n"]),
])  # fmt: skip
def test_table_1_strides(array, direction, strides):
    found = access(matmul(prefetch=True), array, direction)
    assert [str(stride) for stride in (*found.local_strides, *found.group_strides)] == strides


@pytest.mark.parametrize("n", SIZES)
def test_table_1_access_to_footprint_ratios(n):
    for prefetch, ratio in ((True, n / 16), (False, n)):
        kernel = matmul(prefetch=prefetch)
        for item in (access(kernel, "a"), access(kernel, "b")):
            assert item.work_item_count.evaluate({"n": n}) / item.footprint.evaluate({"n": n}) == ratio
        store = access(kernel, "c", "store")
        assert store.work_item_count.evaluate({"n": n}) == store.footprint.evaluate({"n": n}) == n * n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("sub_group", [8, 16, 32, 64])
def test_prefetching_counts(n, sub_group):
    scop = extract_scop(matmul(prefetch=True))
    expected = {
        "f_op_float32_madd": n**3 / sub_group, "f_op_float32_add": 0, "f_op_float32_mul": 0,
        "f_mem_access_global_float32_load": 2 * n**3 / 16, "f_mem_access_global_float32_store": n**2,
        "f_mem_access_local_float32_load": 2 * n**3 / sub_group,
        "f_mem_access_local_float32_store": 2 * n**3 / 16 / sub_group,
        "f_mem_access_local": (2 * n**3 + 2 * n**3 / 16) / sub_group, "f_sync_barrier_local": 2 * n / 16,
        "f_sync_kernel_launch": 1, "f_thread_groups": (n / 16) ** 2, "f_thread_items": n**2,
        "f_sub_groups": n**2 / sub_group,
    }  # fmt: skip
    for identifier, value in expected.items():
        assert parse_feature(identifier).value(scop, {"n": n}, Target(sub_group)) == value, identifier


def test_the_papers_access_patterns_single_out_a_and_b():
    scop = extract_scop(matmul(prefetch=True))
    for stride, array in ((0, "a"), (16, "b")):
        identifier = f"f_mem_access_global_float32_load_lstrides:{{0:1;1:>15}}_gstrides:{{0:{stride}}}_afr:>1"
        feature = parse_feature(identifier)
        assert [item.array.name for item in selected(scop, {"n": 64}, feature.what)] == [array]
        assert feature.value(scop, {"n": 64}, Target()) == 64**3 / 16


def test_the_scop_of_a_kernel_is_remembered():
    kernel = matmul(prefetch=True)
    assert extract_scop(kernel) is extract_scop(kernel) != extract_scop(matmul(prefetch=False))
