"""Sizes that suit a device."""

import pytest

from perflex.models import MATRIX_SIZES, SizeRule, scaled_sizes, split_sizes

SIZES = (288, 416, 544, 672, 800, 928)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.165, 0.5, 1.0, 2.0, 60.0])
def test_sizes_are_odd_multiples_of_32_and_increase(scale):
    sizes = MATRIX_SIZES.sizes(SIZES, scale)
    assert len(sizes) == len(SIZES)
    assert all(size % 64 == 32 and size >= 96 for size in sizes)
    assert list(sizes) == sorted(set(sizes))


def test_sizes_grow_with_the_cube_root_of_speed():
    assert MATRIX_SIZES.sizes(SIZES, 1.0) == SIZES
    for small, large in zip(SIZES, MATRIX_SIZES.sizes(SIZES, 64.0), strict=True):
        assert large == pytest.approx(4 * small, abs=32)


def test_only_sizes_are_scaled():
    given = ["matmul_sq_mem", "dtype:float32", "n:288,544", "nelements:131072,262144", "m:64"]
    tags, sizes = split_sizes(given, {})
    assert tags == ["matmul_sq_mem", "dtype:float32", "m:64"]
    assert scaled_sizes(sizes, 1.0, {}) == sizes == {"n": (288, 544), "nelements": (131072, 262144)}
    assert scaled_sizes(sizes, 0.1, {}) == {"n": (160, 224), "nelements": (32768, 65536)}


def test_sizes_with_a_rule_of_their_own_follow_it():
    rules = {"n": SizeRule(power=2, step=112, only_up=True), "m": SizeRule(power=1, step=3)}
    tags, sizes = split_sizes(["fdiff", "n:336", "m:9"], rules)
    assert tags == ["fdiff"]
    assert scaled_sizes(sizes, 9.0, rules) == {"n": (1008,), "m": (81,)}
    assert scaled_sizes(sizes, 0.1, rules) == {"n": (336,), "m": (3,)}
    assert SizeRule(power=2, step=112).sizes((112, 336), 1.0) == (112, 336)
    assert SizeRule(power=2, step=112).sizes((1232,), 9.0) == (3 * 1232,)
