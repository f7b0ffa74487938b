"""Where the walk through a kernel is: active work-items, loops, values of variables; and what it recorded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, TypeVar, cast

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.choices import chosen
from perflex.features.from_source.copies import replace
from perflex.features.from_source.integers import (
    Integer,
    Limit,
    NotAffineError,
    constant,
    is_size_name,
    is_within,
    names_in,
    tidy,
    variable,
)
from perflex.features.from_source.iterations import NOWHERE, overlap
from perflex.features.from_source.kernel_function import ParsedKernel
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.pending import Pending, all_of
from perflex.features.from_source.recording import Matter, Recorder, Unstated
from perflex.features.from_source.stated_subscripts import StandIns
from perflex.features.from_source.values import (
    Aggregate,
    BarrierKind,
    Closure,
    Executed,
    MemoryAccess,
    Place,
    Pointer,
    Reason,
    TypeReader,
    Unknown,
    Value,
    result_of,
    with_parts,
)
from perflex.features.lowering.arithmetic_types import common_type
from perflex.features.lowering.schedule import Cursor
from perflex.features.polynomials.cardinality import is_exhausted, spend
from perflex.isl import isl

_Result = TypeVar("_Result")
_Key = TypeVar("_Key")
# What evaluating an expression takes, in operations of isl; the limit to them is moved after so many.
_OPERATIONS_OF_STEP = 32
_STEPS_AT_ONCE = 64
# Among variables, what a function returned.
RETURNED = "returned"


@dataclass(frozen=True)
class Exit:
    """A way out of an iteration, a loop or a function before its end."""

    active: Any  # The work-items and iterations that leave, a set; where data decide, those that may
    certain: bool  # Whether all of them do
    variables: Mapping[Hashable, Value]


@dataclass
class Loop:
    """A loop that is walked through."""

    counter: str  # Name of its iteration number; empty for a case of a switch, which `break` leaves, too
    guards: int  # Conditions on data around it
    left: Any = NOWHERE  # Iterations that `break` or a test at their end leave, a set
    breaks: tuple[Exit, ...] = ()
    continues: tuple[Exit, ...] = ()  # Of this iteration

    @property
    def is_switch(self) -> bool:
        """Whether it is a case of a switch."""
        return not self.counter

    @property
    def in_doubt(self) -> bool:
        """Whether data decided before if this iteration goes on to here."""
        return not all(each.certain for each in (*self.breaks, *self.continues))


@dataclass
class Frame:
    """A function that is walked through."""

    guards: int = 0  # Conditions on data around the call
    loops: int = 0  # Loops around the call
    returned: Any = NOWHERE  # Work-items and iterations that returned, a set
    in_doubt: bool = False  # Whether data decided before if it goes on to here
    exits: tuple[Exit, ...] = ()
    function: Hashable = None
    owner: Place | None = None  # The object of a method
    by_reference: bool = False  # Whether it returns a place


@dataclass(frozen=True)
class Condition:
    """Where a condition holds and where not; both None where data decide, `reason` says why.

    Then it holds within `may` at most, and fails within `may_not`; None is everywhere.
    """

    true: Any = None
    false: Any = None
    reason: Reason = "data"
    may: Any = None
    may_not: Any = None

    @property
    def known(self) -> bool:
        """Whether it is affine."""
        return self.true is not None

    def negated(self) -> Condition:
        """Return the opposite."""
        return replace(self, true=self.false, false=self.true, may=self.may_not, may_not=self.may)


@dataclass
class Trial:
    """What is walked and may be dropped."""

    is_kept: bool = False  # Whether what it found out stays


@dataclass
class Walk:
    """The state of a walk through a kernel."""

    kernel: ParsedKernel
    types: TypeReader
    sizes: set[str]
    local: tuple[int, ...]
    groups: tuple[Integer, ...]
    active: Any
    numbers_of: Mapping[str, int] = field(default_factory=dict)  # Values of sizes that are stated
    contents: Mapping[str, int] = field(default_factory=dict)  # What all integers in an array are
    trips: Mapping[str, Fraction] = field(default_factory=dict)  # Average trip counts that are stated, by line
    stand_ins: StandIns = field(default_factory=lambda: StandIns({}))  # Subscripts that are stated
    recorder: Recorder = field(default_factory=Recorder)
    variables: dict[Hashable, Value] = field(default_factory=dict)
    declared: set[Hashable] = field(default_factory=set)  # Variables that were declared, in a trial since it began
    depths: dict[Hashable, int] = field(default_factory=dict)  # In how many loops variables were declared
    loops: list[Loop] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=lambda: [Frame()])
    guards: int = 0
    private: dict[Hashable, str] = field(default_factory=dict)  # Names of private arrays, by their variables
    named: dict[Hashable, str] = field(default_factory=dict)  # Names of arrays that the source declares
    addressing: bool = False  # Whether what is evaluated is part of an address
    line: int = 0
    file: str = ""  # Empty for the kernel's own
    cursor: Cursor = field(default_factory=Cursor)
    counters: int = 0
    fixed: dict[str, int] = field(default_factory=dict)  # Sizes of the kernel whose values are stated
    read: set[str] = field(default_factory=set)  # Those of them that it reads
    described: str = ""  # The line that a description is at, after the walk
    # Names of sizes and arrays, what the host sets of them, and where it is declared.
    given: dict[str, tuple[str, int]] = field(default_factory=dict)
    pointed: dict[str, int] = field(default_factory=dict)  # Arrays behind pointers in arrays, and how deep they lie
    pointers_of: set[str] = field(default_factory=set)  # Arrays from which pointers are loaded
    repointed: set[str] = field(default_factory=set)  # Arrays into which pointers are stored
    one_by_one: int | None = None  # Iterations that may still be walked one by one; None outside of such loops
    limits: list[tuple[Integer, int]] | None = None  # Where it is looked for later whether integers stay below limits

    def size(self, name: str, dtype: str) -> Integer:
        """Return an integer argument: its stated value, or a size."""
        if name in self.numbers_of:
            self.fixed[name] = int(self.numbers_of[name])
            return Integer.of(self.fixed[name], dtype)
        if not is_size_name(name):
            raise self.refuse(f"no formula can have a size of the name {name!r}; give a number for it, or rename it")
        self.sizes.add(name)
        return Integer.of(variable(name), dtype)

    def fix(self, names: Iterable[str]) -> None:
        """Note that what is described rests on the values of some sizes, as far as they are stated."""
        self.fixed |= {name: self.numbers_of[name] for name in names if name in self.numbers_of}
        self.read |= {name for name in names if name in self.fixed}

    def require_below(self, value: Integer, limit: int) -> None:
        """Note that an integer must stay below a limit here; NotAffineError where it does not whatever the sizes."""
        if self.limits is not None:
            self.limits.append((value, limit))
            return
        if set(value.terms) <= {()}:
            if is_within(value.affine, "", limit - 1, self.active):
                return
            above = value.affine.ge_set(constant(limit)).intersect(self.active)
            if not self.sizes & names_in(above):
                msg = "it wraps around"
                raise NotAffineError(msg)
        if not self.recorder.dry:
            self.recorder.limits[Limit.of(value, limit, self.active)] = None

    # What is recorded

    def count_step(self) -> None:
        """Count the evaluation of an expression or statement, for which isl may do less."""
        self.recorder.steps += 1
        if not self.recorder.steps % _STEPS_AT_ONCE:
            spend(_STEPS_AT_ONCE * _OPERATIONS_OF_STEP)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Name the line where the limit on isl's operations is reached in the block."""
        try:
            yield
        except isl.Error as error:
            if not is_exhausted(error):
                raise
            names = ", ".join(sorted(self.sizes))
            remedy = f"give numbers for {names}" if names else "split the kernel, or write this more simply"
            raise self.refuse(f"what is executed here takes too long to describe; {remedy}") from None

    def go_to(self, cursor: Node) -> None:
        """Take the line where a statement stands as the place."""
        file, line = cursor.place
        if file and line:
            self.line, self.file = line, "" if file == str(self.kernel.path) else file

    @property
    def label(self) -> str:
        """The place in words: a line of the kernel's file, or ``header.h:12``."""
        return f"{self.file.rpartition('/')[2]}:{self.line}" if self.file else str(self.line)

    @property
    def text(self) -> str:
        """What stands in the line."""
        return self.kernel.text(self.line, self.file)

    def refuse(self, cause: str, at: Node | None = None) -> UnsupportedKernelError:
        """Return the error of something that cannot be described, where `at` stands, or the statement."""
        if at is not None:
            self.go_to(at)
        label = self.label if at is not None else self.described or self.label
        where = label if ":" in label else f"{self.kernel.path.name}:{label}"
        return UnsupportedKernelError(f"{where}: {cause}", kernel=self.kernel.name, line=label)

    def note(self, matter: Matter, why: str, remedy: str = "") -> None:
        """Note that something here is not known."""
        if not self.recorder.dry:
            key = self._noted(matter)
            self.recorder.unstated.setdefault(key, Unstated(*key, why, remedy))

    def _noted(self, matter: Matter) -> tuple[Matter, str, str]:
        return matter, self.label, self.text

    def note_guard(self, reason: Reason) -> None:
        """Note that who executes something here is not known."""
        words = {"data": "data decide", "carried": "earlier iterations decide"}
        self.note("guard", words.get(reason, reason))

    @property
    def guarded(self) -> bool:
        """Whether data decide what is executed here, by a condition around it or an exit before it."""
        return (
            self.guards > 0 or any(frame.in_doubt for frame in self.frames) or any(loop.in_doubt for loop in self.loops)
        )

    def record(self) -> Executed | None:
        """Return what collects accesses and operations here; None where nothing is recorded."""
        if self.recorder.dry or self.active.is_empty():
            return None
        last = self.recorder.executed[-1] if self.recorder.executed else None
        guarded = self.guarded
        if last is None or last.closed or last.domain is not self.active or last.guarded != guarded:
            last = Executed(self.active, self.cursor.loops, self.cursor.step(), guarded, self.label)
            self.recorder.executed.append(last)
        return last

    def barrier(self, kind: BarrierKind = "local") -> None:
        """Record a barrier of a work-group, of all of them, or of a sub-group."""
        self.recorder.close()
        executed = self.record()
        if executed is not None:
            executed.barrier, executed.closed = kind, True

    def operation(self, kind: str, dtype: str, count: int = 1) -> None:
        """Record an operation."""
        executed = self.record()
        if executed is not None:
            executed.operations[dtype, kind] += count

    def settle(self, *values: Value | None) -> None:
        """Count the integer arithmetic that made values, which become data here."""
        for value in () if self.recorder.dry else values:
            if isinstance(value, Integer) and value.pending is not None:
                value.pending.count(self.recorder.counted)
            elif isinstance(value, Unknown):
                self.settle(*value.parts)
            elif isinstance(value, Aggregate):
                self.settle(*value.parts.values())

    def access(self, access: MemoryAccess) -> None:
        """Record a load or store."""
        executed = self.record()
        if executed is not None:
            executed.accesses.append(access)

    # Branches

    def branch(
        self, condition: Condition, then: Callable[[], _Result], other: Callable[[], _Result]
    ) -> tuple[_Result | None, _Result | None, Condition]:
        """Walk both ways of a condition; return what each returned, None where no work-item goes there."""
        before, variables, known = self.active, self.variables, condition.known
        executed, doubt = len(self.recorder.executed), self._noted("guard")
        is_new = not known and doubt not in self.recorder.unstated
        if not known:
            self.note_guard(condition.reason)
        if known:
            taken, left = (before.intersect(each).coalesce() for each in (condition.true, condition.false))
        else:
            taken, left = (overlap(before, each) for each in (condition.may, condition.may_not))
        self.guards += not known
        results: list[_Result | None] = []
        after: list[tuple[Any, dict[Hashable, Value]]] = []
        for active, way in ((taken, then), (left, other)):
            self.active, self.variables = active, dict(variables)
            results.append(None if active.is_empty() else way())
            after.append((self.active, self.variables))
        self.guards -= not known
        if is_new and executed == len(self.recorder.executed):
            self.recorder.unstated.pop(doubt, None)  # Nothing is executed there.
        (active_then, first), (active_other, second) = after
        split = Condition(taken, left) if known else Condition()
        untouched = active_then is taken and active_other is left
        self.active = before if untouched else active_then.union(active_other).coalesce()
        if active_then.is_empty() or active_other.is_empty():
            self.variables = second if active_then.is_empty() else first
        else:
            self.variables = first | second | self._joined_parts(first, second, split)
        return results[0], results[1], split

    def joined(self, one: Value, two: Value, split: Condition) -> Value:
        """Return the value that is the first where a condition holds and else the second."""
        if one is two:
            return one
        if isinstance(one, Integer) and isinstance(two, Integer):
            return self._joined_integers(one, two, split)
        if isinstance(one, Pointer) and isinstance(two, Pointer):
            return self._joined_pointers(one, two, split)
        if isinstance(one, Aggregate) and isinstance(two, Aggregate):
            first, second = one.parts, two.parts
            first = {at: first.get(at, Unknown("", reason=one.rest)) for at in {**first, **second}}
            second = {at: second.get(at, Unknown("", reason=two.rest)) for at in first}
            why = two.rest if one.rest == "undefined" else one.rest
            return with_parts(one, self._joined_parts(first, second, split), why)
        if isinstance(one, Place) and isinstance(two, Place) and one.memory is not None and two.memory is not None:
            memory = self.joined(one.memory, two.memory, split)
            return replace(one, memory=memory) if isinstance(memory, Pointer) else Unknown("int64")
        if isinstance(one, (Place, Closure)) or isinstance(two, (Place, Closure)):
            return one if one == two else Unknown("int64")
        for value, rest in ((one, two), (two, one)):
            # A variable that only one way sets is read only behind that way, if the program is right.
            if isinstance(rest, Unknown) and rest.reason == "undefined":
                return value
            if isinstance(value, Pointer) and isinstance(rest, Integer) and rest.value == 0:
                return replace(value, nullable=True)
        self.settle(one, two)
        found = result_of(one, two)
        return found if split.known else replace(found, reason="data")

    def _joined_pointers(self, one: Pointer, two: Pointer, split: Condition) -> Pointer:
        for pointer, rest in ((one, two), (two, one)):
            if rest.array is None and not rest.ways and getattr(rest.offset, "reason", "") == "undefined":
                return pointer
        if one.array is None or one.array != two.array:
            return chosen(one, two, split)
        offset, nullable = self.joined(one.offset, two.offset, split), one.nullable or two.nullable
        if offset is one.offset and nullable == one.nullable:
            return one
        return replace(one, offset=cast("Integer | Unknown", offset), nullable=nullable)

    def _joined_parts(
        self, first: Mapping[_Key, Value], second: Mapping[_Key, Value], split: Condition
    ) -> dict[_Key, Value]:
        """Return the joined values of what both ways know."""
        return {
            key: value if value is (other := second[key]) else self.joined(value, other, split)
            for key, value in first.items()
            if key in second
        }

    def _joined_integers(self, one: Integer, two: Integer, split: Condition) -> Value:
        dtype = common_type(one.dtype, two.dtype) if one.dtype != two.dtype else one.dtype
        if one.equals(two):
            # Each may be known in a part of the instances only.
            return replace(one, terms={key: _wherever(term, two.terms.get(key)) for key, term in one.terms.items()})
        if not split.known:
            self.settle(one, two)
            return Unknown(dtype)
        try:
            terms = {}
            for key in {*one.terms, *two.terms}:
                first = one.terms.get(key, constant(0)).intersect_domain(split.true)
                second = two.terms.get(key, constant(0)).intersect_domain(split.false)
                terms[key] = tidy(first.union_add(second).coalesce())
        except NotAffineError:
            return Unknown(dtype, reason="not affine")
        return Integer(terms, dtype, pending=Pending(before=all_of(one.pending, two.pending)))

    # Leaving

    def leave_loop(self, word: Literal["break", "continue"]) -> None:
        """End this iteration, or the loop, for the active work-items."""
        # A `continue` passes the switches that it is in.
        place = len(self.loops) - 1
        while word == "continue" and self.loops[place].is_switch:
            place -= 1
        loop, inside = self.loops[place], self.loops[place + 1 :]
        # Whoever may have left the iteration before does not leave the loop for certain.
        doubts = () if word == "continue" else loop.continues
        certain = self.guards == loop.guards and all(each.certain for each in doubts)
        certain = certain and not any(each.in_doubt for each in inside)
        if not certain:
            self.note("early exit", f"{word} where data decide")
        way = Exit(self.active, certain, self.variables)
        if word == "continue":
            loop.continues += (way,)
        else:
            loop.breaks += (way,)
            loop.left = loop.left.union(self.active) if certain else loop.left
        self.active = NOWHERE

    def leave_function(self, value: Value | None) -> None:
        """Return from a function for the active work-items."""
        frame = self.frames[-1]
        certain = self.guards == frame.guards and not any(loop.in_doubt for loop in self.loops[frame.loops :])
        if not certain:
            self.note("early exit", "return where data decide")
            frame.in_doubt = True
        given = {} if value is None else {RETURNED: value}
        frame.exits += (Exit(self.active, certain, self.variables | given),)
        frame.returned = frame.returned.union(self.active) if certain else frame.returned
        self.active = NOWHERE

    def rejoin_those(self, variables: dict[Hashable, Value], split: Condition) -> None:
        """Go on with those who did something under a condition, and those who did not: their variables are given."""
        others = {
            key: variables[key] for key, value in self.variables.items() if variables.get(key, value) is not value
        }
        self.variables |= self._joined_parts(others, self.variables, split.negated())

    def rejoin(self, exits: Iterable[Exit]) -> None:
        """Go on with those who left, and with the values that their variables had then."""
        # The certain ones first: they have nobody in common.
        for each in sorted(exits, key=lambda each: not each.certain):
            if self.active.is_empty():
                self.variables = dict(each.variables)
            else:
                split = Condition(self.active, each.active) if each.certain else Condition()
                self.variables |= self._joined_parts(self.variables, each.variables, split)
            self.active = self.active.union(each.active).coalesce()

    def declare(self, variable: Hashable) -> None:
        """Note that a variable begins its life here."""
        self.declared.add(variable)
        self.depths[variable] = self._depth

    def is_carried(self, variable: Hashable) -> bool:
        """Return whether a variable keeps its value from one iteration of the innermost loop to the next."""
        return self.depths.get(variable, 0) < self._depth

    @property
    def _depth(self) -> int:
        return sum(not loop.is_switch for loop in self.loops)

    @contextmanager
    def trial(self, *, dry: bool = True) -> Iterator[Trial]:
        """Afterwards everything is as before, unless what was tried is kept; if it is `dry`, nothing is recorded."""
        frame, recorder = self.frames[-1], self.recorder
        kept, kept_frame = dict(vars(self)), dict(vars(frame))
        self.variables, self.loops, self.cursor = dict(self.variables), list(self.loops), self.cursor.copy()
        self.recorder = recorder.part(dry=dry)
        trial = Trial()
        yield trial
        recorder.finish(self.recorder, is_kept=trial.is_kept)
        self.recorder = recorder
        if trial.is_kept:
            return
        vars(self).update(kept)
        vars(frame).update(kept_frame)


def _wherever(one: Any, two: Any) -> Any:
    """Return an expression that is known where one of two is, which are equal where both are."""
    return one if two is None or one is two or one.plain_is_equal(two) else one.union_max(two).coalesce()
