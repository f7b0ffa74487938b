"""The simple access pattern: one element per work-item, given by the strides of lid and gid.

The element that a work-item accesses is ``lid_stride_0 lid(0) + lid_stride_1 lid(1) + gid_stride_0 gid(0) +
gid_stride_1 gid(1)``, no two work-items access the same one (access-to-footprint ratio 1), and the array has
``nelements`` elements (paper Section 7.1.2, first variety of global memory access).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from uipick._generator import Constraint
from uipick.generators._arguments import WORK_GROUP_LIMIT
from uipick.generators._kernel import make_kernel, size_parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import loopy as lp

PATTERN_INAMES = ("g1", "g0", "l1", "l0")


@dataclass(frozen=True)
class Pattern:
    """Strides, in elements, and extents of the axes of a simple access pattern.

    Attributes
    ----------
    lsize
        Work-group extents along axes 0 and 1.
    lid, gid
        Strides of the local and group ids along axes 0 and 1.
    outer
        Axis of the groups whose number follows from the array's size.
    inner_groups
        Number of groups along the other axis.
    """

    lsize: tuple[int, int]
    lid: tuple[int, int]
    gid: tuple[int, int]
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


# Any: argument values by name, of the types that the declarations say.
def pattern_of(arguments: Mapping[str, Any]) -> Pattern:
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


def _is_nested(arguments: Mapping[str, Any]) -> bool:
    pattern = pattern_of(arguments)
    inner_stride = pattern.gid[1 - pattern.outer]
    axes = [*zip(pattern.lid, pattern.lsize, strict=True), (inner_stride, pattern.inner_groups)]
    # By stride, as digits of a number: each axis must end before the next one's stride.
    axes = [*sorted(axis for axis in axes if axis[1] != 1), (pattern.block, 1)]
    if any(extent < 1 or following < stride * extent for (stride, extent), (following, _) in pairwise(axes)):
        return False
    return pattern.inner_groups == 1 or inner_stride * pattern.inner_groups in {stride for stride, _ in axes}


def _fits(arguments: Mapping[str, Any]) -> bool:
    if not arguments["groups_fit"]:
        return True
    return bool(arguments["nelements"] % pattern_of(arguments).block == 0)


def _is_plain_when_guarded(arguments: Mapping[str, Any]) -> bool:
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
    Constraint(
        "groups_fit:True needs nelements to be a multiple of the larger gid stride (lsize times lid stride)",
        _fits,
    ),
)


def make_pattern_kernel(
    name: str,
    arguments: Mapping[str, Any],
    body: Sequence[str],
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    loops: Sequence[str] = (),
    assume: str = "",
) -> lp.TranslationUnit:
    """Make a kernel whose work-items follow a simple pattern.

    Parameters
    ----------
    arguments
        The generator's arguments that are not sizes.
    body
        Instructions, executed in order; ``{index}`` in them stands for the work-item's element.
    data
        Kernel arguments except nelements.
    loops
        Domains of further loops.
    assume
        Further assumption on size parameters.
    """
    import loopy as lp

    pattern = pattern_of(arguments)
    instructions = [line.replace("{index}", pattern.index) for line in body]
    fit = bool(arguments["groups_fit"])
    kernel = make_kernel(
        name,
        [_fitting_domain(pattern) if fit else _guarded_domain(pattern), *loops],
        "\n".join(["for " + ", ".join(PATTERN_INAMES), *instructions, "end"]),
        [*data, size_parameters("nelements")],
        in_order=True,
    )
    least = pattern.block if fit else max(pattern.lid)
    fitting = f" and nelements mod {pattern.block} = 0" if fit else ""
    further = f" and {assume}" if assume else ""
    kernel = lp.assume(kernel, f"nelements >= {least}{fitting}{further}")
    return lp.tag_inames(kernel, "g0:g.0, g1:g.1, l0:l.0, l1:l.1")


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
