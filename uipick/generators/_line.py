"""Kernels whose work-items stand in a line: one axis of work-groups, one item per work-item.

Most take whole work-groups only. The remainder's guard is not what they measure, and one compiler (Intel's OpenCL
runtime for CPUs, 2025) drops it from kernels with one axis of work-items unless they are a single assignment, and then
writes beyond the array.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers
from uipick._generator import Constraint
from uipick.generators._arguments import DTYPE, GROUPS_FIT, GROUPS_FIT_ONLY, NELEMENTS
from uipick.generators._kernel import make_kernel, size_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import loopy as lp

LINE_LSIZE = Argument("lsize_0", "int", "work-group size along lid(0)", integers(1, 1024), (256,))
LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT)
FITTING_LINE_ARGUMENTS = (DTYPE, LINE_LSIZE, GROUPS_FIT_ONLY)
# Enough for a launch to take a millisecond.
LINE_NELEMENTS = replace(NELEMENTS, default=(4194304, 8388608, 16777216))
LINE_STRIDE = Argument(
    "lid_stride_0",
    "int",
    "array elements from one lid(0) to the next",
    integers(1, 32),
    (1, 2, 4, 8, 16, 32),
)
CHAINS = Argument(
    "chains",
    "int",
    "loads per iteration, each added to a variable of its own, so that they need not wait for one another",
    integers(1, 16),
    (4,),
)
CHAINS_DIVIDE = Constraint("m must be a multiple of chains", lambda a: a["m"] % a["chains"] == 0)


# Any: argument values by name, of the types that the declarations say.
def whole_items(words: str, elements_per_item: Callable[[Mapping[str, Any]], int]) -> Constraint:
    """Return the condition that ``nelements`` are the elements of a whole number of work-items, at least one."""
    return Constraint(
        f"nelements must be a positive multiple of {words}",
        lambda a: a["nelements"] % elements_per_item(a) == 0,
    )


def items_divide(words: str, elements_per_item: Callable[[Mapping[str, Any]], int]) -> Constraint:
    """Return the condition that work-groups fit where ``groups_fit`` says so."""
    return Constraint(
        f"groups_fit:True needs nelements to be a multiple of lsize_0 times {words}",
        lambda a: not a["groups_fit"] or a["nelements"] % (a["lsize_0"] * elements_per_item(a)) == 0,
    )


def sum_of_chains(load: str, chains: int, dtype: str, start: str, loop: str) -> list[str]:
    """Return instructions that add up loads in a loop, ``chains`` at a time, in variables ``x0``, ``x1``, ...

    Parameters
    ----------
    load
        The load; ``{row}`` in it stands for the two subscripts ``loop, number in the iteration``.
    start
        First value of the variables, of the integer variable ``start``.
    loop
        The loop's iname.
    """
    first = [f"<int32> start = {start}", *(f"<{dtype}> x{c} = start" for c in range(chains))]
    loads = [f"x{c} = x{c} + {load.replace('{row}', f'{loop}, {c}')}" for c in range(chains)]
    return [*first, f"for {loop}", *loads, "end"]


def make_line_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    lsize_0: int,
    groups_fit: bool = True,
    loops: Sequence[str] = (),
    assume: str = "",
    items: str = "nitems",
) -> lp.TranslationUnit:
    """Make a kernel with one work-item for each item of a line.

    Parameters
    ----------
    body
        Instructions, executed in order; ``{item}`` in them stands for the item's number.
    data
        Kernel arguments except the number of items.
    lsize_0, groups_fit
        Work-group size, and whether the number of items is a multiple of it; otherwise the last work-group is
        guarded.
    loops
        Domains of further loops.
    assume
        Further assumption on size parameters.
    items
        Name of the size parameter.
    """
    import loopy as lp

    item = f"{lsize_0}*g0 + l0"
    kernel = _kernel(
        name,
        [f"{{[g0, l0]: 0 <= l0 < {lsize_0} and 0 <= g0 and {item} < {items}}}", *loops],
        [line.replace("{item}", item) for line in body],
        [*data, size_parameters(items)],
    )
    fitting = f" and {items} mod {lsize_0} = 0" if groups_fit else ""
    further = f" and {assume}" if assume else ""
    return lp.assume(kernel, f"{items} >= {lsize_0 if groups_fit else 1}{fitting}{further}")


def make_group_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    lsize_0: int,
    loops: Sequence[str],
    assume: str,
) -> lp.TranslationUnit:
    """Make a kernel of ``ngroups`` whole work-groups, a size parameter; else like `make_line_kernel`."""
    import loopy as lp

    kernel = _kernel(
        name,
        [f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0}}}", *loops],
        body,
        [*data, size_parameters("ngroups")],
    )
    return lp.assume(kernel, f"ngroups >= 1 and {assume}")


def _kernel(
    name: str, domains: Sequence[str], body: Sequence[str], data: Sequence[lp.ArrayArg | lp.ValueArg]
) -> lp.TranslationUnit:
    import loopy as lp

    kernel = make_kernel(
        name,
        list(domains),
        "\n".join(["for g0, l0", *body, "end"]),
        list(data),
        in_order=True,
    )
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")
