"""What a description must say of arrays, accesses, operations and places, and what sizes must be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import chain
from math import prod
from numbers import Rational, Real
from typing import Any, TypeGuard

import numpy as np

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features.scop.words import SPACES, numpy_name, unknown_operation
from perflex.isl import isl

_SET = isl.dim_type.set
_DTYPE = re.compile(r"[a-z]+\d{0,3}")


# Of a Scop's class nothing is imported: it is the one that asks.
def check(scop: Any) -> None:
    """Stop unless a description makes sense; an `UnsupportedKernelError`."""
    if not scop.assumptions.is_params():
        msg = (
            f"the assumptions of kernel {scop.name!r} have dimensions; write conditions on sizes, such as {{ : n > 0 }}"
        )
        raise UnsupportedKernelError(msg, kernel=scop.name)
    for what, reason, context in chain(_faults_of_parts(scop), _faults_of_places(scop)):
        if reason:
            msg = f"{what} of kernel {scop.name!r}: {reason}"
            raise UnsupportedKernelError(msg, kernel=scop.name, **context)


def _faults_of_parts(scop: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield parts of a description, what is wrong with them, mostly nothing, and what the error says of the place."""
    arrays = {array.name: array for array in scop.arrays}
    for array in scop.arrays:
        yield f"array {array.name!r}", _array_fault(array), {"array": array.name}
    for one in scop.statements:
        what = f"statement {one.name!r}"
        for access in one.accesses:
            yield what, _access_fault(access, one, arrays), {"access": access.text}
        for operation in (*one.operations, *(one.recurrence.operations if one.recurrence else ())):
            yield what, unknown_operation(operation.kind) or _dtype_fault(operation.dtype), {}


def _faults_of_places(scop: Any) -> Iterator[tuple[str, str, dict[str, str]]]:
    for number, launch in enumerate(scop.launches):
        yield f"launch {number}", _loop_fault(launch.loops) or _repeats_fault(launch), {}
    there = [(f"statement {one.name!r}", one) for one in scop.statements]
    there += [(f"barrier {number}", one) for number, one in enumerate(scop.barriers)]
    for what, one in there:
        if not 0 <= one.launch < len(scop.launches):
            yield what, f"it belongs to launch {one.launch}, but there are {len(scop.launches)}", {}
        yield what, _place_fault(scop.launches[one.launch], one), {}
    for number, launch in enumerate(scop.launches):
        for what, reason in _order_faults(launch.loops, [pair for pair in there if pair[1].launch == number]):
            yield what, reason, {}


def _array_fault(array: Any) -> str:
    if array.space not in SPACES:
        return f"it has address space {array.space!r}; use one of {', '.join(SPACES)}"
    if len(array.strides) != len(array.shape):
        return f"it has {len(array.strides)} strides and {len(array.shape)} axes; give a stride for each axis"
    return _dtype_fault(array.dtype)


@lru_cache(maxsize=256)
def _dtype_fault(name: str) -> str:
    try:
        known = bool(_DTYPE.fullmatch(name)) and np.dtype(numpy_name(name)).kind in "biufc"
    except TypeError:
        known = False
    return "" if known else f"a numpy type such as float32 must stand there, not {name!r}"


def _access_fault(access: Any, statement: Any, arrays: dict[str, Any]) -> str:
    if access.array not in arrays:
        return f"it accesses {access.array!r}, which is not declared"
    axes = len(arrays[access.array].shape if access.strides is None else access.strides)
    for what, found, there in (
        ("variables", access.relation.dim(isl.dim_type.in_), statement.domain.dim(_SET)),
        ("subscripts", access.relation.dim(isl.dim_type.out), axes),
    ):
        if found != there:
            return f"the access to {access.array!r} has {found} {what}, not {there}"
    space = access.relation.get_space()
    return _name_fault(space.domain()) or _name_fault(space.range())


