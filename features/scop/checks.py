"""What a description must say of arrays, accesses, operations, and where statements and barriers stand."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.scop.words import SPACES, unknown_operation
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
    _check_parts(scop)
    for number, launch in enumerate(scop.launches):
        if reason := _loop_fault(launch.loops):
            raise _refused(scop, f"launch {number}", reason)
    for what, one in _everything(scop):
        if not 0 <= one.launch < len(scop.launches):
            raise _refused(scop, what, f"it belongs to launch {one.launch}, but there are {len(scop.launches)}")
        if reason := _place_fault(scop.launches[one.launch], one, getattr(one, "lanes", 1)):
            raise _refused(scop, what, reason)
    for number in range(len(scop.launches)):
        _check_places(scop, number)


def _check_parts(scop: Any) -> None:
    arrays = {array.name: array for array in scop.arrays}
    for array in scop.arrays:
        if reason := _array_fault(array):
            raise _refused(scop, f"array {array.name!r}", reason, array=array.name)
    names = {statement.name for statement in scop.statements}
    for statement in scop.statements:
        what = f"statement {statement.name!r}"
        for access in statement.accesses:
            if reason := _access_fault(access, statement, arrays):
                raise _refused(scop, what, reason, access=access.text)
        if statement.test_of and statement.test_of not in names:
            raise _refused(scop, what, f"test_of names {statement.test_of!r}, which is no statement")
        recurring = () if statement.recurrence is None else statement.recurrence.operations
        for operation in (*statement.operations, *recurring):
            if reason := unknown_operation(operation.kind) or _dtype_fault(operation.dtype):
                raise _refused(scop, what, reason)


def _everything(scop: Any) -> Iterator[tuple[str, Any]]:
    yield from ((f"statement {one.name!r}", one) for one in scop.statements)
    yield from ((f"barrier {number}", one) for number, one in enumerate(scop.barriers))


def _refused(scop: Any, what: str, reason: str, **context: str) -> UnsupportedKernelError:
    return UnsupportedKernelError(f"{what} of kernel {scop.name!r}: {reason}", kernel=scop.name, **context)


def _array_fault(array: Any) -> str:
    if array.space not in SPACES:
        return f"it has address space {array.space!r}; use one of {', '.join(SPACES)}"
    if len(array.strides) != len(array.shape):
        return f"it has {len(array.strides)} strides and {len(array.shape)} axes; give a stride for each axis"
    return _dtype_fault(array.dtype)


@lru_cache(maxsize=256)
def _dtype_fault(name: str) -> str:
    try:
        known = bool(_DTYPE.fullmatch(name)) and np.dtype(name).kind in "biufc"
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


def _place_fault(launch: Any, one: Any, lanes: int) -> str:
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
    dims, there = launch.axes + len(loops) + (lanes > 1), one.domain.dim(_SET)
    if dims != there:
        words = f"{launch.axes} axes and {len(loops)} loops{', and lanes' * (lanes > 1)}"
        return f"its domain needs a dimension for each of the {words}, which is {dims}, not {there}"
    return _name_fault(one.domain.get_space())


def _check_places(scop: Any, launch: int) -> None:
    """Stop where a loop stands at two places, or something else at the place of a loop or barrier."""
    loops = scop.launches[launch].loops
    places: dict[int, int] = {}
    there: dict[tuple[int | None, int], str] = {}
    for what, one in _everything(scop):
        around: int | None = None
        for number, inside in zip(one.order if one.launch == launch else (), (*one.loops, None), strict=False):
            # Copies of a statement stand where it does, and statements at one place are executed together.
            last = inside is None or loops[inside].kind == "interleaved"
            here = "a statement" if what.startswith("s") else what
            if not last:
                here = f"loop {inside} ({loops[inside].name!r})"
            if not last and places.setdefault(inside, number) != number:
                reason = f"its order {list(one.order)} has {here} at {number}, others have it at {places[inside]}"
                raise _refused(scop, what, reason)
            if (found := there.setdefault((around, number), here)) != here:
                reason = f"its order {list(one.order)} has the place of {found}; number neighbours in order"
                raise _refused(scop, what, reason)
            if last:
                break
            around = inside
