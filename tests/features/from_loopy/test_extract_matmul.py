"""The paper's matrix multiplication: Section 2, Table 1 and Section 8.3."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from perflex.errors import MissingSizeError
from perflex.features import AccessCounts, Target, counts_of, extract_scop, parse_feature
from sample_kernels import matmul

SIZES = (16, 64, 1024)


def access(kernel: object, array: str, direction: str = "load") -> AccessCounts:
    (found,) = [
        item
        for item in counts_of(extract_scop(kernel)).accesses
        if item.array.name == array and item.access.direction == direction
    ]
    return found


def text(strides: tuple[object, ...]) -> list[str]:
    return [str(stride) for stride in strides]


def test_table_1_strides() -> None:
    kernel = matmul(prefetch=True)
    a, b = access(kernel, "a"), access(kernel, "b")
    assert text(a.local_strides) == ["1", "n"]
    assert text(a.group_strides) == ["0", "16 * n"]
    assert text(b.local_strides) == ["1", "n"]
    assert text(b.group_strides) == ["16", "0"]
    c = access(kernel, "c", "store")
    assert text(c.local_strides) == ["1", "n"]
    assert text(c.group_strides) == ["16", "16 * n"]


@pytest.mark.parametrize("n", SIZES)
def test_table_1_access_to_footprint_ratios(n: int) -> None:
    for prefetch, ratio in ((True, n / 16), (False, n)):
        kernel = matmul(prefetch=prefetch)
        for array in "ab":
            item = access(kernel, array)
            assert item.work_item_count.evaluate({"n": n}) / item.footprint.evaluate({"n": n}) == ratio
        store = access(kernel, "c", "store")
        assert store.work_item_count.evaluate({"n": n}) == store.footprint.evaluate({"n": n}) == n * n


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("sub_group", [8, 16, 32, 64])
def test_prefetching_counts(n: int, sub_group: int) -> None:
    scop = extract_scop(matmul(prefetch=True))
    expected = {
        "f_op_float32_madd": n**3 / sub_group,
        "f_op_float32_add": 0,
        "f_op_float32_mul": 0,
        "f_mem_access_global_float32_load": 2 * n**3 / 16,
        "f_mem_access_global_float32_store": n**2,
        "f_mem_access_local_float32_load": 2 * n**3 / sub_group,
        "f_mem_access_local_float32_store": 2 * n**3 / 16 / sub_group,
        "f_mem_access_local": (2 * n**3 + 2 * n**3 / 16) / sub_group,
        "f_sync_barrier_local": 2 * n / 16,
        "f_sync_kernel_launch": 1,
        "f_thread_groups": (n / 16) ** 2,
        "f_thread_items": n**2,
        "f_sub_groups": n**2 / sub_group,
    }
    for identifier, value in expected.items():
        assert parse_feature(identifier).value(scop, {"n": n}, Target(sub_group)) == value, identifier


@pytest.mark.parametrize("n", SIZES)
def test_uniform_load_is_counted_per_sub_group(n: int) -> None:
    scop = extract_scop(matmul(prefetch=False))
    assert parse_feature("f_mem_access_tag:aLD").value(scop, {"n": n}, Target()) == n**3 / 32
    assert parse_feature("f_mem_access_tag:bLD").value(scop, {"n": n}, Target()) == n**3
    assert parse_feature("f_op_float32_madd").value(scop, {"n": n}, Target()) == n**3 / 32
    assert parse_feature("f_sync_barrier_local").value(scop, {"n": n}, Target()) == 0


def test_the_papers_access_patterns_single_out_a_and_b() -> None:
    scop = extract_scop(matmul(prefetch=True))
    a = "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:0}_afr:>1"
    b = "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1"
    for identifier, array in ((a, "a"), (b, "b")):
        selected = parse_feature(identifier).selected(scop, {"n": 64})
        assert [item.array.name for item in selected] == [array]
        assert parse_feature(identifier).value(scop, {"n": 64}, Target()) == 64**3 / 16


def test_symbolic_counts_are_plain_polynomials() -> None:
    scop = extract_scop(matmul(prefetch=True))
    assert str(parse_feature("f_op_float32_madd").count(scop, 32)) == "1/32 * n^3"
    assert str(counts_of(scop).work_groups) == "1/256 * n^2"


def test_remainders_are_counted_exactly() -> None:
    scop = extract_scop(matmul(prefetch=False, fit=False))
    n = 37
    active = sum(
        len({(l0 + 16 * l1) // 32 for l0 in range(16) for l1 in range(16) if 16 * g0 + l0 < n and 16 * g1 + l1 < n})
        for g0 in range(3)
        for g1 in range(3)
    )
    assert parse_feature("f_op_float32_madd").value(scop, {"n": n}, Target()) == active * n
    assert parse_feature("f_mem_access_tag:bLD").value(scop, {"n": n}, Target()) == n**3
    assert parse_feature("f_thread_groups").value(scop, {"n": n}, Target()) == 9


def test_arrays_of_sizes() -> None:
    scop = extract_scop(matmul(prefetch=True))
    n = np.array([16, 64, 1024])
    for identifier in ("f_op_float32_madd", "f_mem_access_global", "f_sync_barrier_local", "f_thread_groups"):
        feature = parse_feature(identifier)
        values = feature.value(scop, {"n": n}, Target())
        assert values.tolist() == [feature.value(scop, {"n": int(size)}, Target()) for size in n]


def test_missing_and_impossible_sizes_are_named() -> None:
    scop = extract_scop(matmul(prefetch=True))
    feature = parse_feature("f_op_float32_madd")
    with pytest.raises(MissingSizeError, match=r"needs a value for size n; pass \{'n': 1024\}, or .* n=1024$"):
        feature.value(scop, {}, Target())
    with pytest.raises(MissingSizeError, match=r"not valid for n=1000: it assumes .*mod 16 = 0"):
        feature.value(scop, {"n": 1000}, Target())


def test_scop_is_remembered_hashable_and_picklable() -> None:
    kernel = matmul(prefetch=True)
    scop = extract_scop(kernel)
    assert extract_scop(kernel) is scop
    copy = pickle.loads(pickle.dumps(scop))
    assert copy == scop
    assert hash(copy) == hash(scop)
    assert copy != extract_scop(matmul(prefetch=False))
