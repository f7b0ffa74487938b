"""Kernels with a simple access pattern.

In it a work-item accesses the element ``lid_stride_0 lid(0) + lid_stride_1 lid(1) + gid_stride_0 gid(0) + gid_stride_1
gid(1)``, no two work-items access the same one (access-to-footprint ratio 1), and the array has ``nelements`` elements
(paper Section 7.1.2, first variety of global memory access).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from uipick import _loopy as lp
from uipick.generators._arguments import WORK_GROUP_LIMIT, needs
from uipick.generators._kernel import make_counted_kernel

if TYPE_CHECKING:
    from uipick._generator import Arguments
    from uipick.generators._kernel import Data, Lines


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


def _is_plain(arguments: Arguments) -> bool:
    no_gaps = not (arguments.get("gid_stride_0", 0) or arguments.get("gid_stride_1", 0))
    strides = sorted((arguments["lid_stride_0"], arguments["lid_stride_1"]))
    return no_gaps and strides[1] % strides[0] == 0 and bool(arguments["nelements"] >= strides[1])


PATTERN_CONSTRAINTS = (
    WORK_GROUP_LIMIT,
    needs(
        "groups_fit:False",
        "gid strides of 0, one lid stride a multiple of the other, and nelements of at least the larger lid stride",
        _is_plain,
    ),
    needs(
        "groups_fit:True",
        "each stride to be at least the span of the axes with smaller strides, and the inner gid axis to fill a larger "
        "stride evenly: no two work-items access the same element",
        _is_nested,
    ),
    needs(
        "groups_fit:True",
        "nelements to be a multiple of the larger gid stride (lsize times lid stride)",
        lambda a: a["nelements"] % pattern_of(a).block == 0,
    ),
)


def make_pattern_kernel(
    name: str, arguments: Arguments, body: Lines, data: Data, *, loops: Lines = (), assume: str = "", times: str = ""
) -> lp.TranslationUnit:
    """Make a kernel whose work-items follow a simple pattern; ``{index}`` in the body is the work-item's element.

    `times` is the size parameter that says how often the loop over k runs.
    """
    pattern = pattern_of(arguments)
    domain, facts = _guarded_domain(pattern), [f"nelements >= {max(pattern.lid)}", assume]
    if arguments.get("groups_fit", True):
        facts = [f"nelements >= {pattern.block}", f"nelements mod {pattern.block} = 0", assume]
        domain = _fitting_domain(pattern)
    instructions = ["for g1, g0, l1, l0", *(line.replace("{index}", pattern.index) for line in body), "end"]
    kernel = make_counted_kernel(name, [domain, *loops], instructions, data, "nelements", facts, times)
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
