"""The launch of a kernel: which inames are its work-items, and where each work-item has a place in an array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from loopy.kernel.data import GroupInameTag, LocalInameTag
from loopy.symbolic import pw_aff_to_expr
from pymbolic import var
from pymbolic.primitives import flattened_sum

from perflex.errors import UnsupportedKernelError
from perflex.isl import isl
from uipick._accesses import global_arrays

if TYPE_CHECKING:
    import loopy as lp
    from pymbolic.primitives import Expression


@dataclass(frozen=True)
class Launch:
    """Work-items of a kernel.

    Attributes
    ----------
    inames
        One iname for each axis of groups and work-items that covers the whole axis.
    place
        Row-major place of the work-item in an array with one element per work-item: stride 1 along lid(0).
    shape
        Extents of that array.
    """

    inames: frozenset[str]
    place: tuple[Expression, ...]
    shape: tuple[Expression, ...]

    @property
    def strides(self) -> tuple[Expression, ...]:
        """Elements from one place to the next along each axis of that array."""
        strides: tuple[Expression, ...] = (1,)
        for extent in self.shape[:0:-1]:
            strides = (extent * strides[0], *strides)
        return strides


def launch_of(
    kernel: lp.LoopKernel, instructions: frozenset[str], extents: tuple[tuple[isl.PwAff, ...], tuple[isl.PwAff, ...]]
) -> Launch:
    """Return a launch of a kernel.

    Parameters
    ----------
    kernel
        A kernel whose inames have their hardware axes.
    instructions
        Ids of the instructions of the launch.
    extents
        Group and local extents, from ``get_grid_sizes_for_insn_ids``.

    Raises
    ------
    UnsupportedKernelError
        No instruction is executed by all work-items.
    """
    groups, locals_ = _covering(kernel, instructions, extents)
    chosen = frozenset([*groups, *locals_])
    place, shape = [], []
    # The slowest axis first, as in the shape of a row-major array.
    for axis in reversed(range(max(len(groups), len(locals_)))):
        linear = {}
        width = _constant(extents[1][axis]) if axis < len(locals_) else 1
        if axis < len(locals_):
            linear[locals_[axis]] = 1
        if axis < len(groups):
            linear[groups[axis]] = width
        place.append(flattened_sum(factor * var(name) for name, factor in linear.items()))
        launched = extents[0][axis] * width if axis < len(groups) else extents[1][axis]
        shape.append(_extent(kernel, chosen, linear, launched))
    return Launch(chosen, tuple(place), tuple(shape))


def work_items(kernel: lp.LoopKernel, inames: frozenset[str]) -> isl.Set:
    """Return the work-items that execute something within the given inames, as a set over their axes."""
    names = {}
    for name in sorted(inames):
        for letter, tag in (("g", GroupInameTag), ("l", LocalInameTag)):
            for axis_tag in kernel.iname_tags_of_type(name, tag):
                names[name] = f"{letter}.{axis_tag.axis}"
    domain = isl.Set.from_basic_set(kernel.get_inames_domain(inames))
    domain = domain.project_out_except(list(names), [isl.dim_type.set])
    for name, axis in names.items():
        domain = domain.set_dim_name(isl.dim_type.set, domain.find_dim_by_name(isl.dim_type.set, name), axis)
    for axis in sorted(names.values()):
        # Moved to the end one by one, so that all sets have the axes in the same order.
        last = domain.dim(isl.dim_type.set) - 1
        place = domain.find_dim_by_name(isl.dim_type.set, axis)
        if place != last:
            domain = domain.add_dims(isl.dim_type.set, 1)
            domain = domain.equate(isl.dim_type.set, place, isl.dim_type.set, last + 1)
            domain = domain.project_out(isl.dim_type.set, place, 1).set_dim_name(isl.dim_type.set, last, axis)
    return domain.intersect_params(isl.Set.from_basic_set(kernel.assumptions))


def _constant(extent: isl.PwAff) -> int:
    return int(extent.max_val().to_python())


def _covering(
    kernel: lp.LoopKernel, ids: frozenset[str], extents: tuple[tuple[isl.PwAff, ...], tuple[isl.PwAff, ...]]
) -> tuple[list[str], list[str]]:
    """Return the group and local inames of one instruction that every work-item takes part in."""
    arrays = global_arrays(kernel)
    # A store of results tells best which work-items have something to do; a fetch has bounds of its own.
    instructions = sorted(
        (kernel.id_to_insn[name] for name in ids),
        key=lambda insn: (not arrays.intersection(insn.assignee_var_names()), insn.id),
    )
    for insn in instructions:
        found: tuple[list[str], list[str]] = ([], [])
        for names, tag, sizes in zip(found, (GroupInameTag, LocalInameTag), extents, strict=True):
            for axis, size in enumerate(sizes):
                names += [name for name in insn.within_inames if _covers(kernel, name, tag, axis, size)]
        if all(len(names) == len(sizes) for names, sizes in zip(found, extents, strict=True)):
            return found
    msg = f"no instruction of kernel {kernel.name!r} is executed by all work-items; give them the same extents"
    raise UnsupportedKernelError(msg, kernel=kernel.name)


def _covers(kernel: lp.LoopKernel, name: str, tag: type, axis: int, extent: isl.PwAff) -> bool:
    if not any(t.axis == axis for t in kernel.iname_tags_of_type(name, tag)):
        return False
    size = kernel.get_iname_bounds(name).size
    if tag is LocalInameTag:
        # Work-groups have constant extents, also where the iname's range is shorter for small sizes.
        return _constant(size) == _constant(extent)
    assumptions = isl.Set.from_basic_set(kernel.assumptions)
    return bool(size.intersect_params(assumptions).is_equal(extent.intersect_params(assumptions)))


def _extent(kernel: lp.LoopKernel, chosen: frozenset[str], linear: dict[str, int], launched: isl.PwAff) -> Expression:
    """Return 1 + the largest value of a linear form over the work-items that do something.

    Where that takes a case distinction, which loopy cannot have in a shape, all work-items of the launch count.
    """
    domain = kernel.get_inames_domain(chosen)
    positions = domain.space.get_var_dict()
    form = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(domain.space))
    for name, factor in linear.items():
        # isl counts the variables of an affine form's domain as inputs, not as set dimensions.
        form = form.set_coefficient_val(isl.dim_type.in_, positions[name][1], factor)
    image = isl.Set.from_basic_set(domain).apply(isl.Map.from_aff(form))
    assumptions = isl.Set.from_basic_set(kernel.assumptions)
    # What is assumed drops cases that cannot occur; coalescing joins pieces that then agree.
    largest = image.dim_max(0).gist_params(assumptions).coalesce() + 1
    if largest.n_piece() > 1:
        largest = launched.gist_params(assumptions).coalesce()
    return pw_aff_to_expr(largest)
