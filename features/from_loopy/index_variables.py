"""Private integers that stand for a subscript: ``above = i - 1 if i > 0 else 0``, then ``t[above, j]``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features.from_loopy.terms import substituted

if TYPE_CHECKING:
    from collections.abc import Sequence


# Loop variables have at least as many.
_LEAST_BYTES = 4


class IndexVariables:
    """Private integers whose values follow from loop variables and sizes alone.

    Parameters
    ----------
    kernel
        A preprocessed loopy kernel.
    """

    def __init__(self, kernel: Any) -> None:
        from loopy.symbolic import get_dependencies

        self._kernel = kernel
        known = set(kernel.all_inames()) | set(kernel.outer_params())
        found: dict[str, tuple[Any, Any]] = {}
        candidates = {
            name: insn for name in kernel.temporary_variables if (insn := self._only_writer(name)) is not None
        }
        # What stands for one of them may itself be written with another.
        while ready := [name for name, insn in candidates.items() if get_dependencies(insn.expression) <= known]:
            for name in ready:
                insn = candidates.pop(name)
                value = substituted(insn.expression, {other: value for other, (_, value) in found.items()})
                found[name] = (insn, value)
                known.add(name)
        self._found = found

    def _only_writer(self, name: str) -> Any | None:
        """Return the one unconditional assignment to a private integer; None if it is none or has others."""
        from loopy.kernel.data import AddressSpace
        from loopy.kernel.instruction import Assignment

        variable = self._kernel.temporary_variables[name]
        writers = self._kernel.writer_map().get(name, frozenset())
        if variable.shape != () or variable.address_space != AddressSpace.PRIVATE or len(writers) != 1:
            return None
        insn = self._kernel.id_to_insn[next(iter(writers))]
        dtype = variable.dtype.numpy_dtype
        # Of narrow types, large values are cut off.
        if dtype.kind not in "iu" or dtype.itemsize < _LEAST_BYTES:
            return None
        return insn if isinstance(insn, Assignment) and not insn.predicates else None

    def without(self, indices: Sequence[Any], insn_id: str) -> tuple[Any, ...]:
        """Return subscripts of an instruction with their values in place of such variables.

        A variable stays where the instruction does not surely see the value of the same iteration.
        """
        from loopy.symbolic import get_dependencies

        names = {name for index in indices for name in get_dependencies(index)} & self._found.keys()
        if not names:
            return tuple(indices)
        reader = self._kernel.id_to_insn[insn_id]
        before = self._kernel.recursive_insn_dep_map()[insn_id]
        values = {
            name: value
            for name, (writer, value) in self._found.items()
            if name in names and writer.id in before and writer.within_inames <= reader.within_inames
        }
        return tuple(substituted(index, values) for index in indices)
