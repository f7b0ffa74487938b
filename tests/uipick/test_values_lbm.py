"""The lattice-Boltzmann step against numpy, and what it must conserve."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow

# Half of the directions in the kernel's order; each is followed by its opposite, which comes first there.
FORWARD = [(1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1), (1, 1, -1), (1, -1, 1), (-1, 1, 1)]
C = np.array([(0, 0, 0), *(np.multiply(sign, c) for c in FORWARD for sign in (-1, 1))])
W = np.array([{0: 2 / 9, 1: 1 / 9, 3: 1 / 72}[np.count_nonzero(c)] for c in C])


def test_the_directions_and_weights_are_a_lattice():
    corners_and_axes = {c for c in product((-1, 0, 1), repeat=3) if np.count_nonzero(c) != 2}
    assert {tuple(map(int, c)) for c in C} == corners_and_axes
    assert W.sum() == pytest.approx(1)
    np.testing.assert_allclose(np.einsum("q,qi,qj->ij", W, C, C), np.eye(3) / 3, atol=1e-15)


def streamed(f):
    """Each cell's values from the cells that the directions come from; x is the last axis."""
    moved = [np.roll(values, c[::-1], axis=(0, 1, 2)) for values, c in zip(f, C, strict=True)]
    return np.array(moved)[:, 1:-1, 1:-1, 1:-1]


def equilibrium(f):
    rho = f.sum(axis=0)
    velocity = np.einsum("qi,qzyx->izyx", C, f) / rho
    along = np.einsum("qi,izyx->qzyx", C, velocity)
    square = (velocity**2).sum(axis=0)
    return W[:, None, None, None] * rho * (1 + 3 * along + 4.5 * along**2 - 1.5 * square)


def kernel_of(one, name, sizes, **arguments):
    given = dict(zip(("nx", "ny", "nz"), sizes, strict=True)) | {"lsize_0": 8, "lsize_1": 4} | arguments
    return one(name, *(f"{argument}:{value}" for argument, value in given.items()))


def cells(random, sizes, dtype="float64"):
    shape = [size + 2 for size in reversed(sizes)]
    return (W[:, None, None, None] * (1 + 0.2 * random.random((15, *shape)))).astype(dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("collide", "fit", "sizes", "chunk", "lsize_2", "dtype", "rtol"),
    [
        ("none", True, (16, 8, 4), 2, 2, "float32", 1e-7),
        ("none", False, (9, 5, 7), 3, 1, "float64", 1e-13),
        ("bgk", False, (9, 5, 7), 3, 2, "float64", 1e-13),
        ("bgk", True, (16, 8, 4), 2, 1, "float32", 1e-5),
    ],
)
def test_lbm_d3q15(one, run, random, collide, fit, sizes, chunk, lsize_2, dtype, rtol):
    kernel = kernel_of(
        one, "lbm_d3q15", sizes, collide=collide, dtype=dtype, groups_fit=fit, chunk=chunk, lsize_2=lsize_2
    )
    f = cells(random, sizes, dtype)
    expected = streamed(f.astype("float64"))
    if collide == "bgk":
        expected = (expected + equilibrium(expected)) / 2
    found = run(kernel.kernel, kernel.sizes, f=f)
    np.testing.assert_allclose(found[:, 1:-1, 1:-1, 1:-1], expected, rtol=rtol)
    halo = np.ones(found.shape, bool)
    halo[:, 1:-1, 1:-1, 1:-1] = False
    assert (found[halo] == -77).all()


@pytest.mark.slow
def test_collisions_conserve_mass_and_momentum(one, run, random):
    kernel = kernel_of(one, "lbm_d3q15", (8, 4, 4), collide="bgk", dtype="float64")
    f = cells(random, (8, 4, 4))
    before, after = streamed(f), run(kernel.kernel, kernel.sizes, f=f)[:, 1:-1, 1:-1, 1:-1]
    assert not np.allclose(before, after)
    np.testing.assert_allclose(after.sum(axis=0), before.sum(axis=0), rtol=1e-13)
    np.testing.assert_allclose(C.T @ after.reshape(15, -1), C.T @ before.reshape(15, -1), atol=1e-15)


def test_equilibrium_stays(one, run):
    kernel = kernel_of(one, "lbm_d3q15", (8, 4, 4), collide="bgk", dtype="float64")
    uniform = np.broadcast_to(W[:, None, None, None] * (1 + 0.01 * C @ [1, 2, 3])[:, None, None, None], (15, 6, 6, 10))
    steady = equilibrium(uniform)
    found = run(kernel.kernel, kernel.sizes, f=steady)[:, 1:-1, 1:-1, 1:-1]
    np.testing.assert_allclose(found, steady[:, 1:-1, 1:-1, 1:-1], rtol=1e-13)