def _name_fault(space: Any) -> str:
    if space.is_wrapping() or space.has_tuple_name(_SET):
        return "isl's tuples must have no names; write [i, j] instead of S[i, j]"
    return ""


def _loop_fault(loops: Sequence[Any]) -> str:
    """Return what is wrong with the loops of a launch; empty for nothing."""
    for number, loop in enumerate(loops):
        if loop.parent is None:
            continue
        if loop.parent >= number:
            return f"loop {number}, {loop.name!r}, has parent {loop.parent}; list loops behind those around them"
        around = loops[loop.parent]
        if (loop.kind == "host" and around.kind != "host") or (around.kind == "interleaved" != loop.kind):
            return f"loop {number}, {loop.name!r} ({loop.kind}), cannot be in {around.name!r} ({around.kind})"
    return ""


def _repeats_fault(launch: Any) -> str:
    """Return what is wrong with how often something is launched; empty for nothing."""
    once = launch.repeats.text.replace(" ", "").endswith("{1}")
    if once or any(loop.kind == "host" for loop in launch.loops):
        return ""
    # What statements do is counted from their domains alone.
    return f"its repeats are {launch.repeats}; give it a loop of the kind host, which the domains of what is in it have"


def _place_fault(launch: Any, one: Any) -> str:
    """Return what is wrong with the loops around a statement or barrier, and its order; empty for nothing."""
    loops, order = one.loops, one.order
    for loop, around in zip(loops, (None, *loops), strict=False):
        if loop >= len(launch.loops):
            return f"it is in loop {loop}, but its launch has {len(launch.loops)}"
        if launch.loops[loop].parent != around:
            return f"its loops {list(loops)} are not those around loop {loops[-1]}; give all of them, outermost first"
    hosts = [number for number, loop in enumerate(launch.loops) if loop.kind == "host"]
    if list(loops[: len(hosts)]) != hosts:
        return f"its loops {list(loops)} do not begin with the host's, {hosts}"
    if order and len(order) != len(loops) + 1:
        return f"its order {list(order)} needs {len(loops) + 1} numbers, a place in the launch and one in each loop"
    lanes = getattr(one, "lanes", 1) > 1
    dims, there = launch.axes + len(loops) + lanes, one.domain.dim(_SET)
    if dims != there:
        words = f"{launch.axes} axes and {len(loops)} loops{', and lanes' * lanes}"
        return f"its domain needs a dimension for each of the {words}, which is {dims}, not {there}"
    return _name_fault(one.domain.get_space())


