"""Values of single operations that addresses, masks and control flow depend on."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton.ttir import Operation, Type
from perflex.features.from_triton.values import (
    COMPARED,
    REAL,
    SIGNED,
    UNSIGNED,
    Any_,
    Descriptor,
    Pointer,
    Unknown,
    Value,
    bounded,
    scalar,
    total,
    unsigned,
)

_I1, _I64 = Type((), "i1"), Type((), "i64")
_LOGICAL: dict[str, Any] = {"ori": np.logical_or, "xori": np.logical_xor}
_HINT = re.compile(r"tt\.(contiguity|divisibility) = dense<\[?([\d, ]+)\]?>")
_SAME = {"index_cast", "extf", "truncf", "sitofp"}


class Evaluation:
    """What is known of each value, and how an operation makes it of others."""

    kernel: Any
    launch: Any
    batch: tuple[int, ...]
    programs: np.ndarray[Any, Any]

    def __init__(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self.arrays = arrays
        self.values: dict[int, Any_] = {}
        # Which programs, in which iterations, come to the operation that is computed.
        self.active: np.ndarray[Any, Any] = np.ones(1, bool)
        self.unfinished = self.compiled = False
        # Bytes of an element of each array.
        self.widths: dict[str, int] = {}

    def get(self, number: int) -> Any_:
        """Return a value, with an axis for each loop that is computed at once here."""
        value = self.values.get(number, _NOT_FOLLOWED)
        return value if isinstance(value, Unknown) else value.at(len(self.batch))

    def refuse(self, one: Operation, why: str) -> NoReturn:
        """Say that an operation cannot be interpreted."""
        msg = f"kernel {self.kernel.name!r}, {one.name} in line {one.line} of its TTIR: {why}"
        raise UnsupportedKernelError(msg)

    def refuse_data(self, one: Operation, what: str, cause: str) -> NoReturn:
        """Say that data decide what must be known."""
        known = cause.startswith("array ")
        way = "give its contents as a NumPy array" if known else "give its value" if cause.startswith("arg") else ""
        self.refuse(one, f"{what} depends on {cause}; {way or 'perflex does not follow that'}")

    def whole(self, one: Operation, number: int, what: str) -> np.ndarray[Any, Any]:
        """Return a number that must be known, with the axes of the batch."""
        value = self.get(number)
        if not isinstance(value, Value):
            self.refuse_data(one, what, value.cause if isinstance(value, Unknown) else "an address")
        return value.whole()

    def truth(self, one: Operation, number: int) -> np.ndarray[Any, Any]:
        """Return for each program and iteration whether a condition holds."""
        found = self.whole(one, number, "a condition")
        return np.broadcast_to(found.astype(bool), self.batch)

    def chosen(self, mask: np.ndarray[Any, Any], new: Any_, old: Any_) -> Any_:
        """Return the one value where a mask over the batch holds, and the other elsewhere."""
        if new is old or mask.all():
            return new
        if isinstance(new, Pointer) and isinstance(old, Pointer) and new.base == old.base:
            offset = self.chosen(mask, new.offset, old.offset)
            return replace(new, offset=offset) if isinstance(offset, Value) else offset
        if isinstance(new, Value) and isinstance(old, Value):
            new, old = new.at(len(self.batch)), old.at(len(self.batch))
            wide = mask.reshape(mask.shape + (1,) * len(new.type.shape))
            first, second = new.whole(), old.whole()
            bounded((wide, first, second))
            return Value((np.where(wide, first, second),), new.type, len(self.batch), new.origin)
        causes = [one.cause for one in (new, old) if isinstance(one, Unknown)]
        return Unknown(causes[0] if causes else "which of several arrays a program takes")

    def scaled(self, value: Value, factor: int) -> Value:
        """Return elements as bytes."""
        return Value(tuple(term * factor for term in value.terms), Type(value.type.shape, "i64"), value.depth)

    def evaluate(self, one: Operation) -> list[Any_]:
        """Return the values of an operation's results."""
        name = one.name.rpartition(".")[2]
        operands = [self.get(number) for number in one.operands]
        if name == "load":
            return [self.loaded(one, operands)]
        unknown = next((value for value in operands if isinstance(value, Unknown)), None)
        if unknown is not None:
            return [unknown] * len(one.results)
        kind = one.types[0] if one.types else _I1
        method: Any = getattr(self, f"of_{name}", self.arithmetic)
        try:
            found = method(one, operands, kind)
            return found if isinstance(found, list) else [found]
        except (AttributeError, KeyError, TypeError, IndexError, ValueError):
            # Not one of the forms that addresses and masks are made of.
            return [Unknown(f"operation {one.name} in line {one.line}")] * len(one.results)

    def arithmetic(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the value of an operation on numbers, element by element."""
        name, depth = one.name.rpartition(".")[2], len(self.batch)
        if name in _SAME:
            return replace(total(operands[0].terms, kind, depth), origin=operands[0].origin)
        arrays = [value.whole() for value in operands]
        if kind.element == "i1":
            return Value((self.product(_LOGICAL[name], *arrays),), kind, depth)
        if name in UNSIGNED:
            arrays = [unsigned(array, operands[0].type.bytes * 8) for array in arrays]
            return total((self.product(UNSIGNED[name], *arrays).astype(np.int64),), kind, depth)
        return total((self.product(SIGNED[name] if name in SIGNED else REAL[name], *arrays),), kind, depth)

    def of_addi(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a sum, whose terms stay apart; of truth values where one alone holds."""
        if kind.element == "i1":
            return self.arithmetic(replace(one, name="arith.xori"), operands, kind)
        return total((*operands[0].terms, *operands[1].terms), kind, len(self.batch))

    def of_subi(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a difference, whose terms stay apart."""
        if kind.element == "i1":
            return self.of_addi(one, operands, kind)
        return total((*operands[0].terms, *(-term for term in operands[1].terms)), kind, len(self.batch))

    def of_muli(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a product; a sum times a number stays a sum."""
        if kind.element == "i1":
            return self.of_andi(one, operands, kind)
        many, factor = sorted(operands, key=lambda value: -len(value.terms))
        if len(many.terms) == 1:
            return self.arithmetic(one, operands, kind)
        by = factor.whole()
        return total(tuple(self.product(np.multiply, term, by) for term in many.terms), kind, len(self.batch))

    def of_andi(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return bits that both have; of masks, conditions stay apart."""
        if kind.element != "i1":
            return self.arithmetic(one, operands, kind)
        return total((*operands[0].terms, *operands[1].terms), kind, len(self.batch))

    def of_trunci(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the lower bits of integers."""
        if kind.element == "i1":
            return Value(((operands[0].whole() & 1).astype(bool),), kind, len(self.batch))
        return total(operands[0].terms, kind, len(self.batch))

    def of_fptosi(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return numbers without their fractions."""
        # Beyond the type's range there is no value; numpy's differs from one processor to the next.
        limit = 2.0 ** (kind.bytes * 8 - 1)
        numbers = np.clip(np.nan_to_num(np.trunc(operands[0].whole())), -limit, np.nextafter(limit, 0))
        return total((numbers.astype(np.int64),), kind, len(self.batch))

    def of_extsi(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return integers as wider ones; a truth value's only bit is its sign."""
        value = operands[0]
        terms = (-value.whole().astype(np.int64),) if value.is_mask else value.terms
        return Value(terms, kind, len(self.batch), value.origin)

    def of_extui(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return unsigned integers as wider ones."""
        array = unsigned(operands[0].whole().astype(np.int64), operands[0].type.bytes * 8)
        return Value((array,), kind, len(self.batch), operands[0].origin)

    def of_cmpi(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return where a comparison of integers holds."""
        sign, arrays = one.text.split(",")[0].strip(), [value.whole() for value in operands]
        if sign[0] == "u":
            arrays = [unsigned(array, operands[0].type.bytes * 8) for array in arrays]
        compare = COMPARED[sign if sign in COMPARED else sign[1:]]
        return Value((self.product(compare, *arrays),), kind, len(self.batch))

    def of_cmpf(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return where a comparison of floating-point numbers holds; none of them is undefined."""
        compare = COMPARED[one.text.split(",")[0].strip()[1:]]
        return Value((self.product(compare, *(value.whole() for value in operands)),), kind, len(self.batch))

    def product(self, function: Callable[..., Any], *arrays: np.ndarray[Any, Any]) -> Any:
        """Return a function of arrays, if the result is not too large."""
        bounded(arrays)
        return function(*arrays)

    def of_constant(self, one: Operation, _: list[Any], kind: Type) -> Any_:
        """Return a constant; its tile has one element."""
        text = one.text.split(" : ")[0].strip().removeprefix("dense<").removesuffix(">")
        number: Any = {"true": 1, "false": 0}.get(text)
        if number is None:
            number = int(text, 0) if kind.element[0] == "i" else _float(text)
        shape = (1,) * (len(self.batch) + len(kind.shape))
        dtype = bool if kind.element == "i1" else np.int64 if kind.element[0] == "i" else np.float64
        return Value((np.full(shape, number, dtype),), kind, len(self.batch))

    def of_select(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the one or the other of two values, by a mask."""
        mask, first, second = operands
        if isinstance(first, Pointer):
            if first.base != second.base:
                return Unknown("which of several arrays a program takes")
            offset = self.of_select(one, [mask, first.offset, second.offset], first.offset.type)
            return replace(first, offset=offset)  # type: ignore[arg-type]
        held = mask.whole()
        if not mask.type.shape:
            held = held.reshape(held.shape + (1,) * len(kind.shape))
        return Value((self.product(np.where, held, first.whole(), second.whole()),), kind, len(self.batch))

    # -- operations on tiles

    def of_get_program_id(self, one: Operation, _: list[Any], kind: Type) -> Any_:
        """Return the program's place on an axis of the grid."""
        axis, grid = "xyz".index(one.text[0]), self.launch.grid
        place = self.programs // int(np.prod(grid[:axis], dtype=np.int64)) % grid[axis]
        return scalar(place.reshape(-1, *(1,) * (len(self.batch) - 1)), kind, len(self.batch))

    def of_get_num_programs(self, one: Operation, _: list[Any], kind: Type) -> Any_:
        """Return the grid's extent on an axis."""
        return scalar(self.launch.grid["xyz".index(one.text[0])], kind, len(self.batch))

    def of_make_range(self, one: Operation, _: list[Any], kind: Type) -> Any_:
        """Return consecutive integers."""
        start, end = (int(one.attributes[name].split(" ")[0]) for name in ("start", "end"))
        if (end - start,) != kind.shape:
            raise ValueError(kind)
        numbers = np.arange(start, end)
        return Value((numbers.reshape((1,) * len(self.batch) + (-1,)),), kind, len(self.batch))

    def of_splat(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a tile whose elements are all the same."""
        rank = len(kind.shape)
        return self.mapped(operands[0], lambda term, _depth: term.reshape(term.shape + (1,) * rank), kind)

    def of_unsplat(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the only element of a tile."""
        return self.mapped(operands[0], lambda term, depth: term.reshape(term.shape[:depth]), kind)

    def of_broadcast(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a tile that is repeated along axes."""
        return self.mapped(operands[0], lambda term, _depth: term, kind)

    def of_expand_dims(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a tile with a further axis."""
        axis = int(one.attributes["axis"].split(" ")[0])
        return self.mapped(operands[0], lambda term, depth: np.expand_dims(term, depth + axis), kind)

    def of_trans(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a tile with its axes in another order."""
        order = [int(word) for word in one.text.partition("array<i32:")[2].partition(">")[0].split(",")]
        return self.mapped(
            operands[0], lambda term, depth: term.transpose(*range(depth), *(depth + axis for axis in order)), kind
        )

    def of_reshape(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a tile of another shape."""
        shape = one.given[0].shape

        def moved(term: np.ndarray[Any, Any], depth: int) -> np.ndarray[Any, Any]:
            wide = np.broadcast_to(term, term.shape[:depth] + shape)
            bounded([wide])
            return wide.reshape(term.shape[:depth] + kind.shape)

        return self.mapped(operands[0], moved, kind)

    def mapped(self, value: Any, move: Callable[[np.ndarray[Any, Any], int], np.ndarray[Any, Any]], kind: Type) -> Any_:
        """Return a value, or a pointer, with the axes of its tile changed."""
        if isinstance(value, Pointer):
            offset = value.offset.moved(move, Type(kind.shape, "i64"))
            return Pointer(value.base, offset, kind)
        moved: Value = value.moved(move, kind)
        return replace(moved, origin=value.origin)

    def of_addptr(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return addresses so many elements further on."""
        pointer, by = operands
        terms = (*pointer.offset.terms, *self.scaled(by, pointer.type.bytes).terms)
        return Pointer(pointer.base, total(terms, Type(kind.shape, "i64"), len(self.batch)), kind)

    def of_bitcast(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the same bits as another type."""
        if isinstance(operands[0], Pointer):
            return replace(operands[0], type=kind)
        array, (before, after) = operands[0].whole(), (operands[0].type.element, kind.element)
        if (before[0] == "i") != (after[0] == "i"):
            whole, real = (before, after) if before[0] == "i" else (after, before)
            number = {"i32": (np.int32, np.float32), "i64": (np.int64, np.float64)}[whole]
            if real != f"f{whole[1:]}":
                raise TypeError(kind)
            first, second = number if before == whole else reversed(number)
            array = array.astype(first).view(second)
            return total((array.astype(np.float64 if after == real else np.int64),), kind, len(self.batch))
        # Truth values as bytes and back.
        return Value((array.astype(bool if kind.element == "i1" else np.int64),), kind, len(self.batch))

    def of_int_to_ptr(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return an address that was loaded."""
        value = operands[0]
        offset = replace(value, type=Type(value.type.shape, "i64"), origin="")
        return Pointer(f"{value.origin or 'memory'}[]", offset, kind)

    def of_mulhiui(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return the upper half of products of unsigned integers of 32 bits."""
        if kind.bytes != 4:
            raise ValueError(kind)
        first, second = (unsigned(value.whole(), 32).astype(np.uint64) for value in operands)
        return total(((first * second >> np.uint64(32)).astype(np.int64),), kind, len(self.batch))

    def of_make_tensor_descriptor(self, _: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return a descriptor: its base, then sizes and strides of its axes."""
        rank = (len(operands) - 1) // 2
        return Descriptor(operands[0], tuple(operands[1 : 1 + rank]), tuple(operands[1 + rank :]), kind)

    def of_histogram(self, one: Operation, operands: list[Any], kind: Type) -> Any_:
        """Return how many elements have each of the values from 0 on."""
        shape, bins = self.batch + one.given[0].shape, kind.shape[0]
        held = np.ones(shape, bool) if len(operands) < 2 else np.broadcast_to(operands[1].whole(), shape)
        numbers = np.broadcast_to(operands[0].whole(), shape)
        held = held & (numbers >= 0) & (numbers < bins)
        counts = np.zeros((int(np.prod(self.batch)), bins), np.int64)
        rows = np.broadcast_to(np.arange(len(counts)).reshape(*self.batch, 1), shape)
        np.add.at(counts, (rows[held], numbers[held]), 1)
        return total((counts.reshape(*self.batch, bins),), kind, len(self.batch))

    def of_reduce(self, one: Operation, operands: list[Any], _: Type) -> list[Any_]:
        """Return tiles reduced along an axis."""
        return [
            total((parts[-1],), kind, len(self.batch))
            for parts, kind in zip(self.folded(one, operands), one.types, strict=True)
        ]

    def of_scan(self, one: Operation, operands: list[Any], _: Type) -> list[Any_]:
        """Return what a reduction along an axis has come to at each place."""
        axis, reverse = self.axis(one), "reverse = true" in one.text
        found = [np.stack(parts, axis) for parts in self.folded(one, operands, reverse=reverse)]
        return [
            total((np.flip(array, axis) if reverse else array,), kind, len(self.batch))
            for array, kind in zip(found, one.types, strict=True)
        ]

    def axis(self, one: Operation) -> int:
        """Return the axis of an operation along one, behind those of the batch."""
        return len(self.batch) + int(one.attributes["axis"].split(" ")[0])

    def folded(self, one: Operation, operands: list[Any], *, reverse: bool = False) -> list[list[np.ndarray[Any, Any]]]:
        """Return for each tile what its elements along an axis come to, one after another; ValueError if not known."""
        axis, body, depth = self.axis(one), one.regions[0][0], len(self.batch)
        wide = []
        for value, kind in zip(operands, one.given, strict=True):
            array = value.whole()
            wide.append(np.broadcast_to(array, array.shape[:depth] + kind.shape))
        bounded(wide)
        places = range(wide[0].shape[axis])
        now = [array.take(places[-1 if reverse else 0], axis) for array in wide]
        found = [[array] for array in now]
        for place in list(reversed(places))[1:] if reverse else places[1:]:
            given = [*now, *(array.take(place, axis) for array in wide)]
            # Each is a scalar to what combines them; further axes do not matter to it.
            types = [Type((), kind.element) for kind in one.given] * 2
            for number, array, kind in zip(body.arguments, given, types, strict=True):
                self.values[number] = Value((array,), kind, depth)
            for step in body.operations[:-1]:
                self.values.update(zip(step.results, self.evaluate(step), strict=True))
            ends = [self.get(number) for number in body.operations[-1].operands]
            now = [end.whole() if isinstance(end, Value) else _unknown(end) for end in ends]
            for parts, array in zip(found, now, strict=True):
                parts.append(array)
        return found

    # -- memory

    def hinted(self, one: Operation, value: Any_) -> Any_:
        """Return a value as the code says that it is: neighbours follow one another from multiples of a number."""
        said = {name: [int(word) for word in many.split(", ")] for name, many in _HINT.findall(one.text)}
        inner = value.offset if isinstance(value, Pointer) else value
        if not said or not isinstance(inner, Value):
            return value
        rank, depth = len(value.type.shape), inner.depth  # type: ignore[union-attr]
        runs, multiples = (said.get(name, [1]) * (rank or 1) for name in ("contiguity", "divisibility"))
        step = value.type.bytes if isinstance(value, Pointer) else 1
        array = np.broadcast_to(whole := inner.whole(), whole.shape[:depth] + value.type.shape)  # type: ignore[union-attr]
        bounded([array])
        if not rank:
            array = array - array % multiples[0]
        else:
            # Of several axes the one whose neighbours are neighbours.
            near = [axis for axis in range(rank) if runs[axis] > 1]
            near += [axis for axis in range(rank) if (np.diff(array, axis=depth + axis)[..., :1] == step).all()]
            axis = near[0] if near else rank - 1
            run, rows = runs[axis], np.moveaxis(array, depth + axis, -1)
            first = rows[..., :: run if run > 1 else rows.shape[-1]]
            # No run follows the one before.
            first = first - first % multiples[axis] + np.arange(first.shape[-1]) * 2 * run * multiples[axis] * step
            moved = np.repeat(first, rows.shape[-1] // first.shape[-1], -1)
            moved = moved + (np.arange(rows.shape[-1]) % run * step if run > 1 else rows - rows[..., :1])
            array = np.moveaxis(moved, -1, depth + axis)
        found = Value((array,), inner.type, depth, inner.origin)
        return replace(value, offset=found) if isinstance(value, Pointer) else found

    def loaded(self, one: Operation, operands: Sequence[Any]) -> Any_:
        """Return what an array holds that the user gave."""
        pointer = operands[0]
        if isinstance(pointer, Unknown):
            return pointer
        array = self.arrays.get(pointer.base)
        if array is None:
            return Unknown(f"array {pointer.base}")
        mask = operands[1] if len(operands) > 1 else None
        unknown = next((value for value in operands[1:] if isinstance(value, Unknown)), None)
        if unknown is not None:
            return unknown
        # Contents are elements of the argument's type.
        if self.widths.get(pointer.base) != pointer.type.bytes:
            return Unknown(f"array {pointer.base} as elements of {pointer.type.bytes} B")
        kind, depth = one.types[0], len(self.batch)
        offset = pointer.offset.whole()
        place = offset // pointer.type.bytes
        held = np.broadcast_to(self.active, self.batch).reshape(self.batch + (1,) * len(kind.shape))
        if mask is not None:
            held = self.product(np.logical_and, held, mask.whole())
        # Where only first iterations are computed, what a loop comes to may be unfinished.
        if not self.unfinished and np.any(held & ((place < 0) | (place >= array.size))):
            self.refuse(one, f"it reads beyond the {array.size} elements given of array {pointer.base}")
        found = array.ravel()[np.clip(place, 0, max(array.size - 1, 0))]
        if mask is not None:
            other = operands[2].whole() if len(operands) > 2 else 0
            found = np.where(mask.whole(), found, other)
        dtype = bool if kind.element == "i1" else np.int64 if kind.element[0] == "i" or kind.pointer else np.float64
        if self.compiled and dtype is np.int64:  # odd: nobody knows multiples of what they are
            found = found | 1
        value = replace(total((found.astype(dtype),), kind, depth), origin=pointer.base)
        return self.of_int_to_ptr(one, [value], kind) if kind.pointer else value

    def window(self, one: Operation) -> tuple[Pointer, Value]:
        """Return the addresses that a descriptor's tile has, and which of its elements lie within the tensor."""
        descriptor = self.get(one.operands[0])
        if not isinstance(descriptor, Descriptor):
            self.refuse_data(one, "a descriptor", descriptor.cause if isinstance(descriptor, Unknown) else "data")
        depth, rank = len(self.batch), len(descriptor.type.shape)
        terms = list(descriptor.pointer.offset.at(depth).terms)
        terms = [term.reshape(term.shape + (1,) * rank) for term in terms]
        masks = []
        for axis, count in enumerate(descriptor.type.shape):
            place = self.get(one.operands[1 + axis])
            if not isinstance(place, Value):
                self.refuse_data(one, "an index", place.cause if isinstance(place, Unknown) else "an address")
            shape = (1,) * (depth + axis) + (-1,) + (1,) * (rank - axis - 1)
            start = place.whole()
            if place.type.shape:  # rows that are gathered: one index each
                numbers = start.reshape(start.shape[:depth] + (1,) * axis + (-1,) + (1,) * (rank - axis - 1))
            else:
                numbers = start.reshape(start.shape + (1,) * rank) + np.arange(count).reshape(shape)
            size, stride = (of.at(depth).whole() for of in (descriptor.sizes[axis], descriptor.strides[axis]))
            size, stride = (of.reshape(of.shape + (1,) * rank) for of in (size, stride))
            masks.append((numbers >= 0) & (numbers < size))
            terms.append(numbers * stride * descriptor.type.bytes)
        shape_ = descriptor.type.shape
        offset = total(terms, Type(shape_, "i64"), depth)
        return Pointer(descriptor.pointer.base, offset, descriptor.type), total(masks, Type(shape_, "i1"), depth)


_NOT_FOLLOWED = Unknown("what perflex does not follow")


def _float(text: str) -> float:
    """Return a floating-point constant; infinities are written as the bits of float32."""
    return (
        float(np.uint32(int(text, 16)).view(np.float32)) if text.startswith("0x") and len(text) == 10 else float(text)
    )


def _unknown(value: Any) -> NoReturn:
    raise ValueError(value)
