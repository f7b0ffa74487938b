"""Kernels made of others: with the memory accesses alone (paper Section 7.1.1), or with confined loads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
from loopy.kernel import KernelState
from loopy.kernel.data import GroupInameTag, LocalInameTag
from loopy.kernel.instruction import Assignment
from loopy.symbolic import IdentityMapper, SubstitutionMapper, pw_aff_to_expr
from loopy.translation_unit import make_program
from pymbolic import var
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Remainder, Subscript, flattened_sum

from perflex.caches import mend_entries
from perflex.errors import UnsupportedKernelError
from perflex.isl import isl
from uipick._accesses import (
    check_one_launch,
    check_regular,
    global_accesses,
    global_arrays,
    launch_instructions,
    require_one_entry_point,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from pymbolic.primitives import Expression

    from uipick._accesses import Access

mend_entries()


def remove_work(
    kernel: lp.TranslationUnit, remove_vars: Collection[str] = (), keep_tags: Collection[str] | None = None
) -> lp.TranslationUnit:
    """Strip arithmetic, local memory and barriers from a kernel, and keep global accesses.

    Each kept load becomes ``read_tgt = read_tgt + load`` in the loops it was in, with its access pattern, conditions
    and access tags unchanged. Before them ``read_tgt`` is set to zero. Kept stores store ``read_tgt`` (zero where no
    load is kept); if none is kept, each work-item stores it once with stride 1 in a new array ``read_tgt_dest``, so
    that no compiler can drop the loads. Launch sizes stay as they were.

    Parameters
    ----------
    kernel
        A kernel with one entry point.
    remove_vars
        Global arrays whose accesses are removed.
    keep_tags
        If given, only accesses with one of these tags are kept.

    Returns
    -------
    lp.TranslationUnit
        A new kernel; arrays that nothing accesses any more are no longer among its arguments.

    Raises
    ------
    UnsupportedKernelError
        The kernel has no array or tag of a given name, nothing is left to keep, a kept access depends on data, kept
        accesses belong to several launches, or an instruction is not an assignment.

    Notes
    -----
    Source: the paper's Section 7.1.1, Algorithm 3.
    """
    require_one_entry_point(kernel, "work removal")
    # Preprocessing makes instructions of reductions, linearizing gives their order, loops and launches.
    prepared = lp.linearize(lp.preprocess_program(kernel))
    old = prepared.default_entrypoint
    accesses = global_accesses(old)
    kept = _kept(old, accesses, remove_vars, keep_tags)
    for access in kept:
        check_regular(old, access)
    instructions = launch_instructions(old, check_one_launch(old, kept))
    extents = old.get_grid_sizes_for_insn_ids(instructions, prepared.callables_table)
    launch = launch_of(old, instructions, extents)
    stripped = _stripped(old, kept, launch)
    result = lp.remove_unused_inames(make_program(stripped).with_entrypoints(stripped.name))
    _check_launch(result, extents)
    return result


def _kept(
    kernel: lp.LoopKernel, accesses: Sequence[Access], remove_vars: Collection[str], keep_tags: Collection[str] | None
) -> list[Access]:
    if isinstance(remove_vars, str) or isinstance(keep_tags, str):
        msg = "remove_vars and keep_tags are lists of names, not one string; write ['a']"
        raise UnsupportedKernelError(msg, kernel=kernel.name)
    _check_names("global array", remove_vars, global_arrays(kernel), kernel.name)
    if keep_tags is not None:
        _check_names("access tag", keep_tags, {tag for a in accesses for tag in a.tags}, kernel.name)
    kept = [
        access
        for access in accesses
        if access.array not in remove_vars and (keep_tags is None or access.tags & set(keep_tags))
    ]
    if not kept:
        there = "; ".join(dict.fromkeys(map(str, accesses))) or "none"
        msg = f"nothing is left of kernel {kernel.name!r}: its global accesses are {there}; remove fewer"
        raise UnsupportedKernelError(msg, kernel=kernel.name)
    return kept


def _check_names(what: str, given: Collection[str], there: Collection[str], kernel: str) -> None:
    for name in given:
        if name not in there:
            msg = f"kernel {kernel!r} has no {what} {name!r}; it has {', '.join(sorted(there)) or 'none'}"
            raise UnsupportedKernelError(msg, kernel=kernel)


def _stripped(old: lp.LoopKernel, kept: Sequence[Access], launch: Launch) -> lp.LoopKernel:
    loads = [access for access in kept if not access.is_store]
    stores = [access for access in kept if access.is_store]
    generate_name = old.get_var_name_generator()
    target, destination = generate_name("read_tgt"), generate_name("read_tgt_dest")
    sources = loads or stores
    dtype = np.result_type(*(old.get_var_descriptor(access.array).dtype.numpy_dtype for access in sources))

    chain = _Chain()
    for inames in _starting(old, kept, launch):
        chain.add(var(target), dtype.type(0), inames, frozenset(), "init")
    for access in kept:
        if access.is_store:
            chain.add(access.expression, var(target), access.within_inames, access.predicates, "store")
        else:
            total = var(target) + access.expression
            chain.add(var(target), total, access.within_inames, access.predicates, "read")
    arrays = {access.array for access in kept}
    arguments = [a for a in old.args if not isinstance(a, lp.ArrayArg) or a.name in arrays]
    arguments = [_with_direction(a, loads, stores) if isinstance(a, lp.ArrayArg) else a for a in arguments]
    temporaries = {name: t for name, t in old.temporary_variables.items() if name in arrays}
    temporaries[target] = lp.TemporaryVariable(target, dtype, shape=(), address_space=lp.AddressSpace.PRIVATE)
    if not stores:
        chain.add(Subscript(var(destination), launch.place), var(target), launch.inames, frozenset(), "store")
        arguments.insert(
            len(arrays),
            lp.GlobalArg(
                destination, dtype, shape=launch.shape, strides=launch.strides, is_input=False, is_output=True
            ),
        )
    return old.copy(
        instructions=chain.instructions,
        args=arguments,
        temporary_variables=temporaries,
        # The new instructions are not ordered yet: they go through preprocessing again.
        state=KernelState.INITIAL,
        linearization=None,
        # The order of loops is part of the access pattern; loopy would be free to choose it.
        loop_priority=frozenset(access.nest for access in kept if len(access.nest) > 1),
        name=f"{old.name}_work_removed",
    )


def _starting(kernel: lp.LoopKernel, kept: Sequence[Access], launch: Launch) -> list[frozenset[str]]:
    """Return the inames within which the sum is set to zero, so that no work-item adds to an undefined one.

    Those of the launch, and where guards let more work-items load than have a result to store, those of the load.
    """
    chosen = [launch.inames]
    covered = work_items(kernel, launch.inames)
    for access in kept:
        parallel = frozenset(
            name for name in access.within_inames if kernel.iname_tags_of_type(name, (GroupInameTag, LocalInameTag))
        )
        items = work_items(kernel, access.within_inames)
        if items.dim(isl.dim_type.set) == covered.dim(isl.dim_type.set) and not items.is_subset(covered):
            chosen.append(parallel)
            covered = covered.union(items)
    return chosen


def _with_direction(argument: lp.ArrayArg, loads: Sequence[Access], stores: Sequence[Access]) -> lp.ArrayArg:
    return argument.copy(
        is_input=any(access.array == argument.name for access in loads)
        or (argument.is_input and any(access.array == argument.name for access in stores)),
        is_output=any(access.array == argument.name for access in stores),
    )


class _Chain:
    """Instructions, each of which depends on all those before it."""

    def __init__(self) -> None:
        self.instructions: list[Assignment] = []

    def add(
        self,
        assignee: Expression,
        expression: Expression,
        within_inames: frozenset[str],
        predicates: frozenset[Expression],
        name: str,
    ) -> None:
        """Append an instruction."""
        self.instructions.append(
            Assignment(
                assignee,
                expression,
                id=f"{name}_{len(self.instructions)}",
                within_inames=within_inames,
                predicates=predicates,
                depends_on=frozenset(insn.id for insn in self.instructions),
                # Else loopy adds dependencies of its own, by the names of variables.
                depends_on_is_final=True,
            )
        )


def _check_launch(kernel: lp.TranslationUnit, extents: tuple[tuple[isl.PwAff, ...], tuple[isl.PwAff, ...]]) -> None:
    new = kernel.default_entrypoint
    assumptions = new.assumptions.to_set()
    found = new.get_grid_size_upper_bounds(kernel.callables_table)
    for before, after in zip(extents, found, strict=True):
        same = len(before) == len(after) and all(
            x.intersect_params(assumptions).is_equal(y.intersect_params(assumptions))
            for x, y in zip(before, after, strict=True)
        )
        if not same:
            msg = f"removing work would change the launch of {new.name!r} from {before} to {after}"
            raise UnsupportedKernelError(msg, kernel=new.name)


class _Confiner(IdentityMapper):  # type: ignore[misc]
    """Puts expressions for group ids into the subscripts of some arrays."""

    def __init__(self, arrays: frozenset[str], replaced: Mapping[str, Expression]) -> None:
        super().__init__()
        self._arrays = arrays
        self._replace = SubstitutionMapper(make_subst_func(dict(replaced)))

    def map_subscript(self, expr: Subscript) -> Expression:
        if expr.aggregate.name not in self._arrays:
            return super().map_subscript(expr)
        # The aggregate carries the access tags.
        return Subscript(expr.aggregate, self._replace(expr.index))


def confine_loads(kernel: lp.TranslationUnit, groups: int = 4) -> lp.TranslationUnit:
    """Let work-groups load from global memory what the first few along each axis load.

    Each group id g in the subscripts of loads becomes ``g mod groups``; instructions, loops, local memory, barriers
    and stores stay. So compilers make the same code of it (the remainder is known only when it runs), but what it
    loads fits into the caches next to the cores: its time is the kernel's *in-core* time, to which the transfer of
    the data is added. That is the division of time which the ECM model makes, with the in-core part measured
    rather than estimated from the instructions.

    Parameters
    ----------
    kernel
        A kernel with one entry point.
    groups
        Work-groups along each axis that load data of their own, at least one.

    Returns
    -------
    lp.TranslationUnit
        A new kernel, with the arguments, sizes and launch of the given one. What it computes is of no use.

    Raises
    ------
    UnsupportedKernelError
        The kernel has several entry points, loads what it also stores (work-groups would race), or loads nothing
        that depends on the work-group; or `groups` is below one.
    """
    if groups < 1:
        msg = f"groups is the number of work-groups that load data of their own: at least 1, not {groups}"
        raise UnsupportedKernelError(msg)
    require_one_entry_point(kernel, "confining loads")
    old = kernel.default_entrypoint
    group_inames = sorted(name for name in old.inames if old.iname_tags_of_type(name, GroupInameTag))
    confiner = _Confiner(global_arrays(old), {name: Remainder(var(name), groups) for name in group_inames})
    instructions = []
    changed: set[str] = set()
    for insn in old.instructions:
        if not isinstance(insn, Assignment):
            instructions.append(insn)
            continue
        new = insn.copy(expression=confiner(insn.expression))
        if new.expression != insn.expression:
            changed |= new.read_dependency_names() & global_arrays(old)
        instructions.append(new)
    if not changed:
        msg = f"kernel {old.name!r} loads nothing from global memory that depends on the work-group; nothing to confine"
        raise UnsupportedKernelError(msg, kernel=old.name)
    stored = {name for insn in old.instructions for name in insn.assignee_var_names()}
    if stored & changed:
        names = ", ".join(sorted(stored & changed))
        msg = f"kernel {old.name!r} both loads and stores {names}; confined loads would race with other groups' stores"
        raise UnsupportedKernelError(msg, kernel=old.name)
    result = old.copy(instructions=instructions, name=f"{old.name}_core")
    return make_program(result).with_entrypoints(result.name)


@dataclass(frozen=True)
class Launch:
    """Work-items of a kernel."""

    # One iname for each axis of groups and work-items that covers the whole axis.
    inames: frozenset[str]
    # Row-major place of the work-item in an array with one element per work-item, and that array's extents.
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
    """Return a launch of a kernel."""
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