def _order_faults(loops: Sequence[Any], inside: Sequence[tuple[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield where a loop stands at two places, or something else at the place of a loop or barrier."""
    places: dict[int, int] = {}
    there: dict[tuple[int | None, int], str] = {}
    for what, one in inside:
        around: int | None = None
        for number, loop in zip(one.order, (*one.loops, None), strict=False):
            # Copies of a statement stand where it does, and statements at one place are executed together.
            here = what if what.startswith("b") else "a statement"
            last = loop is None or loops[loop].kind == "interleaved"
            if not last:
                here = f"loop {loop} ({loops[loop].name!r})"
                if (known := places.setdefault(loop, number)) != number:
                    yield what, f"its order {list(one.order)} has {here} at {number}, others have it at {known}"
            if (found := there.setdefault((around, number), here)) != here:
                yield what, f"its order {list(one.order)} has the place of {found}; number neighbours in order"
            if last:
                break
            around = loop


# No index of generated code is longer than 64 bits; doubles hold every whole number up to 2**53.
_MOST = 2**63
_MOST_EXACT = 2**53
_BITS_62 = 2**62


def require_whole(sizes: Mapping[str, Any], names: Iterable[str], kernel: str) -> None:
    """Stop unless sizes are whole numbers, or arrays of them, of any numeric type: 16, ``np.int32(16)``, 16.0."""
    for name in names:
        value = sizes[name]
        if not is_whole(value):
            # Python writes no integer of thousands of digits.
            long = isinstance(value, int) and abs(value) >= _MOST
            shown = f"one of {value.bit_length()} bits" if long else f"{value!r:.60}"
            msg = f"kernel {kernel!r}: size {name} must be a whole number below 2**63, such as 1024, not {shown}"
            raise MissingSizeError(msg, kernel=kernel, parameters=(name,))


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number, of any numeric type; True and False are none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number of at most 64 bits, or an array of such."""
    if isinstance(value, bool) or not isinstance(value, (Rational, float, np.generic, np.ndarray)):
        return False
    if isinstance(value, Rational):  # int, too
        return value.denominator == 1 and abs(int(value.numerator)) < _MOST
    array = np.asarray(value)
    if not array.size:
        return False
    if array.dtype.kind == "O":  # integers that no array of numbers holds, among others
        return all(map(is_whole, array.ravel().tolist()))
    return array.dtype.kind in "iuf" and bool(
        np.all(np.isfinite(array) & (array == np.floor(array)) & (np.abs(array.astype(float)) < _MOST))
    )


def require_addressable(scop: Any, sizes: Mapping[str, Any], *, addresses: bool = True) -> None:
    """Stop where sizes, or the arrays or grids that they make, are too large for 64-bit addresses."""

    def refused(cause: str, *names: str) -> MissingSizeError:
        return MissingSizeError(cause, kernel=scop.name, parameters=names or scop.parameters)

    for name, value in sizes.items():
        # Of Python's numbers: the least of numpy's has no absolute value.
        if max(map(abs, map(int, np.ravel(value).tolist())), default=0) > _MOST_EXACT:
            msg = f"size {name} of kernel {scop.name!r} exceeds {_MOST_EXACT}; give a smaller one"
            raise refused(msg, name)
    for array in scop.arrays:
        if array.name in scop.unknown_extents.values():
            continue
        extents = [_most(extent, sizes) for extent in array.shape]
        # Whatever the order of the axes, no stride is larger than all extents but the least.
        steps = prod(extents) // (1 if addresses else min(extents, default=1))
        longest = max((_most(stride, sizes) for stride in array.strides), default=1)
        if max(steps, longest) * array.itemsize >= _BITS_62:
            fix = "give smaller sizes" if longest <= steps else "give smaller sizes or strides"
            msg = f"array {array.name!r} of kernel {scop.name!r} would have more than 2**62 bytes; {fix}"
            raise refused(msg)
    for launch in scop.launches:
        if prod(_most(extent, sizes) for extent in (*launch.groups, launch.repeats)) * launch.group_size >= _BITS_62:
            msg = f"kernel {scop.name!r} would have more than 2**62 work-items; give smaller sizes"
            raise refused(msg)


def _most(extent: Any, sizes: Mapping[str, Any]) -> int:
    """Return the largest distance from zero, 1 at least."""
    try:
        return max(1, *map(abs, map(int, np.ravel(extent.evaluate(sizes)))))
    except OverflowError:  # in an array's arithmetic
        return _BITS_62


# Long enough for any double; 1e999999999 would be computed digit by digit.
_NUMBER = re.compile(r"[+-]?((\d{1,400}(\.\d{0,400})?|\.\d{1,400})([eE][+-]?\d{1,3})?|\d{1,400}/\d{1,400})")
# Beyond any trip count; their products still fit in doubles.
_MOST_TRIPS = 10**15


def read_fraction(text: str) -> Fraction | None:
    """Return the positive number that a text such as ``7.5`` or ``5/6`` stands for, exactly; None if it is none.

    Numbers above 10**15, and their reciprocals, count as none.
    """
    if not _NUMBER.fullmatch(text.strip()):
        return None
    try:
        # By way of the text: 0.1 is a tenth, not the binary number next to it.
        number = Fraction(text)
    except ZeroDivisionError:
        return None
    return number if Fraction(1, _MOST_TRIPS) <= number <= _MOST_TRIPS else None
