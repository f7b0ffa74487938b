"""Dense linear algebra and products of tensors."""

from __future__ import annotations

from functools import partial

import loopy as lp
import numpy as np

from .families import Arrays, Family, Lengths, Sizes, shaped_as
from .kernels import F32, F64, I32, fetched_locally, fits, loaded, make, neighbours, on_grid, stored, unrolled, updated

# Work-items along an axis that a fetch does not use store the same values.
_SAME_VALUES = ("write_race(*_fetch_rule)",)


def _gemver(lengths: Lengths, *, rows: int = 1, column: int = 1, local: bool = False) -> lp.TranslationUnit:
    kernel = make(
        "gemver",
        "{[i, j]: 0 <= i, j < n}",
        "a[i, j] = a[i, j] + u1[i]*v1[j] + u2[i]*v2[j]",
        [updated("a", F64, "n, n"), loaded("u1, v1, u2, v2", F64, "n")],
        assume=fits(column, "n") if column > 1 else "",
        silenced_warnings=_SAME_VALUES if local else (),
    )
    kernel = neighbours(kernel, "i", rows)
    if column > 1:
        kernel = lp.split_iname(kernel, "i", column, outer_iname="part", inner_iname="row")
    kernel = on_grid(kernel, **lengths)
    if local:
        kernel = fetched_locally(
            kernel, *((name, [f"{'i' if name[0] == 'u' else 'j'}_inner"]) for name in ("u1", "u2", "v1", "v2"))
        )
    return kernel


def _gemver_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    update = np.outer(arrays["u1"], arrays["v1"]) + np.outer(arrays["u2"], arrays["v2"])
    return {"a": arrays["a"] + update}


_GEMVER = Family(
    name="gemver_rank2",
    source="PolyBench/GPU gemver, the update of rank two",
    variants={
        **shaped_as(_gemver, "256x1", "64x4", "32x8", "16x16", "8x8"),
        "32x4-4rows": partial(_gemver, {"j": 32, "i": 4}, rows=4),
        "64x1-column": partial(_gemver, {"j": 64, "part": 1}, column=40),
        "16x16-crosswise": partial(_gemver, {"i": 16, "j": 16}),
        "16x16-local": partial(_gemver, {"j": 16, "i": 16}, local=True),
    },
    sizes=({"n": 400}, {"n": 800}, {"n": 1720}),
    tiny={"n": 80},
    reference=_gemver_reference,
)


def _covariance(
    lengths: Lengths, *, triangle: bool = True, times: int = 1, block: tuple[int, int] = (1, 1)
) -> lp.TranslationUnit:
    start = "i" if triangle else "0"
    body = ["<float32> total = sum(k, (d[k, i] - mean[i])*(d[k, j] - mean[j]))", "cov[i, j] = total"]
    kernel = make(
        "covariance",
        f"{{[i, j, k]: 0 <= i < m and {start} <= j < m and 0 <= k < n}}",
        "\n".join([*body, "cov[j, i] = total"] if triangle else body),
        [loaded("d", F32, "n, m"), loaded("mean", F32, "m"), stored("cov", F32, "m, m")],
        "m, n",
        assume=fits(times, "n") if times > 1 else "",
    )
    for iname, count in zip("ij", block, strict=True):
        kernel = neighbours(kernel, iname, count)
    kernel = on_grid(kernel, **lengths)
    return unrolled(kernel, "k", times)


def _covariance_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    centred = arrays["d"].astype(np.float64) - arrays["mean"]
    return {"cov": centred.T @ centred}


