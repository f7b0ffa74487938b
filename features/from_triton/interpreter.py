"""Interprets the integers of a Triton kernel that addresses, masks and control flow depend on, for many programs.

Floating-point data are shapes only. Iterations of a loop are computed together where what the loop carries advances by
amounts that do not depend on it; otherwise one after another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from typing import Any, NoReturn, TypeVar

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton import values
from perflex.features.from_triton.slices import advances, jumps, known_operands, needed_values
from perflex.features.from_triton.tallies import Tally, Tile
from perflex.features.from_triton.ttir import ENDS, Block, Function, Operation, Type
from perflex.features.from_triton.values import Any_, Array, Descriptor, TooLargeError, Unknown, Value

# So many iterations of loops that cannot be computed together; and so many that are, of all programs.
_MOST_STEPS = 1 << 14
_MOST_TOGETHER = 1 << 22
_DIRECTIONS = {
    "load": "load", "descriptor_load": "load", "descriptor_gather": "load", "store": "store",
    "descriptor_store": "store", "descriptor_scatter": "store", "atomic_rmw": "atomic", "atomic_cas": "atomic",
    "descriptor_reduce": "atomic", "atomic_load": "load", "atomic_store": "store",
}  # fmt: skip
_CONTROL = {"scf.for": "_loop", "scf.while": "_while", "scf.if": "_if", "tt.call": "_call"}
# What may be done with addresses without an access.
_OF_ADDRESSES = {
    "addptr", "splat", "unsplat", "broadcast", "expand_dims", "reshape", "trans", "join", "split", "cat", "bitcast",
    "select", "ptr_to_int", "make_tensor_descriptor", "print", "assert", "unrealized_conversion_cast", "fence",
    "experimental_descriptor_fence",
}  # fmt: skip
_NOT_FOLLOWED = Unknown("what perflex does not follow")
_Known = TypeVar("_Known", Value, Descriptor)


@dataclass(frozen=True)
class Launch:
    """What a kernel is called with: numbers by argument, contents of arrays that are known, and the grid."""

    arguments: Mapping[str, float]
    arrays: Mapping[str, Array]
    grid: tuple[int, int, int]

    @property
    def programs(self) -> int:
        """Programs of the grid."""
        return prod(self.grid)


def _leads_to_memory(kind: Type) -> bool:
    return kind.pointer or kind.descriptor


class Interpreter:
    """One run of a kernel for some of its programs, given by their numbers, the first axis of the grid fastest.

    `first_only` computes one iteration of each loop; `in_order` no iterations together. `compiled` takes for true what
    the code says of values (``tl.multiple_of``), and for known nothing that is loaded, as Triton's compiler does.
    """

    def __init__(
        self, kernel: Function, functions: Mapping[str, Function], launch: Launch, programs: Sequence[int] | Array
    ) -> None:
        self.kernel, self.functions, self.launch, self.arrays = kernel, functions, launch, launch.arrays
        self.first_only = self.in_order = self.compiled = False
        self.tally, self.needed, self.values = Tally(), set[int](), dict[int, Any_]()
        self.programs = np.asarray(programs, np.int64)
        # Programs and iterations that are computed together here, those that come to the operation, and loops around.
        self.batch: tuple[int, ...] = self.programs.shape
        self.active, self.loops = np.ones(1, bool), tuple[int, ...]()
        self.line = self.steps = self.together = 0

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
        numbers, kinds = self.kernel.arguments, self.kernel.types
        for name, number, kind in zip(self.kernel.names, numbers, kinds, strict=True):
            self.values[number] = self._argument(name, kind)
        for place, kind in enumerate(kinds):
            if kind.descriptor:
                # Sizes and strides of what the host made follow as arguments of their own.
                given = numbers[place : place + 1 + 2 * len(kind.shape)]
                self._assign(Operation("tt.make_tensor_descriptor", given, given[:1], (kind,), (), "", {}, [], 0))
        self._blocks(self.kernel.body, np.ones(self.batch, bool))
        return self.tally

    def _argument(self, name: str, kind: Type) -> Any_:
        if kind.pointer or kind.descriptor:
            return Value((np.zeros(1, np.int64),), kind._replace(pointer=True), 1, name)
        value = self.launch.arguments.get(name)
        if value is None:  # or a descriptor, which is made of what follows it
            return Unknown(f"argument {name}")
        if kind.element[0] != "i":
            return Value((np.full(1, np.float32(value) if kind.element == "f32" else value, float),), kind, 1)
        # Of an unsigned integer the bits.
        return values.total((np.full(1, value, np.uint64 if value >= 1 << 63 else np.int64).astype(np.int64),), kind, 1)

    # -- control flow

    def _blocks(self, blocks: list[Block], active: Array) -> list[Any_]:
        """Run the blocks of a function or region, each for the programs that go there; return what they return."""
        by_label, arriving = {block.label: block for block in blocks}, {blocks[0].label: active}
        result: list[Any_] | None = None
        for label in self._in_order_of_jumps(blocks):
            here = arriving.get(label)
            if here is None or not here.any():
                continue
            *operations, last = by_label[label].operations
            for one in operations:
                self._operation(one, here)
            goals = jumps(last)
            if not goals:
                if last.name not in ENDS:
                    self._refuse(last, "nothing says what follows it")
                result = self._merged(here, self._gets(last.operands), result)
                continue
            held = self._truth(last, last.operands[0]) if len(goals) > 1 else np.True_
            for (goal, passed), mask in zip(goals, (here & held, here & ~held), strict=False):
                numbers, before = by_label[goal].arguments, arriving.get(goal)
                old = None if before is None else [self.values[number] for number in numbers]
                self.values.update(zip(numbers, self._merged(mask, self._gets(passed), old), strict=True))
                arriving[goal] = mask if before is None else before | mask
        return result or []

    def _in_order_of_jumps(self, blocks: list[Block]) -> list[str]:
        """Return the labels of blocks so that jumps lead onward; a jump back is refused."""
        last, done = {block.label: block.operations[-1] for block in blocks}, list[str]()

        def visit(label: str, before: tuple[str, ...]) -> None:
            if label in before:
                self._refuse(last[label], "a jump back")
            if label not in done:
                for goal, _ in jumps(last[label]):
                    visit(goal, (*before, label))
                done.append(label)

        visit(blocks[0].label, ())
        return done[::-1]

    def _operation(self, one: Operation, active: Array) -> None:
        """Run an operation: what it accesses and computes is tallied, and its value computed where it is needed."""
        self.line = one.line
        if one.name in _CONTROL:
            around = self.loops, self.batch
            results = getattr(self, _CONTROL[one.name])(one, active)
            self.loops, self.batch = around
            self.values.update(zip(one.results, results, strict=True))
        else:
            self.active = active
            self._account(one, active)
            if not self.needed.isdisjoint(one.results):
                self._assign(one)

    def _call(self, one: Operation, active: Array) -> list[Any_]:
        function = self.functions[one.text[1:].split("(")[0]]
        self.values.update(zip(function.arguments, self._gets(one.operands), strict=True))
        return self._blocks(function.body, active)

    def _if(self, one: Operation, active: Array) -> list[Any_]:
        held, results = self._truth(one, one.operands[0]), None
        for region, mask in zip(one.regions, (active & held, active & ~held), strict=False):
            if mask.any():
                results = self._merged(mask, self._blocks(region, mask), results)
        return results or []

    def _loop(self, one: Operation, active: Array) -> list[Any_]:
        low, high, step = (self._whole(one, number, "the trip count of a loop") for number in one.operands[:3])
        step, counter = np.where(step <= 0, 1, step), Type((), one.attributes["counter"])
        if one.attributes["unsigned"] == "True":
            self._refuse(one, "a loop with an unsigned counter")
        trips = np.broadcast_to(np.maximum(0, -(-(high - low) // step)), self.batch) * active
        self.tally.enter(one, self.loops, (int(active.sum()), int(trips.sum())))
        if self.first_only:
            trips = np.minimum(trips, 1)
        if self.compiled and not trips.any():
            # Code is made for loops that never run, too.
            trips = np.broadcast_to(active, self.batch).astype(int)
        most, now, (body,) = int(trips.max(initial=0)), self._gets(one.operands[3:]), one.regions
        moved = None if self.in_order else advances(one, self.needed)
        self.loops = (*self.loops, one.line)
        if most == 0:
            return now
        if moved is None:
            trips = np.minimum(trips, 2) if self.compiled else trips
            if int(trips.max()) > _MOST_STEPS:
                self._refuse(one, f"a loop of {most} iterations that must be followed one by one")
            for place in range(int(trips.max())):
                number = Value((low + place * step,), counter, len(self.batch))
                now = self._iteration(one, active & (place < trips), [number, *now], now)
            return now
        self.together += prod(self.batch) * most
        if self.together > _MOST_TOGETHER:
            raise TooLargeError
        places, self.batch = np.arange(most), (*self.batch, most)
        inside = self.active = active[..., None] & (places < trips[..., None])
        number = Value((low[..., None] + places * step[..., None],), counter, len(self.batch))
        self.values[body[0].arguments[0]] = number
        deltas, before = moved
        # By how much values advance, before what they are.
        for other in before:
            self.values.update(zip(other.results, self._results(other), strict=True))
        carried = [self._carried(start, numbers, trips) for start, numbers in zip(now, deltas, strict=True)]
        self.values.update(zip(body[0].arguments[1:], (now for now, _ in carried), strict=True))
        self._blocks(body, inside)
        return [end for _, end in carried]

    def _carried(self, start: Any_, deltas: tuple[int, ...] | None, trips: Array) -> tuple[Any_, Any_]:
        """Return what a loop carries in each iteration, and at its end; by which values it advances is given."""
        if deltas == () or isinstance(start, Unknown):
            return start, start
        if deltas is None or isinstance(start, Descriptor):
            return (Unknown("what a loop computes from data"),) * 2
        axis, kind = len(self.batch) - 1, start.type
        now, end, most = start.at(axis + 1), start, self.batch[-1]
        for delta in self._gets(deltas):
            if not isinstance(delta, Value) or delta.type.pointer:
                return (delta if isinstance(delta, Unknown) else Unknown("an address"),) * 2
            for term in delta.terms:
                shape = np.broadcast_shapes(term.shape, (most,) + (1,) * (term.ndim - 1 - axis))
                steps = np.broadcast_to(term, shape)
                values.bounded([steps])
                # Up to each iteration, and up to the end.
                sums = np.insert(steps * (kind.bytes if kind.pointer else 1), 0, 0, axis).cumsum(axis)
                now = values.total((*now.terms, sums.take(range(most), axis)), kind, axis + 1, start.array)
                at_end = trips.reshape(trips.shape + (1,) * (sums.ndim - axis))
                last = np.take_along_axis(sums, at_end, axis).squeeze(axis)
                end = values.total((*end.terms, last), kind, axis, start.array)
        return now, end

    def _while(self, one: Operation, active: Array) -> list[Any_]:
        (test, _), around, self.loops = one.regions, self.loops, (*self.loops, one.line)
        now, results, inside, trips = self._gets(one.operands), None, active, 0
        for place in count():
            self.values.update(zip(test[0].arguments, now, strict=True))
            _, *passed = self._blocks(test, inside)
            # Programs that leave the loop take with them what was passed on then.
            results = self._merged(inside, passed, results)
            inside = inside & self._truth(one, test[0].operations[-1].operands[0])
            if not inside.any() or (self.first_only and place > 0):
                break
            trips += int(inside.sum())
            now = self._iteration(one, inside, passed, now)
        self.tally.enter(one, around, (int(active.sum()), trips))
        return results or []

    def _iteration(self, one: Operation, inside: Array, given: list[Any_], old: list[Any_]) -> list[Any_]:
        """Run a loop's body once; return what the loop carries then, where programs do not come here the old values."""
        self.steps += 1
        if self.steps > _MOST_STEPS:
            self._refuse(one, f"loops of more than {_MOST_STEPS} iterations, followed one by one")
        self.values.update(zip(one.regions[-1][0].arguments, given, strict=True))
        return self._merged(inside, self._blocks(one.regions[-1], inside), old)

    # -- what is accessed and computed

    def _account(self, one: Operation, active: Array) -> None:
        name = one.name.removeprefix("tt.")
        if name in _DIRECTIONS or name.startswith("descriptor_"):
            at = self._window(one) if name.startswith("descriptor_") else self._gets(known_operands(one))
            words = zip(at, ("an address", "a mask"), strict=False)
            known = [self._known(one, value, what, Value) for value, what in words]
            if not known[0].type.pointer or not all(values.is_mask(mask.type) for mask in known[1:]):
                self._refuse(one, "what it accesses is no address, or its mask is none")
            pointer, terms = known[0], tuple(term for mask in known[1:] for term in mask.terms)
            tile = Tile(pointer.terms, terms, np.broadcast_to(active, self.batch), pointer.type)
            self.tally.access(one, self.loops, (pointer.array, _DIRECTIONS[name]), tile)
        elif name == "dot_scaled":
            self._refuse(one, "products with scales are not counted")
        elif name == "dot":
            self.tally.dot(one, self.loops, int(active.sum()))
        elif one.name.rpartition(".")[2] not in _OF_ADDRESSES and any(map(_leads_to_memory, one.given)):
            self._refuse(one, "what it does with memory is not known")
        elif not one.results or not self.needed.issuperset(one.results):
            self.tally.compute(one, self.loops, int(active.sum()))

    # -- values

    def _gets(self, numbers: Iterable[int]) -> list[Any_]:
        """Return values, with an axis for each loop that is computed at once here."""
        found = [self.values.get(number, _NOT_FOLLOWED) for number in numbers]
        return [value.at(len(self.batch)) if isinstance(value, Value) else value for value in found]

    def _refuse(self, one: Operation, why: str) -> NoReturn:
        msg = f"kernel {self.kernel.name!r}, {one.name} in line {one.line} of its TTIR: {why}"
        raise UnsupportedKernelError(msg)

    def _known(self, one: Operation, value: Any_, what: str, kind: type[_Known]) -> _Known:
        """Return a value that must be known; it is refused where data decide it."""
        if not isinstance(value, kind):
            cause = value.cause if isinstance(value, Unknown) else "data"
            ways = {"array": "give its contents as a NumPy array", "argument": "give its value"}
            way = ways.get(cause.split(" ")[0], "perflex does not follow that")
            self._refuse(one, f"{what} depends on {cause}; {way}")
        return value

    def _whole(self, one: Operation, number: int, what: str) -> Array:
        """Return a number that must be known, with the axes of the batch."""
        (value,) = self._gets([number])
        address = isinstance(value, Value) and value.type.pointer
        return self._known(one, Unknown("an address") if address else value, what, Value).whole()

    def _truth(self, one: Operation, number: int) -> Array:
        """Return for each program and iteration whether a condition holds."""
        return np.broadcast_to(self._whole(one, number, "a condition").astype(bool), self.batch)

    def _chosen(self, mask: Array, new: Any_, old: Any_) -> Any_:
        """Return the one value where a mask over the batch holds, and the other elsewhere."""
        if new is old or mask.all():
            return new
        if isinstance(new, Value) and isinstance(old, Value) and (new.array == old.array or not new.type.pointer):
            return values.where(mask, new.at(len(self.batch)), old.at(len(self.batch)), new.type)
        causes = [one.cause for one in (new, old) if isinstance(one, Unknown)]
        return Unknown(causes[0] if causes else "which of several arrays a program takes")

    def _merged(self, mask: Array, new: list[Any_], old: list[Any_] | None) -> list[Any_]:
        """Return the new values where a mask holds, the old ones, if there are any, elsewhere."""
        return new if old is None else [self._chosen(mask, *pair) for pair in zip(new, old, strict=True)]

    def _assign(self, one: Operation) -> None:
        for number, value in zip(one.results, self._results(one), strict=True):
            self.values[number] = values.said(one, value) if self.compiled else value

    def _results(self, one: Operation) -> list[Any_]:
        operands: list[Any] = self._gets(one.operands)
        unknown = next((value for value in operands if isinstance(value, Unknown)), None)
        if unknown is None:
            try:
                if one.name in {"tt.reduce", "tt.scan"}:
                    return self._folded(one, *operands)
                if one.name == "tt.load":
                    return [self._loaded(one, *operands)]
                if one.name.startswith("tt.get_"):
                    return [self._place(one)]
                return [values.made(one, len(self.batch), operands)]
            except (AttributeError, KeyError, TypeError, IndexError, ValueError):
                # Not one of the forms that addresses and masks are made of.
                unknown = Unknown(f"operation {one.name} in line {one.line}")
        return [unknown] * len(one.results)

    def _place(self, one: Operation) -> Value:
        axis, grid = "xyz".index(one.text[0]), self.launch.grid
        place = self.programs // prod(grid[:axis]) % grid[axis]
        found = place if one.name == "tt.get_program_id" else np.full(1, grid[axis])
        return Value((found.reshape(-1, *(1,) * (len(self.batch) - 1)),), one.types[0], len(self.batch))

    def _loaded(self, one: Operation, pointer: Value, mask: Value | None = None, other: Value | None = None) -> Any_:
        """Return what an array holds that the user gave."""
        kind, width, array = one.types[0], pointer.type.bytes, self.arrays.get(pointer.array)
        if array is None:
            return Unknown(f"array {pointer.array}")
        # Contents are elements of the argument's type.
        if dict(zip(self.kernel.names, self.kernel.types, strict=True))[pointer.array].bytes != width:
            return Unknown(f"array {pointer.array} as elements of {width} B")
        place = pointer.whole() // width
        wanted = np.ones((1,) * place.ndim, bool) if mask is None else mask.whole()
        held = np.broadcast_to(self.active, self.batch).reshape(self.batch + (1,) * len(kind.shape))
        values.bounded((held, wanted))
        beyond = (place < 0) | (place >= array.size)
        # Where only first iterations are computed, what a loop comes to may be unfinished.
        if not (self.first_only or self.compiled) and np.any(held & wanted & beyond):
            self._refuse(one, f"it reads beyond the {array.size} elements given of array {pointer.array}")
        found = array.ravel()[np.clip(place, 0, max(array.size - 1, 0))]
        found = np.where(wanted, found, 0 if other is None else other.whole()).astype(values.dtype(kind))
        if self.compiled and found.dtype == np.int64:  # odd: nobody knows multiples of what they are
            found = found | 1
        return values.total((found,), kind, len(self.batch), pointer.array + "[]" * kind.pointer)

    def _folded(self, one: Operation, *operands: Value) -> list[Any_]:
        """Return tiles reduced along an axis; of a scan what that has come to at each place."""
        body, depth = one.regions[0][0], len(self.batch)
        axis, back = values.axis(one, depth), -1 if "reverse = true" in one.text else 1
        wide = []
        for value, kind in zip(operands, one.given, strict=True):
            array = value.whole()
            wide.append(np.broadcast_to(array, array.shape[:depth] + kind.shape))
        values.bounded(wide)
        first, *places = range(wide[0].shape[axis])[::back]
        steps = [[array.take(first, axis) for array in wide]]
        for place in places:
            given = [*steps[-1], *(array.take(place, axis) for array in wide)]
            for number, array, kind in zip(body.arguments, given, one.given * 2, strict=True):
                # Each is a scalar to what combines them; further axes do not matter to it.
                self.values[number] = Value((array,), Type((), kind.element), depth)
            for step in body.operations[:-1]:
                self.values.update(zip(step.results, self._results(step), strict=True))
            ends: list[Any] = self._gets(body.operations[-1].operands)
            steps.append([end.whole() for end in ends])
        scan = one.name == "tt.scan"
        found = [np.stack(parts[::back], axis) for parts in zip(*steps, strict=True)] if scan else steps[-1]
        return [values.total((array,), kind, depth) for array, kind in zip(found, one.types, strict=True)]

    def _window(self, one: Operation) -> tuple[Value, Value]:
        """Return the addresses that a descriptor's tile has, and which of its elements lie within the tensor."""
        descriptor = self._known(one, self._gets(one.operands[:1])[0], "a descriptor", Descriptor)
        depth, kind, rank = len(self.batch), descriptor.type, len(descriptor.type.shape)

        def wide(value: Value) -> Array:
            array = value.at(depth).whole()
            return array.reshape(array.shape + (1,) * rank)

        masks, terms = [], [wide(descriptor.pointer)]
        for axis, length in enumerate(kind.shape):
            behind = (1,) * (rank - 1 - axis)
            start = self._whole(one, one.operands[1 + axis], "an index")
            # Rows that are gathered have one index each.
            along = np.arange(length if start.ndim == depth else 1).reshape(-1, *behind)
            numbers = start.reshape(*start.shape[:depth], *(1,) * axis, -1, *behind) + along
            masks.append((numbers >= 0) & (numbers < wide(descriptor.sizes[axis])))
            terms.append(numbers * wide(descriptor.strides[axis]) * kind.bytes)
        address = values.total(terms, Type(kind.shape, kind.element, pointer=True), depth, descriptor.pointer.array)
        return address, values.total(masks, Type(kind.shape, "i1"), depth)
