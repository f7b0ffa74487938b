"""Operations and array accesses of one loopy expression."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from loopy.symbolic import condition_to_set, get_dependencies
from pymbolic.primitives import Comparison, Sum, Variable

from perflex.features.from_loopy.generated import KernelFacts
from perflex.features.from_loopy.terms import all_numbers_are_integers, flat, method_of, operands
from perflex.features.scop.words import operation_of_function
from perflex.isl import isl

# Kind of a node -> the operation on its operands, on numbers of the node's type. Of a cast or negation, its operand
# counts.
_OPERATIONS = {
    "map_product": "mul", "map_quotient": "div", "map_floor_div": "floordiv", "map_remainder": "mod",
    "map_min": "min", "map_max": "max", "map_left_shift": "shift", "map_right_shift": "shift",
    **dict.fromkeys(("map_bitwise_and", "map_bitwise_or", "map_bitwise_xor", "map_bitwise_not"), "bit"),
    **dict.fromkeys(("map_type_cast", "map_type_annotation", "map_logical_not", "map_nan"), ""),
}  # fmt: skip
# Library functions -> the operation's name in features.
_FUNCTION_NAMES = {
    "fabs": "abs", "fmin": "min", "fmax": "max", "isnan": "cmp", "real": "", "imag": "", "make_tuple": "",
}  # fmt: skip
_NEUTRAL = {"map_product": (1, -1), "map_sum": (0,)}
_ACCESSES = {"map_variable", "map_subscript", "map_tagged_variable", "map_lookup"}
# Base reduction of a segmented one -> what combining two values costs where no new segment begins.
_SEGMENTED = {"SumReductionOperation": "add", "ProductReductionOperation": "mul"}
# OpenCL C's names of vector components.
_COMPONENTS = {f"s{i:x}": i for i in range(16)} | {"x": 0, "y": 1, "z": 2, "w": 3}


def _parts_of(expr: Any) -> list[Any]:
    """Return what a sum adds, all but zeros, what a product multiplies, all but signs, or the operands of others."""
    method = method_of(expr)
    if method not in _NEUTRAL:
        return operands(expr)
    found = [part for part in flat(expr, method) if method_of(part) or part not in _NEUTRAL[method]]
    # Compilers fold the numbers that come first into one; floating-point arithmetic is not associative.
    numbers = next((i for i, part in enumerate(found) if not _is_constant(part)), len(found))
    return found[max(0, numbers - 1) :]


def _is_constant(expr: Any) -> bool:
    """Whether an expression is a number, or sums, products and quotients of numbers only."""
    return method_of(expr) in {"", "map_sum", "map_product", "map_quotient"} and all(map(_is_constant, operands(expr)))


def _is_square(expr: Any) -> bool:
    """Whether a power has the exponent 2."""
    return not method_of(expr.exponent) and bool(expr.exponent == 2)


def _is_product(expr: Any) -> bool:
    """Whether an expression ends in a multiplication, which a sum can fuse."""
    if method_of(expr) == "map_product" and not _is_constant(expr):
        parts = _parts_of(expr)
        # A single factor beside a sign may be a square, as in -x**2: that is a product to fuse.
        return len(parts) >= 2 or any(map(_is_product, parts))
    return method_of(expr) == "map_power" and _is_square(expr)


@dataclass(frozen=True)
class Mask:
    """Which instances of an instruction do something, or take a branch."""

    conditions: tuple[Any, ...] = ()  # isl sets that all hold there, in loopy's names
    guarded: bool = False  # Whether a condition that is not among them may skip it
    lanes: int = 1  # Elements of the vectors it works on; 1 for scalars

    def within(self, other: Mask) -> Mask:
        """Return the instances that are in both."""
        return replace(self, conditions=self.conditions + other.conditions, guarded=self.guarded or other.guarded)


@dataclass(frozen=True)
class RawAccess:
    """An array access as loopy has it."""

    array: str
    indices: tuple[Any, ...]
    tag: str | None
    text: str
    indirect: str  # What its subscripts read, if anything
    direction: str


@dataclass
class Work:
    """Operations by (kind, dtype), and array accesses."""

    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    accesses: list[RawAccess] = field(default_factory=list)


class ExpressionReader:
    """Walks expressions as the generated code has them, and collects operations and array accesses in `work`.

    `vectorised` is the loop that is executed in vectors: what does not depend on it is done once for all its elements.
    """

    def __init__(self, facts: KernelFacts, space: Any, insn_id: str, vectorised: str = "") -> None:
        self.facts, self.space, self.insn_id, self.vectorised = facts, space, insn_id, vectorised
        self._for_all = False  # Whether what is read is done once for all elements
        self.mask = Mask()  # Instances that do what is read
        self.work: dict[Mask, Work] = defaultdict(Work, {self.mask: Work()})

    def _at(self, lanes: int) -> Work:
        return self.work[replace(self.mask, lanes=lanes)]

    def _apart(self, expr: Any) -> dict[Mask, Work]:
        """Return what `expr` does by itself; nothing is added to `work`."""
        outside, self.work = self.work, defaultdict(Work)
        self.read(expr)
        found, self.work = self.work, outside
        return found

    def operations_of(self, expr: Any) -> Counter[tuple[str, str]]:
        """Return the operations of an expression by itself."""
        return sum((work.operations for work in self._apart(expr).values()), start=Counter())

    def branches(self, condition: Any) -> tuple[Mask, Mask]:
        """Return where a condition holds, and where it does not."""
        method = method_of(condition)
        if method == "map_logical_not":
            holds, fails = self.branches(condition.child)
            return fails, holds
        # A loop that starts anywhere is described as starting at 0, where the condition may hold or not.
        decided = not get_dependencies(condition) & self.facts.displaced and all_numbers_are_integers(condition)
        known = condition_to_set(self.space, condition) if decided else None
        if known is not None:
            return Mask((known,)), Mask((isl.Set.universe(self.space).subtract(known),))
        unknown = Mask(guarded=True)
        if method not in {"map_logical_and", "map_logical_or"}:
            return unknown, unknown
        # Of what is joined with what depends on data, the rest still says where it is certainly decided.
        side = int(method == "map_logical_or")
        parts = [self.branches(child)[side] for child in condition.children]
        joined = Mask(tuple(one for part in parts for one in part.conditions), any(part.guarded for part in parts))
        return (unknown, joined) if side else (joined, unknown)

    @contextmanager
    def only(self, branch: Mask) -> Iterator[None]:
        """Read what only some instances do."""
        outside, self.mask = self.mask, self.mask.within(branch)
        self.work.setdefault(self.mask, Work())
        yield
        self.mask = outside

    def is_scalar(self, expr: Any) -> bool:
        """Return whether what is executed in vectors has one value of an expression for all elements."""
        return bool(self.vectorised) and self.vectorised not in get_dependencies(expr)

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Read what is done once for all elements of a vector: for the first of them."""
        first = condition_to_set(self.space, Comparison(Variable(self.vectorised), "==", 0))
        self._for_all = True
        with self.only(Mask((first,))):
            yield
        self._for_all = False

    def read(self, expr: Any) -> None:
        """Add what `expr` does."""
        if _is_constant(expr):
            return
        method = method_of(expr)
        if self.is_scalar(expr) and not self._for_all:
            with self._once():
                self.read(expr)
        elif method in _ACCESSES:
            self._touch(expr, "load")
        elif method in _OPERATIONS:
            self._all(expr, _OPERATIONS[method], len(_parts_of(expr)) - 1 if hasattr(expr, "children") else 1)
        elif method in {"map_logical_and", "map_logical_or"}:
            self._short_circuit(expr.children, goes_on_if=int(method == "map_logical_or"))
        elif (handler := getattr(self, f"_{method}", None)) is not None:
            handler(expr)
        else:
            self._refuse(f"has an expression of kind {type(expr).__name__} ({expr})")

    def _all(self, expr: Any, kind: str = "", times: int = 0) -> None:
        for part in _parts_of(expr):
            self.read(part)
        self.count(kind, expr, times)

    def count(self, kind: str, expr: Any, times: int = 1) -> None:
        """Add operations of one kind on values of an expression's type."""
        if kind and times:
            dtype, lanes = self.facts.dtype_of(expr)
            operations = self._at(lanes).operations
            operations[kind, dtype] += times
            if not operations[kind, dtype]:
                del operations[kind, dtype]

    def _refuse(self, what: str) -> NoReturn:
        msg = f"instruction {self.insn_id!r} {what}, which cannot be counted; use arithmetic, calls and subscripts"
        raise self.facts.refuse(msg, instruction=self.insn_id)

    # Accesses

    def write(self, assignee: Any) -> None:
        """Add the store to an assignee."""
        if method_of(assignee) not in _ACCESSES:
            self._refuse(f"assigns to {assignee}")
        with self._once() if self.is_scalar(assignee) else nullcontext():
            self._touch(assignee, "store")

    def _touch(self, expr: Any, direction: str) -> None:
        """Add an access, unless the expression is a scalar or a loop variable."""
        if method_of(expr) == "map_variable" and not self.facts.is_array(expr.name):
            return
        access = self._raw(expr, direction)
        lanes = 1 if method_of(expr) == "map_lookup" else self.facts.dtype_of(expr)[1]
        self._at(lanes).accesses.append(access)

    def _raw(self, expr: Any, direction: str) -> RawAccess:
        if method_of(expr) == "map_lookup":
            # One component of a vector, as in ``x[i].s0``.
            self.facts.dtype_of(expr.aggregate)  # a vector, no structure
            if method_of(expr.aggregate) != "map_subscript" or expr.name not in _COMPONENTS:
                self._refuse(f"looks up {expr}")
            whole = self._raw(expr.aggregate, direction)
            return replace(whole, indices=(*whole.indices, _COMPONENTS[expr.name]), text=f"{whole.text}.{expr.name}")
        array, indices = (expr.aggregate, expr.index_tuple) if method_of(expr) == "map_subscript" else (expr, ())
        name = getattr(array, "name", None)
        if name is None:
            self._refuse(f"subscripts {array}, which is not an array")
        tag = next((str(getattr(t, "value", t)) for t in sorted(getattr(array, "tags", ()), key=str)), None)
        text = f"{name}[{', '.join(map(str, indices))}]" if indices else str(name)
        text = text.replace("\N{COMBINING LOW LINE}", "")  # loopy underlines some functions' names
        read: list[RawAccess] = []
        for index in indices:
            # What an index reads is read. Its arithmetic is not counted, as that of no subscript is: common
            # subexpression elimination makes this cost negligible (paper Section 6.1.2).
            for mask, work in self._apart(self.facts.generated(index, "i")).items():
                self.work[mask].accesses += work.accesses
                read += work.accesses
        return RawAccess(str(name), tuple(indices), tag, text, read[0].text if read else "", direction)

    # Operations

    def _map_sum(self, expr: Any) -> None:
        terms = _parts_of(expr)
        self._all(expr)
        if len(terms) <= 1:
            return
        feeds = self.feeds(expr, terms)
        # A product that feeds a sum of its type is fused (paper Section 5). The generated code adds from left to right:
        # of the first two terms one product at most, so that a*b + c*d is a multiply-add and a multiplication.
        fused = int(feeds[0] or feeds[1]) + sum(feeds[2:])
        self.count("mul", expr, -fused)
        self.count("madd", expr, fused)
        self.count("add", expr, len(terms) - 1 - fused)

    def feeds(self, total: Any, terms: list[Any]) -> list[bool]:
        """Return for each term of a sum whether it is a product that an addition can fuse."""
        element = self.facts.dtype_of(total), self.is_scalar(total)
        return [_is_product(term) and (self.facts.dtype_of(term), self.is_scalar(term)) == element for term in terms]

    def _map_power(self, expr: Any) -> None:
        if _is_square(expr):  # generated as base*base
            self.read(expr.base)
            self.count("mul", expr)
        elif not (_is_constant(expr.exponent) and expr.exponent == 0):  # generated as 1
            self._all(expr, "pow", int(expr.exponent != 1))

    def _map_comparison(self, expr: Any) -> None:
        self._all(expr)
        dtype, _ = self.facts.dtype_of(Sum((expr.left, expr.right)))
        self._at(self.mask.lanes).operations["cmp", dtype] += 1

    def _short_circuit(self, children: tuple[Any, ...], goes_on_if: int) -> None:
        """Read conditions of which the generated code evaluates the next only if the last leaves it open."""
        self.test(children[0])
        if len(children) > 1:
            with self.only(self.branches(children[0])[goes_on_if]):
                self._short_circuit(children[1:], goes_on_if)

    def test(self, condition: Any) -> None:
        """Add what testing a condition does; arithmetic of what sizes and loop variables decide is as of subscripts."""
        joined = method_of(condition) in {"map_logical_and", "map_logical_or"}
        if method_of(condition) == "map_logical_not":
            self.test(condition.child)
        elif joined or self.branches(condition)[0].guarded:
            self.read(condition)

    def _map_if(self, expr: Any) -> None:
        self.test(expr.condition)
        # Where it is not known who takes which, both are summed: the cost under divergence (paper Section 4).
        branches = self.branches(expr.condition)
        for branch, chosen in zip(branches, (expr.then, expr.else_), strict=True):
            with self.only(branch):
                self.read(chosen)

    def _map_call(self, expr: Any) -> None:
        self._all(expr)
        name = getattr(expr.function, "name", expr.function)
        if not isinstance(name, str):
            self._combine(expr, name)
            return
        name = self.facts.function_name(name)
        kind = _FUNCTION_NAMES.get(name, operation_of_function(name))
        # What is compared has a type, the result has not; that of a complex absolute value is real.
        self.count(kind, expr.parameters[0] if kind in {"cmp", "abs"} else expr)

    def _combine(self, expr: Any, combiner: Any) -> None:
        """Count one step of a reduction over tuples: what is executed besides choosing between them."""
        name = type(combiner).__name__
        # loopy generates one comparison of op2 with op1; what follows only selects.
        if name == "ArgExtOp":
            self.count("cmp", expr.parameters[0])
            return
        reduction = getattr(combiner, "reduction_op", None)
        kind = _SEGMENTED.get(getattr(getattr(reduction, "base_reduction_class", None), "__name__", ""))
        if kind is None:
            self._refuse(f"combines values by {name} ({expr})")
        # Generated as `segment_flag2 ? op2 : combined`: nothing is combined where a segment begins.
        with self.only(Mask(guarded=True)):
            self.count(kind, expr.parameters[0])


