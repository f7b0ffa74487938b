"""Layer conditions as text, and what sizes they allow."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from perflex.features.cpu.footprints import outermost
from perflex.features.cpu.nest_values import NestValues
from perflex.features.cpu.result import Condition
from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.traced import Traced, inequality
from perflex.features.cpu.traffic import plan

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.cpu.nests import Nests
    from perflex.features.cpu.reuse import Place
    from perflex.features.cpu.rules import Rules
    from perflex.machines.levels import CacheLevel

# Crossing this no size is meant: the condition holds for all.
_LARGEST = 2**62


def conditions_of(
    nests: Nests, sizes: Mapping[str, int], blocks: Mapping[str, int], levels: Sequence[CacheLevel], rules: Rules
) -> tuple[Condition, ...]:
    """Return the conditions of all levels at given sizes; of each level, the longest reuse first.

    Conditions without a size in them, of reuse between neighbours, are left out where they are met.
    """
    line = levels[0].line_bytes
    traced = Reuse(nests, NestValues(sizes, blocks, traced=True), line)
    places = _places(nests, Reuse(nests, NestValues(sizes, blocks), line), traced)
    symbols = _symbol_values(nests, sizes, blocks)
    everything = rules.whole(traced.everything())
    found = []
    for level in levels:
        available = level.bytes_per_core(rules.cores)
        accesses = [_served(nests, place) for place in places]
        total = sum(len(group.streams) for nest in nests.nests for group in nest.groups)
        # Strict in both conventions, as `Traffic.whole_fits` is.
        found.append(_condition("all", everything, True, level.name, available, symbols, (total, 0, 0), "all"))
        for place, counts in zip(places, accesses, strict=True):
            needed = traced.needed(place)
            loop = nests.nests[place[0]].loops[outermost(place[1])].name
            entry = _condition(
                loop, needed, rules.strict, level.name, available, symbols, counts, _reach(traced, place)
            )
            if entry.symbol or not entry.met:
                found.append(entry)
    return tuple(found)


def _places(nests: Nests, plain: Reuse, traced: Reuse) -> list[Place]:
    """Return the windows that matter: those between accesses, and those in which lines or elements come again."""
    places: set[Place] = set()
    for entry in plan(plain):
        places |= {(entry.nest, window) for window in entry.deciding()}
    ordered = sorted(places, key=lambda place: (place[1], -place[0]), reverse=True)
    seen: dict[tuple[object, ...], Place] = {}
    for place in ordered:
        # Nests that share the loop say the same.
        needed = traced.needed(place)
        formula = Traced.of(needed).polynomial
        seen.setdefault((nests.nests[place[0]].loops[outermost(place[1])].name, formula), place)
    return list(seen.values())


def _symbol_values(nests: Nests, sizes: Mapping[str, int], blocks: Mapping[str, int]) -> dict[str, float]:
    values: dict[str, float] = {name: float(value) for name, value in sizes.items()}
    for nest in nests.nests:
        for loop in nest.loops:
            if loop.part == "inner":
                given = blocks.get(loop.base, loop.block)
                if given is not None:
                    values.setdefault(loop.base, float(given))
    return values


def _served(nests: Nests, place: Place) -> tuple[int, int, int]:
    """Return hits, misses and evicts of a nest where reuse up to a window is held, and none over a longer one."""
    number, window = place
    hits = misses = evicts = 0
    for group in nests.nests[number].groups:
        dirty = 0
        for position, stream in enumerate(group.streams):
            hit = position > 0 and group.gaps[position - 1] <= window
            hits, misses = hits + hit, misses + (not hit)
            if not hit:
                evicts, dirty = evicts + dirty, 0
            dirty = 1 if stream.stores else dirty
        evicts += dirty
    return hits, misses, evicts


def _reach(traced: Reuse, place: Place) -> str:
    number, window = place
    footprints = traced.footprints[number]
    for position, group in enumerate(footprints.nest.groups):
        if window in group.gaps:
            return str(Traced.of(footprints.touched(position, window)))
    return ""


def _condition(
    loop: str,
    needed: Any,
    strict: bool,
    level: str,
    available: int,
    values: Mapping[str, float],
    counts: tuple[int, int, int],
    reach: str,
) -> Condition:
    traced = Traced.of(needed)
    met = traced.value < available if strict else traced.value <= available
    symbol = next((name for name in traced.polynomial.symbols if name in values), "")
    largest = _largest(traced, available, symbol, values, strict=strict) if symbol else None
    text = inequality(traced, available, strict=strict)
    return Condition(level, loop, text, symbol, largest, met, traced.value, available, *counts, reach)


def _largest(needed: Traced, available: int, symbol: str, values: Mapping[str, float], *, strict: bool) -> int | None:
    """Return the largest whole number of a size that meets the condition, all else as given."""
    # Exact, since rounding could move the largest size by one.
    fixed = {name: Fraction(value) for name, value in {**needed.known, **values}.items()}

    def meets(value: int) -> bool:
        found = needed.polynomial.at({**fixed, symbol: Fraction(value)})
        return found < available if strict else found <= available

    # Demand grows with a size, so doubling brackets the largest one and halving finds it.
    if not meets(1):
        return None
    high = 2
    while meets(high):
        high *= 2
        if high > _LARGEST:
            return None
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if meets(middle) else (low, middle)
    return low
