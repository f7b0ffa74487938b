"""What instructions do as their user states it: literal code, calls on sub-arrays, and any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.errors import UnknownFeatureError, UnsupportedKernelError
from perflex.features.from_loopy.subscript import parsed_by_user, rewritten
from perflex.features.from_loopy.terms import substituted
from perflex.features.scop.words import read_operation

if TYPE_CHECKING:
    from perflex.features.annotation import InstructionCounts
    from perflex.features.from_loopy.expression import ExpressionReader
    from perflex.features.from_loopy.facts import KernelFacts

# Loops over a sub-array that only a call's parameters name, outermost first.
Sweep = tuple[str, ...]


class StatedWork:
    """Reads what was stated for a kernel's instructions."""

    def __init__(self, facts: KernelFacts) -> None:
        self._facts = facts
        self._counts = dict(facts.options.instructions)
        kernel = facts.kernel
        for name in self._counts:
            if name not in kernel.id_to_insn:
                msg = f"what is stated for instruction {name!r} fits no instruction of the kernel"
                raise self._error(name, msg)
            updates = [one for one in kernel.id_to_insn if one.startswith(f"{name}_") and one.endswith("_update")]
            if updates:
                msg = f"the reduction of instruction {name!r} is instructions of its own; state {', '.join(updates)}"
                raise self._error(name, msg)

    def counts(self, insn: Any) -> InstructionCounts | None:
        """Return what was stated for an instruction; code that only a statement describes is an error without one."""
        found = self._counts.get(insn.id)
        if found is not None or (hasattr(insn, "expression") and not _sub_arrays(insn)):
            return found
        what, example = f"literal code ({type(insn).__name__})", "loads=['x[i]'], stores=['y[i]']"
        if hasattr(insn, "expression"):
            # loopy underlines functions.
            call = str(insn.expression).replace("\N{COMBINING LOW LINE}", "")
            what, example = f"a call on sub-arrays ({call})", "each element of them is accessed once"
        msg = (
            f"instruction {insn.id!r} is {what}, and what it executes is not known; state it: annotate(kernel, "
            f"instructions={{{insn.id!r}: InstructionCounts.of({{'float32_add': 1}}"
        )
        msg += f")}}), where {example}" if hasattr(insn, "expression") else f", {example})}})"
        raise self._error(insn.id, msg)

    def names_accesses(self, insn: Any) -> bool:
        """Whether all accesses are those that were stated, or those to sub-arrays, and none are read from the code."""
        counts = self._counts[insn.id]
        return not hasattr(insn, "expression") or bool(counts.loads or counts.stores or _sub_arrays(insn))

    def sweeps(self, insn: Any) -> list[Sweep]:
        """Return the loops over sub-arrays that accesses of an instruction are in; none come first."""
        found = [sweep for _, _, sweep in self._accesses(insn)] if insn.id in self._counts else []
        return list(dict.fromkeys([(), *found]))

    def read(self, insn: Any, reader: ExpressionReader, sweep: Sweep) -> None:
        """Add the operations and accesses of an instruction in these loops over sub-arrays."""
        if not sweep:
            for name, count in self._counts[insn.id].operations:
                reader.add_operations(*_operation_of(name, insn.id), count)
        for direction, access, around in self._accesses(insn):
            if around == sweep:
                (reader.read if direction == "load" else reader.write)(access)

    def _accesses(self, insn: Any) -> list[tuple[str, Any, Sweep]]:
        from loopy.symbolic import get_dependencies

        counts, arrays = self._counts[insn.id], _sub_arrays(insn)
        if counts.loads or counts.stores:
            named = [("load", self._access(text, insn)) for text in counts.loads]
            named += [("store", self._access(text, insn)) for text in counts.stores]
        else:
            named = [(direction, one.subscript) for direction, one in arrays]
        swept = dict.fromkeys(loop.name for _, one in arrays for loop in one.swept_inames)
        return [(way, one, tuple(loop for loop in swept if loop in get_dependencies(one))) for way, one in named]

    def _access(self, text: str, insn: Any) -> Any:
        kernel = self._facts.kernel
        parsed = parsed_by_user(text, f"access {text!r}, stated for instruction {insn.id!r}", kernel.name)
        aggregate = getattr(parsed, "aggregate", parsed)
        name = getattr(aggregate, "name", None)
        if name is None or not self._facts.types.is_array(name):
            msg = (
                f"access {text!r}, stated for instruction {insn.id!r}, is to no array of the kernel; write e.g. 'x[i]'"
            )
            raise self._error(insn.id, msg)
        # Transformations rewrite iname_exprs, which give meaning to the code's names, but not the text of the user.
        return rewritten(kernel, substituted(parsed, dict(getattr(insn, "iname_exprs", ()))))

    def _error(self, insn_id: str, message: str) -> UnsupportedKernelError:
        kernel = self._facts.kernel.name
        return UnsupportedKernelError(f"kernel {kernel!r}: {message}", kernel=kernel, instruction=insn_id)


def _sub_arrays(insn: Any) -> list[tuple[str, Any]]:
    """Return the parts of arrays that a call takes, and those that it assigns."""
    from loopy.symbolic import SubArrayRef

    parameters = getattr(getattr(insn, "expression", None), "parameters", ())
    named = [("load", one) for one in parameters] + [("store", one) for one in getattr(insn, "assignees", ())]
    return [(direction, one) for direction, one in named if isinstance(one, SubArrayRef)]


def _operation_of(name: str, insn_id: str) -> tuple[str, str]:
    """Return (kind, dtype) of a stated operation."""
    try:
        dtype, kind = read_operation(f"f_op_{name}")
    except UnknownFeatureError as error:
        msg = f"{name!r}, stated for instruction {insn_id!r}, is no operation: {error.message}"
        raise UnsupportedKernelError(msg, instruction=insn_id) from None
    return kind, dtype
