"""Loops are told apart by where they stand: a kernel whose loops share names has the values of one whose do not."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from perflex import estimate_ecm
from perflex.features import scop_from_yaml
from support.every_feature import caches, everything

if TYPE_CHECKING:
    from collections.abc import Callable

    from perflex.features import Scop

HEAD = """
schema: perflex-scop/1
name: loops
parameters: [n]
assumptions: "[n] -> { : n >= 64 and n mod 64 = 0 }"
launches:
- {groups: ["floor(n/64)"], items: [64]}
arrays:
- {name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}
- {name: b, space: global, dtype: float64, shape: [n, n], strides: [n, 1]}
- {name: tile, space: local, dtype: float32, shape: [64], strides: [1]}
"""
SIZES = {"n": 128}
GRID = "0 <= g and 64g < n and 0 <= l < 64"


@dataclass
class Program:
    """A random kernel, written down with names for its loops."""

    name_of: Callable[[int, int], str]  # name of the loop with a number, at a depth
    choose: random.Random
    loops: int = 0
    variables: int = 0
    statements: list[str] = field(default_factory=list)
    barriers: list[str] = field(default_factory=list)

    def block(self, names: list[str], limits: list[str], schedule: list[Any], most: int) -> None:
        """Write some statements, barriers and loops that stand in a loop."""
        for place in range(self.choose.randint(1, most)):
            here = [*schedule, place]
            kind = self.choose.random()
            if kind < 0.5 and len(names) < 3:
                self.loops += 1
                name = self.name_of(self.loops, len(names))
                end = self.choose.choice(["3", "40", "n", "16", names[-1] if names else "n", "n + 1"])
                self.block([*names, name], [*limits, f"0 <= {name} < {end}"], [*here, name], 3)
            elif kind < 0.62 and not any(f" < {name}" in limit for limit in limits for name in names):
                self.barriers.append(self.entry("kind: local", names, limits, here))
            else:
                self.statement(names, limits, here)

    def entry(self, head: str, names: list[str], limits: list[str], schedule: list[Any]) -> str:
        domain = f"[n] -> {{ [{', '.join(['g', 'l', *names])}] : {' and '.join([GRID, *limits])} }}"
        return f'- {head}\n  domain: "{domain}"\n  schedule: [{", ".join(map(str, schedule))}]\n'

    def statement(self, names: list[str], limits: list[str], schedule: list[Any]) -> None:
        choose, dims = self.choose, ", ".join(["g", "l", *names])
        inner = names[-1] if names else "g"
        column = choose.choice([inner, "l", f"floor({inner}/4)", "0"])
        places = {"a": f"64g + l, {column}", "b": f"{inner}, 64g + l", "tile": choose.choice(["l", "63 - l"])}
        accesses = [
            f"  - {{array: {array}, direction: {choose.choice(['load', 'load', 'store'])}, "
            f'relation: "{{ [{dims}] -> [{places[array]}] }}"}}\n'
            for array in choose.sample(sorted(places), choose.randint(0, 2))
        ]
        kind = choose.choice(["add", "madd", "div"])
        text = self.entry(f"name: s{len(self.statements)}", names, limits, schedule)
        text += f"  operations: [{{kind: {kind}, dtype: float32}}]\n"
        text += "  accesses:\n" + "".join(accesses) if accesses else ""
        variable = choose.choice("uv")
        if choose.random() < 0.5:
            text += f"  recurrence: {{variable: {variable}, operations: [{{kind: {kind}, dtype: float32}}]}}\n"
        elif choose.random() < 0.4:
            text += f"  assigns: {variable}\n"
        self.statements.append(text)

    def text(self) -> str:
        self.block([], [], [], 4)
        self.statement([], [], [9])
        barriers = "barriers:\n" + "".join(self.barriers) if self.barriers else ""
        return HEAD + "statements:\n" + "".join(self.statements) + barriers


def programs(seed: int) -> tuple[Scop, Scop]:
    """Return a random kernel whose loops all have names of their own, and it with one name for all loops at a depth."""
    ways = (lambda number, _: f"loop{number}", lambda _, depth: f"i{depth}")
    # No secret comes of it.
    apart, shared = (scop_from_yaml(Program(way, random.Random(seed)).text()) for way in ways)  # noqa: S311
    return apart, shared


@pytest.mark.parametrize("seed", [3, 5, 7, 8])
def test_names_that_loops_share_change_no_feature(seed: int) -> None:
    apart, shared = programs(seed)
    expected, found = dict(everything(apart, SIZES)), dict(everything(shared, SIZES))
    assert len(expected) > 50
    assert found == expected


@pytest.mark.parametrize("seed", [9, 12, 17])
def test_names_that_loops_share_change_no_cache_volume(seed: int) -> None:
    apart, shared = programs(seed)
    assert dict(caches(shared, SIZES)) == dict(caches(apart, SIZES))


TWO = """statements:
- name: first
  schedule: [0, {0}, 0, {1}, 0]
  domain: "[n] -> {{ [g, l, {0}, {1}] : {grid} and 0 <= {0} < {ends[0]} and {inner[0]} }}"
  accesses: [{{array: a, direction: load, relation: "{{ [g, l, {0}, {1}] -> [64g + l, {column}] }}"}}]
- name: second
  schedule: [1, {2}, 0, {3}, 0]
  domain: "[n] -> {{ [g, l, {2}, {3}] : {grid} and 0 <= {2} < {ends[1]} and {inner[1]} }}"
  accesses: [{{array: b, direction: load, relation: "{{ [g, l, {2}, {3}] -> [{3}, 64g + l] }}"}}]
"""


@pytest.mark.parametrize("column", ["{1}", "floor({1}/4)"])
@pytest.mark.parametrize("ends", [("16", "n"), ("n", "n")])
@pytest.mark.parametrize("triangles", [(True, True), (False, True), (False, False)])
def test_loops_of_one_name_are_several_for_caches(
    column: str, ends: tuple[str, str], triangles: tuple[bool, bool]
) -> None:
    """Triangles and divisions of one loop say nothing of another that is called alike."""

    def volumes(*names: str) -> list[float]:
        inner = [f"0 <= {names[2 * k + 1]} < {names[2 * k] if triangles[k] else 40}" for k in range(2)]
        text = TWO.format(*names, ends=ends, inner=inner, grid=GRID, column=column.format(*names))
        found = estimate_ecm(scop_from_yaml(HEAD + text), {"n": 512}, "clx", lanes=1)
        return [found.level(level).launch_load_bytes for level in ("L1", "L2", "L3")]

    assert volumes("i", "j", "i", "j") == volumes("i", "j", "p", "q")
