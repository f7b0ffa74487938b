"""DG differentiation and finite differences against numpy, on every platform, and their work-removed versions."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import TagError
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.dg_diff import DG_DIFF_TAGS

# Values of many variants against numpy; some of each kind stand in test_generator_values.py, which is quick.
pytestmark = pytest.mark.slow

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
