"""DG differentiation and finite differences against numpy, on every platform, and their work-removed versions."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.dg_diff import DG_DIFF_TAGS

VARIANTS = ["plain", "u_prefetch", "diff_mat_prefetch", "diff_mat_prefetch_transposed"]


def _dg_data(random, nmatrices, nodes, nelements, variant, dtype=np.float64):
    diff_mat = random.random((nmatrices, nodes, nodes)).astype(dtype)
    u = random.random((nelements, nodes)).astype(dtype)
    return diff_mat, np.asfortranarray(u) if variant.endswith("transposed") else u


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(
    ("fit", "lsize", "nmatrices", "nodes", "nelements"),
    [(True, 16, 3, 64, 48), (True, 8, 2, 8, 24), (False, 16, 3, 35, 21), (False, 8, 1, 5, 1), (False, 16, 4, 64, 17)],
)
def test_dg(one, run, random, variant, fit, lsize, nmatrices, nodes, nelements):
    kernel = one(
        "dg_diff", "dtype:float64", f"variant:{variant}", f"groups_fit:{fit}", f"lsize_0:{lsize}", f"lsize_1:{lsize}",
        f"nmatrices:{nmatrices}", f"nunit_nodes:{nodes}", f"nelements:{nelements}",
    )  # fmt: skip
    diff_mat, u = _dg_data(random, nmatrices, nodes, nelements, variant)
    result = run(kernel.kernel, kernel.sizes, diff_mat=diff_mat, u=u)
    np.testing.assert_allclose(result, np.einsum("mij,kj->mki", diff_mat, u), rtol=1e-12)


def test_plain_dg_with_oblong_work_groups(one, run, random):
    kernel = one(
        "dg_diff", "dtype:float32", "variant:plain", "groups_fit:True", "lsize_0:32", "lsize_1:4", "nunit_nodes:12",
        "nelements:64",
    )  # fmt: skip
    diff_mat, u = _dg_data(random, 3, 12, 64, "plain", np.float32)
    result = run(kernel.kernel, kernel.sizes, diff_mat=diff_mat, u=u)
    np.testing.assert_allclose(result, np.einsum("mij,kj->mki", diff_mat, u), rtol=1e-5)


@pytest.mark.parametrize(
    ("tags", "words"),
    [
        (["variant:u_prefetch", "lsize_0:32"], "square tiles"),
        (["nelements:100", "groups_fit:True"], "multiple of lsize_0"),
        (["nunit_nodes:20", "groups_fit:True"], "one of lsize_1"),
        (["lsize_0:64", "lsize_1:64"], "at most 1024"),
        (["variant:transposed"], "not allowed for argument 'variant'"),
    ],
)
def test_dg_that_cannot_be(tags, words):
    with pytest.raises(TagError, match=words):
        KernelCollection(ALL_GENERATORS).generate_kernels(["dg_diff", "dtype:float32", *tags])


def _confined(indices, tile, groups):
    """Where work-groups of `tile` work-items along an axis load from, if only so many load data of their own."""
    return indices // tile % groups * tile + indices % tile


@pytest.mark.parametrize("variant", VARIANTS)
def test_dg_with_confined_loads(one, run, random, variant):
    nodes, nelements = 24, 40
    kernel = one(
        "dg_diff_core", "dtype:float64", f"variant:{variant}", "groups_fit:True", "lsize_0:8", "lsize_1:8",
        "confined:2", f"nunit_nodes:{nodes}", f"nelements:{nelements}",
    )  # fmt: skip
    diff_mat, u = _dg_data(random, 3, nodes, nelements, variant)
    rows, elements = _confined(np.arange(nodes), 8, 2), _confined(np.arange(nelements), 8, 2)
    result = run(kernel.kernel, kernel.sizes, diff_mat=diff_mat, u=u)
    np.testing.assert_allclose(result, np.einsum("mij,kj->mki", diff_mat[:, rows], u[elements]), rtol=1e-12)


@pytest.mark.parametrize("fit", [True, False])
def test_finite_differences_with_confined_loads(one, run, random, fit):
    n = 30 if fit else 29
    kernel = one("fdiff_core", "dtype:float64", "tile:8", f"groups_fit:{fit}", "confined:3", f"n:{n}")
    u = random.random((n + 2, n + 2))
    i, j = np.meshgrid(*2 * [_confined(np.arange(n), 6, 3)], indexing="ij")
    expected = u[i, j + 1] + u[i + 1, j] - 4 * u[i + 1, j + 1] + u[i + 1, j + 2] + u[i + 2, j + 1]
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, u=u), expected, rtol=1e-12)


@pytest.mark.parametrize("fit", [True, False])
@pytest.mark.parametrize("variant", VARIANTS)
def test_work_removed_dg_sums_what_it_loads(one, run, random, variant, fit):
    nodes, nelements = (16, 32) if fit else (13, 21)
    _, u = _dg_data(random, 3, nodes, nelements, variant)
    _, tag, _ = DG_DIFF_TAGS[variant]
    kernel = one(
        "dg_diff_mem", "dtype:float64", f"variant:{variant}", f"groups_fit:{fit}", "lsize_0:8", "lsize_1:8",
        f"nunit_nodes:{nodes}", f"nelements:{nelements}", f"keep:{tag}",
    )  # fmt: skip
    result = run(kernel.kernel, kernel.sizes, u=u)
    if variant == "u_prefetch":
        # Each work-item of a group loads one element of each tile, whether it has an element to compute or not.
        groups = u[: nelements // 8 * 8].reshape(-1, 8, nodes)
        j, k = np.meshgrid(np.arange(8), np.arange(8), indexing="ij")
        whole = np.array([[group[j[i], k[i] :: 8].sum() for i in np.ndindex(8, 8)] for group in groups])
        found = result[:8, : nelements // 8 * 8].reshape(8, -1, 8).transpose(1, 0, 2).reshape(len(groups), -1)
        np.testing.assert_allclose(found, whole, rtol=1e-12)
    else:
        np.testing.assert_allclose(result, np.broadcast_to(3 * u.sum(axis=1), (nodes, nelements)), rtol=1e-12)


def test_the_tags_kept_are_the_variant_s():
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["dg_diff_mem", "dtype:float32", "groups_fit:True", "nelements:4096"]
    )
    found = [(kernel.arguments["variant"], kernel.arguments["keep"]) for kernel in kernels]
    assert found == [(v, k) for v, (d, u, _) in DG_DIFF_TAGS.items() for k in (d, u, f"{d}_{u}")]
    with pytest.raises(TagError, match="keep names access tags that the variant has"):
        KernelCollection(ALL_GENERATORS).generate_kernels(["dg_diff_mem", "variant:plain", "keep:uUpreLD"])


def _stencil(u):
    return u[:-2, 1:-1] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1] + u[1:-1, 2:] + u[2:, 1:-1]


@pytest.mark.parametrize(
    ("tile", "fit", "n"),
    [(16, True, 42), (18, True, 32), (6, True, 12), (16, False, 33), (18, False, 3), (32, False, 61), (16, False, 1)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fdiff(one, run, random, dtype, tile, fit, n):
    kernel = one("fdiff", f"dtype:{dtype}", f"tile:{tile}", f"groups_fit:{fit}", f"n:{n}")
    u = random.random((n + 2, n + 2)).astype(dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-13
    np.testing.assert_allclose(run(kernel.kernel, kernel.sizes, u=u), _stencil(u), rtol=0, atol=tolerance)


def test_fdiff_of_a_size_that_does_not_fit():
    with pytest.raises(TagError, match="multiple of tile - 2"):
        KernelCollection(ALL_GENERATORS).generate_kernels(["fdiff", "groups_fit:True", "n:100"])


@pytest.mark.parametrize("fit", [True, False])
def test_work_removed_fdiff_loads_tiles_with_their_halo(one, run, random, fit):
    n = 28 if fit else 33
    kernel = one("fdiff_mem", "dtype:float64", "tile:16", f"groups_fit:{fit}", f"n:{n}", "keep:uLD")
    u = random.random((n + 2, n + 2))
    result = run(kernel.kernel, kernel.sizes, u=u)
    groups = -(-n // 14)
    for i, j in np.ndindex(groups, groups):
        tile = u[14 * i : 14 * i + 16, 14 * j : 14 * j + 16]
        found = result[16 * i : 16 * i + tile.shape[0], 16 * j : 16 * j + tile.shape[1]]
        np.testing.assert_array_equal(found, tile)
