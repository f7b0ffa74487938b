"""From loopy's instructions to the Scop's statements."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.expression import ExpressionReader, path_from
from perflex.features.from_loopy.facts import Branch, Where, Work
from perflex.features.from_loopy.terms import operands
from perflex.features.scop.scop import Operation, Recurrence, Statement
from perflex.features.scop.words import loop_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.from_loopy.domains import Instances
    from perflex.features.from_loopy.facts import KernelFacts
    from perflex.features.from_loopy.subscript import AccessMaker


@dataclass(frozen=True)
class Place:
    """Where an instruction or barrier stands in the linearization."""

    launch: int
    entered: Mapping[str, int]  # Loops around it, outermost first, and where the linearization enters them
    schedule: tuple[int | str, ...]

    @property
    def loops(self) -> tuple[str, ...]:
        """Loops around it, outermost first."""
        return tuple(self.entered)


@dataclass
class Program:
    """What a linearization executes."""

    # Identifier and place of each instruction, in order.
    instructions: list[tuple[str, Place]] = field(default_factory=list)
    # Kind, originating instruction (or None) and place of each barrier.
    barriers: list[tuple[str, str | None, Place]] = field(default_factory=list)
    # Instructions of each device program, and the host loops around it.
    launches: list[tuple[frozenset[str], tuple[str, ...]]] = field(default_factory=list)


def read_linearization(linearization: Sequence[Any]) -> Program:
    """Return what is executed where, from a loopy kernel's ``linearization``."""
    from loopy.schedule import Barrier as BarrierItem
    from loopy.schedule import CallKernel, EnterLoop, LeaveLoop, ReturnFromKernel, RunInstruction

    program = Program()
    loops: dict[str, int] = {}
    # Statements so far in each open loop, outermost first.
    counters = [0]
    inside: list[str] | None = None
    host_loops: tuple[str, ...] = ()
    for number, item in enumerate(linearization):
        # A launch is listed when it ends, so that the length is the number of the one being read.
        place = Place(len(program.launches), dict(loops), _position(counters, tuple(loops)))
        if isinstance(item, CallKernel):
            # Loops that are open at the call run on the host: each of their iterations is a launch.
            inside, host_loops = [], tuple(loops)
        elif isinstance(item, ReturnFromKernel):
            program.launches.append((frozenset(inside or ()), host_loops))
            inside = None
        elif isinstance(item, EnterLoop):
            loops[item.iname] = number
            counters.append(0)
        elif isinstance(item, LeaveLoop):
            loops.popitem()
            counters.pop()
            # A loop counts as one statement of the loop around it.
            counters[-1] += 1
        elif isinstance(item, RunInstruction):
            counters[-1] += 1
            # Outside of a device program it is the host's.
            if inside is not None:
                inside.append(item.insn_id)
                program.instructions.append((item.insn_id, place))
        elif isinstance(item, BarrierItem):
            counters[-1] += 1
            if inside is not None:
                program.barriers.append((item.synchronization_kind, item.originating_insn_id, place))
    return program


def _position(counters: Sequence[int], loops: Sequence[str]) -> tuple[int | str, ...]:
    position: list[int | str] = [counters[0]]
    for loop, counter in zip(loops, counters[1:], strict=True):
        position += [loop_name(loop), counter]
    return tuple(position)


