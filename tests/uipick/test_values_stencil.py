"""Stencils on grids against numpy, on every platform there is."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from perflex.errors import TagError

WEIGHTS = (0.5, 0.0625, 0.03125, 0.015625, 0.0078125)


def neighbour(u, radius, *steps):
    """The array u moved by steps along x, y (and z), on the interior points."""
    return u[tuple(slice(radius + s, n - radius + s) for s, n in zip(reversed(steps), u.shape, strict=True))]


def groups(points, dimensions):
    """Steps to the neighbours of a stencil by coefficient, found by distance."""
    radius = 4 if points == 25 else 1
    cube = list(product(range(-radius, radius + 1), repeat=dimensions))
    stars = [p for p in cube if np.count_nonzero(p) <= 1]
    if points in (7, 25):
        found = [[p for p in stars if max(map(abs, p)) == distance] for distance in range(radius + 1)]
    else:
        found = [[p for p in cube if sum(s * s for s in p) == square] for square in range(3 if points == 19 else 4)]
    assert sum(map(len, found)) == points
    return radius, found


def swept(u, points):
    radius, found = groups(points, u.ndim)
    return sum(
        weight * sum(neighbour(u, radius, *steps) for steps in group)
        for weight, group in zip(WEIGHTS, found, strict=False)
    )


def with_halo(values, radius):
    """What an output array holds: the values inside, the fixture's filling in the halo."""
    return np.pad(values, radius, constant_values=-77)


def tags(**arguments):
    return [f"{name}:{value}" for name, value in arguments.items()]


LAUNCHES = [
    # Work-group, chunk, whether groups fit, interior points along x, y and z.
    ((8, 4, 2), 1, True, (16, 8, 6)),
    ((8, 4, 1), 3, True, (8, 8, 6)),
    ((8, 4, 2), 3, False, (19, 5, 11)),
    ((8, 4, 1), 4, False, (5, 9, 3)),
]


def kernel_of(one, name, launch, **arguments):
    lsize, chunk, fit, sizes = launch
    return one(
        name,
        *tags(**arguments, lsize_0=lsize[0], lsize_1=lsize[1], lsize_2=lsize[2], chunk=chunk, groups_fit=fit),
        *tags(nx=sizes[0], ny=sizes[1], nz=sizes[2]),
    )


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize(
    ("points", "variant"),
    [(7, "plain"), (19, "plain"), (27, "plain"), (25, "column"), (7, "tile"), (27, "tile"), (25, "tile")],
)
def test_stencil3d(one, run, random, points, variant, launch):
    if variant == "tile":
        launch = ((*launch[0][:2], 1), *launch[1:])
    kernel = kernel_of(one, "stencil3d", launch, points=points, variant=variant, dtype="float64")
    radius = 4 if points == 25 else 1
    u = random.random([size + 2 * radius for size in reversed(launch[3])])
    found = run(kernel.kernel, kernel.sizes, u=u)
    np.testing.assert_allclose(found, with_halo(swept(u, points), radius), rtol=1e-13)


def swept_in_plane(u, shape, radius):
    square = list(product(range(-radius, radius + 1), repeat=2))
    if shape == "star":
        found = [[(x, y) for x, y in square if abs(x) + abs(y) == d and not (x and y)] for d in range(radius + 1)]
    else:
        found = [[(0, 0)], [(x, y) for x, y in square if bool(x) != bool(y)], [(x, y) for x, y in square if x and y]]
    sums = [sum(neighbour(u, radius, *steps) for steps in group) for group in found]
    return sum(weight * total for weight, total in zip(WEIGHTS, sums, strict=False)), sum(map(len, found))


@pytest.mark.slow
@pytest.mark.parametrize(("fit", "sizes"), [(True, (32, 16)), (False, (19, 33)), (False, (1, 2))])
@pytest.mark.parametrize(
    ("shape", "radius", "points", "dtype", "rtol"),
    [("star", 1, 5, "float64", 1e-13), ("box", 1, 9, "float64", 1e-13), ("star", 4, 17, "float32", 1e-5),
     ("box", 3, 49, "float32", 1e-5)],
)  # fmt: skip
def test_stencil2d(one, run, random, shape, radius, points, dtype, rtol, fit, sizes):
    given = {"shape": shape, "radius": radius, "dtype": dtype, "groups_fit": fit, "nx": sizes[0], "ny": sizes[1]}
    kernel = one("stencil2d", *tags(**given))
    u = random.random([size + 2 * radius for size in reversed(sizes)]).astype(dtype)
    expected, used = swept_in_plane(u, shape, radius)
    assert used == points
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, u=u), with_halo(expected, radius), rtol=rtol)


@pytest.mark.slow
@pytest.mark.parametrize("keep", ["uCLD", "uXLD", "uYLD", "uZLD", "uDLD", "uCLD_uXLD_uYLD_uZLD_uDLD"])
def test_stencil3d_mem_sums_what_it_loads(one, run, random, keep):
    chunk, n = 2, (9, 6, 5)
    launch = ((8, 4, 2), chunk, False, n)
    kernel = kernel_of(one, "stencil3d_mem", launch, points=19, variant="plain", dtype="float64", keep=keep)
    u = random.random([size + 2 for size in reversed(n)])
    letters = {"C": [], "X": [0], "Y": [1], "Z": [2]}
    steps = [
        s
        for s in product((-1, 0, 1), repeat=3)
        if any(f"u{letter}LD" in keep and np.flatnonzero(s).tolist() == axes for letter, axes in letters.items())
        or ("uDLD" in keep and np.count_nonzero(s) == 2)
    ]
    planes = sum(neighbour(u, 1, *s) for s in steps)
    expected = [planes[k : k + chunk].sum(axis=0) for k in range(0, n[2], chunk)]
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, u=u), expected, rtol=1e-13)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"lsize_2": 2, "variant": "tile"}, "variant:tile needs lsize_2:1"),
        ({"points": 19, "variant": "column"}, "neighbours along the axes only"),
        ({"points": 27, "variant": "tile", "lsize_0": 256, "lsize_1": 4, "nx": 256}, "at most 32 KiB"),
        ({"lsize_0": 32, "lsize_1": 32, "lsize_2": 2}, "at most 1024 work-items"),
        ({"nz": 3, "chunk": 2}, "groups_fit:True needs nx, ny and nz"),
        ({"points": 8}, "value '8' is not allowed"),
        ({"chunk": 0}, "integers from 1 to 256"),
    ],
)
def test_stencil3d_says_what_cannot_be_made(one, changes, words):
    arguments = {"points": 7, "variant": "plain", "dtype": "float64", "nx": 64, "ny": 32, "nz": 4, **changes}
    with pytest.raises(TagError, match=words):
        one("stencil3d", *tags(**arguments))


@pytest.mark.parametrize(
    ("keep", "words"),
    [
        ("uDLD", "access tags that the variant has"),
        ("vST_uCLD", "one or more of uCLD, .* in this order"),
        ("uCLD_uCLD", "in this order"),
    ],
)
def test_only_tags_that_a_variant_has_are_kept(one, keep, words):
    with pytest.raises(TagError, match=words):
        one("stencil3d_mem", *tags(points=7, variant="plain", keep=keep, nx=16, ny=16, nz=4))
