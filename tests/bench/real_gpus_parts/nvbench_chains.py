"""The reductions and scans of the nvbench data: chains of launches; size of each launch: `n` elements.

The loops over strides, of which there are at most eleven, are written out: their bounds are powers of two, which no
affine domain has. Real code has a comparison and a shift more for each stride.
"""

from __future__ import annotations

import textwrap
from functools import cache
from typing import TYPE_CHECKING, Any

from .writing import make

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import loopy as lp

    Launches = Iterator[tuple[Any, Mapping[str, int], int]]

_BLOCK = 512
_SECTION = 8
"""Consecutive words that each work-item of the three-phase scan adds up by itself."""
_BARRIER = "... lbarrier"


def _groups(per_group: int) -> str:
    return f"{{[gx,lx]: 0<=lx<{_BLOCK} and 0<=gx and {per_group}*gx<n}}"


def _count(per_group: int) -> str:
    return f"(n+{per_group - 1})//{per_group}"


def _when(condition: str, statement: str) -> tuple[str, ...]:
    return f"if {condition}", f"    {statement}", "end"


# Reductions.


def _tree(number: int) -> Iterator[str]:
    """Yield the sum of a work-group's words, whose number of the list says how."""
    within = f"{_BLOCK if number <= 3 else 2 * _BLOCK}*gx+lx+{{s}} < n"
    if number in {1, 2}:
        for s in (2**power for power in range(9)):
            place = "lx" if number == 1 else f"{2 * s}*lx"
            active = f"lx % {2 * s} == 0" if number == 1 else f"{place} < {_BLOCK}"
            bound = within.format(s=s) if number == 1 else f"{_BLOCK}*gx+{place}+{s} < n"
            yield from (*_step(f"{active} and {bound}", place, s), _BARRIER)
        return
    for s in (2**power for power in range(8, 5 if number >= 5 else -1, -1)):
        bound = f" and {within.format(s=s)}" if number == 3 else ""
        # Upstream, reduction 5 has no barrier after the load.
        yield from (*_step(f"lx < {s}{bound}", "lx", s, free=number == 5 and s == _BLOCK // 2), _BARRIER)
    if number >= 5:
        for s in (32, 16, 8, 4, 2, 1):
            # The first warp goes on without barriers.
            yield from _step("lx < 32", "lx", s, free=True)


def _step(condition: str, place: str, s: int, *, free: bool = False) -> tuple[str, ...]:
    options = f"id=step{s}" + (", nosync_query=writes:part" if free else "")
    return _when(condition, f"part[{place}] = part[{place}] + part[{place}+{s}] {{{options}}}")


@cache
def reduction(number: int) -> lp.TranslationUnit:
    """One launch of reduction 1 to 7: sums of 512 (1 to 3) or 1024 elements."""
    per_group = _BLOCK if number <= 3 else 2 * _BLOCK
    i = f"{per_group}*gx+lx"
    lines = [f"first = x[{i}] if {i} < n else 0 {{id=first}}"]
    if number >= 4:
        lines.append(f"second = x[{i}+{_BLOCK}] if {i}+{_BLOCK} < n else 0 {{id=second}}")
    lines.append(f"part[lx] = {'first' if number <= 3 else 'first + second'} {{id=load}}")
    if number != 5:
        lines.append(_BARRIER)
    lines += [*_tree(number), *_when("lx == 0", "y[gx] = part[0] {id=write, nosync_query=writes:part}")]
    scalars = "first" if number <= 3 else "first, second"
    data = f"uint32 x[n], y[{_count(per_group)}]; local uint32 part[{_BLOCK}]; private uint32 {scalars}"
    return make(f"reduction_{number}", _groups(per_group), "\n".join(lines), data)


# Scans.


@cache
def scan_kogge_stone() -> lp.TranslationUnit:
    """One launch of the scan with two halves of local memory: 512 elements per work-group."""
    i = f"{_BLOCK}*gx+lx"
    lines = [*_when(f"{i} < n", f"part[lx] = x[{i}] {{id=load}}"), _BARRIER]
    for s in (2**power for power in range(9)):
        there, back = f"part[lx+{_BLOCK}] = part[lx] + part[lx-{s}]", f"part[lx] = part[lx+{_BLOCK}]"
        lines += [*_when(f"lx >= {s}", f"{there} {{id=sum{s}}}"), _BARRIER]
        lines += [*_when(f"lx >= {s}", f"{back} {{id=back{s}}}"), _BARRIER]
    lines += _when(f"{i} < n", f"y[{i}] = part[lx]")
    return _scan("scan_kogge_stone", _BLOCK, lines, 2 * _BLOCK)


@cache
def scan_brent_kung() -> lp.TranslationUnit:
    """One launch of the scan by a tree up and down: 1024 elements per work-group, twice the local memory they need."""
    each = 2 * _BLOCK
    places = [(f"lx+{half}", f"{each}*gx+lx+{half}") for half in (0, _BLOCK)]
    lines = [line for own, i in places for line in _when(f"{i} < n", f"part[{own}] = x[{i}]")]
    lines += [_BARRIER, *_up_and_down(each, "{0}")]
    lines += [line for own, i in places for line in _when(f"{i} < n", f"y[{i}] = part[{own}]")]
    return _scan("scan_brent_kung", each, lines, 2 * each)


def _up_and_down(length: int, word: str) -> Iterator[str]:
    """Yield Brent and Kung's scan of `length` values, of which number i is at ``word.format(i)``."""
    strides = [2**power for power in range(length.bit_length() - 1)]
    for s in strides:
        place = f"{2 * s}*lx+{2 * s - 1}"
        target, source = word.format(f"({place})"), word.format(f"({place}-{s})")
        added = f"part[{target}] = part[{target}] + part[{source}] {{id=up{s}}}"
        yield from (*_when(f"{place} < {length}", added), _BARRIER)
    for s in reversed(strides[:-1]):
        place = f"{2 * s}*lx+{2 * s - 1}"
        target, source = word.format(f"({place}+{s})"), word.format(f"({place})")
        added = f"part[{target}] = part[{target}] + part[{source}] {{id=down{s}}}"
        yield from (*_when(f"{place}+{s} < {length}", added), _BARRIER)


def _scan(name: str, per_group: int, lines: list[str], words: int, *loops: str) -> lp.TranslationUnit:
    last = _when(f"lx == {_BLOCK - 1}", f"totals[gx] = part[{per_group - 1}] {{id=total}}")
    data = f"uint32 x[n], y[n], totals[{_count(per_group)}]; local uint32 part[{words}]"
    return make(name, [_groups(per_group), *loops], "\n".join([*lines, *last]), data)


@cache
def scan_three_phase() -> lp.TranslationUnit:
    """One launch of the scan whose work-items add up eight elements each, then their ends by a tree."""
    each, section, end = _SECTION * _BLOCK, _SECTION, _SECTION - 1
    loading, storing = f"{each}*gx+{_BLOCK}*r+lx", f"{each}*gx+{_BLOCK}*q+lx"
    body = f"""
    for r
        if {loading} < n
            part[{_BLOCK}*r+lx] = x[{loading}] {{id=load}}
        end
    end
    {_BARRIER}
    for k
        part[{section}*lx+k+1] = part[{section}*lx+k+1] + part[{section}*lx+k] {{id=own, nosync=own}}
    end
    {_BARRIER}
    TREE
    for j
        if lx >= 1
            part[{section}*lx+j] = part[{section}*lx+j] + part[{section}*lx-1] {{id=shift, nosync=shift}}
        end
    end
    {_BARRIER}
    for q
        if {storing} < n
            y[{storing}] = part[{_BLOCK}*q+lx] {{id=store}}
        end
    end
    """
    tree = "\n".join(_up_and_down(_BLOCK, f"{section}*{{0}}+{end}"))
    lines = textwrap.dedent(body).replace("TREE", tree).splitlines()
    loops = [
        f"{{[{name}]: 0<={name}<{count}}}" for name, count in (("r", section), ("k", end), ("j", end), ("q", section))
    ]
    return _scan("scan_three_phase", each, lines, each, *loops)


@cache
def add_totals(per_group: int) -> lp.TranslationUnit:
    """Add the sum of all elements before them to the elements of each work-group's part but the first."""
    place = f"{per_group}*gx+{per_group}+lx+{_BLOCK}*r"
    domains = [
        f"{{[gx,lx]: 0<=lx<{_BLOCK} and 0<=gx and {per_group}*gx+{per_group}<n}}",
        f"{{[r]: 0<=r<{per_group // _BLOCK}}}",
    ]
    body = f"""
    for r
        if {place} < n
            y[{place}] = y[{place}] + totals[gx] {{id=add}}
        end
    end
    """
    data = f"uint32 y[n], totals[{_count(per_group)}]"
    return make(f"add_totals_{per_group}", domains, body, data, assume=f"n >= {per_group + 1}")


_LIBRARY = "{[gx,lx]: 0<=lx<256 and 0<=gx and 256*gx+lx<n}"


@cache
def copy() -> lp.TranslationUnit:
    return make("copy", _LIBRARY, "y[256*gx+lx] = x[256*gx+lx]", "uint32 x[n], y[n]")


@cache
def fill() -> lp.TranslationUnit:
    return make("fill", _LIBRARY, "y[256*gx+lx] = 0", "uint32 y[n]")


# Chains of launches.


def reduction_launches(number: int, n: int) -> Launches:
    """Yield the launches of a reduction: the program's own, the fill before the first, the copies between them."""
    per_group = _BLOCK if number <= 3 else 2 * _BLOCK
    yield fill(), {"n": -(-n // per_group)}, 1
    while True:
        yield reduction(number), {"n": n}, 1
        n = -(-n // per_group)
        if n == 1:
            return
        yield copy(), {"n": n}, 1


SCANS = {
    "scan_kogge_stone": (scan_kogge_stone, _BLOCK),
    "scan_brent_kung": (scan_brent_kung, 2 * _BLOCK),
    "scan_three_phase": (scan_three_phase, _SECTION * _BLOCK),
}


def scan_launches(name: str, n: int) -> Launches:
    kernel, per_group = SCANS[name]
    yield kernel(), {"n": n}, 1
    groups = -(-n // per_group)
    if groups > 1:
        yield from scan_launches(name, groups)
        yield add_totals(per_group), {"n": n}, 1
