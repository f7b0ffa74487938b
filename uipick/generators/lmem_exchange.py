"""Local memory: rounds of exchange between barriers, with private variables that live across them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import fits_in_local_memory, local_array, size_parameters, stored_array
from uipick.generators._line import FITTING_LINE_ARGUMENTS, make_group_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


def lmem_exchange(
    *,
    nvars: int,
    halo: int,
    dtype: str,
    lsize_0: int,
    groups_fit: bool,  # noqa: ARG001 - always true
) -> lp.TranslationUnit:
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
        [
            stored_array("result", dtype, f"ngroups, {lsize_0}"),
            local_array("tile", dtype, (lsize_0 + halo,)),
            size_parameters("m"),
        ],
        lsize_0=lsize_0,
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


# Any: argument values by name, of the types that the declarations say.
def _fits(arguments: Mapping[str, Any]) -> bool:
    return fits_in_local_memory(arguments["lsize_0"] + arguments["halo"], arguments["dtype"])


LMEM_EXCHANGE = Generator(
    name="lmem_exchange",
    tags=frozenset({"lmem_exchange", "lmem", "barrier"}),
    arguments=(
        Argument("nvars", "int", "private variables that live across barriers", integers(1, 32), (1, 8)),
        Argument("halo", "int", "places to the neighbour, and elements of the halo", integers(1, 64), (1,)),
        *FITTING_LINE_ARGUMENTS,
        Argument("ngroups", "int", "number of work-groups", multiples_of(1), (256,)),
        Argument("m", "int", "rounds", integers(1, 96), (16, 64)),
    ),
    build=lmem_exchange,
    size_arguments=("ngroups", "m"),
    constraints=(
        Constraint("the tile must fit in 32 KiB of local memory (lsize_0 + halo elements)", _fits),
        Constraint("halo may be at most lsize_0", lambda a: a["halo"] <= a["lsize_0"]),
    ),
)
