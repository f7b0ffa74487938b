"""Launches: empty ones, many, of small work-groups, of a large grid; and those whose work may overlap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from uipick._generator import Argument, Arguments, Constraint, Criterion, integers, multiples_of
from uipick.generators._arguments import (
    DTYPE,
    FITTING_LINE_ARGUMENTS,
    FITTING_PATTERN_ARGUMENTS,
    GRID_DTYPE,
    GRID_SIZES_2D,
    GROUPS_FIT,
    GROUPS_FIT_ONLY,
    ITEMS_FIT,
    LINE_LSIZE,
    LSIZE_0,
    LSIZE_1,
    MATRIX_SIZE,
    NELEMENTS,
    WORK_GROUP_LIMIT,
)
from uipick.generators._declared import declared
from uipick.generators._kernel import (
    PATTERN_CONSTRAINTS,
    loaded_array,
    make_kernel,
    make_line_kernel,
    size_parameters,
    stored_array,
    total_of,
    updated_array,
)
from uipick.generators.dense import MATMUL_CONSTRAINTS
from uipick.generators.local_memory import LOCAL_MEMORY_FITS, make_moves_kernel, move_sizes

if TYPE_CHECKING:
    import loopy as lp


def empty(*, lsize_0: int, lsize_1: int) -> lp.TranslationUnit:
    """Launch of ngroups work-groups that do nothing.

    Isolates ``f_sync_kernel_launch`` (few work-groups) and ``f_thread_groups`` (many).

    Source: the paper's Section 7.1.2, other features.
    """
    import loopy as lp

    kernel = make_kernel(
        "empty",
        f"{{[g0, l0, l1]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0} and 0 <= l1 < {lsize_1}}}",
        """
        for g0, l1, l0
            ... nop
        end
        """,
        [size_parameters("ngroups")],
    )
    kernel = lp.assume(kernel, "ngroups >= 1")
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0, l1:l.1")


EMPTY = declared(
    empty,
    "launch",
    (LSIZE_0, LSIZE_1),
    (Argument("ngroups", "int", "number of work-groups", multiples_of(1), (16, 256, 4096, 16384, 65536)),),
    WORK_GROUP_LIMIT,
)


def launches(*, dtype: str, lsize_0: int, groups_fit: bool, stages: int) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Several launches in one program: ``stages`` of them, separated by global barriers.

    In each stage each work-item stores its number in a row of its own (access tag ``resST``). Isolates
    ``f_sync_kernel_launch`` (``stages`` of them) when there are few work-groups: what a further launch costs that does
    not wait for the host, as opposed to the first one. The barriers are the ends of launches and do not count besides.

    Source: after the paper's Section 7.1.2, other features.
    """
    import loopy as lp

    body = []
    for stage in range(stages):
        body += ["... gbarrier"] if stage else []
        body += [
            "for g0, l0",
            f"<int32> number{stage} = {lsize_0}*g0 + l0",
            f"result$resST[{stage}, g0, l0] = number{stage}",
            "end",
        ]
    kernel = make_kernel(
        "launches",
        f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0}}}",
        "\n".join(body),
        [stored_array("result", dtype, f"{stages}, ngroups, {lsize_0}"), size_parameters("ngroups")],
        in_order=True,
    )
    kernel = lp.assume(kernel, "ngroups >= 1")
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")