@dataclass(frozen=True)
class StatementMaker:
    """Makes statements of a kernel's instructions."""

    facts: KernelFacts  # What is known of the kernel
    accesses: AccessMaker  # Makes the accesses
    sharing: frozenset[str]  # Instructions that share a condition with the one before them

    def statements(self, insn_id: str, place: Place, every: Instances) -> list[Statement]:
        """Return what an instruction does: a statement for all its instances (`every`), more for parts of them."""
        from loopy.kernel.instruction import BarrierInstruction, NoOpInstruction

        insn = self.facts.kernel.id_to_insn[insn_id]
        if isinstance(insn, (BarrierInstruction, NoOpInstruction)):
            return []
        trips = self.facts.trips
        reader = ExpressionReader(self.facts, every.space, insn_id)
        self._require_known(insn)
        assigned = self.facts.types.assigned(insn)
        home, assumed = self._read(insn, assigned, place.loops, reader)
        stated = _joined(trips.stated(place.loops), assumed)
        recurrence, assigns = self._private_update(insn, assigned, reader)
        made: list[Statement] = []
        for where, work in reader.work.items():
            # Where the value is assigned is kept even if nothing is done there: it carries the recurrence.
            if where != home and not (work.operations or work.loads or work.stores):
                continue
            instances = self._instances(where, every)
            made.append(
                Statement(
                    name=insn_id if not made else f"{insn_id}.{len(made)}",
                    domain=instances.domain,
                    accesses=self._accesses(work, instances, insn_id),
                    operations=_operations(work.operations),
                    launch=place.launch,
                    schedule=place.schedule,
                    guarded=where.guarded,
                    recurrence=recurrence if where == home else None,
                    assigns=assigns if where == home else "",
                    averages=trips.averages(place.loops),
                    stated=stated,
                )
            )
        return made

    # what it does

    def _require_known(self, insn: Any) -> None:
        """Refuse literal code and calls on parts of arrays: what they execute is not known."""
        from loopy.symbolic import SubArrayRef

        if not hasattr(insn, "expression"):
            what = f"literal code ({type(insn).__name__})"
        elif any(isinstance(each, SubArrayRef) for each in (*operands(insn.expression), *insn.assignees)):
            # loopy underlines functions.
            what = f"a call on sub-arrays ({insn.expression})".replace("\N{COMBINING LOW LINE}", "")
        else:
            return
        name = self.facts.kernel.name
        msg = (
            f"kernel {name!r}: instruction {insn.id!r} is {what}, and what it executes is not known; describe the "
            "kernel by hand as a Scop (scop_from_yaml), or give its OpenCL C source with source_kernel"
        )
        raise UnsupportedKernelError(msg, kernel=name, instruction=insn.id)

    def _read(self, insn: Any, assigned: Any, loops: Sequence[str], reader: ExpressionReader) -> tuple[Where, str]:
        """Read an instruction that assigns an expression; return where it does, and what is assumed, for messages."""
        from contextlib import ExitStack

        from loopy.kernel.instruction import AtomicUpdate
        from loopy.symbolic import get_dependencies

        assumed = ""
        with ExitStack() as stack:
            # The generated code tests several one after the other, the first one only once for several
            # instructions in a row that share it.
            several = len(insn.predicates) > 1 or insn.id in self.sharing
            # Predicates are a frozenset: its order, and so that of the statements, would differ between processes.
            for predicate in sorted(insn.predicates, key=str):
                # Loops that a condition does not depend on are inside of it.
                outside = bool(set(loops) - get_dependencies(predicate))
                with reader.only(Branch(guarded=several or outside)):
                    reader.read(self.facts.types.condition(predicate))
            for predicate in sorted(insn.predicates, key=str):
                stack.enter_context(reader.only(reader.branches(predicate)[0]))
            home = reader.where
            reader.read(assigned)
            for assignee in insn.assignees:
                reader.write(assignee)
            # An update may be generated as a compare-and-swap loop, which runs again when another work-item was faster.
            for atomicity in getattr(insn, "atomicity", ()):
                if isinstance(atomicity, AtomicUpdate):
                    reader.count("atomic", insn.assignee)
                    assumed = "atomic updates that succeed at once"
        return home, assumed

    def _private_update(self, insn: Any, assigned: Any, reader: ExpressionReader) -> tuple[Recurrence | None, str]:
        """Return how the instruction updates a private scalar from its old value, or which one it sets afresh."""
        if len(insn.assignees) != 1 or getattr(insn.assignee, "mapper_method", "") != "map_variable":
            return None, ""
        name = str(insn.assignee.name)
        if self.facts.types.is_array(name):
            return None, ""
        path = path_from(reader, assigned, name)
        if path is None:
            return None, name
        return Recurrence(name, _operations(Counter(path))), ""

    # where it does it

    def _instances(self, where: Where, instances: Instances) -> Instances:
        if where.conditions:
            instances = instances.restricted(where.conditions, self.facts.parameters)
        return instances if where.lanes == 1 else instances.in_lanes(where.lanes)

    def _accesses(self, work: Work, instances: Instances, insn_id: str) -> tuple[Any, ...]:
        loads = [self.accesses.access(raw, "load", instances, insn_id) for raw in work.loads]
        stores = [self.accesses.access(raw, "store", instances, insn_id) for raw in work.stores]
        return (*loads, *stores)


def _joined(*texts: str) -> str:
    return ", ".join(filter(None, texts))


def _operations(counted: Counter[tuple[str, str]]) -> tuple[Operation, ...]:
    return tuple(Operation(kind, dtype, count) for (kind, dtype), count in sorted(counted.items()))
