"""What a sub-group executes: the code that loopy prints for a kernel, run statement by statement in lock step.

Nothing here comes from perflex, nor from loopy's sets: the printed C is parsed, and every work-item of a sub-group has
its own value of each integer. Those that are active in a loop go round it together until the last one leaves; those
that are active at a condition take its branches together. What is stored in arrays and floating-point variables is not
looked at.
"""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import loopy as lp
import numpy as np
from pycparser import c_ast, c_parser

from .mended_loopy import mend

SECTOR = 32
_SUFFIX = re.compile(r"loopy_|_?(pos_b)?_?u?int\d+$")
_QUALIFIERS = re.compile(r"__kernel|__global|__local|__restrict__|__attribute__ \(\(.*?\)\)\)")


@dataclass
class Executed:
    """What all sub-groups of a launch execute: floating-point operations by kind, the others by array.

    Sectors have 32 bytes; steps are differences of the addresses of neighbouring work-items, in elements, by array.
    """

    operations: Counter[str] = field(default_factory=Counter)
    loads: Counter[str] = field(default_factory=Counter)
    sectors: Counter[str] = field(default_factory=Counter)
    steps: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))


def execute(kernel, sizes, groups, lanes):
    """Run all sub-groups of so many `lanes` of a kernel's launch; it has one, and arrays of one dimension."""
    mend()
    code = lp.generate_code_v2(kernel).device_code()
    size = re.search(r"reqd_work_group_size\((.*?)\)", code)
    assert size is not None
    items = tuple(map(int, size[1].split(",")))
    plain = _plain(code[code.index("__kernel") :])
    parsed = c_parser.CParser().parse(plain).ext[-1]
    kinds = re.findall(r"(float|double) (?:const )?\*\s*(\w+)", plain)
    arrays = {name: 8 if kind == "double" else 4 for kind, name in kinds}
    done = Executed()
    local = np.stack(np.unravel_index(np.arange(np.prod(items)), items, order="F"))
    for group in itertools.product(*map(range, groups)):
        for first in range(0, local.shape[1], lanes):
            part = local[:, first : first + lanes]
            _SubGroup(done, arrays, dict(sizes), group, part).execute(parsed.body, np.ones(part.shape[1], bool))
    return done


def _plain(code):
    """Return OpenCL C without what C has not."""
    return re.sub(r"barrier\(.*?\);", ";", _QUALIFIERS.sub("", re.sub(r"/\*.*?\*/", "", code)))


@dataclass
class _SubGroup:
    done: Executed
    arrays: Mapping[str, int]
    values: dict[str, Any]
    group: tuple[int, ...]
    local: np.ndarray

    def execute(self, node, active):
        if node is None or isinstance(node, c_ast.EmptyStatement) or not active.any():
            return
        if isinstance(node, c_ast.Decl) and node.init is None:
            return
        if isinstance(node, c_ast.Compound):
            for item in node.block_items or ():
                self.execute(item, active)
        elif isinstance(node, c_ast.For):
            self._loop(node, active)
        elif isinstance(node, c_ast.If):
            holds = np.broadcast_to(self._value(node.cond), active.shape).astype(bool)
            self.execute(node.iftrue, active & holds)
            self.execute(node.iffalse, active & ~holds)
        elif isinstance(node, c_ast.Decl) and node.type.type.names == ["int"]:
            self.values[node.name] = self._value(node.init)
        elif isinstance(node, c_ast.Decl):
            self._statement(c_ast.ID(node.name), node.init, active)
        elif isinstance(node, c_ast.Assignment):
            self._statement(node.lvalue, node.rvalue, active)
        else:
            raise NotImplementedError(type(node).__name__)

    def _loop(self, node, active):
        (declared,) = node.init.decls
        counter = np.broadcast_to(self._value(declared.init), active.shape).copy()
        while True:
            self.values[declared.name] = counter
            active = active & np.broadcast_to(self._value(node.cond), active.shape)
            if not active.any():
                return
            self.execute(node.stmt, active)
            counter = counter + 1

    def _statement(self, target, value, active):
        kinds = Counter()
        self._read(value, active, kinds)
        if isinstance(target, c_ast.ArrayRef):
            self._touch(target, active)
        self.done.operations.update(kinds)

    def _read(self, node, active, kinds):
        """Count the operations and loads of an expression; a product that is added is one multiply-add."""
        if isinstance(node, c_ast.ArrayRef):
            self.done.loads[node.name.name] += 1
            self._touch(node, active)
        elif isinstance(node, c_ast.BinaryOp):
            products = [part for part in (node.left, node.right) if isinstance(part, c_ast.BinaryOp) and part.op == "*"]
            fused = node.op == "+" and bool(products)
            kinds[{"+": "madd" if fused else "add", "*": "mul"}[node.op]] += 1
            kinds["mul"] -= fused
            self._read(node.left, active, kinds)
            self._read(node.right, active, kinds)
        elif not isinstance(node, (c_ast.ID, c_ast.Constant)):
            raise NotImplementedError(type(node).__name__)

    def _touch(self, node, active):
        name = node.name.name
        index = np.broadcast_to(self._value(node.subscript), active.shape)
        if name not in self.arrays:
            return
        self.done.sectors[name] += len(np.unique(index[active] * self.arrays[name] // SECTOR))
        both = active[1:] & active[:-1] & (np.diff(self.local[0]) == 1)
        self.done.steps[name] |= set(np.diff(index)[both].tolist())

    def _value(self, node):
        if isinstance(node, c_ast.Constant):
            found = np.int64(int(node.value))
        elif isinstance(node, c_ast.ID):
            found = self.values[node.name]
        elif isinstance(node, c_ast.UnaryOp):
            found = {"-": np.negative, "!": np.logical_not}[node.op](self._value(node.expr))
        elif isinstance(node, c_ast.TernaryOp):
            found = np.where(self._value(node.cond), self._value(node.iftrue), self._value(node.iffalse))
        elif isinstance(node, c_ast.FuncCall):
            name, arguments = node.name.name, [self._value(each) for each in node.args.exprs]
            places = {"lid": self.local, "gid": self.group}
            called = places[name].__getitem__ if name in places else _FUNCTIONS[_SUFFIX.sub("", name)]
            found = called(*arguments)
        else:
            found = _OPERATORS[node.op](self._value(node.left), self._value(node.right))
        return found


def _quotient(left, right):
    return np.sign(left) * np.sign(right) * (np.abs(left) // np.abs(right))


_FUNCTIONS = {"floor_div": np.floor_divide, "mod": np.mod, "max": np.maximum, "min": np.minimum}
_OPERATORS = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": _quotient, "%": lambda a, b: a - b * _quotient(a, b),
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "&&": np.logical_and, "||": np.logical_or,
}  # fmt: skip
