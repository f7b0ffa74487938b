"""Sizes that suit a device."""

from __future__ import annotations

import pytest

from perflex.models.sizes import matrix_sizes, odd_multiples, scaled_tags

SIZES = (288, 416, 544, 672, 800, 928)


@pytest.mark.parametrize("scale", [1e-3, 0.1, 0.165, 0.5, 1.0, 2.0, 60.0])
def test_sizes_are_odd_multiples_of_32_and_increase(scale: float) -> None:
    sizes = matrix_sizes(SIZES, scale)
    assert len(sizes) == len(SIZES)
    assert all(size % 64 == 32 and size >= 96 for size in sizes)
    assert list(sizes) == sorted(set(sizes))


def test_sizes_grow_with_the_cube_root_of_speed() -> None:
    assert matrix_sizes(SIZES, 1.0) == SIZES
    for small, large in zip(SIZES, matrix_sizes(SIZES, 64.0), strict=True):
        assert large == pytest.approx(4 * small, abs=32)


def test_only_sizes_are_scaled_in_tags() -> None:
    tags = ["matmul_sq_mem", "dtype:float32", "n:288,544", "nelements:131072,262144", "m:64"]
    assert scaled_tags(tags, 1.0) == tags
    assert scaled_tags(tags, 0.1) == ["matmul_sq_mem", "dtype:float32", "n:160,224", "nelements:32768,65536", "m:64"]


def test_odd_multiples_grow_with_the_root() -> None:
    assert odd_multiples((112, 336), 1.0, power=2, step=112) == (112, 336)
    assert odd_multiples((1232,), 9.0, power=2, step=112) == (3 * 1232,)
