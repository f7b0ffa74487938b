"""The wave equation's step against numpy and against solutions that finite differences reproduce exactly."""

from __future__ import annotations

from math import factorial

import numpy as np
import pytest


def second_derivative(radius):
    """Weights of u(x - radius), ..., u(x + radius), from the Taylor series."""
    steps = np.arange(-radius, radius + 1)
    series = np.array([steps**p / factorial(p) for p in range(2 * radius + 1)])
    return np.linalg.solve(series, np.arange(2 * radius + 1) == 2)


def laplacian(u, radius):
    inside = slice(radius, -radius)
    total = 0
    for axis in range(3):
        for weight, start in zip(second_derivative(radius), range(2 * radius + 1), strict=True):
            place = [inside] * 3
            place[axis] = slice(start, u.shape[axis] - 2 * radius + start)
            total += weight * u[tuple(place)]
    return total


def inside(array, radius):
    return array[(slice(radius, -radius),) * 3]


def kernel_of(one, name, sizes, **arguments):
    given = dict(zip(("nx", "ny", "nz"), sizes, strict=True)) | {"lsize_0": 8, "lsize_1": 4} | arguments
    return one(name, *(f"{argument}:{value}" for argument, value in given.items()))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fit", "sizes", "chunk", "lsize_2"), [(True, (16, 8, 4), 2, 1), (False, (9, 5, 7), 3, 2), (False, (3, 1, 1), 1, 1)]
)
@pytest.mark.parametrize("speed", ["constant", "array"])
@pytest.mark.parametrize(("radius", "variant"), [(1, "plain"), (2, "column"), (3, "tile"), (4, "plain")])
def test_wave3d(one, run, random, radius, variant, speed, fit, sizes, chunk, lsize_2):
    kernel = kernel_of(
        one, "wave3d", sizes, radius=radius, variant=variant, speed=speed, dtype="float64", groups_fit=fit,
        chunk=chunk, lsize_2=1 if variant == "tile" else lsize_2,
    )  # fmt: skip
    u, old, factor = random.random((3, *(size + 2 * radius for size in reversed(sizes))))
    inputs = {"u": u, "old": old} | ({"speed": factor} if speed == "array" else {})
    applied = inside(factor, radius) if speed == "array" else 1 / 16
    expected = 2 * inside(u, radius) - inside(old, radius) + applied * laplacian(u, radius)
    found = run(kernel.kernel, kernel.sizes, **inputs)
    np.testing.assert_allclose(inside(found, radius), expected, rtol=1e-11, atol=1e-13)
    halo = np.ones(found.shape, bool)
    inside(halo, radius)[:] = False
    assert (found[halo] == -77).all()


@pytest.mark.parametrize("radius", [1, 2, 3, 4])
def test_a_wave_that_finite_differences_solve_exactly(one, run, radius):
    """(x - t/4)^2 + 2 (y + t/4)^2 + z solves the wave equation with c = 1/16 in grid and time steps."""
    kernel = kernel_of(one, "wave3d", (8, 4, 4), radius=radius, variant="plain", dtype="float64")
    z, y, x = np.meshgrid(*(np.arange(n + 2.0 * radius) for n in (4, 4, 8)), indexing="ij")
    old, u, new = ((x - t / 4) ** 2 + 2 * (y + t / 4) ** 2 + z for t in (-1, 0, 1))
    found = run(kernel.kernel, kernel.sizes, u=u, old=old)
    np.testing.assert_allclose(inside(found, radius), inside(new, radius), rtol=1e-13)
