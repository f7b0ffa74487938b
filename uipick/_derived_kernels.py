"""Kernels made of others: with the memory accesses alone (paper Section 7.1.1), or with confined loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

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

from perflex.caches import repair_pytools_cache
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
    from collections.abc import Collection, Mapping

    from pymbolic.primitives import Expression

    from uipick._accesses import Access

repair_pytools_cache()


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
    removal = _Removal(kernel, remove_vars, keep_tags)
    stripped = removal.stripped()
    result = lp.remove_unused_inames(make_program(stripped).with_entrypoints(stripped.name))
    removal.check_launch(result)
    return result


_AXES = {"g": GroupInameTag, "l": LocalInameTag}
_Extents: TypeAlias = "tuple[tuple[isl.PwAff, ...], tuple[isl.PwAff, ...]]"


class _Removal:
    """Work removal from a kernel: the accesses that are kept, and the launch that they belong to."""

    def __init__(
        self, kernel: lp.TranslationUnit, remove_vars: Collection[str], keep_tags: Collection[str] | None
    ) -> None:
        require_one_entry_point(kernel, "work removal")
        # Preprocessing makes instructions of reductions, linearizing gives their order, loops and launches.
        prepared = lp.linearize(lp.preprocess_program(kernel))
        self.kernel = prepared.default_entrypoint
        self.assumptions = isl.Set.from_basic_set(self.kernel.assumptions)
        self.kept = self._chosen(remove_vars, keep_tags)
        self.loads = [access for access in self.kept if not access.is_store]
        self.stores = [access for access in self.kept if access.is_store]
        for access in self.kept:
            check_regular(self.kernel, access)
        self.launched = launch_instructions(self.kernel, check_one_launch(self.kernel, self.kept))
        # Of the axes of groups and of work-items.
        self.extents: _Extents = self.kernel.get_grid_sizes_for_insn_ids(self.launched, prepared.callables_table)
        # One iname for each axis of groups and work-items that covers the whole axis.
        self.axes = self._covering()
        self.inames = frozenset([*self.axes[0], *self.axes[1]])

    def _chosen(self, remove_vars: Collection[str], keep_tags: Collection[str] | None) -> list[Access]:
        name, accesses = self.kernel.name, global_accesses(self.kernel)
        if isinstance(remove_vars, str) or isinstance(keep_tags, str):
            msg = "remove_vars and keep_tags are lists of names, not one string; write ['a']"
            raise UnsupportedKernelError(msg, kernel=name)
        tags = {tag for access in accesses for tag in access.tags}
        known = (("global array", remove_vars, global_arrays(self.kernel)), ("access tag", keep_tags or (), tags))
        for what, given, there in known:
            for wrong in (each for each in given if each not in there):
                msg = f"kernel {name!r} has no {what} {wrong!r}; it has {', '.join(sorted(there)) or 'none'}"
                raise UnsupportedKernelError(msg, kernel=name)
        kept = [a for a in accesses if a.array not in remove_vars and (keep_tags is None or a.tags & set(keep_tags))]
        if not kept:
            all_of_them = "; ".join(dict.fromkeys(map(str, accesses))) or "none"
            msg = f"nothing is left of kernel {name!r}: its global accesses are {all_of_them}; remove fewer"
            raise UnsupportedKernelError(msg, kernel=name)
        return kept

    def stripped(self) -> lp.LoopKernel:
        """Return the kernel with the kept accesses alone."""
        old, stores = self.kernel, self.stores
        generate_name = old.get_var_name_generator()
        target, destination = generate_name("read_tgt"), generate_name("read_tgt_dest")
        dtype = np.result_type(*(old.get_var_descriptor(a.array).dtype.numpy_dtype for a in self.loads or stores))

        instructions: list[Assignment] = []

        def add(name: str, assignee: Expression, value: Expression, *where: frozenset[Any]) -> None:
            inames, predicates = where
            instructions.append(
                Assignment(
                    assignee,
                    value,
                    id=f"{name}_{len(instructions)}",
                    within_inames=inames,
                    predicates=predicates,
                    depends_on=frozenset(insn.id for insn in instructions),
                    # Else loopy adds dependencies of its own, by the names of variables.
                    depends_on_is_final=True,
                )
            )

        for inames in self._starting():
            add("init", var(target), dtype.type(0), inames, frozenset())
        for access in self.kept:
            where = (access.within_inames, access.predicates)
            if access.is_store:
                add("store", access.expression, var(target), *where)
            else:
                add("read", var(target), var(target) + access.expression, *where)
        arrays = {access.array for access in self.kept}
        arguments = [self._with_direction(a) for a in old.args if not isinstance(a, lp.ArrayArg) or a.name in arrays]
        temporaries = {name: t for name, t in old.temporary_variables.items() if name in arrays}
        temporaries[target] = lp.TemporaryVariable(target, dtype, shape=(), address_space=lp.AddressSpace.PRIVATE)
        if not stores:
            place, layout = self._results()
            add("store", Subscript(var(destination), place), var(target), self.inames, frozenset())
            arguments.insert(len(arrays), lp.GlobalArg(destination, dtype, **layout, is_input=False, is_output=True))
        return old.copy(
            instructions=instructions,
            args=arguments,
            temporary_variables=temporaries,
            # The new instructions are not ordered yet: they go through preprocessing again.
            state=KernelState.INITIAL,
            linearization=None,
            # The order of loops is part of the access pattern; loopy would be free to choose it.
            loop_priority=frozenset(access.nest for access in self.kept if len(access.nest) > 1),
            name=f"{old.name}_work_removed",
        )

    def _starting(self) -> list[frozenset[str]]:
        """Return the inames within which the sum is set to zero, so that no work-item adds to an undefined one.

        Those of the launch, and where guards let more work-items load than have a result to store, those of the load.
        """
        chosen = [self.inames]
        covered = self._work_items(self.inames)
        for access in self.kept:
            items = self._work_items(access.within_inames)
            if items.dim(isl.dim_type.set) == covered.dim(isl.dim_type.set) and not items.is_subset(covered):
                chosen.append(frozenset(name for name in access.within_inames if self._axis(name)))
                covered = covered.union(items)
        return chosen

    def _with_direction(self, argument: lp.KernelArgument) -> lp.KernelArgument:
        if not isinstance(argument, lp.ArrayArg):
            return argument
        stored = any(access.array == argument.name for access in self.stores)
        loaded = any(access.array == argument.name for access in self.loads)
        return argument.copy(is_input=loaded or (argument.is_input and stored), is_output=stored)

    def check_launch(self, stripped: lp.TranslationUnit) -> None:
        """Raise an `UnsupportedKernelError` unless the stripped kernel has the launch that the kernel had."""
        new = stripped.default_entrypoint
        assumptions = new.assumptions.to_set()
        found = new.get_grid_size_upper_bounds(stripped.callables_table)
        for before, after in zip(self.extents, found, strict=True):
            same = len(before) == len(after) and all(
                x.intersect_params(assumptions).is_equal(y.intersect_params(assumptions))
                for x, y in zip(before, after, strict=True)
            )
            if not same:
                msg = f"removing work would change the launch of {new.name!r} from {before} to {after}"
                raise UnsupportedKernelError(msg, kernel=new.name)

    def _results(self) -> tuple[tuple[Expression, ...], dict[str, tuple[Expression, ...]]]:
        """Return the work-item's place in a row-major array with an element for each, and its shape and strides."""
        groups, items = self.axes
        place, shape = [], []
        # The slowest axis first.
        for axis in reversed(range(max(len(groups), len(items)))):
            width = _constant(self.extents[1][axis]) if axis < len(items) else 1
            linear = {items[axis]: 1} if axis < len(items) else {}
            linear |= {groups[axis]: width} if axis < len(groups) else {}
            place.append(flattened_sum(factor * var(name) for name, factor in linear.items()))
            launched = self.extents[0][axis] * width if axis < len(groups) else self.extents[1][axis]
            shape.append(self._extent(linear, launched))
        strides: tuple[Expression, ...] = (1,)
        for extent in shape[:0:-1]:
            strides = (extent * strides[0], *strides)
        return tuple(place), {"shape": tuple(shape), "strides": strides}

    def _axis(self, iname: str) -> str:
        """Return the axis of groups or work-items that an iname stands for: ``"g.0"``; empty for loops."""
        for letter, tag in _AXES.items():
            for found in self.kernel.iname_tags_of_type(iname, tag):
                return f"{letter}.{found.axis}"
        return ""

    def _work_items(self, inames: frozenset[str]) -> isl.Set:
        """Return the work-items that execute something within the given inames, as a set over their axes."""
        names = {name: axis for name in sorted(inames) if (axis := self._axis(name))}
        domain = isl.Set.from_basic_set(self.kernel.get_inames_domain(inames))
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
        return domain.intersect_params(self.assumptions)

    def _covering(self) -> tuple[list[str], list[str]]:
        """Return the group and local inames of one instruction that every work-item takes part in."""
        arrays = global_arrays(self.kernel)
        # A store of results tells best which work-items have something to do; a fetch has bounds of its own.
        instructions = sorted(
            (self.kernel.id_to_insn[name] for name in self.launched),
            key=lambda insn: (not arrays.intersection(insn.assignee_var_names()), insn.id),
        )
        for insn in instructions:
            found: tuple[list[str], list[str]] = ([], [])
            for names, letter, sizes in zip(found, _AXES, self.extents, strict=True):
                for axis, size in enumerate(sizes):
                    names += [name for name in insn.within_inames if self._covers(name, f"{letter}.{axis}", size)]
            if all(len(names) == len(sizes) for names, sizes in zip(found, self.extents, strict=True)):
                return found
        msg = f"no instruction of kernel {self.kernel.name!r} is executed by all work-items; give them the same extents"
        raise UnsupportedKernelError(msg, kernel=self.kernel.name)

    def _covers(self, iname: str, axis: str, extent: isl.PwAff) -> bool:
        if self._axis(iname) != axis:
            return False
        size = self.kernel.get_iname_bounds(iname).size
        if axis.startswith("l"):
            # Work-groups have constant extents, also where the iname's range is shorter for small sizes.
            return _constant(size) == _constant(extent)
        return bool(size.intersect_params(self.assumptions).is_equal(extent.intersect_params(self.assumptions)))

    def _extent(self, linear: dict[str, int], launched: isl.PwAff) -> Expression:
        """Return 1 + the largest value of a linear form over the work-items that do something.

        Where that takes a case distinction, which loopy cannot have in a shape, all work-items of the launch count.
        """
        domain = self.kernel.get_inames_domain(self.inames)
        positions = domain.space.get_var_dict()
        form = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(domain.space))
        for name, factor in linear.items():
            # isl counts the variables of an affine form's domain as inputs, not as set dimensions.
            form = form.set_coefficient_val(isl.dim_type.in_, positions[name][1], factor)
        image = isl.Set.from_basic_set(domain).apply(isl.Map.from_aff(form))
        # What is assumed drops cases that cannot occur; coalescing joins pieces that then agree.
        largest = image.dim_max(0).gist_params(self.assumptions).coalesce() + 1
        if largest.n_piece() > 1:
            largest = launched.gist_params(self.assumptions).coalesce()
        return pw_aff_to_expr(largest)


def _constant(extent: isl.PwAff) -> int:
    return int(extent.max_val().to_python())


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
    arrays = global_arrays(old)
    confiner = _Confiner(arrays, {name: Remainder(var(name), groups) for name in group_inames})
    instructions, changed = [], set()
    for insn in old.instructions:
        new = insn.copy(expression=confiner(insn.expression)) if isinstance(insn, Assignment) else insn
        if isinstance(insn, Assignment) and new.expression != insn.expression:
            changed |= new.read_dependency_names() & arrays
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
