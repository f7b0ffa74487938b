"""C loops: counters as functions of the iteration number, trip counts, and iterations that leave early."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping
from fractions import Fraction
from functools import reduce
from typing import Any

from perflex.features.from_source.choices import depends_on
from perflex.features.from_source.copies import replace
from perflex.features.from_source.displaced import counted
from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.integers import (
    Integer,
    NotAffineError,
    constant,
    names_in,
    outside,
    own_name,
    tidy,
    variable,
)
from perflex.features.from_source.iterations import (
    NOWHERE,
    along,
    any_iteration,
    has_end,
    last_iteration,
    later,
    step_of,
    trip_count,
    without,
)
from perflex.features.from_source.loop_headers import Header, assigned, contains
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import (
    Aggregate,
    Pointer,
    Unknown,
    Value,
    changed,
    counted_by,
    places_in,
    somewhere,
    with_count,
    with_parts,
)
from perflex.features.from_source.walk import RETURNED, Condition, Exit, Loop, Walk
from perflex.features.lowering.arithmetic_types import scalar_bytes
from perflex.isl import isl

# Iterations that a loop may have that is walked through one by one.
_MOST_UNROLLED = 256
# The same of a loop with all loops in it: each such iteration takes milliseconds.
_MOST_IN_NEST = 512
# Loops inside each other.
_MOST_NESTED = 16
_EXITS = {"BREAK_STMT", "CONTINUE_STMT", "RETURN_STMT"}
_DECIDES = {
    "data": "data decide", "uniform": "an argument decides that is no integer", "carried": "it changes irregularly",
    "not affine": "its condition is not affine", "undefined": "a variable in its condition was not set",
}  # fmt: skip


class LoopWalk:
    """Walks through one loop; the first part of its header was executed."""

    def __init__(self, walk: Walk, expressions: Expressions, execute: Callable[[Node], None], header: Header) -> None:
        self._walk, self._expressions, self._execute = walk, expressions, execute
        self._header = header
        walk.go_to(header.cursor)
        self._label = walk.label
        walk.recorder.loops.add(walk.label)
        if len(walk.loops) >= _MOST_NESTED:
            raise walk.refuse(f"more than {_MOST_NESTED} loops inside each other are not read; split the kernel")
        walk.counters += 1
        self._counter = own_name(f"i{walk.counters}")
        # Variables that it may change, also through references and pointers.
        keys = {key: None for key, is_part in header.assigned.items() if is_part}
        behind = (place for key in header.assigned for place in places_in(walk.variables.get(key)))
        keys |= {place.variable: None for place in behind}
        self._before = {key: walk.variables[key] for key in keys if key in walk.variables}
        self._limited = 0  # Iterations, where they are stated rather than known
        self._unclear = False  # Whether the test is not affine
        self._always = False  # Whether the test always holds
        # Integers and pointers, by names for their values at the start of an iteration.
        self._names: dict[str, Hashable] = {}
        # What each iteration adds to variables.
        self._steps: dict[Hashable, Integer] = {}
        # Of others, what they are at the end of an iteration, made of the values at its start: ``k = j++`` follows j.
        self._followers: dict[Hashable, Integer] = {}
        # Of structs, arrays and vectors in registers, and whatever else is no number, those that an iteration changes.
        self._touched: set[Hashable] = set()
        self._found: Mapping[Hashable, Value] = {}  # Variables behind the iteration that was tried out
        self._swapped = False  # Whether pointers come to point into other arrays

    def execute(self) -> None:
        """Walk through the loop."""
        self._find_changes()
        every = self._unclear or self._swapped
        changing = [key for key in self._names.values() if every or self._is_irregular(key)]
        if not self._is_unrolled([self._before[key] for key in changing]):
            self._walk_through()

    def _is_irregular(self, key: Hashable) -> bool:
        """Return whether no formula says what a variable is in an iteration."""
        return key not in self._steps and key not in self._followers

    # How variables change

    def _find_changes(self) -> None:
        """Find out how variables change: one iteration is tried out with unknown values at its start."""
        changing = True
        while changing:
            known = {key: old for key, value in self._before.items() if (old := counted_by(value)) is not None}
            self._names = {f"{self._counter}_{place}": key for place, key in enumerate(known)}
            after, final, declared = self._tried(known)
            # So did loops inside, which are inside those around.
            self._walk.declared |= declared
            # The text does not show what methods and lambdas change.
            unseen = self._walk.variables.keys() - self._before.keys() - declared
            missed = {key for key in unseen if after.get(key) is not self._walk.variables[key]}
            self._before |= {key: self._walk.variables[key] for key in self._walk.variables if key in missed}
            others = {key: value for key, value in self._before.items() if counted_by(value) is None}
            new = {key for key, value in others.items() if key not in self._touched and after.get(key) is not value}
            self._touched |= new
            # What these were at the start of the trial they are in the first iteration only.
            changing = bool(missed) or any(_says_something(others[key]) for key in new)
        self._found = after
        pointers = {key: old for key, old in self._before.items() if isinstance(old, Pointer)}
        self._swapped = any(getattr(after.get(key), "array", None) != old.array for key, old in pointers.items())
        null = {key for key in pointers if getattr(after.get(key), "nullable", False)}
        self._before |= {key: replace(pointers[key], nullable=True) for key in null}
        unknowns = {*self._names, self._counter}
        for name, key in self._names.items():
            if (step := step_of(self._before[key], after.get(key), name, unknowns, final)) is not None:
                self._steps[key] = step
        for key in self._names.values():
            left = after.get(key)
            if key in self._steps or not isinstance(left, Integer) or set(left.terms) != {()}:
                continue
            if all(self._names[name] in self._steps for name in names_in(left.affine) & set(self._names)):
                self._followers[key] = left

    def _tried(self, known: Mapping[Hashable, Integer]) -> tuple[dict[Hashable, Value], Any, set[Hashable]]:
        """Try out an iteration; return the variables at its end, who came there, and what it declares."""
        walk = self._walk
        with walk.trial():
            walk.declared = set()
            for name, key in self._names.items():
                start = Integer.of(variable(name), known[key].dtype)
                if scalar_bytes(start.dtype) < 4:  # The type says more than the trial knows.
                    walk.active = walk.active.subtract(outside(start.affine, start.dtype))
                walk.variables[key] = with_count(self._before[key], start)
            for key in self._touched:
                walk.variables[key] = changed(self._before[key], "carried")
            walk.loops.append(Loop(self._counter, walk.guards))
            walk.cursor.enter(self._counter)
            self._try_iteration()
            return walk.variables, walk.active, walk.declared

    def _try_iteration(self) -> None:
        walk, header, loop = self._walk, self._header, self._walk.loops[-1]
        if header.test is not None and not header.tested_last:
            condition = self._expressions.condition(header.test)
            self._unclear = not condition.known and condition.reason == "not affine"
            if condition.known and not (active := walk.active.intersect(condition.true)).is_empty():
                walk.active = active
        top = walk.active
        self._execute(header.body)
        walk.rejoin(loop.continues)
        loop.continues = ()
        if walk.active.is_empty():
            walk.active = top
        if header.test is not None and header.tested_last:
            self._expressions.condition(header.test)
        self._advance()

    def _advance(self) -> None:
        if self._header.step is not None:
            self._expressions.value(self._header.step)

    # Loops whose counters change irregularly

    def _is_unrolled(self, irregular: list[Value]) -> bool:
        """Walk through the iterations one by one if their condition is known each time; return whether it is."""
        known = any(isinstance(each, Integer) and each.value is not None for each in irregular)
        if not known or contains(self._header.body, _EXITS):
            return False
        with self._walk.trial(dry=False) as trial:
            trial.is_kept = self._goes_one_by_one()
        return trial.is_kept

    def _goes_one_by_one(self) -> bool:
        """Walk through the iterations one by one; return whether their condition was known each time."""
        walk, outermost = self._walk, self._walk.one_by_one is None
        walk.one_by_one = _MOST_IN_NEST if outermost else walk.one_by_one
        known = self._each_is_known()
        walk.one_by_one = None if outermost else walk.one_by_one
        return known

    def _each_is_known(self) -> bool:
        walk, test = self._walk, self._header.test
        for key, value in self._before.items():
            # Only if they unroll the loop as well do compilers know what changes in it.
            walk.variables[key] = replace(value, literal=False) if isinstance(value, (Integer, Unknown)) else value
        for count in range(_MOST_UNROLLED + 1 if test is not None else 0):
            if test is not None and (count or not self._header.tested_last):
                condition = self._expressions.condition(test)
                if not condition.known:
                    return False
                if walk.active.intersect(condition.true).is_empty():
                    return True
                if not walk.active.intersect(condition.false).is_empty():
                    return False
            walk.one_by_one = (walk.one_by_one or 0) - 1
            if walk.one_by_one < 0:
                return False
            self._execute(self._header.body)
            self._advance()
        return False

    # Other loops

    def _walk_through(self) -> None:
        walk, counter = self._walk, self._counter
        around, first, before = walk.active, len(walk.recorder.executed), dict(walk.variables)
        for key in self._before:
            walk.variables[key] = self._at(key, Integer.of(variable(counter)))
        loop = Loop(counter, walk.guards)
        if self._header.unroll is not None:
            walk.recorder.unrolled[counter] = self._header.unroll
        walk.loops.append(loop)
        walk.cursor.enter(counter)
        frame = walk.frames[-1]
        outside = replace(frame)
        frame.returned, frame.exits = NOWHERE, outside.exits[:0]
        walk.active = iterations = self._iterations(around)
        if not iterations.is_empty():
            self._walk_body(loop, first)
        gone = loop.left.union(frame.returned)
        if not gone.is_empty():
            # Nothing is executed in the iterations behind those that leave the loop.
            over = later(gone, counter)
            for executed in walk.recorder.executed[first:]:
                executed.domain = executed.domain.subtract(over).coalesce()
            iterations = iterations.subtract(over)
        doubt = loop.in_doubt or (frame.in_doubt and not outside.in_doubt)
        iterations = self._with_end(iterations, first, doubt=doubt)
        if doubt:
            for executed in walk.recorder.executed[first:]:
                executed.guarded = True
        walk.loops.pop()
        walk.cursor.leave()
        walk.recorder.close()
        breaks = [self._left(way, before, iterations) for way in loop.breaks]
        returns = [self._left(way, before, iterations) for way in frame.exits]
        left = reduce(isl.Set.union, (way.active for way in (*breaks, *returns) if way.certain), NOWHERE)
        walk.active = around.subtract(left).coalesce()
        walk.variables = self._after(before, iterations, around)
        self._test_once_more()
        walk.rejoin(breaks)
        walk.active = around
        if not frame.returned.is_empty():
            gone = any_iteration(frame.returned.intersect(iterations), counter)
            frame.returned, walk.active = outside.returned.union(gone), around.subtract(gone)
        else:
            frame.returned = outside.returned
        frame.exits = (*outside.exits, *returns)

    def _walk_body(self, loop: Loop, first: int) -> None:
        walk, header = self._walk, self._header
        if walk.recorder.dry and not header.tested_last and not contains(header.body, _EXITS):
            # Inside another loop's trial nothing is left to find out.
            walk.variables = {key: self._untold(value) for key, value in self._found.items()}
            return
        self._execute(header.body)
        walk.rejoin(loop.continues)
        loop.continues = ()
        if header.tested_last and header.test is not None and not walk.active.is_empty():
            self._test_last(header.test, loop, first)
        walk.go_to(header.cursor)
        if not walk.active.is_empty():
            self._advance()

    def _untold(self, value: Value) -> Value:
        """Return what is known of a value that was found in a trial, where the values at its start were not known."""
        offset = counted_by(value)
        if isinstance(value, Unknown) and value.parts:
            return replace(value, parts=())
        if isinstance(value, Aggregate):
            return with_parts(value, {key: self._untold(part) for key, part in value.parts.items()})
        return value if offset is None or offset.names.isdisjoint(self._names) else changed(value, "carried")

    def _at(self, key: Hashable, iteration: Integer) -> Value:
        """Return a variable at the start of an iteration."""
        before, step = self._before[key], self._steps.get(key)
        offset = counted_by(before)
        if offset is None and key not in self._touched:
            return before
        if offset is None or step is None:
            found = None if (one := self._followers.get(key)) is None else self._following(one, before, iteration)
            return found or counted(self._irregular(before), self._header, key, iteration, self._expressions)
        if step.value == 0:
            return before
        try:
            return with_count(before, offset.plus(step.times(iteration, self._walk.sizes)).typed(offset.dtype))
        except NotAffineError:
            return changed(before, "not affine")

    def _irregular(self, before: Value) -> Value:
        """Return what is left of a variable that changes irregularly."""
        self._walk.settle(before)
        found = changed(before, "data" if self._limited else "carried")
        # Where pointers are swapped, each may point into any of their arrays after some iterations.
        return replace(found, array=None, ways=()) if self._swapped and isinstance(found, Pointer) else found

    def _following(self, value: Integer, first: Value, iteration: Integer) -> Value | None:
        """Return a variable that takes, at the end of an iteration, what others had then; None if it is not known."""
        if not isinstance(first, Integer):
            return None
        earlier = iteration.plus(Integer.of(-1))
        try:
            known = isl.Map.from_pw_aff(value.affine)
            for name in names_in(value.affine) & set(self._names):
                there = self._at(self._names[name], earlier)
                if not isinstance(there, Integer):
                    return None
                known = known.intersect_domain(variable(name).eq_set(there.affine))
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
        self._begun, self._always = begun, header.test is None
        if header.tested_last:
            return begun
        if header.test is None:
            return begun
        walk.active, first = begun, len(walk.recorder.executed)
        limits: list[tuple[Integer, int]] = []
        outer, walk.limits = walk.limits, limits
        condition = self._expressions.condition(header.test)
        walk.limits = outer
        if not condition.known:
            limited = self._limit(begun, _DECIDES[condition.reason])
            self._end(first, self._limited)  # The test is executed once more than the body.
            self._set_tests_apart()
            return limited
        if names_in(condition.true) == {counter} and has_end(condition.true, counter):
            walk.recorder.trips[counter] = int(along(condition.true, counter).dim_max_val(0).to_python()) + 1
        iterations = begun.intersect(condition.true)
        self._always = begun.is_subset(condition.true)
        over = later(begun.intersect(condition.false), counter)
        if not over.intersect(iterations).is_empty():
            iterations = iterations.subtract(over)
        iterations = iterations.coalesce()
        # Unsigned integers stay below their limits in all iterations whose condition is tested.
        walk.active = begun.subtract(over)
        for executed in walk.recorder.executed[first:]:
            executed.domain = executed.domain.intersect(walk.active)
        try:
            for value, limit in limits:
                walk.require_below(value, limit)
        except NotAffineError:
            return self._limit(begun, _DECIDES["not affine"])
        return iterations

    def _with_end(self, iterations: Any, first: int, *, doubt: bool) -> Any:
        """Return the iterations, as many as are stated where their end is not known or (`doubt`) data decide it."""
        walk, ends = self._walk, has_end(iterations, self._counter)
        if self._limited or (ends and not (doubt and self._label in walk.trips)):
            return iterations
        if self._always and not doubt and not walk.recorder.dry and iterations.is_equal(self._begun):
            raise walk.refuse(
                "this loop never ends, for nothing leaves it; write a condition or a break", self._header.cursor
            )
        iterations = self._limit(iterations, "data decide" if doubt else "its condition never changes")
        self._end(first, self._limited - 1)
        return iterations

    def _test_once_more(self) -> None:
        """Change what a test changes when it ends the loop: behind ``while (j--)``, j is -1."""
        test = self._header.test
        if test is not None and not self._header.tested_last and any(assigned(test)):
            self._walk.recorder.dry += 1
            self._expressions.condition(test)
            self._walk.recorder.dry -= 1

    def _limit(self, iterations: Any, why: str) -> Any:
        """Return as many iterations as are stated."""
        walk, counter = self._walk, self._counter
        walk.go_to(self._header.cursor)
        trips = walk.trips.get(walk.label)
        if trips is None:
            walk.note("trip count", why, f'state it with --state {walk.label}=N (stated={{"{walk.label}": N}})')
            trips = Fraction(1)
        self._limited = math.ceil(trips)
        if not walk.recorder.dry:
            walk.recorder.averages[counter] = trips / self._limited
        return iterations.intersect(isl.Set(f"[{counter}] -> {{ [] : {counter} < {self._limited} }}"))

    def _test_last(self, test: Node, loop: Loop, first: int) -> None:
        walk = self._walk
        before = walk.active
        condition = self._expressions.condition(test)
        if condition.known:
            loop.left = loop.left.union(before.intersect(condition.false))
            self._always = before.is_subset(condition.true)
            return
        walk.active = self._limit(before, _DECIDES[condition.reason])
        self._end(first, self._limited - 1)

    def _end(self, first: int, last: int) -> None:
        """Let what was recorded from a place on end with an iteration."""
        within = isl.Set(f"[{self._counter}] -> {{ [] : {self._counter} <= {last} }}")
        for executed in self._walk.recorder.executed[first:]:
            executed.domain = executed.domain.intersect(within)

    def _set_tests_apart(self) -> None:
        """Let tests be executed once more than the body on average, too: they are a loop of their own, before it."""
        recorder, cursor = self._walk.recorder, self._walk.cursor
        average = recorder.averages.get(self._counter, Fraction(1))
        if not recorder.dry and average != 1:
            recorder.tests[cursor.loops[-1]] = (average * self._limited + 1) / (self._limited + 1)
            cursor.leave()
            cursor.enter(self._counter)

    def _after(self, before: Mapping[Hashable, Value], iterations: Any, around: Any) -> dict[Hashable, Value]:
        """Return the variables behind the loop, of those who did not leave it before its end."""
        inside, counter = self._walk.variables, self._counter
        trips: Integer | None = None
        ran = last = None
        found = {}
        for key, old in before.items():
            new, step = inside.get(key, old), self._steps.get(key)
            if new is old or (step is not None and step.value == 0):
                found[key] = old
            elif key in self._names.values() and not (self._is_irregular(key) and isinstance(old, Unknown)):
                if not self._is_irregular(key) and not self._limited:
                    trips = trips or trip_count(iterations, counter, around)
                    found[key] = changed(old, "not affine") if trips is None else self._at(key, trips)
                else:
                    found[key] = self._irregular(old)
            elif isinstance(new, Unknown) and (new.source, new.constant, new.parts) == (None, None, ()):
                found[key] = new
            elif self._limited or not has_end(iterations, counter):
                found[key] = self._walk.joined(self._behind(new, None), old, Condition())
            else:
                ran = ran or any_iteration(iterations, counter)
                last = last or last_iteration(iterations, counter)
                found[key] = self._walk.joined(self._behind(new, last), old, Condition(ran, around.subtract(ran)))
        return found

    def _left(self, way: Exit, before: Mapping[Hashable, Value], iterations: Any) -> Exit:
        """Return a way out of an iteration as one out of the loop."""
        last = way.active.intersect(iterations)
        variables = {
            key: value if value is before.get(key) else self._behind(value, last if way.certain else None)
            for key, value in way.variables.items()
            if key in before or key == RETURNED
        }
        return Exit(any_iteration(last, self._counter), way.certain, variables)

    def _behind(self, value: Value, last: Any) -> Value:
        """Return a value behind the loop that has this one in an iteration of `last`, which has one at most."""
        if isinstance(value, Aggregate):
            return with_parts(value, {key: self._behind(part, last) for key, part in value.parts.items()})
        if isinstance(value, Unknown) and value.parts:
            return replace(value, parts=())
        if isinstance(value, Pointer) and depends_on(value, self._counter):
            return replace(somewhere(value, "data"), ways=())
        offset = counted_by(value)
        if offset is None or self._counter not in offset.names:
            return value
        if last is None:
            return changed(value, "data")
        try:
            terms = {key: without(term, last, self._counter) for key, term in offset.terms.items()}
        except (NotAffineError, isl.Error):
            return changed(value, "not affine")
        return with_count(value, replace(offset, terms=terms))


def _says_something(value: Value) -> bool:
    """Return whether something follows from a value: it or a part of it is known."""
    if isinstance(value, Unknown):
        return value.constant is not None or value.source is not None or any(value.parts)
    return any(map(_says_something, value.parts.values())) if isinstance(value, Aggregate) else True
