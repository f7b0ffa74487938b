"""Atomic updates of the data sets, described by hand: loopy has none of local memory.

All elements are zero in the data, so that all of them are counted in the first bin. An atomic update is one access, a
store, and the operation ``atomic``.
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
# Name, domain, accesses (array, direction, element), place and operations.
_Statement = tuple[str, str, list[tuple[str, str, str]], list[Any], list[str]]


def _grid(b: int) -> str:
    return f"0 <= g and {b}*g < n and 0 <= l < {b}"


def _scop(
    name: str, b: int, arrays: Mapping[str, object], statements: Sequence[_Statement], barriers: Sequence[int] = (),
    sizes: str = "n",
) -> Scop:  # fmt: skip
    """Return a kernel of work-groups g of b work-items l; ``part`` is in local memory, loops are in places."""
    inside: dict[int, str] = {}  # Loops by their place in the kernel: none is in another

    def described(name: str, domain: str, accesses: Any, place: list[Any], operations: list[str]) -> dict[str, Any]:
        loops = ", ".join(["g", "l", *place[1:2]])
        if place[1:]:
            inside[place[0]] = place[1]
        return {
            "name": name,
            "domain": f"[{sizes}] -> {{ [{loops}] : {domain} }}",
            "loops": [list(inside).index(place[0]) for _ in place[1:2]],
            "order": place[::2],
            "accesses": [
                {
                    "array": array,
                    "direction": direction,
                    "relation": f"[{sizes}] -> {{ [{loops}] -> [{element}] }}",
                    "atomic": "atomic" in operations and direction == "store",
                    # Which bin an element falls into no compiler can see.
                    "assumed": "the first bin" if "atomic" in operations and name == "count" and element == "0" else "",
                }
                for array, direction, element in accesses
            ],
            "operations": [{"kind": kind, "dtype": "uint32", "count": 1} for kind in operations],
        }

    found = [described(*one) for one in statements]
    spaces = {array: "local" if array == "part" else "global" for array in arrays}
    document = {
        "schema": "perflex-scop/2",
        "name": name,
        "parameters": sizes.split(", "),
        "assumptions": f"[{sizes}] -> {{ : {' and '.join(f'{size} >= 1' for size in sizes.split(', '))} }}",
        "launches": [
            {
                "groups": [f"floor((n + {b - 1})/{b})"],
                "items": [b],
                "loops": [{"name": name} for name in inside.values()],
            }
        ],
        "arrays": [
            {"name": array, "space": spaces[array], "dtype": "uint32", "shape": [size], "strides": [1]}
            for array, size in arrays.items()
        ],
        "statements": found,
        "barriers": [
            {"kind": "local", "domain": f"[n] -> {{ [g, l] : {_grid(b)} }}", "order": [place]} for place in barriers
        ],
    }
    return scop_from_yaml(json.dumps(document))


@cache
def histogram_global(b: int) -> Scop:
    """One update of global memory for each element; valid where the launch has a work-item for each bin."""
    i, inside = f"{b}*g + l", f"{_grid(b)} and {b}*g + l < n"
    statements: list[_Statement] = [
        ("clear", f"{_grid(b)} and {i} < {BINS}", [("bins", "store", i)], [0], []),
        ("read", inside, [("x", "load", i)], [2], []),
        ("count", inside, [("bins", "store", "0")], [3], ["atomic"]),
    ]
    return _scop("histogram_global", b, {"x": "n", "bins": BINS}, statements, [1])


@cache
def histogram_shared(b: int) -> Scop:
    """One update of local memory for each element; each work-group adds all of its bins to those in global memory."""
    i, place, inside = f"{b}*g + l", f"{b}*r + l", f"{_grid(b)} and {b}*g + l < n"
    own = f"{_grid(b)} and 0 <= r and {place} < {BINS}"
    statements: list[_Statement] = [
        ("clear", own, [("part", "store", place)], [0, "r", 0], []),
        ("read", inside, [("x", "load", i)], [2], []),
        ("count", inside, [("part", "store", "0")], [3], ["atomic"]),
        ("fetch", own, [("part", "load", place)], [5, "r", 0], []),
        ("add", own, [("bins", "store", place)], [5, "r", 1], ["atomic"]),
    ]
    return _scop("histogram_shared", b, {"x": "n", "bins": BINS, "part": BINS}, statements, [1, 4])


@cache
def histogram() -> Scop:
    counted = [("data", "load", "256*g + l"), ("part", "store", "0")]
    statements: list[_Statement] = [
        ("clear", _grid(256), [("part", "store", "l")], [0], []),
        ("count", f"{_grid(256)} and 256*g + l < n", counted, [2], ["bit", "atomic"]),
        ("add", _grid(256), [("part", "load", "l"), ("bins", "store", "l")], [4], ["atomic"]),
    ]
    return _scop("histogram", 256, {"data": "n", "bins": 256, "part": 256}, statements, [1, 3])


@cache
def atomic_hotspot() -> Scop:
    """Return additions to one counter."""
    domain = f"{_grid(256)} and 256*g + l < n and 0 <= k < iters"
    add: _Statement = ("add", domain, [("counter", "store", "0")], [0, "k", 0], ["atomic"])
    return _scop("atomic_hotspot", 256, {"counter": 1}, [add], sizes="n, iters")
