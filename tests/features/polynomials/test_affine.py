"""Quasi-affine functions against isl's own evaluation."""

from itertools import product

import islpy as isl
import pytest

from perflex.features.polynomials.affine import read_affine

# Functions of the size n and the dimensions i and j, and which of these they depend on, at all and not merely added.
FUNCTIONS = {
    "3*i - 2*j + n + 5": ({0, 1}, set()), "floor((i + n)/4)": ({0}, {0}), "(n - 3*j)/2": ({1}, {1}),
    "j - 7*floor((2*i + n)/5)": ({0, 1}, {0}), "i - 4*floor(i/4) - 7*floor((2*i - 3*j + n)/5)": ({0, 1}, {0, 1}),
    "floor((i + 3*floor((j + n)/2))/6) + 2*floor((j + n)/2)": ({0, 1}, {0, 1}), "floor(n/3)*2 - 1": (set(), set()),
    "floor(-i/3) + floor((1 - i)/3)": ({0}, {0}),
}  # fmt: skip
RANGES = [(-4, 5), (0, 6)]


@pytest.mark.parametrize("text", FUNCTIONS)
def test_values_are_those_of_isl(text):
    function = isl.PwAff(f"[n] -> {{ [i, j] -> [({text})] }}")
    read = read_affine(function.get_pieces()[0][1])
    assert (read.dims, read.floor_dims) == FUNCTIONS[text]
    for n in (-3, 0, 7):
        fixed = read.at({"n": n})
        low, high = fixed.bounds(RANGES)
        for i, j in product(*(range(first, last + 1) for first, last in RANGES)):
            there = isl.Set(f"[n] -> {{ [{i}, {j}] : n = {n} }}")
            expected = int(function.floor().intersect_domain(there).max_val().to_python())
            assert read({"n": n, 0: i, 1: j}) == fixed({0: i, 1: j}) == expected
            assert low <= expected <= high
