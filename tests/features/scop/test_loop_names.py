"""Loops are told apart by where they stand: any names, and names that loops share, change nothing."""

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from perflex.features import annotate, extract_scop, scop_from_yaml, scop_to_yaml, source_kernel
from support.every_feature import caches, everything
from support.places import Places
from support.written_kernels import written

SIZES = {"n": 128}
GRID, FITS = "i/64: g.0, l.0", "n mod 64 = 0 and n >= 64"
NAMES = ["lane", "lid0", "gid1", "gidx", "k_div"]


def same(one, other):
    for values in (everything, caches):
        assert dict(values(one, SIZES)) == dict(values(other, SIZES))


def looped(name, tag):
    """Sum four neighbours, in a loop of the name."""
    steps = f"{GRID}; {name}: {tag}" if tag else GRID
    data, domain = "x: float32[n, 64]; y: float32[n]", f"{{[i, {name}]: 0<=i<n and 0<={name}<4}}"
    return extract_scop(written(domain, f"y[i] = y[i] + x[i, {name}] {{id=add}}", data, steps, assume=FITS))


@pytest.mark.parametrize(("name", "tag"), [*((name, None) for name in NAMES), ("lane", "unr"), ("lane", "ilp")])
def test_loops_of_loopy_kernels(name, tag):
    scop = looped(name, tag)
    same(scop, looped("other", tag))
    assert scop_from_yaml(scop_to_yaml(scop)) == scop


def test_stated_trips_of_a_loop_with_such_a_name():
    def counted(name):
        domains = ["{[i]: 0<=i<n}", f"[m] -> {{[{name}]: 0<={name}<m}}"]
        text = f"for i\n <> m = first[i]\n y[i] = sum({name}, x[i + {name}])\nend"
        data = "x: float32[2*n]; first: int32[n]; y: float32[n]; n: int32"
        kernel = written(domains, text, data, GRID, assume=FITS)
        return extract_scop(annotate(kernel, trip_counts={name: 2.5}))

    scop = counted("lane")
    same(scop, counted("other"))
    assert scop_from_yaml(scop_to_yaml(scop)) == scop


FILE = """
schema: perflex-scop/2
name: sums
parameters: [n]
assumptions: "[n] -> {{ : n >= 64 and n mod 64 = 0 }}"
launches:
- {{groups: ["floor(n/64)"], items: [64], loops: [{{name: {0}}}]}}
arrays:
- {{name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}}
statements:
- name: add
  domain: "[n] -> {{ [g, l, {0}] : 0 <= g and 64g < n and 0 <= l < 64 and 0 <= {0} < 4 }}"
  loops: [0]
  order: [0, 0]
  accesses: [{{array: a, direction: load, relation: "{{ [g, l, {0}] -> [64g + l, {0}] }}"}}]
  operations: [{{kind: add, dtype: float32}}]
"""


@pytest.mark.parametrize("name", ["lane", "lid0", "gid1", "k_div"])
def test_loops_of_files(name):
    same(scop_from_yaml(FILE.format(name)), scop_from_yaml(FILE.format("k")))


SOURCE = """
kernel void sums(int n, global const float4 *x, global const float *z, global float *y) {
    int i = get_global_id(0);
    float sum = 0;
    for (int NAME = 0; NAME < 4; ++NAME)
        sum += x[4 * i + NAME].x * z[4 * i + NAME];
    y[i] = sum;
}
"""


@pytest.mark.parametrize("name", ["lane", "lid0", "gid0", "i1", "g0"])
def test_loops_of_source_code(name):
    texts = (SOURCE.replace("NAME", loop) for loop in (name, "k"))
    same(*(source_kernel(text, "sums", local=[64], global_size=["n"]).scop() for text in texts))


def test_loops_of_source_code_stand_in_their_order():
    """Also with more than nine of them, where names are no order."""
    loops = "\n".join(f"    for (int k = 0; k < n; ++k)\n        y[k + {number}] += 1;" for number in range(12))
    text = f"kernel void many(int n, global float *y) {{\n{loops}\n}}\n"
    scop = source_kernel(text, "many", local=[1], global_size=[1]).scop()
    places = [statement.order[0] for statement in scop.statements]
    assert places == list(range(places[0], places[0] + 12))


