"""Flaws in what the lines of a kernel do: how they access memory, which ways they go, in which type they compute.

A saving is the prediction of the kernel with that cost changed: `perflex.analysis.cures` makes its description as it
would be, which is counted and predicted like any other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.analysis.cures import Place, access_counts, at_sizes, coalesced, in_float32, packed, padded
from perflex.analysis.finding import MEANINGS, Finding
from perflex.analysis.launch_flaws import LAUNCH_LOOKS
from perflex.analysis.tiling import tileable, tiled
from perflex.errors import PerflexError
from perflex.features import counts_of
from perflex.features.gpu.requests import Requests, requests_of
from perflex.features.scop.address_maps import address_maps

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from perflex.analysis.finding import Case
    from perflex.analysis.tiling import Tile
    from perflex.features import Array, Scop

# Of the time, what a cure must save: of a line, and where time alone tells that something is wrong.
_SAVES, _WORTH = 0.005, 0.02
_OF_LINES = {"coalescing", "bank-conflicts", "divergence", "float64"}
# Of what all accesses together take, what is beyond the least must have such a part.
_MATTERS = 0.02
# A request takes so many times the least.
_MORE = 1.5
# Elements that rows are padded by, rows that are tried, and conflicts that are told where no padding helps.
_PADS = range(1, 9)
_SHORT, _MOST_ROWS = 8, 3
_MANY = 4.0
_NO_PADDING = f"longer rows do not help (up to {_PADS[-1]} elements): change which work-item accesses what"
# Of work-items that could be active in statements that have a part of all operations.
_ACTIVE, _PART = 0.6, 0.05
_CONSTANT = re.compile(r"(?<![\w.])(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|(?<![\w.])\d+[eE][+-]?\d+(?![\w.])")


def find(case: Case) -> tuple[list[Finding], list[str]]:
    """Return the flaws of a kernel, what saves most first, and why some could not be looked for."""
    looks = (_coalescing, _bank_conflicts, _divergence, _float64, _repeated_loads, *LAUNCH_LOOKS)
    found: list[Finding] = []
    unknown: dict[str, None] = {}
    for look in looks:
        try:
            found += look(case)
        except PerflexError as error:
            unknown[error.message] = None
    least = {kind: _SAVES if kind in _OF_LINES else _WORTH for kind in MEANINGS}
    told = [one for one in found if one.change is None or one.change.ratio < 1 - least[one.kind]]
    return sorted(told, key=lambda one: 1.0 if one.change is None else one.change.ratio), list(unknown)


def _coalescing(case: Case) -> Iterator[Finding]:
    items = access_counts(case.scop)
    whole = sum(one.served for place, one in case.requests.items() if items[place].array.memory == "global")
    # What one exchange of axes or one other layout mends belongs together.
    flawed: dict[int, dict[str, list[Place]]] = defaultdict(lambda: defaultdict(list))
    for place, one in case.requests.items():
        step = case.step(items[place])
        if items[place].array.memory == "global" and step and one.served >= _MORE * one.least:
            flawed[step][case.line_of(place)].append(place)
    for step, lines in flawed.items():
        places = [place for each in lines.values() for place in each]
        total = _total(case.requests, places)
        if total.served - total.least < _MATTERS * whole:
            continue
        if step == 1:
            yield from _narrow(case, lines)
            continue
        # Also those whose values stay in registers.
        arrays = {items[place].array.name for place in places}
        alike = [place for place, one in items.items() if one.array.name in arrays and case.step(one) == step]
        scop = coalesced(case.scop, alike, case.sizes)
        after, saving = requests_of(scop, case.sizes, case.machine), case.saved(scop)
        cure = (
            f"work-items next to each other access elements {step} apart; let axis 0 of the work-group run along "
            "neighbours (exchange loops or axes), or store what it accesses next to each other (transposed, structure "
            f"of arrays){_together(lines)}"
        )
        for line, mine in lines.items():
            served, mended = _total(case.requests, mine).each[0], _total(after, mine).each[0]
            names = list(dict.fromkeys(items[place].array.name for place in mine))
            what = f"{served:.3g} sectors per request where {mended:.3g} would do ({', '.join(names)})"
            yield Finding("coalescing", line, case.column_of(line, names[0]), what, cure, served, mended, *saving)


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
    for array in dict.fromkeys(items[place].array for place in local):
        lines: dict[str, list[Place]] = defaultdict(list)
        for place in local:
            if items[place].array is array:
                lines[case.line_of(place)].append(place)
        totals = {line: _total(local, places) for line, places in lines.items()}
        flawed = [line for line, one in totals.items() if one.served >= _MORE * one.least]
        excess = sum(one.served - one.least for one in totals.values())
        if not flawed or excess < _MATTERS * whole:
            continue
        places = [place for each in lines.values() for place in each]
        best = _padding(case, array, places)
        served = _total(best.requests, places).served
        helps = served <= _total(local, places).served - excess / 2
        saving = case.saved(best.scop) if helps else (None, "no padding mends it")
        for line in flawed:
            ways, least = totals[line].each
            mended = _total(best.requests, lines[line]).each[0] if helps else None
            if mended is None and ways < _MANY:
                continue
            what = f"{ways:.3g} wavefronts per request where {mended or least:.3g} would do ({array.name})"
            column, cure = case.column_of(line, array.name), best.cure if helps else _NO_PADDING
            yield Finding("bank-conflicts", line, column, what, cure + _together(flawed), ways, mended, *saving)


@dataclass(frozen=True)
class _Padding:
    """A local array with longer rows: how it is written, the description, and the requests of each access."""

    cure: str
    scop: Scop
    requests: Mapping[Place, Requests]


def _padding(case: Case, array: Array, places: Sequence[Place]) -> _Padding:
    """Return the padding of a local array with which accesses take the fewest wavefronts, the least of equal ones."""
    shape, name = at_sizes(array.shape, case.sizes), array.name
    found: list[tuple[float, int, int, Scop, Mapping[Place, Requests]]] = []
    rows = _rows(case, array) if len(shape) == 1 else [0]
    for pad, row in ((pad, row) for pad in _PADS for row in rows):
        scop = padded(case.scop, name, pad, case.sizes, row or shape[-1])
        after = requests_of(scop, case.sizes, case.machine, ["local"])
        total = _total(after, places)
        found.append((total.served, pad, row, scop, after))
        if total.served == total.least:
            break
    _, pad, row, scop, best = min(found, key=lambda one: one[:3])
    cure = f"index e + {'' if pad == 1 else f'{pad}*'}(e/{row}) in place of e, in an array that is as much longer"
    return _Padding(f"make its rows {pad} longer" if not row or _declared_rows(case, array) else cure, scop, best)


def _declared_rows(case: Case, array: Array) -> str:
    """Return the last extent of an array that is declared with several, of which the description may have made one."""
    found = re.search(rf"\b{array.name}\s*(?:\[[^\]]*\]\s*)+\[([^\]]*)\]", case.function)
    return "" if found is None else found[1].strip()


def _rows(case: Case, array: Array) -> list[int]:
    """Return how long rows of an array of one axis may be: as declared, or factors in subscripts and all banks."""
    declared = _declared_rows(case, array)
    if declared.isdecimal():
        return [int(declared)]
    forms = [axis for piece in address_maps(case.scop) for one in piece.accesses if one.array == array.name
             for axis in one.axes]  # fmt: skip
    factors = {abs(factor) for form in forms for _, factor in (*form.terms, *form.floors)}
    banks = case.machine.need("local_banks") * case.machine.need("local_bank_bytes")
    return sorted({*sorted(each for each in factors if each > _SHORT)[:_MOST_ROWS], int(banks // array.itemsize)})


def _divergence(case: Case) -> Iterator[Finding]:
    lanes, counts = case.target.sub_group_size, counts_of(case.scop)
    parts: dict[int, tuple[float, float]] = {}
    whole = 0.0
    for number, one in enumerate(case.scop.statements):
        weight = sum(operation.count for operation in one.operations) + len(one.accesses)
        slots = case.at(counts.instances(one, lanes)) * min(case.scop.launches[one.launch].group_size, lanes) * weight
        whole += slots
        if slots and not one.guarded and (run := case.at(counts.instances(one)) * weight) <= _ACTIVE * slots:
            parts[number] = run, slots
    scop, changed = packed(case.scop, parts, case.sizes, lanes)
    lines: dict[str, list[int]] = defaultdict(list)
    for number in parts:
        lines[case.condition_line(case.scop.statements[number].line)].append(number)
    idle = {line: sum(parts[number][1] - parts[number][0] for number in mine) for line, mine in lines.items()}
    flawed = [line for line, mine in lines.items() if idle[line] >= _PART * whole and changed.keys() & mine]
    saving = case.saved(scop) if flawed else (None, "")
    for line in flawed:
        run, slots = map(sum, zip(*(parts[number] for number in lines[line]), strict=True))
        left = 0.0
        for number in lines[line]:
            one = case.scop.statements[number]
            before, after = (
                case.at(counts.executions(domain, one.launch, lanes))
                for domain in (one.domain, changed.get(number, one.domain))
            )
            left += parts[number][1] * after / before
        what = (
            f"{100 * run / slots:.0f} % of the work-items of a sub-group are active where {100 * run / left:.0f} % "
            "could be"
        )
        cure = (
            "work-items of a sub-group go different ways; let those next to each other go the same way, such as the "
            f"first ones of all{_together(flawed)}"
        )
        yield Finding("divergence", line, case.column(line, r"\bif\b"), what, cure, run / slots, run / left, *saving)


def _float64(case: Case) -> Iterator[Finding]:
    # What is declared double is meant to be.
    arrays = (array for array in case.scop.arrays if array.space != "private")
    if re.search(r"\bdouble\b", case.function) or any(one.dtype in {"float64", "complex128"} for one in arrays):
        return
    flawed: dict[str, float] = {}
    for one in case.scop.statements:
        each = case.at(counts_of(case.scop).instances(one)) / case.at(counts_of(case.scop).work_items)
        there = each * sum(operation.count for operation in one.operations if operation.dtype == "float64")
        if there:
            flawed[one.line] = flawed.get(one.line, 0) + there
    saving = case.saved(in_float32(case.scop, flawed)) if flawed else (None, "")
    for line, number in flawed.items():
        what = f"float64 operations on float32 data, {number:.4g} of each work-item"
        cure = f"write constants with f (2.0f), and call functions of float{_together(flawed)}"
        yield Finding("float64", line, case.column(line, _CONSTANT.pattern), what, cure, number, 0.0, *saving)


def _repeated_loads(case: Case) -> Iterator[Finding]:
    found = tileable(case.scop, case.sizes)
    if not found:
        return
    change, reason = case.saved(tiled(case.scop, found, case.sizes))
    if change is None or change.ratio > 1 - _WORTH:
        return
    if len({case.access_at(one.place)[2] for one in found}) < len(found):
        change, reason = None, "loads of an array at several places may share a tile"
    lines: dict[str, list[Tile]] = defaultdict(list)
    for one in found:
        lines[case.line_of(one.place)].append(one)
    for line, tiles in lines.items():
        arrays = list(dict.fromkeys(case.access_at(one.place)[2] for one in tiles))
        times = max(one.times for one in tiles)
        what = f"a work-group loads each element {times} times where once would do ({', '.join(arrays)})"
        cure = (
            f"load tiles of {tiles[0].width} iterations into local memory, all work-items together, between barriers"
            f"{_together(lines)}"
        )
        yield Finding("repeated-loads", line, case.column_of(line, arrays[0]), what, cure, times, 1.0, change, reason)
