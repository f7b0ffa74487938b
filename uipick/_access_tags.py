"""Access tags on the global accesses of a finished kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopy.kernel.instruction import Assignment, LegacyStringInstructionTag
from loopy.symbolic import IdentityMapper, TaggedVariable

from perflex.errors import UnsupportedKernelError
from uipick._accesses import require_one_entry_point

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp
    from pymbolic.primitives import Expression, Variable


class _Tagger(IdentityMapper):  # type: ignore[misc]
    def __init__(self, tags: Mapping[str, str]) -> None:
        super().__init__()
        self._tags = tags

    def map_variable(self, expr: Variable) -> Expression:
        if expr.name in self._tags:
            return TaggedVariable(expr.name, frozenset({LegacyStringInstructionTag(self._tags[expr.name])}))
        return expr


def tag_accesses(
    kernel: lp.TranslationUnit, loads: Mapping[str, str] | None = None, stores: Mapping[str, str] | None = None
) -> lp.TranslationUnit:
    """Put an access tag on every access to the given arrays.

    Done after all transformations, since ``add_prefetch`` drops the tags written in instructions.

    Parameters
    ----------
    kernel
        A kernel with one entry point.
    loads, stores
        Access tag by array.

    Returns
    -------
    lp.TranslationUnit
        The kernel with the tags; what else it does is unchanged.

    Raises
    ------
    UnsupportedKernelError
        The kernel has no such array, or several entry points.
    """
    require_one_entry_point(kernel, "tagging accesses")
    loop_kernel = kernel.default_entrypoint
    known = {*loop_kernel.arg_dict, *loop_kernel.temporary_variables}
    for name in (*(loads or {}), *(stores or {})):
        if name not in known:
            msg = f"kernel {loop_kernel.name!r} has no array {name!r}; it has {', '.join(sorted(known))}"
            raise UnsupportedKernelError(msg, kernel=loop_kernel.name)
    load, store = _Tagger(loads or {}), _Tagger(stores or {})
    instructions = [
        insn.copy(expression=load(insn.expression), assignee=store(insn.assignee))
        if isinstance(insn, Assignment)
        else insn
        for insn in loop_kernel.instructions
    ]
    return kernel.with_kernel(loop_kernel.copy(instructions=instructions))
