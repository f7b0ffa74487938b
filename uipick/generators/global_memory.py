"""Global memory: loads, stores, streams and gathers of a line of work-items, and loads of the same elements."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from uipick import _loopy as lp
from uipick._generator import Constraint
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array, size_parameters, stored_array, updated_array
from uipick.generators._declared import declared
from uipick.generators._kernel import (
    CUT_INDEX,
    OVERLAPPING,
    make_group_kernel,
    make_line_kernel,
    sum_of_chains,
    total_of,
    written_as,
)
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    from uipick._generator import Generator


def gmem_pattern(*, dtype: str, n_arrays: int, **pattern: int | bool) -> lp.TranslationUnit:
    """Global loads from n_arrays arrays and one store, all with one simple pattern.

    Each work-item stores ``in0[e] + in1[e] + ...`` in ``result[e]``, where e is its own element: lid and gid times
    their strides. The access-to-footprint ratio is 1. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates global loads (number of arrays varied) and the store of the given strides; beside them there are
    n_arrays - 1 additions per work-item.

    Source: the paper's Section 7.1.2.
    """
    names = [f"in{number}" for number in range(n_arrays)]
    return make_pattern_kernel(
        "gmem_pattern",
        pattern,
        ["result$resST[{index}] = " + " + ".join(f"{name}$inLD[{{index}}]" for name in names)],
        [*(loaded_array(name, dtype, "nelements") for name in names), stored_array("result", dtype, "nelements")],
    )


GMEM_PATTERN = declared(
    gmem_pattern,
    "gmem",
    (*arg.PATTERN_ARGUMENTS, *arg.GID_STRIDES, arg.within("n_arrays", "number of input arrays", 1, 16, 1, 2, 3)),
    (arg.NELEMENTS,),
    *PATTERN_CONSTRAINTS,
)


def gmem_load(*, dtype: str, lsize_0: int, lid_stride_0: int, chains: int) -> lp.TranslationUnit:
    """Global loads alone: m of them per work-item, with a given lid(0) stride, and one store.

    Each work-item adds up m elements, one of each row of a matrix with m rows: element ``lid_stride_0`` times its own
    number. No element is loaded twice (access-to-footprint ratio 1); with ``lid_stride_0:1`` all are loaded. The sum
    is stored with stride 1. Loads carry the access tag ``inLD``, the store ``resST``. Isolates
    ``f_mem_access_global_<dtype>_load_lstrides:{0:<lid_stride_0>}``, m per work-item; beside them there are as many
    additions, and chains - 1 more.

    Source: after the paper's Section 7.1.2, global memory access.
    """
    elements = loaded_array("in0", dtype, f"rounds, {chains}, nitems, {lid_stride_0}")
    body = sum_of_chains("in0$inLD[{row}, {item}, 0]", chains, dtype, "0", "k")
    return make_line_kernel(
        "gmem_load",
        [*body, "result$resST[{item}] = " + total_of(chains)],
        [elements, stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
        times="rounds",
    )


_LOADS = arg.positive("m", "loads per work-item", 16, 32)
GMEM_LOAD = declared(
    gmem_load,
    "gmem",
    (*arg.FITTING_LINE_ARGUMENTS, arg.LINE_STRIDE, arg.CHAINS),
    (arg.LINE_NELEMENTS, _LOADS),
    arg.CHAINS_DIVIDE,
    *arg.whole_items("m * lid_stride_0"),
    values={"nitems": "nelements // (m * lid_stride_0)", "rounds": "m // chains"},
)


def gmem_store(*, dtype: str, lsize_0: int, lid_stride_0: int) -> lp.TranslationUnit:
    """Global stores alone: m of them per work-item, with a given lid(0) stride.

    Each work-item stores its number in m elements, one of each row of a matrix with m rows: element ``lid_stride_0``
    times its own number (access tag ``resST``). No element is stored twice (access-to-footprint ratio 1). Isolates
    ``f_mem_access_global_<dtype>_store_lstrides:{0:<lid_stride_0>}``, m per work-item.

    Source: after the paper's Section 7.1.2, global memory access.
    """
    return make_line_kernel(
        "gmem_store",
        [
            "<int32> number = {item}",
            f"<{dtype}> content = number",
            "for k",
            "result$resST[k, {item}, 0] = content",
            "end",
        ],
        [stored_array("result", dtype, f"m, nitems, {lid_stride_0}")],
        lsize_0=lsize_0,
        times="m",
    )


GMEM_STORE = declared(
    gmem_store,
    "gmem",
    (*arg.FITTING_LINE_ARGUMENTS, arg.LINE_STRIDE),
    (arg.LINE_NELEMENTS, arg.positive("m", "stores per work-item", 4, 16)),
    *arg.whole_items("m * lid_stride_0"),
    values={"nitems": "nelements // (m * lid_stride_0)", "m": "m"},
)


_FORMS = {
    "copy": "a$aLD[{place}]",
    "scale": "3 * a$aLD[{place}]",
    "add": "a$aLD[{place}] + b$bLD[{place}]",
    "triad": "a$aLD[{place}] + 3 * b$bLD[{place}]",
}


def _stream(operation: str, *, dtype: str, lsize_0: int, groups_fit: bool, width: int) -> lp.TranslationUnit:
    place, shape, dim_tags = "{item}", "nvectors", None
    if width > 1:
        # The tag vec makes OpenCL's vector types of the last axis.
        place, shape, dim_tags = "{item}, v", f"nvectors, {width}", "N0,vec"
    update = f"result$resST[{place}] = " + _FORMS[operation].replace("{place}", place)
    arrays = [loaded_array(name, dtype, shape, dim_tags) for name in "ab" if f"${name}LD" in update]
    kernel = make_line_kernel(
        f"gmem_{operation}",
        ["for v", update, "end"] if width > 1 else [update],
        [*arrays, stored_array("result", dtype, shape, dim_tags)],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=[f"{{[v]: 0 <= v < {width}}}"] if width > 1 else [],
        items="nvectors",
    )
    if width == 1:
        return kernel
    # loopy orders loops with vectors by its older scheduler, which does as well for one instruction.
    entry = kernel.default_entrypoint
    entry = entry.copy(silenced_warnings=entry.silenced_warnings | {"v1_scheduler_fallback"})
    return lp.tag_inames(kernel.with_kernel(entry), "v:vec")


def _described(operation: str, words: str, form: str, beside: str) -> Generator:
    # A partial object for its docstring: the generators differ in nothing else.
    build = partial(_stream, operation)
    loads = " and ``bLD``" if "b" in form else ""
    build.__doc__ = f"""Global memory {words}: ``{form}``, each work-item one element or one vector of them.

    All accesses have stride 1 (in vectors of ``width`` elements) and access-to-footprint ratio 1. Loads carry the
    access tags ``aLD``{loads}, the store ``resST``. Isolates ``f_mem_access_global_<dtype>`` with lid(0) stride
    ``width``, loads and stores in the ratio of this operation; {beside}.

    Source: the STREAM benchmark (McCalpin, 1995), with vector types; after the paper's Section 7.1.2.
    """
    return declared(
        build,
        "gmem gmem_stream",
        (*arg.LINE_ARGUMENTS, arg.choice("width", "elements per vector; 1 for scalars", (1, 2, 4, 8, 16), 1, 4)),
        (arg.LINE_NELEMENTS,),
        *arg.whole_items("width"),
        name=f"gmem_{operation}",
        values={"nvectors": "nelements // width"},
    )


GMEM_STREAMS = (
    _described("copy", "copy", "result = a", "there is no arithmetic beside them"),
    _described("scale", "scaling", "result = 3 a", "beside them there is one multiplication per element"),
    _described("add", "sum", "result = a + b", "beside them there is one addition per element"),
    _described("triad", "triad", "result = a + 3 b", "beside them there is one multiply-add per element"),
)


def gmem_gather(*, spread: int, step: int, window: int, dtype: str, lsize_0: int) -> lp.TranslationUnit:
    """Global loads from a window, m per work-item: element ``(spread item + step k) mod window`` in iteration k.

    Neighbours in a group load elements ``spread`` apart until the window's end, from where they go on at its beginning:
    places that a compiler takes for any. Loads carry the access tag ``inLD``, the store of the sum ``resST`` (stride
    1). Isolates gathered loads at the cost of the cache level that the window fits in; beside them there are as many
    additions, and the arithmetic of the subscript.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    return make_line_kernel(
        "gmem_gather",
        [
            "<int32> start = 0",
            f"<{dtype}> x = start",
            "for k",
            f"x = x + in0$inLD[({spread}*({{item}}) + {step}*k) % {window}]",
            "end",
            "result$resST[{item}] = x",
        ],
        [loaded_array("in0", dtype, str(window)), stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
        times="m",
    )


GMEM_GATHER = declared(
    gmem_gather,
    "gmem",
    (
        arg.positive("spread", "elements from one work-item's place to the next one's", 1, 17),
        arg.positive("step", "elements from one iteration's place to the next one's", 33),
        arg.positive("window", "elements of the array", 4096, 262144),
        *arg.FITTING_LINE_ARGUMENTS,
    ),
    (arg.positive("nitems", "work-items", 8192), replace(_LOADS, default=(64,))),
    arg.ITEMS_FIT,
)


_FORMS_OF_SUMS = {"plain": (), "overlap": (OVERLAPPING,), "cut": (OVERLAPPING, CUT_INDEX)}
_FACTORS = {"item": "s$sLD[{item}]", "loop": "s$sLD[k]"}


def loop_sum(*, layout: str, sum_in: str, factor: str, form: str, dtype: str, lsize_0: int) -> lp.TranslationUnit:
    """Weighted sums, one per work-item: ``y[i] = y[i] + a[k, i] s`` for each of m values of k.

    ``layout:columns`` has the work-items of a group load neighbours of a (stride 1), ``layout:rows`` elements m apart.
    ``sum_in:private`` keeps the sum in a private variable and stores it at the end; ``sum_in:global`` loads and stores
    y in every iteration. The factor s is ``s[i]`` (``factor:item``), which no iteration changes: compilers load it once
    where they know that the stores to y leave it alone, or ``s[k]`` (``factor:loop``), the same for all work-items.
    With ``form:overlap`` they do not: arrays have no ``restrict``, and with ``sum_in:global`` each iteration waits for
    what the one before has stored. With ``form:cut`` (whole work-groups only) i is ``(int) get_global_id(0)``, besides,
    which hides from some compilers that neighbours are next to each other. Access tags ``aLD``, ``sLD``, ``yLD`` and
    ``yST``. Isolates loads that loops leave invariant and stores in loops, each beside one multiply-add per iteration.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    place = "k, {item}" if layout == "columns" else "{item}, k"
    term = f"a$aLD[{place}] * {_FACTORS[factor]}"
    body = ["for k", f"y$yST[{{item}}] = y$yLD[{{item}}] + {term}", "end"]
    if sum_in == "private":
        body = [f"<{dtype}> x = y$yLD[{{item}}]", "for k", f"x = x + {term}", "end", "y$yST[{item}] = x"]
    kernel = make_line_kernel(
        "loop_sum",
        body,
        [
            loaded_array("a", dtype, "m, nitems" if layout == "columns" else "nitems, m"),
            loaded_array("s", dtype, "nitems" if factor == "item" else "m"),
            updated_array("y", dtype, "nitems"),
        ],
        lsize_0=lsize_0,
        times="m",
    )
    return written_as(kernel, *_FORMS_OF_SUMS[form])


LOOP_SUM = declared(
    loop_sum,
    "gmem",
    (
        arg.choice("layout", "which elements of a lie next to each other", ("columns", "rows")),
        arg.choice("sum_in", "where the sum is kept", ("private", "global")),
        arg.choice("factor", "whose factor multiplies: the work-item's or the iteration's", ("item", "loop")),
        arg.choice("form", "what the compiler is told of arrays and indices", tuple(_FORMS_OF_SUMS), "plain"),
        *arg.FITTING_LINE_ARGUMENTS,
    ),
    (arg.positive("nitems", "work-items", 4096, 16384), arg.positive("m", "loop iterations", 64, 256)),
    arg.ITEMS_FIT,
)


def gmem_reuse(*, dtype: str, lsize_0: int, by: str, afr: int, chains: int) -> lp.TranslationUnit:
    """Global loads of elements that ``afr`` work-items load: access-to-footprint ratio ``afr``.

    Each work-item adds up m elements, one of each row of a matrix, with lid(0) stride 1, and stores the sum. There are
    ``afr`` such work-items for each column: with ``by:groups`` in as many work-groups along gid(1), with ``by:items``
    in one work-group along lid(1), which has stride 0. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates ``f_mem_access_global_<dtype>_load_lstrides:{0:1}_afr:<afr>``, m per work-item; beside them there are as
    many additions, and chains - 1 more.

    Source: after the paper's Sections 6.1.1 and 7.1.2, access-to-footprint ratio.
    """
    axis = {"groups": "g1", "items": "l1"}[by]
    # Different sums in each work-item, lest a compiler add up once for all of them.
    body = sum_of_chains("in0$inLD[{row}, {item}]", chains, dtype, axis, "k")
    kernel = make_line_kernel(
        "gmem_reuse",
        [f"for {axis}", *body, f"result$resST[{axis}, {{item}}] = " + total_of(chains), "end"],
        [loaded_array("in0", dtype, f"rounds, {chains}, nitems"), stored_array("result", dtype, f"{afr}, nitems")],
        lsize_0=lsize_0,
        loops=[f"{{[{axis}]: 0 <= {axis} < {afr}}}"],
        times="rounds",
    )
    return lp.tag_inames(kernel, {axis: "g.1" if by == "groups" else "l.1"})


def gmem_uniform(*, dtype: str, lsize_0: int, by: str, chains: int) -> lp.TranslationUnit:
    """Uniform global loads: all work-items of a work-group load the same m elements, one after another.

    With ``by:launch`` all work-groups load the same ones, with ``by:groups`` each work-group has its own. Each
    work-item adds them up and stores the sum with stride 1. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates ``f_mem_access_global_<dtype>_load_lstrides:{0:0}``, m per sub-group; beside them there are as many
    additions, and chains - 1 more.

    Source: after the paper's Sections 5 and 7.1.2, uniform access.
    """
    place, shape = ("g0, {row}", f"ngroups, rounds, {chains}") if by == "groups" else ("{row}", f"rounds, {chains}")
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    body = sum_of_chains(f"in0$inLD[{place}]", chains, dtype, "l0", "k")
    return make_group_kernel(
        "gmem_uniform",
        [*body, "result$resST[g0, l0] = " + total_of(chains)],
        [loaded_array("in0", dtype, shape), stored_array("result", dtype, f"ngroups, {lsize_0}")],
        lsize_0=lsize_0,
        times="rounds",
    )


GMEM_REUSE = declared(
    gmem_reuse,
    "gmem",
    (
        *arg.FITTING_LINE_ARGUMENTS,
        arg.choice("by", "whether work-groups or the work-items of one load the same elements", ("groups", "items")),
        arg.within("afr", "work-items that load an element", 2, 1024, 2, 4, 16),
        arg.CHAINS,
    ),
    (arg.LINE_NELEMENTS, _LOADS),
    arg.CHAINS_DIVIDE,
    arg.needs("by:items", "lsize_0 * afr <= 1024"),
    *arg.whole_items("m"),
    values={"nitems": "nelements // m", "rounds": "m // chains"},
)

GMEM_UNIFORM = declared(
    gmem_uniform,
    "gmem",
    (
        *arg.FITTING_LINE_ARGUMENTS,
        arg.choice("by", "who loads the same elements: the whole launch, or each work-group", ("launch", "groups")),
        arg.CHAINS,
    ),
    (arg.positive("ngroups", "number of work-groups", 512, 1024, 2048), replace(_LOADS, default=(64, 128, 256))),
    arg.CHAINS_DIVIDE,
    values={"ngroups": "ngroups", "rounds": "m // chains"},
)


def gmem_working_set(*, dtype: str, lsize_0: int, lid_stride_0: int, chains: int, shared: bool) -> lp.TranslationUnit:
    """Global loads of a working set, m times over: in a sequential loop, with a given lid(0) stride.

    Each work-group goes through ``working_set`` elements (gaps left by the stride included) in rows of lsize_0 times
    ``lid_stride_0``, each work-item with its own element of each row; after a barrier it starts anew, m times in all.
    With ``shared:True`` all work-groups have the same working set, else each its own. The sum is stored with stride 1.
    Loads carry the access tag ``inLD``, the store ``resST``. Isolates
    ``f_mem_access_global_<dtype>_load_lstrides:{0:<lid_stride_0>}_afr:>1`` (access-to-footprint ratio m, times the
    work-groups if shared) at the cost of the cache level that the working set fits in; beside the loads there are as
    many additions, and m local barriers.

    Source: after the paper's Section 7.1.2, accesses nested inside sequential loops.
    """
    place, shape = "{row}, l0, 0", f"nrows, {chains}, {lsize_0}, {lid_stride_0}"
    if not shared:
        place, shape = f"g0, {place}", f"ngroups, {shape}"
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    lines = sum_of_chains(f"in0$inLD[{place}]", chains, dtype, "l0", "j")
    before = lines.index("for j")
    total = total_of(chains)
    kernel = make_group_kernel(
        "gmem_working_set",
        [*lines[:before], "for round", *lines[before:], "... lbarrier", "end", f"result$resST[g0, l0] = {total}"],
        [
            loaded_array("in0", dtype, shape),
            stored_array("result", dtype, f"ngroups, {lsize_0}"),
            size_parameters("m, nrows"),
        ],
        lsize_0=lsize_0,
        loops=["{[round, j]: 0 <= round < m and 0 <= j < nrows}"],
        assume="nrows >= 1 and m >= 1",
    )
    return lp.prioritize_loops(kernel, "round, j")


GMEM_WORKING_SET = declared(
    gmem_working_set,
    "gmem",
    (
        *arg.FITTING_LINE_ARGUMENTS,
        replace(arg.LINE_STRIDE, default=(1,)),
        arg.CHAINS,
        arg.choice("shared", "all work-groups have the same working set", (True, False), False),
    ),
    (
        arg.positive("working_set", "elements of a work-group's working set", 2048, 8192, 32768, 131072, 524288),
        arg.positive("ngroups", "number of work-groups", 64),
        arg.positive("m", "times that the working set is loaded", 8, 16),
    ),
    Constraint("working_set % (lsize_0 * lid_stride_0 * chains) == 0"),
    values={"m": "m", "nrows": "working_set // (lsize_0 * lid_stride_0 * chains)", "ngroups": "ngroups"},
)
