"""Atomic updates of the data sets, described by hand: loopy has none of local memory.

All elements are zero in the data, so that all of them are counted in the first bin. An atomic update is one access, a
store, with the operation ``atomic``.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any

from perflex.features import scop_from_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features import Scop

BINS = 512


def _grid(b: int) -> str:
    return f"0 <= g and {b}*g < n and 0 <= l < {b}"


def _statement(
    name: str,
    domain: str,
    accesses: Sequence[tuple[str, str, str]],
    schedule: list[int | str],
    operations: Sequence[str] = (),
) -> dict[str, Any]:
    """Return a statement of work-items l of work-groups g; loops are those of its schedule."""
    sizes = "n, iters" if "iters" in domain else "n"
    loops = ", ".join(["g", "l", *(step for step in schedule if isinstance(step, str))])
    return {
        "name": name,
        "domain": f"[{sizes}] -> {{ [{loops}] : {domain} }}",
        "schedule": schedule,
        "accesses": [
            {"array": array, "direction": direction, "relation": f"[{sizes}] -> {{ [{loops}] -> [{place}] }}"}
            for array, direction, place in accesses
        ],
        "operations": [{"kind": kind, "dtype": "uint32", "count": 1} for kind in operations],
    }


def _scop(
    name: str,
    b: int,
    arrays: Mapping[str, object],
    statements: list[dict[str, Any]],
    barriers: Sequence[int] = (),
    sizes: Sequence[str] = ("n",),
) -> Scop:
    """Return a kernel of work-groups of b work-items; ``part`` is in local memory."""
    document = {
        "schema": "perflex-scop/1",
        "name": name,
        "parameters": list(sizes),
        "assumptions": f"[{', '.join(sizes)}] -> {{ : {' and '.join(f'{size} >= 1' for size in sizes)} }}",
        "launches": [{"groups": [f"floor((n + {b - 1})/{b})"], "items": [b]}],
        "arrays": [
            {"name": array, "space": "local" if array == "part" else "global", "dtype": "uint32", "shape": [size]}
            | {"strides": [1]}
            for array, size in arrays.items()
        ],
        "statements": statements,
        "barriers": [
            {"kind": "local", "domain": f"[n] -> {{ [g, l] : {_grid(b)} }}", "schedule": [place]} for place in barriers
        ],
    }
    return scop_from_yaml(json.dumps(document))


@cache
def histogram_global(b: int) -> Scop:
    """One update of global memory for each element; valid where the launch has a work-item for each bin."""
    i = f"{b}*g + l"
    statements = [
        _statement("clear", f"{_grid(b)} and {i} < {BINS}", [("bins", "store", i)], [0]),
        _statement("read", f"{_grid(b)} and {i} < n", [("x", "load", i)], [2]),
        _statement("count", f"{_grid(b)} and {i} < n", [("bins", "store", "0")], [3], ["atomic"]),
    ]
    return _scop("histogram_global", b, {"x": "n", "bins": BINS}, statements, [1])


@cache
def histogram_shared(b: int) -> Scop:
    """One update of local memory for each element; each work-group adds all of its bins to those in global memory."""
    i, place = f"{b}*g + l", f"{b}*r + l"
    own = f"{_grid(b)} and 0 <= r and {place} < {BINS}"
    statements = [
        _statement("clear", own, [("part", "store", place)], [0, "r", 0]),
        _statement("read", f"{_grid(b)} and {i} < n", [("x", "load", i)], [2]),
        _statement("count", f"{_grid(b)} and {i} < n", [("part", "store", "0")], [3], ["atomic"]),
        _statement("fetch", own, [("part", "load", place)], [5, "r", 0]),
        _statement("add", own, [("bins", "store", place)], [5, "r", 1], ["atomic"]),
    ]
    return _scop("histogram_shared", b, {"x": "n", "bins": BINS, "part": BINS}, statements, [1, 4])


@cache
def histogram() -> Scop:
    """Return counts of 256 values, first in local memory, a bin to each of 256 work-items."""
    statements = [
        _statement("clear", _grid(256), [("part", "store", "l")], [0]),
        _statement(
            "count",
            f"{_grid(256)} and 256*g + l < n",
            [("data", "load", "256*g + l"), ("part", "store", "0")],
            [2],
            ["bit", "atomic"],
        ),
        _statement("add", _grid(256), [("part", "load", "l"), ("bins", "store", "l")], [4], ["atomic"]),
    ]
    return _scop("histogram", 256, {"data": "n", "bins": 256, "part": 256}, statements, [1, 3])


@cache
def atomic_hotspot() -> Scop:
    """Return additions to one counter: as compiled, one work-item of each sub-group adds for all of them."""
    domain = f"{_grid(256)} and 256*g + l < n and l mod 32 = 0 and 0 <= k < iters"
    add = _statement("add", domain, [("counter", "store", "0")], [0, "k", 0], ["atomic"])
    return _scop("atomic_hotspot", 256, {"counter": 1}, [add], sizes=("n", "iters"))
