"""Confined loads: a kernel whose work-groups load the same few tiles, so that its time is that of the cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopy.kernel.data import GroupInameTag
from loopy.kernel.instruction import Assignment
from loopy.symbolic import IdentityMapper, SubstitutionMapper
from loopy.translation_unit import make_program
from pymbolic import var
from pymbolic.mapper.substitutor import make_subst_func
from pymbolic.primitives import Remainder, Subscript

from perflex.errors import UnsupportedKernelError
from uipick._accesses import global_arrays, require_one_entry_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp
    from pymbolic.primitives import Expression


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
