"""The lattice-Boltzmann step against numpy, and what it must conserve."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

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


@pytest.mark.parametrize("keep", ["fXLD", "fDLD", "fCLD_fXLD_fYLD_fZLD_fDLD"])
def test_lbm_d3q15_mem_sums_what_it_loads(one, run, random, keep):
    sizes, chunk = (9, 5, 4), 2
    kernel = kernel_of(
        one, "lbm_d3q15_mem", sizes, collide="none", dtype="float64", keep=keep, groups_fit=False, chunk=chunk
    )
    f = cells(random, sizes)
    letters = {(): "C", (0,): "X", (1,): "Y", (2,): "Z", (0, 1, 2): "D"}
    kept = [f"f{letters[tuple(np.flatnonzero(c).tolist())]}LD" in keep.split("_") for c in C]
    planes = streamed(f)[kept].sum(axis=0)
    expected = [planes[k : k + chunk].sum(axis=0) for k in range(0, sizes[2], chunk)]
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, f=f), expected, rtol=1e-13)


@pytest.mark.slow
def test_lbm_d3q15_mem_stores_every_direction(one, run):
    kernel = kernel_of(one, "lbm_d3q15_mem", (8, 4, 2), collide="none", dtype="float32", keep="gST")
    found = run(kernel.kernel, kernel.sizes)
    assert (found[:, 1:-1, 1:-1, 1:-1] == 0).all()
    assert (found == 0).sum() == 15 * 8 * 4 * 2
