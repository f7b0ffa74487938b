"""From loopy's instructions to the Scop's statements."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from loopy.kernel.instruction import AtomicUpdate, BarrierInstruction, NoOpInstruction
from loopy.symbolic import SubArrayRef, get_dependencies

from perflex.features.from_loopy.expression import ExpressionReader, path_from
from perflex.features.from_loopy.facts import Mask
from perflex.features.from_loopy.terms import method_of, operands
from perflex.features.scop.scop import Operation, Recurrence, Statement

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.from_loopy.accesses import AccessMaker
    from perflex.features.from_loopy.domains import Instances
    from perflex.features.from_loopy.facts import KernelFacts


@dataclass(frozen=True)
class Place:
    """Where an instruction or barrier stands in the linearization."""

    launch: int
    loops: Mapping[str, int]  # Loops around it, outermost first, and where the linearization enters them
    schedule: tuple[int | str, ...]


@dataclass(frozen=True)
class StatementMaker:
    """Makes statements of a kernel's instructions."""

    facts: KernelFacts  # What is known of the kernel
    accesses: AccessMaker  # Makes the accesses
    sharing: frozenset[str]  # Instructions that share a condition with the one before them

    def statements(self, insn_id: str, place: Place, every: Instances) -> list[Statement]:
        """Return what an instruction does: a statement for all its instances (`every`), more for parts of them."""
        insn = self.facts.kernel.id_to_insn[insn_id]
        if isinstance(insn, (BarrierInstruction, NoOpInstruction)):
            return []
        self._require_known(insn)
        trips = self.facts.trips
        reader = ExpressionReader(self.facts, every.space, insn_id)
        assigned = self.facts.types.assigned(insn)
        home, assumed = self._read(insn, assigned, place, reader)
        recurrence, assigns = self._private_update(insn, assigned, reader)
        made: list[Statement] = []
        for mask, work in reader.work.items():
            # Where the value is assigned is kept even if nothing is done there: it carries the recurrence.
            if mask != home and not (work.operations or work.loads or work.stores):
                continue
            instances = every.restricted(mask.conditions, self.facts.parameters) if mask.conditions else every
            instances = instances if mask.lanes == 1 else instances.in_lanes(mask.lanes)
            touched = [(raw, "load") for raw in work.loads] + [(raw, "store") for raw in work.stores]
            made.append(Statement(
                name=insn_id if not made else f"{insn_id}.{len(made)}",
                domain=instances.domain,
                accesses=tuple(self.accesses.access(raw, way, instances, insn_id) for raw, way in touched),
                operations=_operations(work.operations),
                launch=place.launch,
                schedule=place.schedule,
                guarded=mask.guarded,
                recurrence=recurrence if mask == home else None,
                assigns=assigns if mask == home else "",
                averages=trips.averages(place.loops),
                stated=", ".join(filter(None, (trips.stated(place.loops), assumed))),
            ))  # fmt: skip
        return made

    def _require_known(self, insn: Any) -> None:
        """Refuse literal code and calls on parts of arrays: what they execute is not known."""
        if not hasattr(insn, "expression"):
            what = f"literal code ({type(insn).__name__})"
        elif any(isinstance(each, SubArrayRef) for each in (*operands(insn.expression), *insn.assignees)):
            # loopy underlines functions.
            what = f"a call on sub-arrays ({insn.expression})".replace("\N{COMBINING LOW LINE}", "")
        else:
            return
        msg = (
            f"instruction {insn.id!r} is {what}, and what it executes is not known; describe the kernel by hand as a "
            "Scop (scop_from_yaml), or give its OpenCL C source with source_kernel"
        )
        raise self.facts.refuse(msg, instruction=insn.id)

    def _read(self, insn: Any, assigned: Any, place: Place, reader: ExpressionReader) -> tuple[Mask, str]:
        """Read an instruction; return where it assigns, and what is assumed, for messages."""
        with ExitStack() as stack:
            # The generated code tests several one after the other, the first one only once for several
            # instructions in a row that share it.
            several = len(insn.predicates) > 1 or insn.id in self.sharing
            # Predicates are a frozenset: its order, and so that of the statements, would differ between processes.
            predicates = sorted(insn.predicates, key=str)
            for predicate in predicates:
                # Loops that a condition does not depend on are inside of it.
                outside = bool(set(place.loops) - get_dependencies(predicate))
                with reader.only(Mask(guarded=several or outside)):
                    reader.read(self.facts.types.generated(predicate))
            for predicate in predicates:
                stack.enter_context(reader.only(self.facts.branches(predicate, reader.space)[0]))
            home = reader.mask
            reader.read(assigned)
            for assignee in insn.assignees:
                reader.write(assignee)
            # An update may be generated as a compare-and-swap loop, which runs again when another work-item was faster.
            updates = [one for one in getattr(insn, "atomicity", ()) if isinstance(one, AtomicUpdate)]
            if updates:
                reader.count("atomic", insn.assignees[0], len(updates))
        return home, "atomic updates that succeed at once" if updates else ""

    def _private_update(self, insn: Any, assigned: Any, reader: ExpressionReader) -> tuple[Recurrence | None, str]:
        """Return how the instruction updates a private scalar from its old value, or which one it sets afresh."""
        if len(insn.assignees) != 1 or method_of(insn.assignees[0]) != "map_variable":
            return None, ""
        name = str(insn.assignees[0].name)
        if self.facts.types.is_array(name):
            return None, ""
        path = path_from(reader, assigned, name)
        return (None, name) if path is None else (Recurrence(name, _operations(Counter(path))), "")


def _operations(counted: Counter[tuple[str, str]]) -> tuple[Operation, ...]:
    return tuple(Operation(kind, dtype, count) for (kind, dtype), count in sorted(counted.items()))