def element_of(expr: Any) -> tuple[Any, ...]:
    """Return the name and subscripts of a variable or an element of an array, without tags."""
    subscripts = expr.index_tuple if method_of(expr) == "map_subscript" else ()
    return (expr.aggregate.name if subscripts else expr.name, *subscripts)


def path_from(reader: ExpressionReader, expr: Any, place: tuple[Any, ...]) -> list[tuple[str, str]] | None:
    """Return the operations (kind, dtype) on the longest path from an `element_of` to a value; None without one."""
    method = method_of(expr)
    if method in {"map_subscript", "map_tagged_variable", "map_variable"}:
        return [] if element_of(expr) == place else None
    children = _parts_of(expr)
    paths = {at: path for at, child in enumerate(children) if (path := path_from(reader, child, place)) is not None}
    if not paths:
        return None
    if method == "map_sum":
        dtype = reader.facts.dtype_of(expr)[0]
        feeds = reader.feeds(expr, children)
        for at, path in paths.items():
            # Every addition from this term on waits for it; the first one joins the terms 0 and 1.
            later = ["madd" if feeds[k] or (k == 1 and feeds[0]) else "add" for k in range(max(1, at), len(feeds))]
            if feeds[at] and ("mul", dtype) in path and later:
                path.remove(("mul", dtype))  # fused into the first of these additions
            path += [(kind, dtype) for kind in later]
        return max(paths.values(), key=len)
    # Asked of the reader, so that chains and operation features agree on what an expression costs.
    own = reader.operations_of(expr)
    for child in children:
        own.subtract(reader.operations_of(child))
    return max(paths.values(), key=len) + [key for key, count in own.items() for _ in range(max(0, count))]
