"""Differentiation: of a discontinuous Galerkin method, and by finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick import _loopy as lp
from uipick._generator import Constraint
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array, size_parameters, stored_array
from uipick.generators._declared import declared, work_removed
from uipick.generators._kernel import make_kernel, tagged

if TYPE_CHECKING:
    from uipick._generator import Arguments

_WORDS = {"plain": "Plain", "u_prefetch": "Upre", "diff_mat_prefetch": "Dpre", "diff_mat_prefetch_transposed": "Dtrans"}
DG_DIFF_TAGS = {
    variant: (f"diff{word}LD", f"u{word}LD", f"res{word}ST") for variant, word in _WORDS.items()
}  # Access tags of diff_mat, u and res by variant.


def dg_diff(*, dtype: str, variant: str, nmatrices: int, lsize_0: int, lsize_1: int, assume: str) -> lp.TranslationUnit:
    """DG differentiation ``res[m,k,i] = sum(j, diff_mat[m,i,j] u[k,j])`` of every element k, in four variants.

    Work-items have k along axis 0 and i along axis 1. ``plain`` does no more; ``u_prefetch`` fetches tiles of u into
    local memory and sums all matrices m at once in private memory; ``diff_mat_prefetch`` fetches tiles of diff_mat,
    one m after the other; ``diff_mat_prefetch_transposed`` does so with u and res laid out so that lid(0) has
    stride 1 (else nunit_nodes). Every variant has access tags of its own, for the paper models eleven access
    patterns, and by strides and AFR there are only seven: ``diffLD``, ``uLD`` and ``resST`` with ``Plain``, ``Upre``,
    ``Dpre`` or ``Dtrans`` put in, e.g. ``uDtransLD``. Features: multiply-adds, global loads in loops, local loads and
    stores, barriers; an application, which isolates none of them.

    Source: the paper's Section 8.4.
    """
    kernel = make_kernel(
        "dg_diff",
        "{[m,k,i,j]: 0<=m<nmatrices and 0<=k<nelements and 0<=i,j<nunit_nodes}",
        "res[m,k,i] = sum(j, diff_mat[m,i,j] * u[k,j])",
        [
            loaded_array("diff_mat", dtype, "nmatrices, nunit_nodes, nunit_nodes"),
            loaded_array("u", dtype, "nelements, nunit_nodes"),
            stored_array("res", dtype, "nmatrices, nelements, nunit_nodes"),
            size_parameters("nmatrices, nelements, nunit_nodes"),
        ],
        assume=f"nmatrices >= 1 and {assume}",
    )
    kernel = lp.split_iname(kernel, "i", lsize_1, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "k", lsize_0, outer_tag="g.0", inner_tag="l.0")
    if variant == "u_prefetch":
        kernel = _prefetch_u(kernel, lsize_1, nmatrices)
    elif variant != "plain":
        kernel = _prefetch_diff_mat(kernel, lsize_0)
    if variant == "diff_mat_prefetch_transposed":
        kernel = lp.tag_array_axes(kernel, "u", "N0,N1")
        kernel = lp.tag_array_axes(kernel, "res", "N2,N0,N1")
    diff_mat, u, res = DG_DIFF_TAGS[variant]
    return tagged(kernel, loads={"diff_mat": diff_mat, "u": u}, stores={"res": res})


def _prefetch_u(kernel: lp.TranslationUnit, tile: int, nmatrices: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(kernel, "j", tile)
    kernel = lp.add_prefetch(kernel, "u", ["k_inner", "j_inner"], default_tag="l.auto", prefetch_insn_id="fetch")
    kernel = lp.fix_parameters(kernel, nmatrices=nmatrices)
    # The tile does not depend on i, but each work-group along gid(1) needs its own copy.
    kernel = lp.add_inames_to_insn(kernel, "i_outer", "id:fetch")
    kernel = lp.realize_reduction(kernel)
    kernel = lp.privatize_temporaries_with_inames(kernel, "m")
    # loopy opens a loop in one place: start and store need loops over m of their own.
    (start,) = (insn.id for insn in kernel.default_entrypoint.instructions if insn.id.endswith("_init"))
    kernel = lp.duplicate_inames(kernel, "m", f"id:{start}")
    kernel = lp.duplicate_inames(kernel, "m", "writes:res")
    return lp.prioritize_loops(kernel, ["j_outer", "j_inner", "m"])


def _prefetch_diff_mat(kernel: lp.TranslationUnit, tile: int) -> lp.TranslationUnit:
    kernel = lp.split_iname(kernel, "j", tile)
    kernel = lp.add_prefetch(kernel, "diff_mat", ["j_inner", "i_inner"], default_tag="l.auto", prefetch_insn_id="fetch")
    # The tile does not depend on k, but each work-group along gid(0) needs its own copy.
    kernel = lp.add_inames_to_insn(kernel, "k_outer", "id:fetch")
    return lp.prioritize_loops(kernel, ["m", "j_outer", "j_inner"])


def _sizes(arguments: Arguments) -> dict[str, int]:
    # One private sum per matrix needs their number in the code.
    more = [] if arguments["variant"] == "u_prefetch" else ["nmatrices"]
    return {name: arguments[name] for name in ("nelements", "nunit_nodes", *more)}


DG_DIFF = declared(
    dg_diff,
    "dg",
    (
        arg.DTYPE,
        arg.choice("variant", "what is fetched into local memory, and the layout of u and res", tuple(_WORDS)),
        arg.positive("nmatrices", "differentiation matrices", 3),
        *arg.SQUARE_ARGUMENTS,
    ),
    (
        arg.positive("nunit_nodes", "nodes of an element", 64),
        arg.positive("nelements", "elements", 4096, 8192, 12288, 16384),
    ),
    Constraint("variant == 'plain' or lsize_0 == lsize_1"),
    arg.WORK_GROUP_LIMIT,
    values=_sizes,
    fits="nelements % lsize_0, nunit_nodes % lsize_1",
)

DG_DIFF_MEM = work_removed(
    DG_DIFF,
    [tag for end in ("LD", "ST") for tags in DG_DIFF_TAGS.values() for tag in tags if tag.endswith(end)],
    present=lambda a: DG_DIFF_TAGS[a["variant"]],
    together=[f"{diff_mat}_{u}" for diff_mat, u, _ in DG_DIFF_TAGS.values()],
)


def fdiff(*, dtype: str, tile: int, assume: str) -> lp.TranslationUnit:
    """Five-point finite differences on a square grid, tiles of u with their halo in local memory.

    A work-group of tile by tile work-items fetches as many elements of u (access tag ``uLD``), one each; then
    (tile - 2) by (tile - 2) of its work-items compute and store a result (``resST``), the others idle. With
    groups_fit:True n is a multiple of tile - 2. The accesses of different tiles are told apart by the strides of
    gid(0): 14 for tiles of 16, ``f_mem_access_tag:uLD_gstrides:{0:14}``, and 16 for tiles of 18; u has n + 2 rows and
    columns. Features: global loads and stores with an AFR near one, local loads and stores, additions, one barrier;
    an application, which isolates none of them.

    Source: the paper's Section 8.5.
    """
    kernel = make_kernel(
        "fdiff",
        "{[i,j]: 0<=i,j<n}",
        "res[i,j] = u[i,j+1] + u[i+1,j] - 4*u[i+1,j+1] + u[i+1,j+2] + u[i+2,j+1]",
        [loaded_array("u", dtype, "n + 2, n + 2"), stored_array("res", dtype, "n, n"), size_parameters("n")],
        assume=assume,
    )
    kernel = lp.split_iname(kernel, "i", tile - 2, outer_tag="g.1", inner_tag="l.1")
    kernel = lp.split_iname(kernel, "j", tile - 2, outer_tag="g.0", inner_tag="l.0")
    # No default tags: the fetch's axes are the work-group's, an element with halo per work-item.
    kernel = lp.add_prefetch(kernel, "u", ["i_inner", "j_inner"], fetch_bounding_box=True, default_tag=None)
    kernel = lp.tag_inames(kernel, "u_dim_0:l.1, u_dim_1:l.0")
    return tagged(kernel, loads={"u": "uLD"}, stores={"res": "resST"})


FDIFF = declared(
    fdiff,
    "stencil",
    (
        arg.DTYPE,
        arg.within(
            "tile", "rows and columns of the tile in local memory, halo included, and of the work-group", 4, 32, 16, 18
        ),
        arg.GROUPS_FIT,
    ),
    (arg.positive("n", "rows and columns of the result", 1008, 1456, 1904, 2352),),
    fits="n % (tile - 2)",
)