_COVARIANCE = Family(
    name="covariance",
    source="PolyBench/GPU covariance, the triangle of the matrix, stored twice",
    variants={
        **shaped_as(_covariance, "64x4", "32x8", "16x16", "8x8"),
        "16x16-crosswise": partial(_covariance, {"i": 16, "j": 16}),
        "32x8-unroll4": partial(_covariance, {"j": 32, "i": 8}, times=4),
        "16x16-square": partial(_covariance, {"j": 16, "i": 16}, triangle=False),
        "64x4-square": partial(_covariance, {"j": 64, "i": 4}, triangle=False),
        "16x8-square-4x1": partial(_covariance, {"j": 16, "i": 8}, triangle=False, block=(4, 1)),
        "16x8-square-2x2": partial(_covariance, {"j": 16, "i": 8}, triangle=False, block=(2, 2)),
    },
    sizes=({"m": 96, "n": 152}, {"m": 160, "n": 300}, {"m": 256, "n": 640}),
    tiny={"m": 37, "n": 20},
    reference=_covariance_reference,
    tolerance=1e-3,
)


def _contraction(
    lengths: Lengths, *, times: int = 1, block: tuple[str, int] = ("", 1), matrices: int = 1, local: bool = False
) -> lp.TranslationUnit:
    kernel = make(
        "contraction",
        "{[p, q, r, s]: 0 <= p < np and 0 <= q < nq and 0 <= r < nr and 0 <= s < ns}",
        "c[p, q, r] = sum(s, a[q, s, p]*b[s, r])",
        [loaded("a", F64, "nq, ns, np"), loaded("b", F64, "ns, nr"), stored("c", F64, "np, nq, nr")],
        "np, nq, nr, ns",
        assume=f"{fits(16, 'np', 'nr', 'ns')} and {fits(4, 'nq')}",
        silenced_warnings=("iname-order", *(_SAME_VALUES if local else ())),
    )
    kernel = neighbours(kernel, *block)
    if matrices > 1:
        kernel = lp.split_iname(kernel, "q", matrices, outer_iname="part", inner_iname="each")
    kernel = on_grid(kernel, **lengths)
    kernel = unrolled(kernel, "s", times)
    if local:
        kernel = lp.split_iname(kernel, "s", 16)
        kernel = fetched_locally(kernel, ("b", ["s_inner", "r_inner"]), ("a", ["s_inner", "p_inner"]))
    return kernel


def _contraction_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    return {"c": np.einsum("qsp,sr->pqr", arrays["a"], arrays["b"])}


_CONTRACTION = Family(
    name="tensor_contraction",
    source="TCCG benchmark (Springer and Bientinesi, 2018), the form abc = bda dc",
    variants={
        "r64xp4": partial(_contraction, {"r": 64, "p": 4, "q": 1}),
        "r32xp8": partial(_contraction, {"r": 32, "p": 8, "q": 1}),
        "r16xp16": partial(_contraction, {"r": 16, "p": 16, "q": 1}),
        "r8xp8": partial(_contraction, {"r": 8, "p": 8, "q": 1}),
        "p16xr16": partial(_contraction, {"p": 16, "r": 16, "q": 1}),
        "p32xr8": partial(_contraction, {"p": 32, "r": 8, "q": 1}),
        "r16xp16-unroll8": partial(_contraction, {"r": 16, "p": 16, "q": 1}, times=8),
        "r32xp4-4p": partial(_contraction, {"r": 32, "p": 4, "q": 1}, block=("p", 4)),
        "r16xp8-2q": partial(_contraction, {"r": 16, "p": 8, "q": 1}, block=("q", 2)),
        "r32xp8-loop4q": partial(_contraction, {"r": 32, "p": 8, "part": 1}, matrices=4),
        "r16xp16-local": partial(_contraction, {"r": 16, "p": 16, "q": 1}, local=True),
    },
    sizes=(
        {"np": 32, "nq": 12, "nr": 32, "ns": 32},
        {"np": 64, "nq": 24, "nr": 64, "ns": 48},
        {"np": 96, "nq": 32, "nr": 96, "ns": 64},
    ),
    tiny={"np": 16, "nq": 4, "nr": 32, "ns": 16},
    reference=_contraction_reference,
)


