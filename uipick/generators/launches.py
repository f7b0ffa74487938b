"""Launches: empty ones, many, of small work-groups, of a large grid; and those whose work may overlap."""

from __future__ import annotations

from dataclasses import replace

from uipick import _loopy as lp
from uipick._generator import Argument, Constraint, Criterion
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array, size_parameters, stored_array, updated_array
from uipick.generators._declared import declared
from uipick.generators._kernel import make_kernel, make_line_kernel, total_of
from uipick.generators._pattern import PATTERN_CONSTRAINTS
from uipick.generators.local_memory import LOCAL_MEMORY_FITS, make_moves_kernel, move_sizes


def empty(*, lsize_0: int, lsize_1: int) -> lp.TranslationUnit:
    """Launch of ngroups work-groups that do nothing.

    Isolates ``f_sync_kernel_launch`` (few work-groups) and ``f_thread_groups`` (many).

    Source: the paper's Section 7.1.2, other features.
    """
    kernel = make_kernel(
        "empty",
        f"{{[g0, l0, l1]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0} and 0 <= l1 < {lsize_1}}}",
        ["for g0, l1, l0", "... nop", "end"],
        [size_parameters("ngroups")],
        assume="ngroups >= 1",
    )
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0, l1:l.1")


EMPTY = declared(
    empty,
    "launch",
    (arg.LSIZE_0, arg.LSIZE_1),
    (arg.positive("ngroups", "number of work-groups", 16, 256, 4096, 16384, 65536),),
    arg.WORK_GROUP_LIMIT,
)


def launches(*, dtype: str, lsize_0: int, stages: int) -> lp.TranslationUnit:
    """Several launches in one program: ``stages`` of them, separated by global barriers.

    In each stage each work-item stores its number in a row of its own (access tag ``resST``). Isolates
    ``f_sync_kernel_launch`` (``stages`` of them) when there are few work-groups: what a further launch costs that does
    not wait for the host, as opposed to the first one. The barriers are the ends of launches and do not count besides.

    Source: after the paper's Section 7.1.2, other features.
    """
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
        body,
        [stored_array("result", dtype, f"{stages}, ngroups, {lsize_0}"), size_parameters("ngroups")],
        assume="ngroups >= 1",
        in_order=True,
    )
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")


def small_groups(*, dtype: str, lsize_0: int) -> lp.TranslationUnit:
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
    (*arg.FITTING_LINE_ARGUMENTS, arg.within("stages", "launches of the program", 1, 16, 1, 2, 4, 8)),
    (arg.positive("ngroups", "number of work-groups of each launch", 16, 256),),
)

SMALL_GROUPS = declared(
    small_groups,
    "launch",
    (arg.DTYPE, replace(arg.LINE_LSIZE, default=(1, 4, 16, 64, 256)), arg.GROUPS_FIT_ONLY),
    (arg.positive("nitems", "work-items", 262144, 524288),),
    arg.ITEMS_FIT,
)


def grid_scale(
    *, store: str, along: str, n_arrays: int, dtype: str, lsize_0: int, lsize_1: int, assume: str
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
        assume=assume,
    )
    first, second = ("i", "j") if along == "rows" else ("j", "i")
    kernel = lp.split_iname(kernel, first, lsize_0, outer_tag="g.0", inner_tag="l.0")
    return lp.split_iname(kernel, second, lsize_1, outer_tag="g.1", inner_tag="l.1")


GRID_SCALE = declared(
    grid_scale,
    "gmem",
    (
        arg.choice("store", "where results go: another array, or the first one loaded", ("stream", "update")),
        arg.choice("along", "what lid(0) goes along", ("rows", "columns")),
        arg.within("n_arrays", "arrays that are loaded", 1, 8, 1, 2),
        arg.GRID_DTYPE,
        arg.LSIZE_0,
        arg.LSIZE_1,
        arg.GROUPS_FIT_ONLY,
    ),
    arg.GRID_SIZES_2D,
    arg.WORK_GROUP_LIMIT,
    fits="nx % (lsize_0 if along == 'rows' else lsize_1), ny % (lsize_1 if along == 'rows' else lsize_0)",
)


