"""Kernels as generators make them; loopy is imported when the first one is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from uipick import _loopy as lp
from uipick.generators._arrays import size_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Lines: TypeAlias = "Sequence[str]"
Data: TypeAlias = "Sequence[lp.ArrayArg | lp.TemporaryVariable | lp.ValueArg]"


def make_kernel(
    name: str,
    domains: str | Lines,
    instructions: str | Lines,
    data: Data,
    *,
    assume: str = "",
    in_order: bool = False,
    silenced_warnings: Lines = (),
) -> lp.TranslationUnit:
    """Make a kernel for OpenCL; `in_order` executes its instructions in the order in which they stand."""
    kernel = lp.make_kernel(
        domains,
        instructions if isinstance(instructions, str) else "\n".join(instructions),
        list(data),
        name=name,
        # Fixed, so that a newer loopy reads the same text the same way.
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=in_order,
        silenced_warnings=list(silenced_warnings),
    )
    return lp.assume(kernel, assume) if assume else kernel


# Counting knows these texts, and takes the kernels for what they make of them.
OVERLAPPING = "#define __restrict__"  # loopy writes it for each array
CUT_INDEX = "#undef gid\n#undef lid\n#define gid(N) 0\n#define lid(N) ((int) get_global_id(N))"


def written_as(kernel: lp.TranslationUnit, *definitions: str) -> lp.TranslationUnit:
    """Define macros before a kernel's code: `OVERLAPPING`, or `CUT_INDEX` for one with a single axis."""
    # loopy's own definitions come first, in the order of these keys.
    preambles = tuple((f"01_{number}", text) for number, text in enumerate(definitions))
    return kernel.with_kernel(kernel.default_entrypoint.copy(preambles=preambles))


def tagged(kernel: lp.TranslationUnit, loads: Mapping[str, str], stores: Mapping[str, str]) -> lp.TranslationUnit:
    """Put access tags on the accesses to arrays, after all transformations: see `uipick.tag_accesses`."""
    from uipick._accesses import tag_accesses

    return tag_accesses(kernel, loads, stores)


def fetch_tile(kernel: lp.TranslationUnit, swept: Lines) -> lp.TranslationUnit:
    """Fetch what the rule ``near`` reads while some inames vary into the local array ``tile``.

    Unlike ``add_prefetch``, this leaves other accesses to the same array alone and keeps the rule's access tag.
    """
    return lp.precompute(
        kernel,
        "near",
        list(swept),
        default_tag="l.auto",
        fetch_bounding_box=True,
        temporary_name="tile",
        temporary_address_space=lp.AddressSpace.LOCAL,
    )


def make_counted_kernel(
    name: str, domains: Lines, instructions: Lines, data: Data, count: str, facts: Lines, times: str
) -> lp.TranslationUnit:
    """Make a kernel with the size parameters `count` and `times`, which says how often the loop over k runs, if any."""
    sizes = map(size_parameters, filter(None, (times, count)))
    loop = [f"{{[k]: 0 <= k < {times}}}"] if times else []
    assume = " and ".join(filter(None, (*facts, times and f"{times} >= 1")))
    return make_kernel(name, [*domains, *loop], instructions, [*data, *sizes], assume=assume, in_order=True)


def make_line_kernel(
    name: str,
    body: Lines,
    data: Data,
    *,
    lsize_0: int,
    groups_fit: bool = True,
    loops: Lines = (),
    times: str = "",
    items: str = "nitems",
) -> lp.TranslationUnit:
    """Make a kernel with one work-item for each item of a line; ``{item}`` in the body is the item's number.

    `times` is the size parameter that says how often the loop over k runs.
    """
    item = f"{lsize_0}*g0 + l0"
    domain = f"{{[g0, l0]: 0 <= l0 < {lsize_0} and 0 <= g0 and {item} < {items}}}"
    instructions = ["for g0, l0", *(line.replace("{item}", item) for line in body), "end"]
    facts = [f"{items} >= {lsize_0}", f"{items} mod {lsize_0} = 0"] if groups_fit else [f"{items} >= 1"]
    kernel = make_counted_kernel(name, [domain, *loops], instructions, data, items, facts, times)
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")


def make_group_kernel(
    name: str, body: Lines, data: Data, *, lsize_0: int, loops: Lines = (), assume: str = "", times: str = ""
) -> lp.TranslationUnit:
    """Make a kernel of ``ngroups`` whole work-groups, a size parameter; else like `make_line_kernel`."""
    domain = f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0}}}"
    instructions = ["for g0, l0", *body, "end"]
    facts = ["ngroups >= 1", assume]
    kernel = make_counted_kernel(name, [domain, *loops], instructions, data, "ngroups", facts, times)
    return lp.tag_inames(kernel, "g0:g.0, l0:l.0")


def sum_of_chains(load: str, chains: int, dtype: str, start: str, loop: str) -> list[str]:
    """Return instructions that add up loads in a loop, ``chains`` at a time, in variables ``x0``, ``x1``, ...

    ``{row}`` in the load stands for the two subscripts ``loop, number in the iteration``.
    """
    first = [f"<int32> start = {start}", *(f"<{dtype}> x{c} = start" for c in range(chains))]
    loads = [f"x{c} = x{c} + {load.replace('{row}', f'{loop}, {c}')}" for c in range(chains)]
    return [*first, f"for {loop}", *loads, "end"]


def total_of(chains: int) -> str:
    """Return the sum of the variables ``x0``, ``x1``, ..."""
    return " + ".join(f"x{c}" for c in range(chains))
