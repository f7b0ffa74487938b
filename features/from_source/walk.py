"""Where the walk through a kernel is: active work-items, loops, values of variables; and what it recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.integers import (
    Integer,
    Limit,
    NotAffineError,
    constant,
    is_size_name,
    names_in,
    tidy,
    variable,
)
from perflex.features.from_source.parsing import ParsedKernel
from perflex.features.from_source.values import (
    Address,
    CType,
    Executed,
    MemoryAccess,
    Pointer,
    PrivateArray,
    Reason,
    Struct,
    TypeReader,
    Unknown,
    Value,
    dtype_of,
    lanes_of,
    reason_of,
)
from perflex.features.lowering.arithmetic_types import common_type
from perflex.features.lowering.schedule import Cursor
from perflex.isl import isl

_Result = TypeVar("_Result")
Space: TypeAlias = Literal["global", "local", "constant", "private", "texture"]
Matter: TypeAlias = Literal["trip count", "subscript", "guard", "early exit"]
# Why a subscript is not known.
WHY = {
    "data": "data decide the subscript", "carried": "earlier iterations decide the subscript",
    "uniform": "an argument decides the subscript", "not affine": "the subscript is not affine",
    "undefined": "the subscript was not set",
}  # fmt: skip
NOWHERE = isl.Set("{ [] : 1 = 0 }")


@dataclass(frozen=True)
class MemoryArray:
    """An array in memory."""

    name: str
    space: Space
    element: CType
    extents: tuple[int | None, ...] = ()  # As declared
    restrict: bool = True  # Whether nothing else overlaps it, as far as compilers know

    @property
    def start(self) -> Pointer:
        """A pointer to its beginning."""
        return Pointer(self.name, Integer.of(0, "int64"), self.element, self.extents)

    @property
    def bytes(self) -> int | None:
        """Its size, if it is declared with its extents; None for pointers and CUDA's dynamic memory."""
        known = [extent for extent in self.extents if extent is not None]
        complete = self.extents and len(known) == len(self.extents)
        return math.prod(known) * self.element.bytes if complete else None


@dataclass(frozen=True)
class Unstated:
    """Something that the source cannot say, because data decide it."""

    matter: Matter
    line: str  # Of the kernel's file, or ``header.h:12``
    text: str  # What stands there
    why: str
    remedy: str = ""  # What states it; empty where counts are upper bounds without it

    def __str__(self) -> str:
        end = self.remedy or "counted as an upper bound"
        return f"line {self.line}: {self.matter} of {self.text!r} is not known ({self.why}); {end}"


@dataclass
class Recorder:
    """Collects what is executed; while loops are tried out (`dry`) nothing is recorded."""

    dry: int = 0
    executed: list[Executed] = field(default_factory=list)
    arrays: dict[str, MemoryArray] = field(default_factory=dict)
    averages: dict[str, Fraction] = field(default_factory=dict)  # Of loops whose trip count is stated
    unstated: dict[tuple[Matter, str, str], Unstated] = field(default_factory=dict)
    limits: dict[Limit, None] = field(default_factory=dict)  # Of unsigned integers, beyond which they wrap around

    def note(self, unstated: Unstated) -> None:
        """Keep what is not known, once for each place."""
        if not self.dry:
            self.unstated.setdefault((unstated.matter, unstated.line, unstated.text), unstated)

    def close(self) -> None:
        """Let what comes next be a statement of its own."""
        if self.executed:
            self.executed[-1].closed = True


@dataclass
class Loop:
    """A loop that is walked through."""

    counter: str  # Name of its iteration number
    guards: int  # Conditions on data around it
    left: Any = None  # Iterations that `break` ends, a set
    continued: Any = None  # Iterations that `continue` ends


