"""Access tags on the global accesses of a finished kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loopy.kernel.instruction import LegacyStringInstructionTag
from loopy.symbolic import IdentityMapper, TaggedVariable

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp
    from pymbolic.primitives import Expression, Variable

__all__ = ["tag_accesses"]


class _Tagger(IdentityMapper):  # type: ignore[misc]
    def __init__(self, tags: Mapping[str, str]) -> None:
        super().__init__()
        self._tags = tags

    def map_variable(self, expr: Variable) -> Expression:
        if expr.name in self._tags:
            return TaggedVariable(expr.name, frozenset({LegacyStringInstructionTag(self._tags[expr.name])}))
        return expr


def tag_accesses(kernel: lp.TranslationUnit, loads: Mapping[str, str], stores: Mapping[str, str]) -> lp.TranslationUnit:
    """Put an access tag on every access to the given arrays.

    Done after all transformations, since ``add_prefetch`` drops the tags written in instructions.

    Parameters
    ----------
    kernel
        A kernel of assignments.
    loads, stores
        Access tag by array.
    """
    loop_kernel = kernel.default_entrypoint
    load, store = _Tagger(loads), _Tagger(stores)
    instructions = [
        insn.copy(expression=load(insn.expression), assignee=store(insn.assignee)) for insn in loop_kernel.instructions
    ]
    return kernel.with_kernel(loop_kernel.copy(instructions=instructions))
