"""Flaws in how a kernel is launched: work-groups that are too few, too many or too large, and small launches."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from msgspec import structs

from perflex.analysis.cures import at_sizes, regrouped
from perflex.analysis.finding import Case, Finding
from perflex.calibration.change import change_of
from perflex.features import QuasiPolynomial
from perflex.features.gpu.source_registers import registers_of
from perflex.features.gpu.waves import fillings, launch_residency, local_bytes
from perflex.machines.residency import residency

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perflex.calibration.change import Change
    from perflex.features import Launch, Scop
    from perflex.features.gpu.waves import Filling
    from perflex.machines.residency import Residency

    _Saving = tuple[Change | None, str]

# Of the time, what starts of work-groups must take.
_STARTING = 0.02
# The busiest compute unit's share of work-groups over the mean, as found and as mended.
_UNEVEN, _EVEN = 1.2, 1.1
_USUAL_GROUP = 256
_LOW_OCCUPANCY, _LAUNCH_BOUND = 0.5, 0.5
_LAUNCH = "f_sync_kernel_launch"
_STARTS = "f_peak_group"
_NOT_DIVIDED: _Saving = (None, "its work-groups are single sub-groups, or their work-items work together")


def _few_groups(case: Case) -> Iterator[Finding]:
    """Yield what is wrong with the number of work-groups: fewer than compute units, or few in the last wave."""
    units = int(case.machine.need("compute_units"))
    # Of a launch that does little, it is the launch that matters.
    if case.without(_LAUNCH) <= 1 - _LAUNCH_BOUND:
        return
    for held in _fillings(case, case.scop):
        few = held.groups < units
        if not few and held.on_busiest < _UNEVEN:
            continue
        found, mended, made = float(held.groups) if few else held.on_busiest, None, _NOT_DIVIDED
        cure, best = "divide the work among more and smaller work-groups", None
        for size, scop in _smaller(case, held.number):
            after = next(one for one in _fillings(case, scop) if one.number == held.number)
            if after.on_busiest < held.on_busiest:
                best, cure = scop, f"make work-groups of {size} work-items"
                mended = float(after.groups) if few else after.on_busiest
            if after.groups >= units if few else after.on_busiest < _EVEN:
                break
        if best is not None:
            made = case.saved(best)
        what = (
            f"{held.groups} work-groups for {units} compute units"
            if few
            else f"the busiest compute unit has {found:.2f} times the mean of {held.groups} work-groups"
        )
        yield Finding("few-groups" if few else "last-wave", "", 1, what, cure, found, mended, *made)


def _fillings(case: Case, scop: Scop) -> list[Filling]:
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


def _group_starts(case: Case) -> Iterator[Finding]:
    if case.without(_STARTS) > 1 - _STARTING:
        return
    for number, launch in enumerate(case.scop.launches):
        size, groups = launch.group_size, case.at(launch.group_count)
        if size >= _USUAL_GROUP or groups < case.machine.need("compute_units"):
            continue
        last, times = next((extent for extent in reversed(launch.items) if extent > 1), 1), _USUAL_GROUP // size
        larger = regrouped(case.scop, number, last * times, case.sizes)
        cure = f"make work-groups of {size * times} work-items"
        made: _Saving = None, "its work-groups cannot be joined without changing what they do"
        mended = None
        if larger is not None:
            mended = case.at(larger.launches[number].group_count)
            made = case.saved(larger)
        what = f"{groups:.0f} work-groups of {size} work-item{'' if size == 1 else 's'} to start"
        yield Finding("group-starts", "", 1, what, cure, groups, mended, *made)


def _occupancy(case: Case) -> Iterator[Finding]:
    machine = case.machine
    for number, launch in enumerate(case.scop.launches):
        registers = registers_of(case.scop, number, case.sizes, machine, case.target.registers_per_item)
        held = launch_residency(case.scop, number, case.sizes, machine, registers)
        if held.occupancy >= _LOW_OCCUPANCY or held.limit not in {"registers", "local memory"}:
            continue
        by_registers, memory = held.limit == "registers", local_bytes(case.scop, number, case.sizes)
        now, other = (int(registers or 0), memory) if by_registers else (memory, registers)
        least = next(
            (amount for amount in range(now - 1, 0, -1) if _holds_more(case, launch, held, amount, other)), None
        )
        if least is None:
            continue
        unit = "registers of each work-item" if by_registers else "B of local memory"
        what = (
            f"{held.groups_per_unit:g} work-groups on a compute unit at once ({100 * held.occupancy:.0f} % of its "
            f"work-items), limited by {held.limit}"
        )
        # What was not compiled is an estimate.
        about = "about " if by_registers and case.target.registers_per_item is None else ""
        cure = f"free {now - least} of {about}{now} {unit} to hold one more"
        saving = case.saved(case.scop, least) if by_registers else case.saved(_with_less(case, number, least))
        more = held.groups_per_unit + 1 / (machine.units_per_group or 1)
        yield Finding("occupancy", "", 1, what, cure, float(held.groups_per_unit), more, *saving)


def _holds_more(case: Case, launch: Launch, held: Residency, amount: int, other: int | None) -> bool:
    """Return whether a compute unit holds more work-groups with so much of what limits them, and the other as it is."""
    each = (other or 0, amount) if held.limit == "registers" else (amount, other)
    return residency(case.machine, launch.group_size, *each).groups_per_unit > held.groups_per_unit


def _with_less(case: Case, number: int, wanted: int) -> Scop:
    """Return a description whose largest local array is so much shorter that a work-group has as few bytes."""
    used = {one.array for each in case.scop.statements if each.launch == number for one in each.accesses}
    mine = [one for one in case.scop.arrays if one.name in used and one.space == "local"]
    sizes = {one.name: prod(at_sizes(one.shape, case.sizes)) * one.itemsize for one in mine}
    largest = max(mine, key=lambda one: sizes[one.name])
    left = max(0, sizes[largest.name] - (sum(sizes.values()) - wanted)) // largest.itemsize
    shape = (QuasiPolynomial.constant(left), *[QuasiPolynomial.constant(1)] * (len(largest.shape) - 1))
    new = structs.replace(largest, shape=shape)
    return structs.replace(case.scop, arrays=tuple(new if one is largest else one for one in case.scop.arrays))


def _spills(case: Case) -> Iterator[Finding]:
    built = case.target.built
    if built is not None and built.spill_bytes:
        what = f"{built.spill_bytes} B of each work-item are spilt ({built.registers} registers)"
        cure = "compute fewer values per work-item, or allow more registers (launch bounds)"
        reason = "the model does not count what spilt registers move"
        yield Finding("spills", "", 1, what, cure, float(built.spill_bytes), 0.0, reason=reason)


def _launch_bound(case: Case) -> Iterator[Finding]:
    left = case.without(_LAUNCH)
    if left <= 1 - _LAUNCH_BOUND:
        values = {**case.prediction.values, _LAUNCH: 0.0}
        bare = replace(case.prediction, values=values, seconds=left * float(case.prediction.seconds))
        what = f"{100 * (1 - left):.0f} % of the time is the launch"
        cure = "do more in one launch: join it with others, or launch a graph of kernels"
        yield Finding(
            "launch-bound", "", 1, what, cure, 1 - left, 0.0, change_of(case.prediction, bare, case.confidence)
        )


LAUNCH_LOOKS: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    _few_groups,
    _group_starts,
    _occupancy,
    _spills,
    _launch_bound,
)
