"""Red-black smoothing against numpy, and transposes with several elements per work-item, on every platform."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow


def kernel_of(one, sizes, **arguments):
    given = dict(zip(("nx", "ny", "nz"), sizes, strict=True)) | {"lsize_0": 4, "lsize_1": 4} | arguments
    return one("gsrb", *(f"{argument}:{value}" for argument, value in given.items()))


def smoothed(u, f, colour):
    centre = u[1:-1, 1:-1, 1:-1]
    neighbours = (
        u[:-2, 1:-1, 1:-1] + u[2:, 1:-1, 1:-1] + u[1:-1, :-2, 1:-1] + u[1:-1, 2:, 1:-1] + u[1:-1, 1:-1, :-2]
        + u[1:-1, 1:-1, 2:]
    )  # fmt: skip
    k, j, i = np.indices(centre.shape)
    return np.where((i + j + k) % 2 == colour, centre + (f[1:-1, 1:-1, 1:-1] + neighbours - 6 * centre) / 8, centre)


@pytest.mark.parametrize(
    ("variant", "sizes", "fit", "chunk", "colour"),
    [
        ("fp", (9, 5, 7), False, 3, 1),
        ("branch", (9, 5, 7), False, 3, 0),
        ("stride2", (10, 5, 7), False, 3, 1),
        ("stride2", (16, 4, 4), True, 2, 0),
    ],
)
def test_gsrb(one, run, random, variant, sizes, fit, chunk, colour):
    kernel = kernel_of(one, sizes, variant=variant, groups_fit=fit, chunk=chunk, colour=colour, dtype="float64")
    u, f = random.random((2, *(size + 2 for size in reversed(sizes))))
    inputs = {"u": u, "f": f}
    if variant == "fp":
        plane, j, i = np.indices((2, sizes[1], sizes[0]))
        # Plane p stands for planes k of the grid with (k + colour) mod 2 = p.
        inputs["mask"] = ((i + j + plane) % 2 == 0).astype(np.float64)
    found = run(kernel.kernel, kernel.sizes, **inputs)
    np.testing.assert_allclose(found[1:-1, 1:-1, 1:-1], smoothed(u, f, colour), rtol=1e-13)
    found[1:-1, 1:-1, 1:-1] = -77
    assert (found == -77).all()


@pytest.mark.parametrize("fit", [True, False])
def test_gsrb_pairs_need_an_even_row(one, fit):
    with pytest.raises(TagError, match="stride2 needs an even nx"):
        kernel_of(one, (12 if fit else 9, 4, 4), variant="stride2", groups_fit=fit, chunk=1)


@pytest.mark.parametrize(("variant", "fit", "n"), [("naive", True, 16), ("tiled", False, 21), ("padded", False, 13)])
def test_transpose_with_several_rows(one, run, random, variant, fit, n):
    kernel = one("transpose", "dtype:float32", f"variant:{variant}", "lsize:8", "rows:4", f"groups_fit:{fit}", f"n:{n}")
    a = random.random((n, n)).astype(np.float32)
    np.testing.assert_array_equal(run(kernel.kernel, kernel.sizes, a=a), a.T)


def test_rows_divide_the_tile(one):
    with pytest.raises(TagError, match="lsize must be a multiple of rows"):
        one("transpose", "dtype:float32", "variant:naive", "lsize:4", "rows:8", "groups_fit:True", "n:16")
