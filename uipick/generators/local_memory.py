"""Local memory and local barriers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from uipick import _loopy as lp
from uipick._generator import Argument, Arguments, Constraint, integers, multiples_of
from uipick.generators import _arguments as arg
from uipick.generators._arrays import local_array, size_parameters, stored_array
from uipick.generators._declared import declared
from uipick.generators._kernel import make_group_kernel, sum_of_chains, total_of
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_ROWS = 8


def local_rows(arguments: Arguments) -> int:
    """Return the rows of the two local arrays: 8, or as many as fit in 32 KiB."""
    row_bytes = 2 * arguments["lsize_0"] * arguments["lsize_1"] * np.dtype(arguments["dtype"]).itemsize
    return min(_MOST_ROWS, arg.LOCAL_BYTES // int(row_bytes))


def move_sizes(arguments: Arguments) -> dict[str, int]:
    """Split m moves in ``m_outer`` rounds of ``m_inner`` rows, as many rows as possible."""
    moves = arguments["m"]
    inner = max(d for d in range(1, local_rows(arguments) + 1) if moves % d == 0)
    return {"nelements": arguments["nelements"], "m_outer": moves // inner, "m_inner": inner}


LOCAL_MEMORY_FITS = arg.in_local_memory("2 * lsize_0 * lsize_1")


def make_moves_kernel(
    name: str, arguments: Arguments, fill: Sequence[str], value: str, data: Sequence[lp.ArrayArg] = ()
) -> lp.TranslationUnit:
    """Make a kernel that fills its elements of ``source``, moves them, and stores one (access tag ``resST``)."""
    dtype = arguments["dtype"]
    shape = (local_rows(arguments), arguments["lsize_1"], arguments["lsize_0"])
    kernel = make_pattern_kernel(
        name,
        arguments,
        [
            *fill,
            "for row",
            # A variable of its own, so that integers are added as integers.
            f"<> content = {value}",
            "source[row, l1, l0] = content",
            "end",
            "for m_out, m_in",
            "target[m_in, l1, l0] = source[m_in, l1, l0]",
            "end",
            "result$resST[{index}] = target[m_inner - 1, l1, l0]",
        ],
        [
            local_array("source", dtype, shape),
            local_array("target", dtype, shape),
            *data,
            stored_array("result", dtype, "nelements"),
            size_parameters("m_outer, m_inner"),
        ],
        loops=["{[row, m_out, m_in]: 0 <= row, m_in < m_inner and 0 <= m_out < m_outer}"],
        assume=f"m_outer >= 1 and 1 <= m_inner <= {shape[0]}",
    )
    return lp.prioritize_loops(kernel, "m_out, m_in")


def lmem_move(**arguments: str | int | bool) -> lp.TranslationUnit:
    """Local memory moves: m loads and stores per work-item, a different element each time.

    Each work-item fills its own elements of a local array, moves them m times to another, 8 elements in turn
    (fewer where local memory is short), and stores one in global memory (access tag ``resST``). No two
    work-items touch the same element and lid(0) has stride 1. Isolates ``f_mem_access_local_<dtype>``: 2 m per
    work-item, and m_inner stores and one load to begin and end with (m_inner and m_outer are the size parameters,
    m their product).

    Source: the paper's Section 7.1.2, local memory access.
    """
    return make_moves_kernel("lmem_move", arguments, [f"<int32> item = l0 + {arguments['lsize_0']}*l1"], "item + row")


LMEM_MOVE = declared(
    lmem_move,
    "lmem",
    arg.FITTING_PATTERN_ARGUMENTS,
    (arg.NELEMENTS, Argument("m", "int", "moves per work-item", multiples_of(8), (64, 128, 192, 256))),
    *PATTERN_CONSTRAINTS,
    LOCAL_MEMORY_FITS,
    values=move_sizes,
)


_MOST_BLOCKS = 8


def lmem_load(*, dtype: str, lsize_0: int, lid_stride_0: int, chains: int) -> lp.TranslationUnit:
    """Local loads alone: m of them per work-item, with a given lid(0) stride.

    Each work-item fills its own elements of a local array, ``lid_stride_0`` apart from its neighbour's, and adds them
    up again and again; the sum is stored in global memory (access tag ``resST``). No element is shared, so that there
    is no barrier. Isolates ``f_mem_access_local_<dtype>_load_lstrides:{0:<lid_stride_0>}``, m per work-item: strides
    with a common divisor with the number of banks cause bank conflicts. Beside the loads there are as many additions,
    chains - 1 more, and one store for each element filled (chains times m_inner, the size parameter that tells how many
    rows of them there are; a compiler that knew it could keep them in registers).

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"dtype": dtype, "lsize_0": lsize_0, "lid_stride_0": lid_stride_0, "chains": chains}
    blocks = _blocks(arguments)
    # An integer variable, since loopy would add in the type of what it is assigned to.
    contents = [(f"<int32> content{c} = row + {c + 1}", f"source[row, {c}, l0, 0] = content{c}") for c in range(chains)]
    fill = ["for row", *(line for lines in contents for line in lines), "end"]
    return _make_load_kernel(
        "lmem_load",
        arguments,
        fill,
        "source[{row}, l0, 0]",
        (blocks, chains, lsize_0, lid_stride_0),
        "{[row]: 0 <= row < m_inner}",
    )


