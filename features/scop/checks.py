"""Where statements and barriers stand, and what their loops are called: what a description must say of both."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.scop.words import is_axis
from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    _Place = tuple[int | str, ...]

_NAME = re.compile(r"[A-Za-z_]\w*")
# Parts of one statement stand at one place: ``update``, ``update.1``, ``update_x4``; and ``update.i`` in a loop.
_PART = re.compile(r"(\.\w+|_x\d+)+$")


# Of a Scop's class nothing is imported: it is the one that asks.
def check_order(scop: Any) -> None:
    """Stop unless schedules are orders, and their loops those of the domains; an `UnsupportedKernelError`."""
    for what, scheduled in _everything(scop):
        reason = _schedule_fault(scheduled.schedule) or _loop_fault(scop, scheduled)
        if reason:
            raise _refused(scop, what, reason)
    for number in range(len(scop.launches)):
        _check_launch(scop, number)


def _everything(scop: Any) -> Iterator[tuple[str, Any]]:
    yield from ((f"statement {one.name!r}", one) for one in scop.statements)
    yield from ((f"barrier {number}", one) for number, one in enumerate(scop.barriers))


def _refused(scop: Any, what: str, reason: str) -> UnsupportedKernelError:
    return UnsupportedKernelError(f"{what} of kernel {scop.name!r}: {reason}", kernel=scop.name)


def _shown(schedule: Sequence[int | str]) -> str:
    return f"[{', '.join(map(str, schedule))}]"


def _schedule_fault(schedule: _Place) -> str:
    numbers, names = schedule[::2], schedule[1::2]
    if schedule and (
        len(numbers) == len(names)
        or not all(isinstance(number, int) for number in numbers)
        or not all(isinstance(name, str) for name in names)
    ):
        return f"schedule {_shown(schedule)} does not alternate; write numbers and loops in turn, such as [1, k, 0]"
    for place, name in enumerate(map(str, names)):
        if not _NAME.fullmatch(name):
            return f"schedule names a loop {name!r}; use letters, digits and underscores"
        if is_axis(name):
            return f"schedule names a loop {name!r}, as work-groups and work-items are called; rename the loop"
        if name in names[:place]:
            return f"schedule has loop {name!r} in loop {name!r}; rename one of them"
    return ""


def _loop_fault(scop: Any, scheduled: Any) -> str:
    launch, loops = scop.launches[scheduled.launch], scheduled.loops
    first = len(launch.groups) + len(launch.items)
    for place, loop in enumerate(loops, first):
        name = scheduled.domain.get_dim_name(isl.dim_type.set, place)
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
    named = {loop for _, one in mine for loop in (*one.loops, *one.domain.get_var_names(isl.dim_type.set))}
    unknown = [loop for loop in scop.launches[number].unrolled if loop not in named]
    if unknown:
        raise _refused(scop, f"launch {number}", f"unrolled names {unknown[0]!r}, which is no loop of its statements")
