"""Kernels and their arrays as generators make them; loopy is imported when the first kernel is made.

In the simple access pattern a work-item accesses the element ``lid_stride_0 lid(0) + lid_stride_1 lid(1) +
gid_stride_0 gid(0) + gid_stride_1 gid(1)``, no two work-items access the same one (access-to-footprint ratio 1), and
the array has ``nelements`` elements (paper Section 7.1.2, first variety of global memory access).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from uipick._generator import Arguments, Constraint
from uipick.generators._arguments import WORK_GROUP_LIMIT, when_groups_fit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp


LOCAL_BYTES = 32768
"""The least local memory that OpenCL guarantees to a work-group of a full profile."""


def fits_in_local_memory(elements: int, dtype: str) -> bool:
    """Tell whether so many elements take at most `LOCAL_BYTES`."""
    width: int = np.dtype(dtype).itemsize
    return elements * width <= LOCAL_BYTES


def make_kernel(
    name: str,
    domains: str | Sequence[str],
    instructions: str,
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    in_order: bool = False,
    silenced_warnings: Sequence[str] = (),
) -> lp.TranslationUnit:
    """Make a kernel for OpenCL; `in_order` executes its instructions in the order in which they stand."""
    import loopy as lp

    return lp.make_kernel(
        domains,
        instructions,
        list(data),
        name=name,
        # Fixed, so that a newer loopy reads the same text the same way.
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=in_order,
        silenced_warnings=list(silenced_warnings),
    )


def loaded_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only loads from."""
    import loopy as lp

    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=True, is_output=False)


def stored_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only stores to."""
    import loopy as lp

    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=False, is_output=True)


def updated_array(name: str, dtype: str, shape: str) -> lp.GlobalArg:
    """Return a global array that a kernel loads from and stores to."""
    import loopy as lp

    return lp.GlobalArg(name, np.dtype(dtype), shape, is_input=True, is_output=True)


# Counting knows these texts, and takes the kernels for what they make of them.
OVERLAPPING = "#define __restrict__"  # loopy writes it for each array
CUT_INDEX = "#undef gid\n#undef lid\n#define gid(N) 0\n#define lid(N) ((int) get_global_id(N))"


def written_as(kernel: lp.TranslationUnit, *definitions: str) -> lp.TranslationUnit:
    """Define macros before a kernel's code: `OVERLAPPING`, or `CUT_INDEX` for one with a single axis."""
    # loopy's own definitions come first, in the order of these keys.
    preambles = tuple((f"01_{number}", text) for number, text in enumerate(definitions))
    return kernel.with_kernel(kernel.default_entrypoint.copy(preambles=preambles))


def size_parameters(names: str) -> lp.ValueArg:
    """Return size parameters, names separated by commas."""
    import loopy as lp

    return lp.ValueArg(names, np.int32)


def local_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that the work-items of a work-group share."""
    import loopy as lp

    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.LOCAL)


def private_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that each work-item has for itself."""
    import loopy as lp

    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.PRIVATE)


def fetch_tile(kernel: lp.TranslationUnit, swept: Sequence[str]) -> lp.TranslationUnit:
    """Fetch what the rule ``near`` reads while some inames vary into the local array ``tile``.

    Unlike ``add_prefetch``, this leaves other accesses to the same array alone and keeps the rule's access tag.
    """
    import loopy as lp

    return lp.precompute(
        kernel,
        "near",
        list(swept),
        default_tag="l.auto",
        fetch_bounding_box=True,
        temporary_name="tile",
        temporary_address_space=lp.AddressSpace.LOCAL,
    )