HEAD = """
schema: perflex-scop/2
name: loops
parameters: [n]
assumptions: "[n] -> { : n >= 64 and n mod 64 = 0 }"
launches:
- {groups: ["floor(n/64)"], items: [64], loops: LOOPS}
arrays:
- {name: a, space: global, dtype: float32, shape: [n, n], strides: [n, 1]}
- {name: b, space: global, dtype: float64, shape: [n, n], strides: [n, 1]}
- {name: tile, space: local, dtype: float32, shape: [64], strides: [1]}
"""
INSIDE = "0 <= g and 64g < n and 0 <= l < 64"


@dataclass
class Program:
    """A random kernel, written down with names for its loops."""

    name_of: Callable[[int], str]  # name of the loop with a number
    apart: bool  # whether statements have names of their own
    choose: random.Random
    loops: int = 0
    variables: int = 0
    statements: list[str] = field(default_factory=list)
    barriers: list[str] = field(default_factory=list)
    places: Places = field(default_factory=Places)

    def block(self, names, limits, schedule, most):
        """Write some statements, barriers and loops that stand in a loop."""
        for place in range(self.choose.randint(1, most)):
            here = [*schedule, place]
            kind = self.choose.random()
            if kind < 0.5 and len(names) < 3:
                self.loops += 1
                name = f"i{len(names)}"
                step = self.name_of(self.loops)
                end = self.choose.choice(["3", "40", "n", "16", names[-1] if names else "n", "n + 1"])
                self.block([*names, name], [*limits, f"0 <= {name} < {end}"], [*here, step], 3)
            elif kind < 0.62 and not any(f" < {name}" in limit for limit in limits for name in names):
                self.barriers.append(self.entry("kind: local", names, limits, here))
            else:
                self.statement(names, limits, here)

    def entry(self, head, names, limits, schedule):
        domain = f"[n] -> {{ [{', '.join(['g', 'l', *names])}] : {' and '.join([INSIDE, *limits])} }}"
        place = "".join(f"  {name}: {value}\n" for name, value in self.places.at(*schedule).items())
        return f'- {head}\n  domain: "{domain}"\n{place}'

    def statement(self, names, limits, schedule):
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
        text = self.entry(f"name: s{len(self.statements) * self.apart}", names, limits, schedule)
        text += f"  operations: [{{kind: {kind}, dtype: float32}}]\n"
        text += "  accesses:\n" + "".join(accesses) if accesses else ""
        variable = choose.choice("uv")
        if choose.random() < 0.5:
            text += f"  recurrence: {{variable: {variable}, operations: [{{kind: {kind}, dtype: float32}}]}}\n"
        elif choose.random() < 0.4:
            text += f"  resets: {variable}\n"
        self.statements.append(text)

    def text(self):
        self.block([], [], [], 4)
        self.statement([], [], [9])
        barriers = "barriers:\n" + "".join(self.barriers) if self.barriers else ""
        return (
            HEAD.replace("LOOPS", json.dumps(self.places.loops)) + "statements:\n" + "".join(self.statements) + barriers
        )


def programs(seed):
    """Return a random kernel whose loops and statements have names of their own, and it with one name for all."""
    ways = ("loop{}".format, True), (lambda _: "i", False)
    # No secret comes of it.
    apart, shared = (scop_from_yaml(Program(*way, random.Random(seed)).text()) for way in ways)  # noqa: S311
    return apart, shared


@pytest.mark.parametrize(("values", "seeds"), [(everything, (3, 5, 7)), (caches, (9, 17))], ids=["features", "caches"])
def test_names_that_loops_and_statements_share_change_nothing(values, seeds):
    for seed in seeds:
        apart, shared = programs(seed)
        expected = dict(values(apart, SIZES))
        assert len(expected) > (50 if values is everything else 4)
        assert dict(values(shared, SIZES)) == expected, seed