@dataclass
class Frame:
    """A function that is walked through."""

    guards: int = 0
    returned: Any = None  # Work-items and iterations that returned, a set
    value: Value | None = None


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
    recorder: Recorder = field(default_factory=Recorder)
    variables: dict[Hashable, Value] = field(default_factory=dict)
    loops: list[Loop] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=lambda: [Frame()])
    guards: int = 0
    line: int = 0
    file: str = ""  # Empty for the kernel's own
    inlined: int = 0  # Functions that are inlined around the place
    cursor: Cursor = field(default_factory=Cursor)
    counters: int = 0
    limits: list[tuple[Integer, int]] | None = None  # Where it is looked for later whether integers stay below limits

    def size(self, name: str, dtype: str) -> Integer:
        """Return an integer argument: its stated value, or a size."""
        if name in self.numbers_of:
            return replace(Integer.of(int(self.numbers_of[name]), dtype), argument=True)
        if not is_size_name(name):
            raise self.refuse(f"no formula can have a size of the name {name!r}; give a number for it, or rename it")
        self.sizes.add(name)
        return Integer.of(variable(name), dtype)

    def require_below(self, value: Integer, limit: int) -> None:
        """Note that an integer must stay below a limit here; NotAffineError where it does not whatever the sizes."""
        if self.limits is not None:
            self.limits.append((value, limit))
            return
        if set(value.terms) <= {()}:
            above = value.affine.ge_set(constant(limit)).intersect(self.active)
            if above.is_empty():
                return
            if not self.sizes & names_in(above):
                msg = "it wraps around"
                raise NotAffineError(msg)
        if not self.recorder.dry:
            self.recorder.limits[Limit.of(value, limit, self.active)] = None

    @contextmanager
    def postponed(self) -> Iterator[list[tuple[Integer, int]]]:
        """Collect the limits of integers instead of looking whether they hold."""
        kept, self.limits = self.limits, []
        yield self.limits
        self.limits = kept

    # What is recorded

    @property
    def label(self) -> str:
        """The place in words: a line of the kernel's file, or ``header.h:12``."""
        return f"{Path(self.file).name}:{self.line}" if self.file else str(self.line)

    @property
    def text(self) -> str:
        """What stands in the line."""
        return self.kernel.text(self.line, self.file)

    def refuse(self, cause: str, line: str | int | None = None) -> UnsupportedKernelError:
        """Return the error of something that cannot be described."""
        label = str(line or self.label)
        where = label if ":" in label else f"{self.kernel.path.name}:{label}"
        return UnsupportedKernelError(f"{where}: {cause}", kernel=self.kernel.name, line=label)

    def note(self, matter: Matter, why: str, remedy: str = "") -> None:
        """Note that something here is not known."""
        self.recorder.note(Unstated(matter, self.label, self.text, why, remedy))

    def record(self) -> Executed | None:
        """Return what collects accesses and operations here; None where nothing is recorded."""
        if self.recorder.dry or self.active.is_empty():
            return None
        last = self.recorder.executed[-1] if self.recorder.executed else None
        if last is not None and not last.closed and last.domain is self.active and last.guarded == (self.guards > 0):
            return last
        return self._new()

    def barrier(self) -> None:
        """Record a barrier."""
        if not self.recorder.dry and not self.active.is_empty():
            self.recorder.close()
            executed = self._new()
            executed.barrier = executed.closed = True

    def operation(self, kind: str, dtype: str, count: int = 1) -> Executed | None:
        """Record an operation; return where."""
        executed = self.record()
        if executed is not None:
            executed.operations[dtype, kind] += count
        return executed

    def access(self, access: MemoryAccess) -> None:
        """Record a load or store."""
        executed = self.record()
        if executed is not None:
            executed.accesses.append(access)

    def _new(self) -> Executed:
        executed = Executed(self.active, self.cursor.loops, self.cursor.step(), self.guards > 0, self.label)
        self.recorder.executed.append(executed)
        return executed

    # Branches

    def branch(
        self, condition: Condition, then: Callable[[], _Result], other: Callable[[], _Result]
    ) -> tuple[_Result | None, _Result | None, Condition]:
        """Walk both ways of a condition; return what each returned, None where no work-item goes there."""
        before, variables, known = self.active, self.variables, condition.known
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
        (active_then, first), (active_other, second) = after
        split = Condition(taken, left) if known else Condition()
        untouched = active_then is taken and active_other is left
        if known and taken.is_empty():
            self.active, self.variables = (before if active_other is left else active_other), second
        elif known and left.is_empty():
            self.active, self.variables = (before if active_then is taken else active_then), first
        else:
            # Where data decide, who left on one of the ways is not known: all go on, and what follows is a bound.
            self.active = before if untouched or not known else active_then.union(active_other).coalesce()
            self.variables = self.merged(first, second, split)
        return results[0], results[1], split

    def merged(
        self, first: Mapping[Hashable, Value], second: Mapping[Hashable, Value], split: Condition
    ) -> dict[Hashable, Value]:
        """Return the variables after two ways."""
        found: dict[Hashable, Value] = {}
        for key in {**first, **second}:
            one, two = first.get(key), second.get(key)
            if one is None or two is None or one is two:
                found[key] = one if two is None else two  # type: ignore[assignment]  # one of them is there
            else:
                found[key] = self.joined(one, two, split)
        return found

    def joined(self, one: Value, two: Value, split: Condition) -> Value:
        """Return the value that is the first where a condition holds and else the second."""
        if one is two:
            return one
        if isinstance(one, Integer) and isinstance(two, Integer):
            return self._joined_integers(one, two, split)
        if isinstance(one, Pointer) and isinstance(two, Pointer):
            return self._joined_pointers(one, two, split)
        if isinstance(one, PrivateArray) and isinstance(two, PrivateArray):
            places = set(one.elements) & set(two.elements)
            return replace(one, elements={at: self.joined(one.elements[at], two.elements[at], split) for at in places})
        if isinstance(one, Struct) and isinstance(two, Struct):
            names = set(one.fields) & set(two.fields)
            return replace(one, fields={name: self.joined(one.fields[name], two.fields[name], split) for name in names})
        if isinstance(one, Address) or isinstance(two, Address):
            return one
        for value, rest in ((one, two), (two, one)):
            # A variable that only one way sets is read only behind that way, if the program is right.
            if isinstance(rest, Unknown) and rest.reason == "undefined":
                return value
            if isinstance(value, Pointer) and isinstance(rest, Integer) and rest.value == 0:
                return replace(value, nullable=True)
        reason = reason_of(one, two) if split.known else "data"
        return Unknown(dtype_of(one, two), lanes_of(one, two), reason)

    def _joined_pointers(self, one: Pointer, two: Pointer, split: Condition) -> Pointer:
        if one.array != two.array:
            return replace(one, array=None, offset=Unknown("int64", reason="not affine"), extents=())
        offset = self.joined(one.offset, two.offset, split)
        known = offset if isinstance(offset, (Integer, Unknown)) else Unknown("int64")
        return replace(one, offset=known, nullable=one.nullable or two.nullable)

    def _joined_integers(self, one: Integer, two: Integer, split: Condition) -> Value:
        dtype = common_type(one.dtype, two.dtype) if one.dtype != two.dtype else one.dtype
        if one.equals(two):
            return one
        if not split.known:
            return Unknown(dtype)
        try:
            terms = {}
            for key in {*one.terms, *two.terms}:
                first = one.terms.get(key, constant(0)).intersect_domain(split.true)
                second = two.terms.get(key, constant(0)).intersect_domain(split.false)
                terms[key] = tidy(first.union_add(second).coalesce())
        except NotAffineError:
            return Unknown(dtype, reason="not affine")
        return Integer(terms, dtype)

    # Leaving

    def leave_loop(self, word: Literal["break", "continue"]) -> None:
        """End this iteration, or the loop, for the active work-items."""
        loop = self.loops[-1]
        if self.guards > loop.guards:
            self.note("early exit", f"{word} where data decide")
            return
        if word == "break":
            loop.left = united(loop.left, self.active)
        else:
            loop.continued = united(loop.continued, self.active)
        self.active = NOWHERE

    def leave_function(self, value: Value | None) -> None:
        """Return from a function for the active work-items."""
        frame = self.frames[-1]
        if self.guards > frame.guards:
            self.note("early exit", "return where data decide")
            if value is not None:
                frame.value = value if frame.value is None else self.joined(frame.value, value, Condition())
            return
        if value is not None:
            known = frame.value is None or frame.returned is None
            split = Condition(self.active, self.active if frame.returned is None else frame.returned)
            frame.value = value if known else self.joined(value, frame.value, split)  # type: ignore[arg-type]
        frame.returned = united(frame.returned, self.active)
        self.active = NOWHERE

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Record nothing meanwhile; afterwards everything is as before."""
        frame = self.frames[-1]
        kept, kept_frame = dict(vars(self)), dict(vars(frame))
        self.variables, self.loops, self.cursor = dict(self.variables), list(self.loops), self.cursor.copy()
        self.recorder.dry += 1
        yield
        self.recorder.dry -= 1
        vars(self).update(kept)
        vars(frame).update(kept_frame)


def united(one: Any, two: Any) -> Any:
    """Return the union of two sets; None is nowhere."""
    return two if one is None else one if two is None else one.union(two)


def overlap(one: Any, two: Any) -> Any:
    """Return where two sets overlap; None is everywhere."""
    return two if one is None else one if two is None else one.intersect(two)


def along(domain: Any, counter: str) -> Any:
    """Return a set with one of its loops as its only dimension; None if it has no such loop."""
    place = domain.find_dim_by_name(isl.dim_type.param, counter)
    return None if place < 0 else domain.move_dims(isl.dim_type.set, 0, isl.dim_type.param, place, 1)


def later(leaving: Any, counter: str) -> Any:
    """Return the iterations behind one in which a loop is left: those of which an earlier one is in a set."""
    moved = along(leaving, counter)
    if moved is None:
        return leaving.intersect(isl.Set(f"[{counter}] -> {{ [] : {counter} >= 1 }}"))
    earlier = isl.Set(f"[{counter}] -> {{ [e] : 0 <= e < {counter} }}")
    return moved.set_dim_name(isl.dim_type.set, 0, "e").intersect(earlier).project_out(isl.dim_type.set, 0, 1)


def any_iteration(domain: Any, counter: str) -> Any:
    """Return a set without one of its loops."""
    place = domain.find_dim_by_name(isl.dim_type.param, counter)
    return domain if place < 0 else domain.project_out(isl.dim_type.param, place, 1)