def overlap_ratio(*, dtype: str, **others: int) -> lp.TranslationUnit:
    """One global load, m local load-store sequences, one global store per work-item.

    Shows how much of the cost of on-chip work hides behind global memory access as m grows. The loaded value
    (access tag ``inLD``) fills the work-item's own elements of a local array; they are moved m times as in
    ``lmem_move``, and one is stored (``resST``). Features: ``f_mem_access_global_<dtype>``, 2 per work-item, and
    ``f_mem_access_local_<dtype>``, 2 m + m_inner + 1 per work-item.

    Source: the paper's Section 7.4.
    """
    return make_moves_kernel(
        "overlap_ratio",
        {"dtype": dtype, **others},
        [f"<{dtype}> value = in0$inLD[{{index}}]"],
        "value",
        [loaded_array("in0", dtype, "nelements")],
    )


_EIGHTHS = Criterion("1 to 8, or a multiple of 8", lambda value: 1 <= value <= 8 or (value > 0 and value % 8 == 0))
OVERLAP_RATIO = declared(
    overlap_ratio,
    "overlap",
    arg.FITTING_PATTERN_ARGUMENTS,
    (
        arg.NELEMENTS,
        Argument("m", "int", "local load-store sequences per work-item", _EIGHTHS, (1, 2, 4, 8, 16, 32, 64)),
    ),
    *PATTERN_CONSTRAINTS,
    LOCAL_MEMORY_FITS,
    values=move_sizes,
)


_LOADS = {"uniform": ("row",), "unit": ("col",), "both": ("row", "col")}


def _updates(loads: tuple[str, ...], m: int, chains: int) -> list[str]:
    """Return m multiply-adds, each with a loaded value; halving keeps the sums bounded."""
    factor = "row" if loads == ("row", "col") else "0.5"
    first = f"x0 = x0 * {factor} + {loads[-1]}"
    rest = [f"x{u % chains} = x{u % chains} * 0.5 + {loads[u % len(loads)]}" for u in range(1, m)]
    return [first, *rest]


def overlap_madd(
    *, dtype: str, load: str, m: int, chains: int, lsize_0: int, lsize_1: int, assume: str
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
    loads, i, j = _LOADS[load], f"{lsize_1}*i_out + i_in", f"{lsize_0}*j_out + j_in"
    texts = {"row": f"a$aLD[{i}, k]", "col": f"b$bLD[k, {j}]"}
    body = [f"<int32> item = {lsize_1}*i_in + j_in"]
    # Integer sums of their own, lest they count as floating-point arithmetic.
    for c in range(chains):
        body += [f"<int32> start{c} = item + {c}", f"<{dtype}> x{c} = start{c}"]
    body += ["for k", *(f"<{dtype}> {name} = {texts[name]}" for name in loads)]
    body += [*_updates(loads, m, chains), "end", f"c$cST[{i}, {j}] = {total_of(chains)}"]
    inside = f"0 <= i_in < {lsize_1} and 0 <= j_in < {lsize_0} and i_out, j_out >= 0 and {i} < n and {j} < n"
    kernel = make_kernel(
        "overlap_madd",
        [f"{{[i_out, j_out, i_in, j_in]: {inside}}}", "{[k]: 0 <= k < n}"],
        ["for i_out, j_out, i_in, j_in", *body, "end"],
        [
            *([loaded_array("a", dtype, "n, n")] if "row" in loads else []),
            *([loaded_array("b", dtype, "n, n")] if "col" in loads else []),
            stored_array("c", dtype, "n, n"),
            size_parameters("n"),
        ],
        assume=assume,
        in_order=True,
    )
    return lp.tag_inames(kernel, "i_out:g.1, j_out:g.0, i_in:l.1, j_in:l.0")


OVERLAP_MADD = declared(
    overlap_madd,
    "overlap",
    (
        arg.DTYPE,
        arg.choice("load", "which values each iteration loads", tuple(_LOADS)),
        arg.within("m", "multiply-adds per iteration", 1, 256, 1, 2, 4, 8, 16),
        arg.within("chains", "independent private variables that the multiply-adds update in turn", 1, 32, 1),
        *arg.SQUARE_ARGUMENTS,
    ),
    (arg.MATRIX_SIZE,),
    arg.WORK_GROUP_LIMIT,
    # Each variable is updated in every iteration.
    Constraint("chains <= m"),
    fits="n % lsize_0, n % lsize_1",
)
