"""What a description must say of arrays, accesses, operations, and where statements and barriers stand."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.scop.words import SPACES, is_axis, unknown_operation
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    _Place = tuple[int | str, ...]

_SET = isl.dim_type.set
_NAME = re.compile(r"[A-Za-z_]\w*")
_DTYPE = re.compile(r"[a-z]+\d{0,3}")
# Parts of one statement stand at one place: ``update``, ``update.1``, ``update_x4``; and ``update.i`` in a loop.
_PART = re.compile(r"(\.\w+|_x\d+)+$")


# Of a Scop's class nothing is imported: it is the one that asks.
def check(scop: Any) -> None:
    """Stop unless a description makes sense; an `UnsupportedKernelError`."""
    if not scop.assumptions.is_params():
        msg = (
            f"the assumptions of kernel {scop.name!r} have dimensions; write conditions on sizes, such as {{ : n > 0 }}"
        )
        raise UnsupportedKernelError(msg, kernel=scop.name)
    _check_parts(scop)
    for what, scheduled in _everything(scop):
        reason = _domain_fault(scop, scheduled) or _schedule_fault(scheduled.schedule)
        reason = reason or _loop_fault(scop.launches[scheduled.launch], scheduled)
        if reason:
            raise _refused(scop, what, reason)
    for number in range(len(scop.launches)):
        _check_launch(scop, number)


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


def _domain_fault(scop: Any, scheduled: Any) -> str:
    if not 0 <= scheduled.launch < len(scop.launches):
        return f"it belongs to launch {scheduled.launch}, but there are {len(scop.launches)}"
    launch = scop.launches[scheduled.launch]
    axes, loops = len(launch.groups) + len(launch.items), len(scheduled.loops)
    lanes = getattr(scheduled, "lanes", 1)
    if scheduled.domain.dim(_SET) < axes + loops + (lanes > 1):
        return (
            f"its domain needs a dimension for each of the {axes} axes and {loops} loops{', and lanes' * (lanes > 1)}"
        )
    return _name_fault(scheduled.domain.get_space())


def _shown(schedule: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, schedule))}]"


def _schedule_fault(schedule: _Place) -> str:
    names = schedule[1::2]
    kinds = [int, str] * len(names) + [int]
    if schedule and (len(kinds) != len(schedule) or not all(map(isinstance, schedule, kinds))):
        return f"schedule {_shown(schedule)} does not alternate; write numbers and loops in turn, such as [1, k, 0]"
    for place, name in enumerate(map(str, names)):
        if not _NAME.fullmatch(name):
            return f"schedule names a loop {name!r}; use letters, digits and underscores"
        if is_axis(name):
            return f"schedule names a loop {name!r}, as work-groups and work-items are called; rename the loop"
        if name in names[:place]:
            return f"schedule has loop {name!r} in loop {name!r}; rename one of them"
    return ""


def _loop_fault(launch: Any, scheduled: Any) -> str:
    loops = scheduled.loops
    for place, loop in enumerate(loops, len(launch.groups) + len(launch.items)):
        name = scheduled.domain.get_dim_name(_SET, place)
        if name is not None and name != loop:
            order = f"work-groups, work-items, then the loops {', '.join(loops)}"
            return f"domain has {name!r} where the schedule has loop {loop!r}; its dimensions are {order}"
    unknown = [loop for loop, _ in scheduled.averages if loop not in loops]
    if unknown:
        return f"averages name {unknown[0]!r}; name loops of its schedule, {', '.join(loops) or 'which has none'}"
    if loops[: len(launch.host_loops)] != launch.host_loops:
        around = ", ".join(launch.host_loops)
        return f"schedule {_shown(scheduled.schedule)} does not begin with the host_loops of its launch, {around}"
    return ""


def _check_launch(scop: Any, number: int) -> None:
    mine = [(what, one) for what, one in _everything(scop) if one.launch == number]
    there: dict[_Place, tuple[str, set[str]]] = {}
    for what, scheduled in mine:
        schedule, part = scheduled.schedule, what
        if what.startswith("statement"):
            part = _PART.sub("", what.removesuffix("'"))
        for end in range(1, len(schedule) + 1, 2):
            here = what if end == len(schedule) else f"loop {schedule[end]!r}"
            # What stands at a place, in words, and what may stand there, too: parts of a statement, in a loop or not.
            found, alike = there.setdefault(schedule[:end], (here, {here, part}))
            if not alike & {here, part}:
                where = _shown(schedule[:end])
                reason = f"its place in the schedule is {where}, where {found} stands; number neighbours in order"
                raise _refused(scop, here, reason)
    named = {loop for _, one in mine for loop in (*one.loops, *one.domain.get_var_names(_SET))}
    unknown = [loop for loop in scop.launches[number].unrolled if loop not in named]
    if unknown:
        raise _refused(scop, f"launch {number}", f"unrolled names {unknown[0]!r}, which is no loop of its statements")
