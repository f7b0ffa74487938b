"""Flaws of a kernel on a GPU that cost time: each with its line, a number, what mends it, and what that would save.

A saving is the prediction of the kernel with that cost changed: `perflex.analysis.cures` makes its description as it
would be, which is counted and predicted like any other.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec.structs import replace

from perflex.analysis.cures import (
    Place,
    access_counts,
    at_sizes,
    coalesced,
    in_float32,
    packed,
    padded,
    regrouped,
    step_of_items,
)
from perflex.analysis.tiling import tileable, tiled
from perflex.calibration.change import change_of
from perflex.errors import PerflexError
from perflex.features import QuasiPolynomial, counts_of
from perflex.features.gpu.requests import Requests, requests_of
from perflex.features.gpu.waves import fillings, launch_residency, local_bytes
from perflex.features.target import using_machine
from perflex.machines.residency import residency

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from perflex.calibration.calibration import Calibration
    from perflex.calibration.change import Change
    from perflex.calibration.prediction import Prediction
    from perflex.features.scop.scop import Scop, Statement
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

Kind: TypeAlias = Literal[
    "coalescing", "bank-conflicts", "divergence", "float64", "repeated-loads", "few-groups", "last-wave",
    "group-starts", "occupancy", "spills", "launch-bound",
]  # fmt: skip
MEANINGS: Mapping[Kind, str] = {
    "coalescing": "Work-items of a sub-group access elements that lie apart, so that a request takes more sectors",
    "bank-conflicts": "Work-items of a sub-group access different words on one bank of local memory",
    "divergence": "Work-items of a sub-group go different ways, one after the other",
    "float64": "A constant without f makes float32 arithmetic float64",
    "repeated-loads": "Work-items of a work-group load the same elements that local memory could hold",
    "few-groups": "There are fewer work-groups than compute units",
    "last-wave": "Few work-groups are left for the last wave",
    "group-starts": "Starting work-groups takes longer than what they do",
    "occupancy": "Registers or local memory leave room for few work-groups",
    "spills": "Values that do not fit into registers are stored and loaded again",
    "launch-bound": "The launch takes longer than the kernel",
}
# Of what all accesses together take, what is beyond the least must have such a part.
_MATTERS = 0.02
# A request takes so many times the least.
_MORE = 1.5
# Elements that rows are padded by.
_PADS = (1, 2, 4, 8)
# Of work-items that could be active in statements that have a part of all operations.
_ACTIVE, _PART = 0.6, 0.05
# Of the time, what a finding that is one of time alone must save.
_WORTH = 0.02
# The busiest compute unit's share of work-groups over the mean, as found and as mended.
_UNEVEN, _EVEN = 1.2, 1.1
_USUAL_GROUP = 256
_LOW_OCCUPANCY = 0.5
_LAUNCH = "f_sync_kernel_launch"
_STARTS = "f_peak_group"
_CONSTANT = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|(?<![\w.])\d+[eE][+-]?\d+(?![\w.])")


@dataclass(frozen=True)
class Finding:
    """A flaw of a kernel.

    Attributes
    ----------
    kind
        One of `MEANINGS`.
    line, column
        Where it is: ``"12"``, ``"header.h:12"`` or empty for the launch; the column of what is meant, from 1.
    what, cure
        What was found, and what mends it, in words.
    found, mended
        The number in `what`, and what it is with the cure; None where that is not known.
    change
        Predicted time with the cure over that without; None where that cannot be told.
    reason
        Why it cannot be told.
    """

    kind: Kind
    line: str
    column: int
    what: str
    cure: str
    found: float
    mended: float | None = None
    change: Change | None = None
    reason: str = ""


@dataclass(frozen=True)
class Case:
    """A kernel at sizes on a target with a GPU, what is predicted of it, and its source where it has one."""

    scop: Scop
    sizes: Mapping[str, int]
    target: Target
    calibration: Calibration
    source: str = ""

    @property
    def machine(self) -> Machine:
        """The GPU."""
        return self.target.need_machine()

    @cached_property
    def prediction(self) -> Prediction:
        """Of the description, as those of mended ones."""
        return self.predicted(self.scop)

    def predicted(self, scop: Scop, registers: int | None = None) -> Prediction:
        """Return the prediction of a description, with registers other than those of the target."""
        held = self.target.registers_per_item if registers is None else registers
        with using_machine(self.target.machine, registers=held):
            return self.calibration.explain(scop, self.sizes)

    @cached_property
    def requests(self) -> Mapping[Place, Requests]:
        """Of each access."""
        return requests_of(self.scop, self.sizes, self.machine)

    def at(self, count: QuasiPolynomial) -> float:
        """Return a count at the sizes."""
        return float(count.evaluate(self.sizes))

    def access_at(self, place: Place) -> tuple[str, str, str]:
        """Return line, direction and array of an access."""
        statement = self.scop.statements[place[0]]
        access = statement.accesses[place[1]]
        return access.line or statement.line, access.direction, access.array

    def line_of(self, place: Place) -> str:
        """Return the line of an access."""
        return self.access_at(place)[0]

    def column(self, line: str, pattern: str) -> int:
        """Return the column of what matches first in a line, or of its first letter; 1 in headers."""
        lines = self.source.splitlines()
        text = lines[int(line) - 1] if line.isdigit() and 0 < int(line) <= len(lines) else ""
        found = re.search(pattern, text) or re.search(r"\S", text)
        return 1 if found is None else found.start() + 1

    def column_of(self, line: str, array: str) -> int:
        """Return the column of an access of an array in a line."""
        return self.column(line, rf"\b{re.escape(array)}\s*\[")

    def saved(self, make: Callable[[], Prediction]) -> tuple[Change | None, str]:
        """Return the change to a mended kernel's prediction, or why there is none."""
        try:
            return change_of(self.prediction, make()), ""
        except PerflexError as error:
            return None, error.message


