"""Convolution against numpy, on every platform there is."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow


def kernel_of(one, name, sizes, lsize=(8, 4), **arguments):
    given = {"lsize_0": lsize[0], "lsize_1": lsize[1], "nx": sizes[0], "ny": sizes[1], "groups_fit": False} | arguments
    return one(name, *(f"{argument}:{value}" for argument, value in given.items()))


def windows(image, filter_size):
    return np.lib.stride_tricks.sliding_window_view(image, (filter_size, filter_size))


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(
    ("sizes", "tile", "filter_size", "fit", "dtype", "rtol"),
    [
        ((16, 12), (2, 3), 3, True, "float64", 1e-13),
        ((21, 13), (2, 3), 5, False, "float64", 1e-13),
        ((5, 30), (1, 1), 15, False, "float32", 1e-5),
        ((40, 3), (4, 2), 1, False, "float64", 1e-13),
        ((1, 1), (1, 2), 3, False, "float64", 1e-13),
        ((32, 8), (4, 1), 7, True, "float32", 1e-5),
    ],
)
def test_conv2d(one, run, random, local, sizes, tile, filter_size, fit, dtype, rtol):
    kernel = kernel_of(
        one, "conv2d", sizes, tile_x=tile[0], tile_y=tile[1], filter_size=filter_size, local=local, dtype=dtype,
        groups_fit=fit,
    )  # fmt: skip
    image = random.random((sizes[1] + filter_size - 1, sizes[0] + filter_size - 1)).astype(dtype)
    weights = random.random((filter_size, filter_size)).astype(dtype)
    expected = np.einsum("yxab,ab->yx", windows(image, filter_size), weights)
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, image=image, filter=weights), expected, rtol=rtol)


def test_guarded_stores_are_not_left_alone(one):
    with pytest.raises(TagError, match="stores alone need groups_fit:True"):
        kernel_of(one, "conv2d_mem", (16, 24), tile_x=1, tile_y=1, local=True, keep="outST")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"filter_size": 4}, "odd integers from 1 to 31"),
        ({"tile_x": 9}, "integers from 1 to 8"),
        ({"groups_fit": True, "tile_y": 3}, "ny of lsize_1 times tile_y"),
        ({"local": True, "tile_x": 8, "tile_y": 8, "dtype": "float64"}, "at most 32 KiB"),
        ({"lsize_0": 64, "lsize_1": 32}, "at most 1024 work-items"),
    ],
)
def test_conv2d_says_what_cannot_be_made(one, changes, words):
    arguments = {"tile_x": 1, "tile_y": 1, "filter_size": 3, "local": False, "dtype": "float32", **changes}
    with pytest.raises(TagError, match=words):
        kernel_of(one, "conv2d", (64, 32), lsize=(16, 16), **arguments)