def lmem_broadcast(*, dtype: str, lsize_0: int, chains: int) -> lp.TranslationUnit:
    """Local loads of one element by all work-items, m times, a different element each time.

    The work-group fills a local array of ``lsize_0`` elements; after a barrier each work-item adds up its first
    chains times m_inner elements (m_inner is a size parameter) again and again; the sum is stored in global memory
    (access tag ``resST``). Isolates ``f_mem_access_local_<dtype>_load_lstrides:{0:0}``, m per sub-group. Beside the
    loads there are as many additions, chains - 1 more, one local store, and one barrier.

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"dtype": dtype, "lsize_0": lsize_0, "chains": chains}
    return _make_load_kernel(
        "lmem_broadcast", arguments, [f"source[l0 // {chains}, l0 % {chains}] = l0"], "source[{row}]",
        (-(-lsize_0 // chains), chains),
    )  # fmt: skip


def _make_load_kernel(
    name: str, arguments: Arguments, fill: list[str], load: str, shape: tuple[int, ...], *loops: str
) -> lp.TranslationUnit:
    dtype, chains, lsize_0 = (arguments[name] for name in ("dtype", "chains", "lsize_0"))
    # Different sums in each work-item, lest a compiler add up once for the whole work-group.
    lines = sum_of_chains(load, chains, dtype, "l0", "m_in")
    before = lines.index("for m_in")
    body = [*fill, *lines[:before], "for m_out", *lines[before:], "end", f"result$resST[g0, l0] = {total_of(chains)}"]
    kernel = make_group_kernel(
        name,
        body,
        [
            local_array("source", dtype, shape),
            stored_array("result", dtype, f"ngroups, {lsize_0}"),
            size_parameters("m_outer, m_inner"),
        ],
        lsize_0=lsize_0,
        loops=["{[m_out, m_in]: 0 <= m_out < m_outer and 0 <= m_in < m_inner}", *loops],
        assume=f"m_outer >= 1 and 1 <= m_inner <= {_blocks(arguments)}",
    )
    return lp.prioritize_loops(kernel, "m_out, m_in")


def _blocks(arguments: Arguments) -> int:
    """Return how many rows, of ``chains`` elements per work-item or (without stride) in all, there can be."""
    if "lid_stride_0" not in arguments:
        return min(_MOST_BLOCKS, int(arguments["lsize_0"] // arguments["chains"]))
    row = arguments["lsize_0"] * arguments["lid_stride_0"] * np.dtype(arguments["dtype"]).itemsize
    return min(_MOST_BLOCKS, arg.LOCAL_BYTES // int(row * arguments["chains"]))


def _sizes(arguments: Arguments) -> dict[str, int]:
    rounds = arguments["m"] // arguments["chains"]
    inner = max(d for d in range(1, _blocks(arguments) + 1) if rounds % d == 0)
    return {"ngroups": arguments["ngroups"], "m_outer": rounds // inner, "m_inner": inner}


_LSIZE = replace(arg.LINE_LSIZE, default=(64,))
_CHAINS = replace(arg.CHAINS, allowed=integers(1, 8), default=(2,))
_NGROUPS = arg.positive("ngroups", "number of work-groups", 1024, 2048, 4096)
_M = arg.positive("m", "loads per work-item", 512, 1024)

LMEM_LOAD = declared(
    lmem_load,
    "lmem",
    (arg.DTYPE, _LSIZE, arg.GROUPS_FIT_ONLY, arg.LINE_STRIDE, _CHAINS),
    (_NGROUPS, _M),
    arg.in_local_memory("2 * chains * lsize_0 * lid_stride_0"),
    arg.CHAINS_DIVIDE,
    values=_sizes,
)

LMEM_BROADCAST = declared(
    lmem_broadcast,
    "lmem",
    (arg.DTYPE, _LSIZE, arg.GROUPS_FIT_ONLY, _CHAINS),
    (_NGROUPS, _M),
    Constraint("lsize_0 >= 2 * chains"),
    arg.CHAINS_DIVIDE,
    values=_sizes,
)


def lmem_madd(*, dtype: str, lsize_0: int, lsize_1: int, depth: int, **pattern: int | bool) -> lp.TranslationUnit:
    """Multiply-adds on operands from local memory, in m rounds between barriers.

    In each round the work-group fills two local tiles, of lsize_1 by depth and depth by lsize_0 elements; after a
    barrier each work-item adds up the products of its row of one and its column of the other; a barrier ends the
    round. At the end it stores its sum (access tag ``resST``). No global memory is read, and the sums mean nothing:
    the sign of the operands alternates between rounds, which keeps them bounded. Features, m depth per work-item:
    ``f_op_<dtype>_madd``, and twice as many ``f_mem_access_local_<dtype>_load``, half of them with lid(0) stride 0;
    beside them 2 m local barriers and the local stores. Isolates the cost of a local load that feeds arithmetic, which
    moves (``lmem_move``) overstate where stores are dearer than loads.

    Source: after the paper's Section 7.1.2, local memory access.
    """
    arguments = {"lsize_0": lsize_0, "lsize_1": lsize_1, **pattern}
    return make_pattern_kernel(
        "lmem_madd",
        arguments,
        [
            f"<int32> item = l0 + {lsize_0}*l1",
            f"<{dtype}> total = item",
            "for round",
            "<int32> sign = 1 - 2*(round % 2)",
            *(f"rows[l1, l0 + {lsize_0 * part}] = sign" for part in range(depth // lsize_0)),
            *(f"columns[l1 + {lsize_1 * part}, l0] = item" for part in range(depth // lsize_1)),
            "for k",
            "total = total + rows[l1, k] * columns[k, l0]",
            "end",
            "end",
            "result$resST[{index}] = total",
        ],
        [
            local_array("rows", dtype, (lsize_1, depth)),
            local_array("columns", dtype, (depth, lsize_0)),
            stored_array("result", dtype, "nelements"),
            size_parameters("m"),
        ],
        loops=[f"{{[round, k]: 0 <= round < m and 0 <= k < {depth}}}"],
        assume="m >= 1",
    )


LMEM_MADD = declared(
    lmem_madd,
    "lmem",
    (
        *arg.FITTING_PATTERN_ARGUMENTS,
        arg.choice("depth", "multiply-adds per work-item and round", (8, 16, 32, 64), 16, 32),
    ),
    (arg.NELEMENTS, arg.positive("m", "rounds", 8, 16, 32)),
    *PATTERN_CONSTRAINTS,
    Constraint("depth % lsize_0 == 0 and depth % lsize_1 == 0"),
)


def lmem_exchange(*, nvars: int, halo: int, dtype: str, lsize_0: int) -> lp.TranslationUnit:
    """Exchange with neighbours through local memory: m rounds of a store, a barrier, loads, and another barrier.

    Each work-item keeps ``nvars`` private variables across all barriers. In each round it stores the first in local
    memory (access tag ``xST``), and adds the element of the neighbour ``halo`` places further to every variable
    (``xLD``, one load; the elements of the halo are stored once before). Private variables that live
    across barriers are kept in memory by runtimes that execute a work-group's items in a loop. The sum is stored with
    stride 1 (``resST``). Isolates ``f_sync_barrier_local``, 2 m + 1 per work-item, beside a local load, a local
    store and nvars additions per round. Values at most double from round to round, which limits m.

    Source: after the paper's Section 7.1.2, local memory access and other features.
    """
    names = [f"x{v}" for v in range(nvars)]
    starts = [line for v, name in enumerate(names) for line in (f"<int32> s{v} = l0 + {v}", f"<{dtype}> {name} = s{v}")]
    return make_group_kernel(
        "lmem_exchange",
        [
            *starts,
            f"tile$xST[l0 + {halo}] = x0",
            "... lbarrier",
            "for k",
            "tile$xST[l0] = x0",
            "... lbarrier",
            f"<{dtype}> y = tile$xLD[l0 + {halo}]",
            *(f"{name} = y + {name}" for name in names),
            "... lbarrier",
            "end",
            "result$resST[g0, l0] = " + " + ".join(names),
        ],
        [stored_array("result", dtype, f"ngroups, {lsize_0}"), local_array("tile", dtype, (lsize_0 + halo,))],
        lsize_0=lsize_0,
        times="m",
    )


LMEM_EXCHANGE = declared(
    lmem_exchange,
    "lmem barrier",
    (
        arg.within("nvars", "private variables that live across barriers", 1, 32, 1, 8),
        arg.within("halo", "places to the neighbour, and elements of the halo", 1, 64, 1),
        *arg.FITTING_LINE_ARGUMENTS,
    ),
    (arg.positive("ngroups", "number of work-groups", 256), arg.within("m", "rounds", 1, 96, 16, 64)),
    arg.in_local_memory("lsize_0 + halo"),
    Constraint("halo <= lsize_0"),
)


def barrier_local(*, dtype: str, **pattern: int | bool) -> lp.TranslationUnit:
    """Local barriers: m of them per work-item, in a loop.

    At the end each work-item stores its local id (access tag ``resST``) with a simple pattern. Isolates
    ``f_sync_barrier_local``. Work-groups always fit, since every work-item must reach each barrier.

    Source: the paper's Section 7.1.2, other features.
    """
    return make_pattern_kernel(
        "barrier_local",
        pattern,
        [
            "for k",
            "... lbarrier",
            "end",
            f"<int32> item = l0 + {pattern['lsize_0']}*l1",
            "result$resST[{index}] = item",
        ],
        [stored_array("result", dtype, "nelements")],
        times="m",
    )


BARRIER_LOCAL = declared(
    barrier_local,
    "barrier",
    arg.FITTING_PATTERN_ARGUMENTS,
    (arg.NELEMENTS, arg.positive("m", "barriers per work-item", 64, 128, 192, 256)),
    *PATTERN_CONSTRAINTS,
)