def find(case: Case) -> list[Finding]:
    """Return the flaws of a kernel, what saves most first, and those whose saving cannot be told last."""
    looks = (
        _coalescing, _bank_conflicts, _divergence, _float64, _repeated_loads, _few_groups, _group_starts, _occupancy,
        _spills, _launch_bound,
    )  # fmt: skip
    found = [one for look in looks for one in look(case)]
    return sorted(found, key=lambda one: 1.0 if one.change is None else one.change.ratio)


def _coalescing(case: Case) -> Iterator[Finding]:
    items = access_counts(case.scop)
    whole = sum(one.served for place, one in case.requests.items() if items[place].array.memory == "global")
    # What one exchange of axes or one other layout mends belongs together.
    flawed: dict[int, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for place, one in case.requests.items():
        item = items[place]
        stride = item.local_strides[0] if item.local_strides else None
        if item.array.memory == "global" and stride is not None and one.served >= _MORE * one.least:
            if step := abs(int(case.at(stride))):
                flawed[step][case.line_of(place)].append(place)
    for step, lines in flawed.items():
        places = [place for each in lines.values() for place in each]
        total = _total(case.requests, places)
        if total.served - total.least < _MATTERS * whole:
            continue
        if step == 1:
            yield from _narrow(case, lines)
            continue
        scop = coalesced(case.scop, places, case.sizes)
        after, saving = requests_of(scop, case.sizes, case.machine), case.saved(lambda scop=scop: case.predicted(scop))
        cure = (
            f"work-items next to each other access elements {step} apart; let axis 0 of the work-group run along "
            "neighbours (exchange loops or axes), or store what it accesses next to each other (transposed, structure "
            f"of arrays){_together(lines)}"
        )
        for line, mine in lines.items():
            served, mended = _total(case.requests, mine).each[0], _total(after, mine).each[0]
            arrays = list(dict.fromkeys(items[place].array.name for place in mine))
            what = f"{served:.3g} sectors per request where {mended:.3g} would do ({', '.join(arrays)})"
            yield Finding("coalescing", line, case.column_of(line, arrays[0]), what, cure, served, mended, *saving)


def _total(requests: Mapping[Place, Requests], places: Iterable[Place]) -> Requests:
    return sum((requests[place] for place in places), start=Requests())


def _together(lines: Collection[str]) -> str:
    return f"; the saving is that of lines {', '.join(lines)} together" if len(lines) > 1 else ""


def _narrow(case: Case, lines: Mapping[str, Sequence[Place]]) -> Iterator[Finding]:
    """Yield lines in which rows of the work-group are shorter than a sector."""
    for line, places in lines.items():
        statement = case.scop.statements[places[0][0]]
        array = case.scop.array(statement.accesses[places[0][1]].array)
        width = case.scop.launches[statement.launch].items[0]
        enough = int(case.machine.need("sector_bytes") // array.itemsize)
        if width < enough:
            served, least = _total(case.requests, places).each
            what = f"{served:.3g} sectors per request where {least:.3g} would do ({array.name})"
            cure = f"axis 0 of the work-group has {width} work-items; make it {enough} wide or more"
            reason = "a work-group of another shape is another kernel"
            yield Finding("coalescing", line, case.column_of(line, array.name), what, cure, served, reason=reason)


def _bank_conflicts(case: Case) -> Iterator[Finding]:
    items = access_counts(case.scop)
    local = {place: one for place, one in case.requests.items() if items[place].array.space == "local"}
    whole = sum(one.served for one in local.values())
    banks, word = case.machine.need("local_banks"), case.machine.need("local_bank_bytes")
    for array in dict.fromkeys(items[place].array for place in local):
        mine = {place: one for place, one in local.items() if items[place].array is array}
        worst = max(mine, key=lambda place: mine[place].served - mine[place].least)
        excess = sum(one.served - one.least for one in mine.values())
        if excess < _MATTERS * whole or mine[worst].served < _MORE * mine[worst].least:
            continue
        strides = [items[place].local_strides[0] for place in mine if items[place].local_strides]
        steps = {abs(int(case.at(stride))) for stride in strides if stride is not None}
        rows = {int(banks * word // array.itemsize), *(step for step in steps if step > 1)}
        rows = {0} if len(array.shape) > 1 else rows
        best: tuple[float, int, int, Any] | None = None
        for pad, row in sorted((pad, row) for pad in _PADS for row in rows):
            scop = padded(case.scop, array.name, pad, case.sizes, row or max(rows) or 32)
            after = requests_of(scop, case.sizes, case.machine)
            served = sum(after[place].served for place in mine)
            if best is None or served < best[0]:
                best = served, pad, row, (scop, after[worst].each[0])
        assert best is not None  # noqa: S101 - there are pads
        line, ways = case.line_of(worst), mine[worst].each[0]
        what = f"{ways:.3g} wavefronts per request where {mine[worst].each[1]:.3g} would do ({array.name})"
        column = case.column_of(line, array.name)
        served, pad, row, (scop, mended) = best
        if served > sum(one.served for one in mine.values()) - excess / 2:
            cure = f"padding rows by up to {_PADS[-1]} elements does not help; change which work-item accesses what"
            yield Finding("bank-conflicts", line, column, what, cure, ways, reason="no padding mends it")
            continue
        shape = at_sizes(array.shape, case.sizes)
        longer = f"make its rows {pad} longer ({array.name}{''.join(f'[{n}]' for n in [*shape[:-1], shape[-1] + pad])})"
        cure = longer if not row else f"leave {pad} elements free after each {row}: index e + {pad}*(e/{row})"
        change, reason = case.saved(lambda scop=scop: case.predicted(scop))
        yield Finding("bank-conflicts", line, column, what, cure, ways, mended, change, reason)


def _divergence(case: Case) -> Iterator[Finding]:
    lanes, counts = case.target.sub_group_size, counts_of(case.scop)
    by_line: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    whole = 0.0
    for number, one in enumerate(case.scop.statements):
        size = case.scop.launches[one.launch].group_size
        weight = sum(operation.count for operation in one.operations) + len(one.accesses)
        slots = case.at(counts.instances(one, lanes)) * min(size, lanes) * weight
        whole += slots
        if not one.guarded and slots:
            by_line[one.line].append((number, case.at(counts.instances(one)) * weight, slots))
    for line, parts in by_line.items():
        apart = [(number, run, slots) for number, run, slots in parts if run <= _ACTIVE * slots]
        idle = sum(slots - run for _, run, slots in apart)
        steps = {number: step for number, _, _ in apart if (step := _step(case, case.scop.statements[number]))}
        if idle < _PART * whole or not steps:
            continue
        share = sum(run for _, run, _ in apart) / sum(slots for _, _, slots in apart)
        scop = packed(case.scop, steps, case.sizes)
        after = counts_of(scop)
        runs = [(case.at(after.instances(one)), case.at(after.instances(one, lanes)) * lanes)
                for number, one in enumerate(scop.statements) if number in steps]  # fmt: skip
        mended = sum(run for run, _ in runs) / sum(slots for _, slots in runs)
        what = f"{100 * share:.0f} % of the work-items of a sub-group are active where {100 * mended:.0f} % could be"
        cure = (
            f"one work-item in {min(step for _, step in steps.values())} comes here; let"
            "  work-items next to each other go the same way, such as the first half of the work-group"
        )
        change, reason = case.saved(lambda scop=scop: case.predicted(scop))
        yield Finding("divergence", line, case.column(line, r"\S"), what, cure, share, mended, change, reason)


def _step(case: Case, statement: Statement) -> tuple[int, int] | None:
    launch = case.scop.launches[statement.launch]
    # Of work-groups narrower than a sub-group, neighbours along axis 0 do not fill one.
    if launch.items[0] % case.target.sub_group_size:
        return None
    return step_of_items(statement, len(launch.groups), case.sizes)


def _float64(case: Case) -> Iterator[Finding]:
    lines = case.source.splitlines()
    if any(array.dtype in {"float64", "complex128"} for array in case.scop.arrays if array.space != "private"):
        return
    stated = re.search(r"\bdouble\b", case.source) is not None
    flawed: dict[str, float] = {}
    for one in case.scop.statements:
        there = sum(operation.count for operation in one.operations if operation.dtype == "float64")
        text = lines[int(one.line) - 1] if one.line.isdigit() and int(one.line) <= len(lines) else ""
        shown = " ".join([text, *(access.text for access in one.accesses)])
        if there and (_CONSTANT.search(shown) or not stated) and "double" not in text:
            flawed[one.line] = flawed.get(one.line, 0) + there
    change, reason = case.saved(lambda: case.predicted(in_float32(case.scop, flawed))) if flawed else (None, "")
    for line, number in flawed.items():
        what = f"{number:.0f} float64 operation{'' if number == 1 else 's'} on float32 data"
        cure = f"write constants with f (2.0f), and call functions of float{_together(flawed)}"
        yield Finding("float64", line, case.column(line, _CONSTANT.pattern), what, cure, number, 0.0, change, reason)


def _repeated_loads(case: Case) -> Iterator[Finding]:
    found = tileable(case.scop, case.sizes)
    if not found:
        return
    scop = tiled(case.scop, found, case.sizes)
    change, reason = case.saved(lambda: case.predicted(scop))
    if change is None or change.ratio > 1 - _WORTH:
        return
    for one in found:
        array = case.scop.statements[one.place[0]].accesses[one.place[1]].array
        line = case.line_of(one.place)
        what = f"a work-group loads each element {one.times} times where once would do ({array})"
        cure = f"load tiles of {one.width} iterations into local memory, each work-item one element, between barriers"
        column = case.column_of(line, array)
        yield Finding("repeated-loads", line, column, what, cure, one.times, 1.0, change, reason)


def _few_groups(case: Case) -> Iterator[Finding]:
    """Yield what is wrong with the number of work-groups: fewer than compute units, or few in the last wave."""
    units = int(case.machine.need("compute_units"))
    for held in fillings(case.scop, case.sizes, case.machine, case.target.registers_per_item):
        few = held.groups < units
        if not few and held.on_busiest < _UNEVEN:
            continue
        kind: Kind = "few-groups" if few else "last-wave"
        found, mended, scop, size = float(held.groups) if few else held.on_busiest, None, None, 0
        for size, each in _smaller(case, held.number):
            after = next(one for one in _fillings(case, each) if one.number == held.number)
            if after.on_busiest < held.on_busiest:
                scop, mended = each, float(after.groups) if few else after.on_busiest
            if (few and after.groups >= units) or (not few and after.on_busiest < _EVEN):
                break
        what = (
            f"{held.groups} work-groups for {units} compute units"
            if few
            else f"the busiest compute unit has {found:.2f} times the mean of {held.groups} work-groups"
        )
        if scop is None:
            cure = "divide the work among more and smaller work-groups"
            made: tuple[Change | None, str] = None, "its work-groups cannot be divided without changing what they do"
        else:
            cure = f"make work-groups of {size} work-items"
            made = case.saved(lambda scop=scop: case.predicted(scop))
        if made[0] is None or made[0].ratio < 1 - _WORTH:
            yield Finding(kind, "", 1, what, cure, found, mended, *made)


def _fillings(case: Case, scop: Scop) -> Iterable[Any]:
    return fillings(scop, case.sizes, case.machine, case.target.registers_per_item)


def _smaller(case: Case, number: int) -> Iterator[tuple[int, Scop]]:
    """Yield work-items and description with smaller and smaller work-groups, down to one sub-group."""
    items = case.scop.launches[number].items
    last = next((extent for extent in reversed(items) if extent > 1), 1)
    others = prod(items) // last
    while last % 2 == 0 and last // 2 * others >= case.target.sub_group_size:
        last //= 2
        scop = regrouped(case.scop, number, last, case.sizes)
        if scop is None:
            return
        yield last * others, scop


def _without(case: Case, feature: str) -> float:
    """Return the share of the time that is left where a feature counts nothing; 1 where the model lacks it."""
    values = case.prediction.values
    if not values.get(feature):
        return 1.0
    return float(case.calibration.evaluate({**values, feature: 0.0}) / case.calibration.evaluate(values))


def _group_starts(case: Case) -> Iterator[Finding]:
    if _without(case, _STARTS) > 1 - _WORTH:
        return
    for number, launch in enumerate(case.scop.launches):
        size, groups = launch.group_size, case.at(launch.group_count)
        if size >= _USUAL_GROUP or groups < case.machine.need("compute_units"):
            continue
        last = next((extent for extent in reversed(launch.items) if extent > 1), 1)
        larger = regrouped(case.scop, number, last * (_USUAL_GROUP // size), case.sizes)
        cure = f"make work-groups of {_USUAL_GROUP} work-items"
        made: tuple[Change | None, str] = None, "its work-groups cannot be joined without changing what they do"
        mended = None
        if larger is not None:
            mended = case.at(larger.launches[number].group_count)
            made = case.saved(lambda scop=larger: case.predicted(scop))
        if made[0] is None or made[0].ratio < 1 - _WORTH:
            what = f"{groups:.0f} work-groups of {size} work-items to start"
            yield Finding("group-starts", "", 1, what, cure, groups, mended, *made)


def _occupancy(case: Case) -> Iterator[Finding]:
    registers, machine = case.target.registers_per_item, case.machine
    for number, launch in enumerate(case.scop.launches):
        held = launch_residency(case.scop, number, case.sizes, machine, registers)
        if held.occupancy >= _LOW_OCCUPANCY or held.limit not in {"registers", "local memory"}:
            continue
        size, memory = launch.group_size, local_bytes(case.scop, number, case.sizes)
        by_registers = held.limit == "registers"
        now = int((registers or 0) if by_registers else memory)

        def fits(amount: int) -> bool:
            each = (memory, amount) if by_registers else (amount, registers)
            return residency(machine, size, *each).groups_per_unit > held.groups_per_unit

        least = next((amount for amount in range(now - 1, 0, -1) if fits(amount)), None)
        if least is None:
            continue
        unit = "registers of each work-item" if by_registers else "B of local memory"
        what = (
            f"{held.groups_per_unit} work-groups on a compute unit at once ({100 * held.occupancy:.0f} % of its "
            f"work-items), limited by {held.limit}"
        )
        cure = f"free {now - least} of {now} {unit} to hold one more"
        change, reason = (
            case.saved(lambda: case.predicted(case.scop, least))
            if by_registers
            else case.saved(lambda: case.predicted(_with_less(case, number, least)))
        )
        if change is None or change.ratio < 1 - _WORTH:
            more = float(held.groups_per_unit + 1)
            yield Finding("occupancy", "", 1, what, cure, float(held.groups_per_unit), more, change, reason)


def _with_less(case: Case, number: int, wanted: int) -> Scop:
    """Return a description whose largest local array is so much shorter that a work-group has as few bytes."""
    used = {one.array for each in case.scop.statements if each.launch == number for one in each.accesses}
    mine = [one for one in case.scop.arrays if one.name in used and one.space == "local"]
    sizes = {one.name: prod(at_sizes(one.shape, case.sizes)) * one.itemsize for one in mine}
    largest = max(mine, key=lambda one: sizes[one.name])
    left = max(0, sizes[largest.name] - (sum(sizes.values()) - wanted)) // largest.itemsize
    shape = (QuasiPolynomial.constant(left), *[QuasiPolynomial.constant(1)] * (len(largest.shape) - 1))
    new = replace(largest, shape=shape)
    return replace(case.scop, arrays=tuple(new if one is largest else one for one in case.scop.arrays))


def _spills(case: Case) -> Iterator[Finding]:
    built = case.target.built
    if built is not None and built.spill_bytes:
        what = f"{built.spill_bytes} B of each work-item are spilt ({built.registers} registers)"
        cure = "compute fewer values per work-item, or allow more registers (launch bounds)"
        reason = "the model does not count what spilt registers move"
        yield Finding("spills", "", 1, what, cure, float(built.spill_bytes), 0.0, reason=reason)


def _launch_bound(case: Case) -> Iterator[Finding]:
    left = _without(case, _LAUNCH)
    if left <= 1 - _LOW_OCCUPANCY:
        values = {**case.prediction.values, _LAUNCH: 0.0}
        bare = dataclasses.replace(case.prediction, values=values, seconds=left * float(case.prediction.seconds))
        change, reason = case.saved(lambda: bare)
        what = f"{100 * (1 - left):.0f} % of the time is the launch"
        cure = "do more in one launch: join it with others, or launch a graph of kernels"
        yield Finding("launch-bound", "", 1, what, cure, 1 - left, 0.0, change, reason)
