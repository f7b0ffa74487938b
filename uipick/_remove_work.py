"""Work removal: a measurement kernel with the memory accesses of another kernel (paper Section 7.1.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import loopy as lp
import numpy as np
from loopy.kernel import KernelState
from loopy.kernel.data import GroupInameTag, LocalInameTag
from loopy.kernel.instruction import Assignment
from loopy.translation_unit import make_program
from pymbolic import var
from pymbolic.primitives import Subscript

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
from uipick._launch import launch_of, work_items

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pymbolic.primitives import Expression

    from uipick._accesses import Access
    from uipick._launch import Launch


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
    kernel: lp.LoopKernel,
    accesses: Sequence[Access],
    remove_vars: Collection[str],
    keep_tags: Collection[str] | None,
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