@dataclass(frozen=True)
class Pattern:
    """Strides, in elements, and extents of the axes of a simple access pattern."""

    # Work-group extents, strides of the local ids, and of the group ids, along axes 0 and 1.
    lsize: tuple[int, int]
    lid: tuple[int, int]
    gid: tuple[int, int]
    # Axis of the groups whose number follows from the array's size, and the number of groups along the other one.
    outer: int
    inner_groups: int

    @property
    def block(self) -> int:
        """Elements of the array that one row of groups spans, the array's granularity."""
        return self.gid[self.outer]

    @property
    def index(self) -> str:
        """The element's index, an expression in the inames l0, l1, g0, g1."""
        return " + ".join(
            f"{stride}*{name}" for stride, name in zip((*self.gid, *self.lid), ("g0", "g1", "l0", "l1"), strict=True)
        )


def pattern_of(arguments: Arguments) -> Pattern:
    """Return the pattern of a generator's arguments; it may violate `PATTERN_CONSTRAINTS`."""
    lsize = (arguments["lsize_0"], arguments["lsize_1"])
    lid = (arguments["lid_stride_0"], arguments["lid_stride_1"])
    given = (arguments.get("gid_stride_0", 0), arguments.get("gid_stride_1", 0))
    gid = (given[0] or lsize[0] * lid[0], given[1] or lsize[1] * lid[1])
    outer = 0 if gid[0] > gid[1] else 1
    inner = 1 - outer
    # The inner groups fill the space up to the next larger stride.
    larger = [lid[axis] for axis in (0, 1) if lsize[axis] > 1 and lid[axis] >= gid[inner]]
    following = min([*larger, gid[outer]])
    return Pattern(lsize, lid, gid, outer, following // gid[inner])


def _is_nested(arguments: Arguments) -> bool:
    pattern = pattern_of(arguments)
    inner_stride = pattern.gid[1 - pattern.outer]
    axes = [*zip(pattern.lid, pattern.lsize, strict=True), (inner_stride, pattern.inner_groups)]
    # By stride, as digits of a number: each axis must end before the next one's stride.
    axes = [*sorted(axis for axis in axes if axis[1] != 1), (pattern.block, 1)]
    if any(extent < 1 or following < stride * extent for (stride, extent), (following, _) in pairwise(axes)):
        return False
    return pattern.inner_groups == 1 or inner_stride * pattern.inner_groups in {stride for stride, _ in axes}


def _is_plain_when_guarded(arguments: Arguments) -> bool:
    if arguments["groups_fit"]:
        return True
    no_gaps = not (arguments.get("gid_stride_0", 0) or arguments.get("gid_stride_1", 0))
    strides = sorted((arguments["lid_stride_0"], arguments["lid_stride_1"]))
    return no_gaps and strides[1] % strides[0] == 0 and bool(arguments["nelements"] >= strides[1])


PATTERN_CONSTRAINTS = (
    WORK_GROUP_LIMIT,
    Constraint(
        "groups_fit:False takes no gid strides, one lid stride a multiple of the other, and nelements of at least "
        "the larger lid stride",
        _is_plain_when_guarded,
    ),
    Constraint(
        "with groups_fit:True no two work-items may access the same element: each stride must be at least the span "
        "of the axes with smaller strides, and the inner gid axis must fill a larger stride evenly",
        lambda a: not a["groups_fit"] or _is_nested(a),
    ),
    when_groups_fit(
        "nelements to be a multiple of the larger gid stride (lsize times lid stride)",
        lambda a: a["nelements"] % pattern_of(a).block == 0,
    ),
)


def make_pattern_kernel(
    name: str,
    arguments: Arguments,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    loops: Sequence[str] = (),
    assume: str = "",
    times: str = "",
) -> lp.TranslationUnit:
    """Make a kernel whose work-items follow a simple pattern; ``{index}`` in the body is the work-item's element.

    `times` is the size parameter that says how often the loop over k runs.
    """
    import loopy as lp

    pattern = pattern_of(arguments)
    instructions = [line.replace("{index}", pattern.index) for line in body]
    fit = bool(arguments["groups_fit"])
    kernel = make_kernel(
        name,
        [_fitting_domain(pattern) if fit else _guarded_domain(pattern), *loops, *_loop(times)],
        "\n".join(["for g1, g0, l1, l0", *instructions, "end"]),
        [*data, *map(size_parameters, filter(None, (times, "nelements")))],
        in_order=True,
    )
    least = pattern.block if fit else max(pattern.lid)
    fitting = f"nelements mod {pattern.block} = 0" if fit else ""
    kernel = lp.assume(kernel, _joined(f"nelements >= {least}", fitting, assume, times and f"{times} >= 1"))
    return lp.tag_inames(kernel, "g0:g.0, g1:g.1, l0:l.0, l1:l.1")


def _loop(times: str) -> list[str]:
    return [f"{{[k]: 0 <= k < {times}}}"] if times else []


def _joined(*facts: str) -> str:
    return " and ".join(filter(None, facts))


def _fitting_domain(pattern: Pattern) -> str:
    outer, inner = pattern.outer, 1 - pattern.outer
    return (
        f"{{[g0, g1, l0, l1]: 0 <= l0 < {pattern.lsize[0]} and 0 <= l1 < {pattern.lsize[1]} "
        f"and 0 <= g{inner} < {pattern.inner_groups} and 0 <= {pattern.block}*g{outer} < nelements}}"
    )


def _guarded_domain(pattern: Pattern) -> str:
    # Whole rows along this axis only: the remainder of the array stays untouched.
    outer = 1 if pattern.lid[1] >= pattern.lid[0] else 0
    inner = 1 - outer
    inner_extent = pattern.lid[outer] // pattern.lid[inner]
    place = [f"{pattern.lsize[axis]}*g{axis} + l{axis}" for axis in (0, 1)]
    return (
        f"{{[g0, g1, l0, l1]: 0 <= l0 < {pattern.lsize[0]} and 0 <= l1 < {pattern.lsize[1]} and g0 >= 0 and g1 >= 0 "
        f"and {place[inner]} < {inner_extent} and {pattern.lid[outer]}*({place[outer]} + 1) <= nelements}}"
    )


def make_line_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    lsize_0: int,
    groups_fit: bool = True,
    loops: Sequence[str] = (),
    times: str = "",
    items: str = "nitems",
) -> lp.TranslationUnit:
    """Make a kernel with one work-item for each item of a line; ``{item}`` in the body is the item's number.

    `times` is the size parameter that says how often the loop over k runs.
    """
    import loopy as lp

    item = f"{lsize_0}*g0 + l0"
    kernel = _one_axis_kernel(
        name,
        [f"{{[g0, l0]: 0 <= l0 < {lsize_0} and 0 <= g0 and {item} < {items}}}", *loops, *_loop(times)],
        [line.replace("{item}", item) for line in body],
        [*data, *map(size_parameters, filter(None, (times, items)))],
    )
    fitting = f"{items} mod {lsize_0} = 0" if groups_fit else ""
    least = f"{items} >= {lsize_0 if groups_fit else 1}"
    return lp.assume(kernel, _joined(least, fitting, times and f"{times} >= 1"))


def make_group_kernel(
    name: str,
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    lsize_0: int,
    loops: Sequence[str] = (),
    assume: str = "",
    times: str = "",
) -> lp.TranslationUnit:
    """Make a kernel of ``ngroups`` whole work-groups, a size parameter; else like `make_line_kernel`."""
    import loopy as lp

    kernel = _one_axis_kernel(
        name,
        [f"{{[g0, l0]: 0 <= g0 < ngroups and 0 <= l0 < {lsize_0}}}", *loops, *_loop(times)],
        body,
        [*data, *map(size_parameters, filter(None, (times, "ngroups")))],
    )
    return lp.assume(kernel, _joined("ngroups >= 1", assume, times and f"{times} >= 1"))


def _one_axis_kernel(
    name: str, domains: Sequence[str], body: Sequence[str], data: Sequence[lp.ArrayArg | lp.ValueArg]
) -> lp.TranslationUnit:
    import loopy as lp

    kernel = make_kernel(name, domains, "\n".join(["for g0, l0", *body, "end"]), data, in_order=True)
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
