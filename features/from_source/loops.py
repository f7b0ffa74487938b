"""C loops: counters as functions of the iteration number, trip counts, and iterations that leave early."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.integers import Integer, NotAffineError, constant, involves, names_in, tidy, variable
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import Pointer, Unknown, Value, changed
from perflex.features.from_source.walk import Loop, Walk, along, any_iteration, later, united
from perflex.isl import isl

# Iterations that a loop may have that is walked through one by one.
_MOST_UNROLLED = 256
_LOOPS = {"FOR_STMT", "WHILE_STMT", "DO_STMT"}
_STEPS = {"x++", "++x", "x--", "--x"}
_DECIDES = {
    "data": "data decide", "uniform": "an argument decides that is no integer", "carried": "it changes irregularly",
    "not affine": "its condition is not affine", "undefined": "a variable in its condition was not set",
}  # fmt: skip


class Header:
    """The parts of a loop."""

    def __init__(self, cursor: Node) -> None:
        parts = cursor.children
        self.line = int(cursor.location.line)
        self.first: Node | None = None
        self.test: Node | None = None
        self.step: Node | None = None
        self.tested_last = cursor.kind == "DO_STMT"
        if self.tested_last:
            self.body, self.test = parts
        elif cursor.kind == "WHILE_STMT":
            self.test, self.body = parts[0], parts[-1]
        else:
            self.body = parts[-1]
            self._read(parts[:-1])

    def _read(self, parts: list[Node]) -> None:
        """Tell the parts of ``for`` apart: libclang leaves out those that are empty."""
        if len(parts) == 3:
            self.first, self.test, self.step = parts
            return
        for place, part in enumerate(parts):
            if part.kind == "DECL_STMT" or (_assigns(part) and place == 0 and len(parts) > 1):
                self.first = part
            elif _assigns(part):
                self.step = part
            else:
                self.test = part

    def leaves(self, *words: str) -> bool:
        """Return whether the body has statements of some kinds that leave this loop."""
        return _contains(self.body, words)


@dataclass(frozen=True)
class Change:
    """How a variable changes from iteration to iteration; one without `step` and `value` changes irregularly.

    `value` is what it has at the end of an iteration, made of the values that others have at its start, by their
    names in it: ``k = j++`` follows ``j``.
    """

    step: Integer | None = None  # What each iteration adds
    value: Integer | None = None
    follows: Mapping[str, Hashable] | None = None

    @property
    def irregular(self) -> bool:
        """Whether no formula says what it is in an iteration."""
        return self.step is None and self.value is None


class Loops:
    """Walks through loops; `trips` are stated average trip counts by line."""

    def __init__(
        self, walk: Walk, expressions: Expressions, execute: Callable[[Node], None], trips: Mapping[str, Fraction]
    ) -> None:
        self.walk = walk
        self.expressions = expressions
        self.execute_statement = execute
        self.trips = trips
        self._unclear = False  # Whether the test of the loop that was tried out last is not affine

    def execute(self, cursor: Node) -> None:
        """Walk through a loop."""
        header, walk = Header(cursor), self.walk
        if header.first is not None:
            self.execute_statement(header.first)
        before = {key: walk.variables[key] for key in dict.fromkeys(_assigned(cursor)) if key in walk.variables}
        walk.counters += 1
        counter = f"i{walk.counters}"
        changes = self._changes(header, before, counter)
        irregular = [before[key] for key, change in changes.items() if change.irregular or self._unclear]
        if not irregular or not self._unrolled(header, irregular):
            _Run(self, header, counter, before, changes).walk_through()

    # How variables change

    def _changes(self, header: Header, before: Mapping[Hashable, Value], counter: str) -> dict[Hashable, Change]:
        """Return how the integers and pointers change that an iteration assigns to.

        One iteration is tried out with unknown values at its start.
        """
        walk = self.walk
        known = {key: (value, old) for key, value in before.items() if (old := _offset(value)) is not None}
        names = {key: f"{counter}_{place}" for place, key in enumerate(known)}
        if not known:
            return {}
        with walk.trial():
            for key, (value, old) in known.items():
                walk.variables[key] = _with_offset(value, Integer.of(variable(names[key]), old.dtype))
            walk.loops.append(Loop(counter, walk.guards))
            walk.cursor.enter(counter)
            unclear = self._iteration(header)
            after, final = {key: walk.variables.get(key) for key in names}, walk.active
        self._unclear = unclear
        unknowns = {*names.values(), counter}
        steps = {key: _step(known[key][0], after[key], name, unknowns, final) for key, name in names.items()}
        regular = {names[key]: key for key, step in steps.items() if step is not None}
        found = {}
        for key, left in after.items():
            found[key] = Change(steps[key])
            if steps[key] is None and isinstance(left, Integer) and set(left.terms) == {()}:
                needed = names_in(left.affine) & set(names.values())
                if needed <= set(regular):
                    found[key] = Change(None, left, {name: regular[name] for name in needed})
        return found

    def _iteration(self, header: Header) -> bool:
        """Walk through an iteration; return whether its test is not affine."""
        walk, loop, unclear = self.walk, self.walk.loops[-1], False
        if header.test is not None and not header.tested_last:
            condition = self.expressions.condition(header.test)
            unclear = not condition.known and condition.reason == "not affine"
            if condition.known and not (active := walk.active.intersect(condition.true)).is_empty():
                walk.active = active
        top = walk.active
        self.execute_statement(header.body)
        walk.active = united(walk.active, loop.continued)
        if walk.active.is_empty():
            walk.active = top
        if header.test is not None and header.tested_last:
            self.expressions.condition(header.test)
        if header.step is not None:
            self.expressions.value(header.step)
        return unclear

    # Loops whose counters change irregularly

    def _unrolled(self, header: Header, irregular: list[Value]) -> bool:
        """Walk through the iterations one by one where their condition is known each time; return whether that went."""
        if header.test is None or not any(isinstance(each, Integer) and each.value is not None for each in irregular):
            return False
        if header.leaves("BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT"):
            return False
        with self.walk.trial():
            count = self._count(header, header.test)
        for _ in range(count or 0):
            self.execute_statement(header.body)
            self.expressions.condition(header.test)
            if header.step is not None:
                self.expressions.value(header.step)
        return count is not None

    def _count(self, header: Header, test: Node) -> int | None:
        """Return the number of iterations, by trying them out; None if it is not known or too large."""
        walk = self.walk
        for count in range(_MOST_UNROLLED + 1):
            if not (header.tested_last and count == 0):
                condition = self.expressions.condition(test)
                if not condition.known:
                    return None
                if walk.active.intersect(condition.true).is_empty():
                    return count
                if not walk.active.intersect(condition.false).is_empty():
                    return None
            self.execute_statement(header.body)
            if header.step is not None:
                self.expressions.value(header.step)
        return None


class _Run:
    """One loop on its way."""

    def __init__(
        self,
        loops: Loops,
        header: Header,
        counter: str,
        before: Mapping[Hashable, Value],
        changes: Mapping[Hashable, Change],
    ) -> None:
        self._loops, self._header, self._counter = loops, header, counter
        self._walk, self._expressions = loops.walk, loops.expressions
        self._before, self._changes = before, changes
        self._file = self._walk.file
        self._limited = 0  # Iterations, where they are stated rather than known

    def walk_through(self) -> None:
        walk, header, counter = self._walk, self._header, self._counter
        around, first = walk.active, len(walk.recorder.executed)
        for key in self._before:
            walk.variables[key] = self._at(key, Integer.of(variable(counter)))
        loop = Loop(counter, walk.guards)
        walk.loops.append(loop)
        walk.cursor.enter(counter)
        frame = walk.frames[-1]
        returned, frame.returned = frame.returned, None
        iterations = self._iterations(around)
        walk.active = iterations
        line, file = walk.line, walk.file
        if not iterations.is_empty():
            self._loops.execute_statement(header.body)
            if loop.continued is not None:
                walk.active = walk.active.union(loop.continued).coalesce()
            if header.tested_last and header.test is not None and not walk.active.is_empty():
                self._test_last(header.test, loop, first)
            if header.step is not None and not walk.active.is_empty():
                walk.line, walk.file = header.line, file
                self._expressions.value(header.step)
        for leaving in (loop.left, frame.returned):
            if leaving is not None and not leaving.is_empty():
                # Nothing is executed in the iterations behind those that leave the loop.
                over = later(leaving, counter)
                for executed in walk.recorder.executed[first:]:
                    executed.domain = executed.domain.subtract(over).coalesce()
                iterations = iterations.subtract(over)
        walk.loops.pop()
        walk.cursor.leave()
        walk.line, walk.file = line, file
        gone = None
        if frame.returned is not None:
            gone = any_iteration(frame.returned.subtract(later(frame.returned, counter)), counter)
        frame.returned = united(returned, gone)
        walk.active = around if gone is None else around.subtract(gone)
        walk.recorder.close()
        self._after(iterations, around)

    def _at(self, key: Hashable, iteration: Integer) -> Value:
        """Return a variable at the start of an iteration."""
        before, change = self._before[key], self._changes.get(key, Change())
        offset = _offset(before)
        if offset is None:
            return changed(before, "carried")
        if change.step is None:
            return self._lagging(change, before, iteration) or changed(before, "carried")
        if change.step.value == 0:
            return before
        try:
            moved = offset.plus(change.step.times(iteration, self._walk.sizes)).typed(offset.dtype)
        except NotAffineError:
            return changed(before, "not affine")
        return _with_offset(before, moved)

    def _lagging(self, change: Change, first: Value, iteration: Integer) -> Value | None:
        """Return a variable that takes, at the end of an iteration, what others had then."""
        if change.value is None or change.follows is None or not isinstance(first, Integer):
            return None
        earlier = iteration.plus(Integer.of(-1))
        try:
            known = isl.Map.from_pw_aff(change.value.affine)
            for name, other in change.follows.items():
                there = self._at(other, earlier)
                if not isinstance(there, Integer):
                    return None
                known = known.intersect_domain(variable(name).eq_set(there.affine))
            for name in change.follows:
                known = known.project_out(isl.dim_type.param, known.find_dim_by_name(isl.dim_type.param, name), 1)
            behind = known.as_pw_multi_aff().get_pw_aff(0).intersect_domain(iteration.affine.ge_set(constant(1)))
            start = first.affine.intersect_domain(iteration.affine.le_set(constant(0)))
            return Integer.of(tidy(behind.union_add(start).coalesce()), first.dtype)
        except NotAffineError:
            return None

    def _iterations(self, around: Any) -> Any:
        """Return the iterations that begin; where they do not end, what is stated decides."""
        walk, header, counter = self._walk, self._header, self._counter
        begun = around.intersect(isl.Set(f"[{counter}] -> {{ [] : {counter} >= 0 }}"))
        if header.tested_last:
            return begun
        leaves = header.leaves("BREAK_STMT", "RETURN_STMT")
        if header.test is None:
            return begun if leaves else self._limit(begun, "it never ends")
        walk.active, first = begun, len(walk.recorder.executed)
        with walk.postponed() as limits:
            condition = self._expressions.condition(header.test)
        walk.active = around
        if not condition.known:
            limited = self._limit(begun, _DECIDES[condition.reason])
            self._end(first, self._limited)  # The test is executed once more than the body.
            return limited
        iterations = begun.intersect(condition.true)
        over = later(begun.intersect(condition.false), counter)
        if not over.intersect(iterations).is_empty():
            iterations = iterations.subtract(over)
        iterations = iterations.coalesce()
        if not self._stays_below(limits, begun.subtract(over)):
            return self._limit(begun, _DECIDES["not affine"])
        if leaves or iterations.is_empty():
            return iterations
        counted = along(iterations, counter)
        if counted is not None and counted.dim_has_upper_bound(isl.dim_type.set, 0):
            return iterations
        return self._limit(iterations, "its condition never changes")

    def _stays_below(self, limits: list[tuple[Integer, int]], tested: Any) -> bool:
        """Return whether unsigned integers stay below limits in all iterations whose condition is tested."""
        walk, around = self._walk, self._walk.active
        walk.active = tested
        try:
            for value, limit in limits:
                walk.require_below(value, limit)
        except NotAffineError:
            return False
        finally:
            walk.active = around
        return True

    def _limit(self, iterations: Any, why: str) -> Any:
        """Return as many iterations as are stated."""
        walk = self._walk
        name = f"{Path(self._file).name}:" if self._file else ""
        trips = self._loops.trips.get(f"{name}{self._header.line}")
        if trips is None:
            (walk.line, walk.file), place = (self._header.line, self._file), (walk.line, walk.file)
            walk.note("trip count", why, f'state it with --state {walk.label}=N (stated={{"{walk.label}": N}})')
            walk.line, walk.file = place
            trips = Fraction(1)
        whole = self._limited = math.ceil(trips)
        if not walk.recorder.dry:
            walk.recorder.averages[self._counter] = trips / whole
        return iterations.intersect(isl.Set(f"[{self._counter}] -> {{ [] : {self._counter} < {whole} }}"))

    def _test_last(self, test: Node, loop: Loop, first: int) -> None:
        walk = self._walk
        before = walk.active
        condition = self._expressions.condition(test)
        if condition.known:
            loop.left = united(loop.left, before.intersect(condition.false))
            return
        walk.active = self._limit(before, _DECIDES[condition.reason])
        self._end(first, self._limited - 1)

    def _end(self, first: int, last: int) -> None:
        """Let what was recorded from a place on end with an iteration."""
        within = isl.Set(f"[{self._counter}] -> {{ [] : {self._counter} <= {last} }}")
        for executed in self._walk.recorder.executed[first:]:
            executed.domain = executed.domain.intersect(within)

    def _after(self, iterations: Any, around: Any) -> None:
        """Set the variables behind the loop."""
        trips: Integer | None = None
        for key, change in self._changes.items():
            before = self._before[key]
            if change.irregular and isinstance(before, Unknown):
                continue
            if change.step is not None and change.step.value == 0:
                found: Value = before
            elif change.irregular or self._limited:
                found = changed(before, "data" if self._limited else "carried")
            else:
                trips = trips or _trip_count(iterations, self._counter, around)
                found = changed(before, "not affine") if trips is None else self._at(key, trips)
            self._walk.variables[key] = found


def _assigns(part: Node) -> bool:
    part = part.stripped
    if part.kind == "UNARY_OPERATOR":
        return part.sign in _STEPS
    assigns = part.kind == "BINARY_OPERATOR" and part.binary_operator.name in {"Assign", "Comma"}
    return assigns or part.kind == "COMPOUND_ASSIGNMENT_OPERATOR"


def _assigned(cursor: Node) -> Iterator[Hashable]:
    """Yield the variables that a loop may change, in the order of the source."""
    targets: list[Node] = []
    if cursor.kind == "CALL_EXPR":
        targets = cursor.children[1:]
    elif cursor.children and (_assigns(cursor) or (cursor.kind == "UNARY_OPERATOR" and cursor.sign == "&")):
        targets = cursor.children[:1]
    for target in targets:
        while target.kind != "DECL_REF_EXPR" and target.children:
            target = target.children[0]  # noqa: PLW2901
        if target.kind == "DECL_REF_EXPR" and target.referenced is not None:
            yield target.referenced.key
    for part in cursor.children:
        yield from _assigned(part)


def _contains(cursor: Node, names: tuple[str, ...]) -> bool:
    """Return whether a statement has one of a kind that is its own: of loops inside it only returns are."""
    return any(
        child.kind in names
        or _contains(child, names if child.kind not in _LOOPS else tuple({"RETURN_STMT"} & set(names)))
        for child in cursor.children
    )


def _step(before: Value, after: Value | None, name: str, unknowns: set[str], final: Any) -> Integer | None:
    """Return what an iteration adds to a variable; None if that is not the same each time."""
    if isinstance(before, Pointer) and (not isinstance(after, Pointer) or after.array != before.array):
        return None
    offset, old = None if after is None else _offset(after), _offset(before)
    if offset is None:
        return None
    if old is not None and not offset.involves(unknowns) and offset.equals(old):
        return Integer.of(0, offset.dtype)
    difference = offset.plus(Integer.of(variable(name)), -1)
    terms = {}
    for product, term in difference.terms.items():
        simple = term.gist(final).coalesce() if term.n_piece() > 1 or involves(term, unknowns) else term
        if involves(simple, unknowns):
            return None
        terms[product] = simple
    return Integer(terms, offset.dtype)


def _trip_count(iterations: Any, counter: str, around: Any) -> Integer | None:
    """Return the number of iterations as a function of what is outside the loop."""
    counted = along(iterations, counter)
    if counted is None:
        return Integer.of(1)
    if not counted.is_empty() and not counted.dim_has_upper_bound(isl.dim_type.set, 0):
        return None
    try:
        last = isl.Map.from_domain_and_range(isl.Set("{ [] }"), counted).lexmax()
        none = constant(0).intersect_domain(around.subtract(any_iteration(iterations, counter)))
        found = last.as_pw_multi_aff().get_pw_aff(0).add(constant(1))
        return Integer.of(tidy(found.union_add(none).coalesce()))
    except (NotAffineError, isl.Error):
        return None


def _offset(value: Value) -> Integer | None:
    """Return the number in a value that loops may count with: itself, or where a pointer points."""
    if isinstance(value, Pointer):
        return value.offset if isinstance(value.offset, Integer) else None
    if isinstance(value, Unknown):
        return value.source if value.lanes == 1 else None
    return value if isinstance(value, Integer) else None


def _with_offset(value: Value, offset: Integer) -> Value:
    if isinstance(value, Unknown):
        return replace(value, source=offset, constant=None, chains={})
    return replace(value, offset=offset) if isinstance(value, Pointer) else offset
