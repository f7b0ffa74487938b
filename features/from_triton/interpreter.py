"""Interprets the integers of a Triton kernel that addresses, masks and control flow depend on, for many programs.

Floating-point data are shapes only. Iterations of a loop are computed together where what the loop carries advances by
amounts that do not depend on it; otherwise one after another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from perflex.features.from_triton.evaluation import Evaluation
from perflex.features.from_triton.slices import addressed, advances, needed_values
from perflex.features.from_triton.tallies import Tally, Tile
from perflex.features.from_triton.ttir import Block, Function, Operation, Type
from perflex.features.from_triton.values import (
    Any_,
    Descriptor,
    Pointer,
    TooLargeError,
    Unknown,
    Value,
    bounded,
    scalar,
    total,
)

_Mask = np.ndarray[Any, Any]
# So many iterations of loops that cannot be computed together; and so many that are, of all programs.
_MOST_STEPS = 1 << 14
_MOST_TOGETHER = 1 << 22
_I64 = Type((), "i64")
_DESCRIPTORS = {
    "descriptor_load": "load", "descriptor_gather": "load", "descriptor_store": "store", "descriptor_scatter": "store",
    "descriptor_reduce": "atomic",
}  # fmt: skip


def _with(shape: tuple[int, ...], axis: int, length: int) -> tuple[int, ...]:
    return (*shape[:axis], length, *shape[axis + 1 :])


@dataclass(frozen=True)
class Launch:
    """What a kernel is called with: numbers by argument, contents of arrays that are known, and the grid."""

    arguments: Mapping[str, float]
    arrays: Mapping[str, np.ndarray[Any, Any]]
    grid: tuple[int, int, int]

    @property
    def programs(self) -> int:
        """Programs of the grid."""
        return prod(self.grid)


class Interpreter(Evaluation):
    """One run of a kernel for some of its programs, given by their numbers, the first axis of the grid fastest.

    `first_only` computes one iteration of each loop; `in_order` no iterations together. `compiled` takes for true what
    the code says of values (``tl.multiple_of``), and for known nothing that is loaded, as Triton's compiler does.
    """

    def __init__(
        self, kernel: Function, functions: Mapping[str, Function], launch: Launch, programs: Sequence[int] | _Mask
    ) -> None:
        super().__init__(launch.arrays)
        self.kernel, self.functions, self.launch = kernel, functions, launch
        self.tally = Tally()
        self.programs = np.asarray(programs, np.int64)
        self.batch: tuple[int, ...] = (len(self.programs),)
        self.loops: tuple[int, ...] = ()
        self.line = self.steps = self.together = 0
        self.first_only = self.in_order = self.compiled = False
        self.needed: set[int] = set()

    def run(self) -> Tally:
        """Interpret the kernel.

        Raises
        ------
        UnsupportedKernelError
            Something is not known without data, or cannot be interpreted; the operation is named.
        TooLargeError
            Fewer programs must be interpreted at once.
        """
        self.needed = self.needed or needed_values(self.functions)
        self.unfinished = self.first_only or self.compiled
        numbers, kinds = self.kernel.arguments, self.kernel.types
        for name, number, kind in zip(self.kernel.names, numbers, kinds, strict=True):
            self.values[number] = self.argument(name, kind)
        for place, (name, kind) in enumerate(zip(self.kernel.names, kinds, strict=True)):
            if kind.descriptor:
                # Sizes and strides of what the host made follow as arguments of their own.
                rank = len(kind.shape)
                around = [self.values[number] for number in numbers[place + 1 : place + 1 + 2 * rank]]
                unknown = next((value for value in around if isinstance(value, Unknown)), None)
                known = tuple(value for value in around if isinstance(value, Value))
                pointer = Pointer(name, scalar(0, _I64), kind)
                self.values[numbers[place]] = unknown or Descriptor(pointer, known[:rank], known[rank:], kind)
        self.blocks(self.kernel.body, np.ones(self.batch, bool))
        return self.tally

    def argument(self, name: str, kind: Type) -> Any_:
        """Return an argument of the kernel."""
        if kind.pointer:
            self.widths[name] = kind.bytes
            return Pointer(name, scalar(0, _I64), kind)
        value = self.launch.arguments.get(name)
        if value is None:  # or a descriptor, which is made of what follows it
            return Unknown(f"argument {name}")
        if kind.element[0] != "i":
            return scalar(np.float64(np.float32(value) if kind.element == "f32" else value), kind)
        # Of an unsigned integer the bits.
        return total((np.full((1,), value, np.uint64 if value >= 1 << 63 else np.int64).astype(np.int64),), kind, 1)

    # -- control flow

    def blocks(self, blocks: list[Block], active: _Mask) -> list[Any_]:
        """Run the blocks of a function or region, each for the programs that go there; return what they return."""
        arriving: dict[str, _Mask] = {blocks[0].label: active}
        returned: list[tuple[_Mask, list[Any_]]] = []
        for block in self.in_order_of_jumps(blocks):
            here = arriving.pop(block.label, None)
            if here is None or not here.any():
                continue
            self.block(block.operations[:-1], here)
            last = block.operations[-1] if block.operations else None
            if last is None or not last.name.startswith("cf."):
                returned.append((here, self.terminated(last, here)))
                continue
            goals = self.branches(last, here)
            for label, (mask, values) in goals:
                goal = {one.label: one for one in blocks}[label]
                before = arriving.get(label)
                arriving[label] = mask if before is None else before | mask
                for number, value in zip(goal.arguments, values, strict=True):
                    old = self.values.get(number)
                    self.values[number] = value if before is None or old is None else self.chosen(mask, value, old)
        result = returned[0][1] if returned else []
        for mask, values in returned[1:]:
            result = [self.chosen(mask, new, old) for new, old in zip(values, result, strict=True)]
        return result

    def in_order_of_jumps(self, blocks: list[Block]) -> list[Block]:
        """Return blocks so that jumps lead onward; a jump back is refused."""
        by_label = {block.label: block for block in blocks}
        done: list[Block] = []
        open_: set[str] = set()

        def visit(block: Block) -> None:
            if any(block is one for one in done):
                return
            last = block.operations[-1]
            if block.label in open_:
                self.refuse(last, "a jump back")
            open_.add(block.label)
            for part in last.text.split("^")[1:] if last.name.startswith("cf.") else ():
                visit(by_label["^" + re.split(r"[(, :]", part)[0]])
            open_.discard(block.label)
            done.append(block)

        visit(blocks[0])
        return done[::-1]

    def terminated(self, last: Operation | None, active: _Mask) -> list[Any_]:
        """Return what a block's last operation passes on, if that is one."""
        if last is None:
            return []
        if last.name in {"scf.yield", "tt.return", "scf.condition"}:
            return [self.get(number) for number in last.operands]
        self.operation(last, active)
        return []

    def branches(self, last: Operation, active: _Mask) -> list[tuple[str, tuple[_Mask, list[Any_]]]]:
        """Return the labels that a jump goes to, each with the programs that go there and what it passes on."""
        parts = last.text.split("^")[1:]
        labels = ["^" + part.split("(")[0].split(",")[0].split(" ")[0] for part in parts]
        counts = [part.split(":")[0].count("%") for part in parts]
        start = len(last.operands) - sum(counts)
        passed: list[list[Any_]] = []
        for count in counts:
            passed.append([self.get(number) for number in last.operands[start : start + count]])
            start += count
        if last.name == "cf.br":
            return [(labels[0], (active, passed[0]))]
        held = self.truth(last, last.operands[0])
        return [(labels[0], (active & held, passed[0])), (labels[1], (active & ~held, passed[1]))]

    def block(self, operations: Sequence[Operation], active: _Mask) -> None:
        """Run operations one after another."""
        for one in operations:
            self.operation(one, active)

    def operation(self, one: Operation, active: _Mask) -> None:
        """Run an operation: what it accesses and computes is tallied, and its value computed where it is needed."""
        name, self.line = one.name, one.line
        if name == "scf.for":
            self.loop(one, active)
        elif name == "scf.while":
            self.while_loop(one, active)
        elif name == "scf.if":
            self.branch(one, active)
        elif name == "tt.call":
            self.call(one, active)
        else:
            self.active = active
            self.account(one, active)
            if self.needed.intersection(one.results):
                for number, value in zip(one.results, self.evaluate(one), strict=True):
                    self.values[number] = self.hinted(one, value) if self.compiled else value

    def call(self, one: Operation, active: _Mask) -> None:
        """Run a function that the compiler did not put in place."""
        function = self.functions[one.text[1:].split("(")[0]]
        for number, operand in zip(function.arguments, one.operands, strict=True):
            self.values[number] = self.get(operand)
        found = self.blocks(function.body, active)
        self.values.update(zip(one.results, found, strict=False))

    def branch(self, one: Operation, active: _Mask) -> None:
        """Run the regions of a condition for the programs that go there, and put together what they yield."""
        held = self.truth(one, one.operands[0])
        results: list[tuple[_Mask, list[Any_]]] = []
        for region, mask in zip(one.regions, (active & held, active & ~held), strict=False):
            if mask.any():
                results.append((mask, self.blocks(region, mask)))
        if not one.results:
            return
        # Where no program comes here, any value will do.
        values = results[0][1] if results else [Unknown("a branch that no program takes")] * len(one.results)
        for mask, others in results[1:]:
            values = [self.chosen(mask, new, old) for new, old in zip(others, values, strict=True)]
        self.values.update(zip(one.results, values, strict=True))

    def loop(self, one: Operation, active: _Mask) -> None:
        """Run a counted loop."""
        low, high, step = (self.whole(one, number, "the trip count of a loop") for number in one.operands[:3])
        step, counter = np.where(step <= 0, 1, step), Type((), one.attributes["counter"])
        if one.attributes["unsigned"] == "True":
            self.refuse(one, "a loop with an unsigned counter")
        trips = np.broadcast_to(np.maximum(0, -(-(high - low) // step)), self.batch) * active
        self.tally.enter(one, self.loops, (int(active.sum()), int(trips.sum())))
        if self.first_only:
            trips = np.minimum(trips, 1)
        most, body = int(trips.max(initial=0)), one.regions[0][0]
        starts = [self.get(number) for number in one.operands[3:]]
        outer, batch = self.loops, self.batch
        self.loops = (*outer, one.line)
        moved = None if self.in_order else advances(one, self.needed)
        if most == 0:
            ends: list[Any_] = starts
        elif moved is None:
            ends = self.one_by_one(one, trips, low, step, active)
        else:
            self.together += prod(batch) * most
            if self.together > _MOST_TOGETHER:
                raise TooLargeError
            self.batch = (*batch, most)
            depth, count = len(self.batch), np.arange(most)
            inside = active[..., None] & (count < trips[..., None])
            self.values[body.arguments[0]] = scalar(low[..., None] + count * step[..., None], counter, depth)
            self.active = inside
            self.block_of_deltas(moved.before)
            ends = []
            for place, start in enumerate(starts):
                now, end = self.carried(start, moved.deltas[place], trips)
                self.values[body.arguments[place + 1]] = now
                ends.append(end)
            self.block(body.operations[:-1], inside)
        self.batch, self.loops = batch, outer
        self.values.update(zip(one.results, ends, strict=True))

    def block_of_deltas(self, operations: Sequence[Operation]) -> None:
        """Compute by how much a loop's values advance, before what they are."""
        for one in operations:
            for number, value in zip(one.results, self.evaluate(one), strict=True):
                self.values[number] = value

    def carried(self, start: Any_, deltas: tuple[int, ...] | None, trips: _Mask) -> tuple[Any_, Any_]:
        """Return what a loop carries in each iteration, and at its end; by which values it advances is given."""
        if deltas == () or isinstance(start, Unknown):
            return start, start
        if deltas is None or isinstance(start, Descriptor):
            unknown = Unknown("what a loop computes from data")
            return unknown, unknown
        depth, most = len(self.batch), self.batch[-1]
        now, end = start.at(depth), start
        for number in deltas:
            delta = self.get(number)
            if isinstance(start, Pointer) and isinstance(delta, Value):
                delta = self.scaled(delta, start.type.bytes)
            if not isinstance(delta, Value):
                unknown = delta if isinstance(delta, Unknown) else Unknown("an address")
                return unknown, unknown
            for term in delta.at(depth).terms:
                axis = depth - 1
                steps = term if term.shape[axis] > 1 else np.broadcast_to(term, _with(term.shape, axis, most))
                bounded([steps])
                # Up to each iteration, and up to the end.
                sums = np.cumsum(steps, axis=axis)
                before = np.concatenate([np.zeros_like(np.take(sums, [0], axis)), sums], axis)
                now = self.plus(now, np.take(before, range(most), axis), depth)
                at_end = trips.reshape(trips.shape + (1,) * (before.ndim - axis))
                shape = np.broadcast_shapes(at_end.shape, _with(before.shape, axis, 1))
                wide = np.broadcast_to(before, _with(shape, axis, most + 1))
                last = np.take_along_axis(wide, np.broadcast_to(at_end, shape), axis)
                end = self.plus(end, np.squeeze(last, axis), depth - 1)
        return now, end

    def plus(self, one: Any, term: np.ndarray[Any, Any], depth: int) -> Any:
        """Return a value or pointer advanced by an array."""
        if isinstance(one, Pointer):
            return Pointer(one.base, total((*one.offset.at(depth).terms, term), one.offset.type, depth), one.type)
        return total((*one.at(depth).terms, term), one.type, depth)

    def one_by_one(self, one: Operation, trips: _Mask, low: _Mask, step: _Mask, active: _Mask) -> list[Any_]:
        """Run a counted loop's iterations in their order; return what it carries at its end."""
        body, now = one.regions[0][0], [self.get(number) for number in one.operands[3:]]
        trips = np.minimum(trips, 2) if self.compiled else trips
        if int(trips.max()) > _MOST_STEPS:
            self.refuse(one, f"a loop of {int(trips.max())} iterations that must be followed one by one")
        for count in range(int(trips.max())):
            inside = active & (count < trips)
            counter = Type((), one.attributes["counter"])
            self.values[body.arguments[0]] = scalar(low + count * step, counter, len(self.batch))
            self.values.update(zip(body.arguments[1:], now, strict=True))
            now = self.iteration(body, now, inside)
        return now

    def iteration(self, body: Block, now: list[Any_], inside: _Mask) -> list[Any_]:
        """Run a loop's body once, for some programs; return what the loop, which carried `now`, carries then."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self.refuse(body.operations[-1], f"loops of more than {_MOST_STEPS} iterations, followed one by one")
        self.block(body.operations[:-1], inside)
        after = self.terminated(body.operations[-1], inside)
        return [self.chosen(inside, new, old) for new, old in zip(after, now, strict=True)]

    def while_loop(self, one: Operation, active: _Mask) -> None:
        """Run a loop with a condition; its iterations come one after another."""
        test, body = one.regions[0][0], one.regions[1][0]
        now = [self.get(number) for number in one.operands]
        results: list[Any_] = []
        inside, outer, steps, trips = active, self.loops, 0, 0
        self.loops = (*outer, one.line)
        while True:
            self.values.update(zip(test.arguments, now, strict=True))
            self.block(test.operations[:-1], inside)
            last = test.operations[-1]
            held = inside & self.truth(one, last.operands[0])
            passed = [self.get(number) for number in last.operands[1:]]
            # Programs that leave the loop take with them what was passed on then.
            left = passed if not results else [
                self.chosen(inside, new, old) for new, old in zip(passed, results, strict=True)
            ]  # fmt: skip
            results, inside, steps = left, held, steps + 1
            if not inside.any() or (self.first_only and steps > 1):
                break
            trips += int(inside.sum())
            self.values.update(zip(body.arguments, passed, strict=True))
            now = self.iteration(body, now, inside)
        self.loops = outer
        self.tally.enter(one, outer, (int(active.sum()), trips))
        self.values.update(zip(one.results, results, strict=True))

    # -- what is accessed and computed

    def account(self, one: Operation, active: _Mask) -> None:
        """Tally what an operation accesses or computes."""
        name = one.name.removeprefix("tt.")
        if name in {"load", "store", "atomic_rmw", "atomic_cas"}:
            masks = [self.get(number) for number in addressed(one)[1:]]
            direction = name if name in {"load", "store"} else "atomic"
            self.accessed(one, direction, self.get(one.operands[0]), masks, active)
        elif name.startswith("descriptor_"):
            pointer, mask = self.window(one)
            self.accessed(one, _DESCRIPTORS[name], pointer, [mask], active)
        elif name == "dot_scaled":
            self.refuse(one, "products with scales are not counted")
        elif name == "dot":
            self.tally.dot(one, self.loops, int(active.sum()))
        elif not one.results or not self.needed.issuperset(one.results):
            self.tally.compute(one, self.loops, int(active.sum()))

    def accessed(self, one: Operation, direction: str, pointer: Any_, masks: Sequence[Any_], active: _Mask) -> None:
        """Tally an access."""
        for value, what in ((pointer, "an address"), *((mask, "a mask") for mask in masks)):
            if isinstance(value, Unknown):
                self.refuse_data(one, what, value.cause)
        if not isinstance(pointer, Pointer):
            self.refuse(one, "what it accesses is no address")
        terms = tuple(term for mask in masks if isinstance(mask, Value) for term in mask.terms)
        tile = Tile(pointer.offset.terms, terms, np.broadcast_to(active, self.batch), pointer.type)
        self.tally.access(one, self.loops, (pointer.base, direction), tile)