def _floyd(lengths: Lengths, *, times: int = 1, rows: int = 1, local: bool = False) -> lp.TranslationUnit:
    kernel = make(
        "floyd_panel",
        "{[i, j, k]: 0 <= i, j < n and 0 <= k < 32}",
        """
        <int32> through = min(k, a[i, k] + b[k, j])
        d[i, j] = (through if through < d[i, j] else d[i, j])
        """,
        [updated("d", I32, "n, n"), loaded("a", I32, "n, 32"), loaded("b", I32, "32, n")],
    )
    kernel = neighbours(kernel, "i", rows)
    kernel = on_grid(kernel, **lengths)
    kernel = unrolled(kernel, "k", times)
    return fetched_locally(kernel, ("a", ["i_inner", "k"]), ("b", ["k", "j_inner"])) if local else kernel


def _floyd_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    through = (arrays["a"][:, :, None] + arrays["b"][None, :, :]).min(axis=1)
    return {"d": np.minimum(arrays["d"], through)}


_FLOYD = Family(
    name="floyd_warshall_panel",
    source="blocked Floyd-Warshall (Katz and Kider, 2008), third phase: shortest paths through one panel of 32",
    variants={
        **shaped_as(_floyd, "64x4", "32x8", "16x16", "8x8"),
        "16x16-crosswise": partial(_floyd, {"i": 16, "j": 16}),
        "64x4-unroll32": partial(_floyd, {"j": 64, "i": 4}, times=32),
        "32x4-2rows": partial(_floyd, {"j": 32, "i": 4}, rows=2),
        "16x16-local": partial(_floyd, {"j": 16, "i": 16}, local=True),
    },
    sizes=({"n": 160}, {"n": 400}, {"n": 900}),
    tiny={"n": 45},
    reference=_floyd_reference,
)


def _kronecker(lengths: Lengths, *, columns: int = 1) -> lp.TranslationUnit:
    kernel = make(
        "kronecker",
        "{[y, x]: 0 <= y, x < 8*n}",
        "c[y, x] = a[y // 8, x // 8]*b[y % 8, x % 8]",
        [loaded("a", F64, "n, n"), loaded("b", F64, "8, 8"), stored("c", F64, "8*n, 8*n")],
    )
    kernel = neighbours(kernel, "x", columns)
    return on_grid(kernel, **lengths)


def _kronecker_blocks(inner: dict[str, str], lengths: Lengths) -> lp.TranslationUnit:
    kernel = make(
        "kronecker",
        "{[i, k, j, l]: 0 <= i, j < n and 0 <= k, l < 8}",
        "c[8*i + k, 8*j + l] = a[i, j]*b[k, l]",
        [loaded("a", F64, "n, n"), loaded("b", F64, "8, 8"), stored("c", F64, "8*n, 8*n")],
    )
    if lengths:
        kernel = on_grid(kernel, **lengths)
    return lp.tag_inames(kernel, inner)


def _kronecker_reference(arrays: Arrays, sizes: Sizes) -> Arrays:
    return {"c": np.kron(arrays["a"], arrays["b"])}


_KRONECKER = Family(
    name="kronecker_product",
    source="Kronecker product of a matrix and one of 8 by 8 (Van Loan, 2000)",
    variants={
        "256x1": partial(_kronecker, {"x": 256, "y": 1}),
        "64x4": partial(_kronecker, {"x": 64, "y": 4}),
        "16x16": partial(_kronecker, {"x": 16, "y": 16}),
        "8x8": partial(_kronecker, {"x": 8, "y": 8}),
        "32x4-4columns": partial(_kronecker, {"x": 32, "y": 4}, columns=4),
        "8x8-per-block": partial(_kronecker_blocks, {"l": "l.0", "k": "l.1", "j": "g.0", "i": "g.1"}, {}),
        "64x1-per-element": partial(_kronecker_blocks, {"l": "unr"}, {"j": 64, "i": 1}),
        "16x4-per-element": partial(_kronecker_blocks, {"l": "unr"}, {"j": 16, "i": 4}),
    },
    sizes=({"n": 30}, {"n": 70}, {"n": 150}),
    tiny={"n": 5},
    reference=_kronecker_reference,
)

FAMILIES = (_GEMVER, _COVARIANCE, _CONTRACTION, _FLOYD, _KRONECKER)