def small_groups(*, dtype: str, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:  # noqa: ARG001 - groups_fit is always true
    """Launch of a given number of work-items in work-groups of a given size.

    Each work-item stores its number with stride 1 (access tag ``resST``). With ``nitems`` fixed and ``lsize_0`` varied
    only the number of work-groups changes: isolates ``f_thread_groups``, for work-groups that do something (those of
    ``empty`` do not).

    Source: after the paper's Section 7.1.2, other features.
    """
    return make_line_kernel(
        "small_groups",
        ["<int32> number = {item}", "result$resST[{item}] = number"],
        [stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
    )


LAUNCHES = declared(
    launches,
    "launch",
    (*FITTING_LINE_ARGUMENTS, Argument("stages", "int", "launches of the program", integers(1, 16), (1, 2, 4, 8))),
    (Argument("ngroups", "int", "number of work-groups of each launch", multiples_of(1), (16, 256)),),
)

SMALL_GROUPS = declared(
    small_groups,
    "launch",
    (DTYPE, replace(LINE_LSIZE, default=(1, 4, 16, 64, 256)), GROUPS_FIT_ONLY),
    (Argument("nitems", "int", "work-items", multiples_of(1), (262144, 524288)),),
    ITEMS_FIT,
)


def grid_scale(
    *,
    store: str,
    along: str,
    n_arrays: int,
    dtype: str,
    lsize_0: int,
    lsize_1: int,
    groups_fit: bool,  # noqa: ARG001 - always true
) -> lp.TranslationUnit:
    """Scaled sum of grids, one point per work-item, in another grid or in place: ``v = 0.5 (u0 + u1 + ...)``.

    Rows of ny by nx points lie one after another. ``along:rows`` has lid(0) go along a row (stride 1), so that a
    work-group of lsize_0 by lsize_1 loads runs of lsize_0 elements; ``along:columns`` across rows (stride nx).
    ``store:stream`` stores in an array of its own, whose lines caches fetch first; ``store:update`` in the first one
    that is loaded, whose lines are there. Loads carry the access tags ``u0LD``, ..., the store ``vST``. Isolates the
    cost of short runs, of long strides and of write-allocates; beside them there are one multiplication and
    n_arrays - 1 additions per point.

    Source: after the paper's Section 7.1.2, global memory access, and the STREAM benchmark (McCalpin, 1995).
    """
    import loopy as lp

    update = store == "update"
    names = ["v" if update and number == 0 else f"u{number}" for number in range(n_arrays)]
    loads = " + ".join(f"{name}$u{number}LD[j, i]" for number, name in enumerate(names))
    loaded = [loaded_array(name, dtype, "ny, nx") for name in names if name != "v"]
    target = updated_array("v", dtype, "ny, nx") if update else stored_array("v", dtype, "ny, nx")
    kernel = make_kernel(
        "grid_scale",
        "{[i, j]: 0 <= i < nx and 0 <= j < ny}",
        f"v$vST[j, i] = 0.5 * ({loads})",
        [*loaded, target, size_parameters("nx, ny")],
    )
    first, second = ("i", "j") if along == "rows" else ("j", "i")
    sizes = {"i": "nx", "j": "ny"}
    fit = f"{sizes[first]} mod {lsize_0} = 0 and {sizes[second]} mod {lsize_1} = 0"
    kernel = lp.assume(kernel, f"nx >= 1 and ny >= 1 and {fit}")
    kernel = lp.split_iname(kernel, first, lsize_0, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, second, lsize_1, outer_tag="g.1", inner_tag="l.1")


def _fits(arguments: Arguments) -> bool:
    extents = [arguments["nx"], arguments["ny"]]
    first, second = extents if arguments["along"] == "rows" else extents[::-1]
    fits = first % arguments["lsize_0"] == 0 and second % arguments["lsize_1"] == 0
    return bool(fits)


GRID_SCALE = declared(
    grid_scale,
    "gmem",
    (
        Argument("store", "str", "where results go: another array, or the first one loaded", ("stream", "update")),
        Argument("along", "str", "what lid(0) goes along", ("rows", "columns")),
        Argument("n_arrays", "int", "arrays that are loaded", integers(1, 8), (1, 2)),
        GRID_DTYPE,
        LSIZE_0,
        LSIZE_1,
        GROUPS_FIT_ONLY,
    ),
    GRID_SIZES_2D,
    WORK_GROUP_LIMIT,
    Constraint("nx and ny must be multiples of lsize_0 and lsize_1, along columns of lsize_1 and lsize_0", _fits),
)


def overlap_ratio(*, dtype: str, lsize_0: int, lsize_1: int, **pattern: int | bool) -> lp.TranslationUnit:
    """One global load, m local load-store sequences, one global store per work-item.

    Shows how much of the cost of on-chip work hides behind global memory access as m grows. The loaded value
    (access tag ``inLD``) fills the work-item's own elements of a local array; they are moved m times as in
    ``lmem_move``, and one is stored (``resST``). Features: ``f_mem_access_global_<dtype>``, 2 per work-item, and
    ``f_mem_access_local_<dtype>``, 2 m + m_inner + 1 per work-item.

    Source: the paper's Section 7.4.
    """
    return make_moves_kernel(
        "overlap_ratio",
        {"dtype": dtype, "lsize_0": lsize_0, "lsize_1": lsize_1, **pattern},
        [f"<{dtype}> value = in0$inLD[{{index}}]"],
        "value",
        [loaded_array("in0", dtype, "nelements")],
    )


OVERLAP_RATIO = declared(
    overlap_ratio,
    "overlap",
    FITTING_PATTERN_ARGUMENTS,
    (
        NELEMENTS,
        Argument(
            "m",
            "int",
            "local load-store sequences per work-item",
            Criterion("1 to 8, or a multiple of 8", lambda value: 1 <= value <= 8 or (value > 0 and value % 8 == 0)),
            (1, 2, 4, 8, 16, 32, 64),
        ),
    ),
    *PATTERN_CONSTRAINTS,
    LOCAL_MEMORY_FITS,
    values=move_sizes,
)


_LOADS = {"uniform": ("row",), "unit": ("col",), "both": ("row", "col")}
_GRID = (
    "{{[i_out, j_out, i_in, j_in]: 0 <= i_in < {lsize_1} and 0 <= j_in < {lsize_0} and i_out, j_out >= 0 "
    "and {lsize_1}*i_out + i_in < n and {lsize_0}*j_out + j_in < n}}"
)
_LOAD_TEXT = {"row": "a$aLD[i, k]", "col": "b$bLD[k, j]"}


def _updates(loads: tuple[str, ...], m: int, chains: int) -> list[str]:
    """Return m multiply-adds, each with a loaded value; halving keeps the sums bounded."""
    factor = "row" if loads == ("row", "col") else "0.5"
    first = f"x0 = x0 * {factor} + {loads[-1]}"
    rest = [f"x{u % chains} = x{u % chains} * 0.5 + {loads[u % len(loads)]}" for u in range(1, m)]
    return [first, *rest]


def overlap_madd(
    *, dtype: str, load: str, m: int, chains: int, lsize_0: int, lsize_1: int, groups_fit: bool
) -> lp.TranslationUnit:
    """Global loads in a sequential loop, m multiply-adds on each iteration's values.

    Each work-item (i, j) of an n by n grid loops over k and loads ``a[i, k]`` (``load:uniform``, access tag
    ``aLD``), ``b[k, j]`` (``load:unit``, ``bLD``) or both, as matrix multiplication does, and updates ``chains``
    independent private variables with them in turn, m times. The sum of the variables is stored (``cST``).
    Memory access and arithmetic really mix here, so that a model's overlap is determined without running the
    application. Features: ``f_op_<dtype>_madd`` (m n per work-item) and the loads. The variables differ between
    work-items, so that compilers compute on vectors of work-items for uniform loads too.

    Source: after the paper's Section 7.4, with arithmetic in place of local memory.
    """
    import loopy as lp

    loads = _LOADS[load]
    body = [f"<int32> item = {lsize_1}*i_in + j_in"]
    # Integer sums of their own, lest they count as floating-point arithmetic.
    for c in range(chains):
        body += [f"<int32> start{c} = item + {c}", f"<{dtype}> x{c} = start{c}"]
    body += ["for k", *(f"<{dtype}> {name} = {_LOAD_TEXT[name]}" for name in loads)]
    body += [*_updates(loads, m, chains), "end"]
    body.append("c$cST[i, j] = " + total_of(chains))
    text = "\n".join(["for i_out, j_out, i_in, j_in", *body, "end"])
    # The texts have i and j; the domain has them as groups and work-items already.
    for name, width in (("i", lsize_1), ("j", lsize_0)):
        text = text.replace(f"[{name}, ", f"[{width}*{name}_out + {name}_in, ")
        text = text.replace(f", {name}]", f", {width}*{name}_out + {name}_in]")
    kernel = make_kernel(
        "overlap_madd",
        [_GRID.format(lsize_0=lsize_0, lsize_1=lsize_1), "{[k]: 0 <= k < n}"],
        text,
        [
            *([loaded_array("a", dtype, "n, n")] if "row" in loads else []),
            *([loaded_array("b", dtype, "n, n")] if "col" in loads else []),
            stored_array("c", dtype, "n, n"),
            size_parameters("n"),
        ],
        in_order=True,
    )
    fit = f" and n mod {lsize_0} = 0 and n mod {lsize_1} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    return lp.tag_inames(kernel, "i_out:g.1, j_out:g.0, i_in:l.1, j_in:l.0")


OVERLAP_MADD = declared(
    overlap_madd,
    "overlap",
    (
        DTYPE,
        Argument("load", "str", "which values each iteration loads", tuple(_LOADS)),
        Argument("m", "int", "multiply-adds per iteration", integers(1, 256), (1, 2, 4, 8, 16)),
        Argument(
            "chains",
            "int",
            "independent private variables that the multiply-adds update in turn",
            integers(1, 32),
            (1,),
        ),
        LSIZE_0,
        LSIZE_1,
        GROUPS_FIT,
    ),
    (MATRIX_SIZE,),
    *(c for c in MATMUL_CONSTRAINTS if "prefetch" not in c.description),
    Constraint("chains is at most m (each variable is updated in every iteration)", lambda a: a["chains"] <= a["m"]),
)
