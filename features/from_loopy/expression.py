"""Operations and array accesses of one loopy expression."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_loopy.facts import Branch, RawAccess, Where, Work
from perflex.features.from_loopy.terms import factors, is_constant, is_number, is_product, is_square, operands, terms_of
from perflex.features.scop.words import operation_of_function

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.from_loopy.facts import KernelFacts

# Library functions under the names that OpenCL and C give them -> the operation's name in features.
_FUNCTION_NAMES = {
    "fabs": "abs",
    "fmin": "min",
    "fmax": "max",
    "isnan": "cmp",
    "real": "",
    "imag": "",
    "make_tuple": "",
}
_ACCESSES = {"map_variable", "map_subscript", "map_tagged_variable", "map_lookup"}
# Base reduction of a segmented one -> what combining two values costs where no new segment begins.
_SEGMENTED = {"SumReductionOperation": "add", "ProductReductionOperation": "mul"}


class ExpressionReader:
    """Walk expressions as the generated code has them (`KernelTypes.assigned`).

    Operations and array accesses are collected. A multiply-add is recognised wherever a product feeds a sum of the
    same type (paper Section 5): ``a*b + c`` is one, ``a*b + c*d`` is one and a multiplication. A factor of 1 or -1 is
    a sign, not a multiplication. `work` is what was collected, by the instances that do it.
    """

    def __init__(self, facts: KernelFacts, space: Any, insn_id: str, where: Where | None = None) -> None:
        self.facts = facts
        self.types = facts.types
        self.space = space
        self.insn_id = insn_id
        self.where = where or Where()
        self._here = Work()
        self.work: dict[Where, Work] = {self.where: self._here}

    def _at(self, lanes: int) -> Work:
        if lanes == self.where.lanes:
            return self._here
        return self.work.setdefault(replace(self.where, lanes=lanes), Work())

    @property
    def operations(self) -> Counter[tuple[str, str]]:
        """Operations over all instances."""
        total: Counter[tuple[str, str]] = Counter()
        for work in self.work.values():
            total += work.operations
        return total

    def operations_of(self, expr: Any) -> Counter[tuple[str, str]]:
        """Return the operations of an expression by itself; nothing is added to `work`."""
        apart = ExpressionReader(self.facts, self.space, self.insn_id)
        apart.read(expr)
        return apart.operations

    @property
    def loads(self) -> list[RawAccess]:
        """Loads over all instances."""
        return [access for work in self.work.values() for access in work.loads]

    @contextmanager
    def only(self, branch: Branch) -> Iterator[None]:
        """Read what only some instances do."""
        outside = self.where, self._here
        self.where = replace(
            self.where,
            conditions=self.where.conditions + branch.conditions,
            guarded=self.where.guarded or branch.guarded,
        )
        self._here = self.work.setdefault(self.where, Work())
        try:
            yield
        finally:
            self.where, self._here = outside

    def read(self, expr: Any) -> None:
        """Add what `expr` does."""
        if is_constant(expr):
            return
        method = expr.mapper_method
        handler = getattr(self, f"_{method}", None)
        if handler is None:
            self._refuse(f"has an expression of kind {type(expr).__name__} ({expr})")
        else:
            handler(expr)

    def write(self, assignee: Any) -> None:
        """Add the store to an assignee."""
        if getattr(assignee, "mapper_method", "") not in _ACCESSES:
            self._refuse(f"assigns to {assignee}")
        self._touch(assignee, "stores")

    def _touch(self, expr: Any, direction: str) -> None:
        """Add an access, unless the expression is a scalar or a loop variable."""
        method = expr.mapper_method
        if method == "map_variable" and not self.types.is_array(expr.name):
            return
        if method == "map_subscript":
            access = self._raw(expr.aggregate, expr.index_tuple)
        elif method == "map_lookup":
            access = self._component(expr)
        else:
            access = self._raw(expr, ())
        lanes = 1 if method == "map_lookup" else self.types.dtype_of(expr)[1]
        getattr(self._at(lanes), direction).append(access)

    def _refuse(self, what: str) -> None:
        msg = (
            f"instruction {self.insn_id!r} of kernel {self.facts.kernel.name!r} {what}, which cannot be counted; "
            "rewrite it with arithmetic, calls and subscripts"
        )
        raise UnsupportedKernelError(msg, kernel=self.facts.kernel.name, instruction=self.insn_id)

    def branches(self, condition: Any) -> tuple[Branch, Branch]:
        """Return which instances find that a condition holds, and which that it does not."""
        return self.facts.branches(condition, self.space)

    def count(self, kind: str, expr: Any, times: int = 1) -> None:
        """Add operations of one kind on values of an expression's type."""
        if times:
            dtype, lanes = self.types.dtype_of(expr)
            self._at(lanes).operations[kind, dtype] += times

    def add_operations(self, kind: str, dtype: str, times: int) -> None:
        """Add operations of one kind and type."""
        if times:
            self._here.operations[kind, dtype] += times

    # leaves

    def _map_variable(self, expr: Any) -> None:
        self._touch(expr, "loads")

    _map_tagged_variable = _map_subscript = _map_lookup = _map_variable

    def _map_nan(self, expr: Any) -> None:
        pass

    def _component(self, expr: Any) -> RawAccess:
        """Return the access to one component of a vector, as in ``x[i].s0``."""
        # OpenCL C's names of vector components.
        fields = {f"s{i:x}": i for i in range(16)} | {"x": 0, "y": 1, "z": 2, "w": 3}
        inner = expr.aggregate
        self.types.dtype_of(inner)  # a vector, no structure
        if getattr(inner, "mapper_method", "") != "map_subscript" or expr.name not in fields:
            self._refuse(f"looks up {expr}")
        access = self._raw(inner.aggregate, inner.index_tuple)
        return replace(access, indices=(*access.indices, fields[expr.name]), text=f"{access.text}.{expr.name}")

    def _raw(self, aggregate: Any, indices: tuple[Any, ...]) -> RawAccess:
        name = getattr(aggregate, "name", None)
        if name is None:
            self._refuse(f"subscripts {aggregate}, which is not an array")
        tags: frozenset[Any] = getattr(aggregate, "tags", frozenset())
        tag = next((str(getattr(t, "value", t)) for t in sorted(tags, key=str)), None)
        text = f"{name}[{', '.join(map(str, indices))}]" if indices else str(name)
        text = text.replace("\u0332", "")  # loopy underlines some functions' names
        before = len(self.loads)
        for index in indices:
            inner = ExpressionReader(self.facts, self.space, self.insn_id, self.where)
            inner.read(self.types.index(index))
            # What an index reads is read. Its arithmetic is not counted, as that of no subscript is: common
            # subexpression elimination makes this cost negligible (paper Section 6.1.2).
            for where, work in inner.work.items():
                self.work.setdefault(where, Work()).loads.extend(work.loads)
        read = self.loads[before:]
        return RawAccess(str(name), tuple(indices), tag, text, read[0].text if read else "")

    # arithmetic

    def _map_sum(self, expr: Any) -> None:
        terms = terms_of(expr)
        for term in terms:
            self.read(term)
        additions = len(terms) - 1
        if additions <= 0:
            return
        dtype, lanes = self.types.dtype_of(expr)
        feeds = [is_product(term) and self.types.dtype_of(term) == (dtype, lanes) for term in terms]
        # The generated code adds from left to right: of the first two terms one product at most is fused.
        fused = int(feeds[0] or feeds[1]) + sum(feeds[2:])
        operations = self._at(lanes).operations
        operations["mul", dtype] -= fused
        if not operations["mul", dtype]:
            del operations["mul", dtype]
        self.count("madd", expr, fused)
        self.count("add", expr, additions - fused)

    def _map_product(self, expr: Any) -> None:
        for factor in factors(expr):
            self.read(factor)
        self.count("mul", expr, max(0, len(factors(expr)) - 1))

    def _map_quotient(self, expr: Any) -> None:
        self.read(expr.numerator)
        self.read(expr.denominator)
        self.count("div", expr)

    def _map_floor_div(self, expr: Any) -> None:
        self._integer_division(expr, "floordiv")

    def _map_remainder(self, expr: Any) -> None:
        self._integer_division(expr, "mod")

    def _integer_division(self, expr: Any, kind: str) -> None:
        self.read(expr.numerator)
        self.read(expr.denominator)
        self.count(kind, expr)

    def _map_power(self, expr: Any) -> None:
        if is_number(expr.exponent) and expr.exponent == 0:
            return  # generated as 1
        self.read(expr.base)
        if is_square(expr):  # generated as base*base
            self.count("mul", expr)
            return
        self.read(expr.exponent)
        if expr.exponent != 1:
            self.count("pow", expr)

    # comparisons and bits

    def _map_comparison(self, expr: Any) -> None:
        self.read(expr.left)
        self.read(expr.right)
        self.add_operations("cmp", self.types.common_dtype(expr.left, expr.right), 1)

    def _children(self, expr: Any, kind: str) -> None:
        for child in expr.children:
            self.read(child)
        self.count(kind, expr, len(expr.children) - 1)

    def _map_logical_and(self, expr: Any) -> None:
        self._short_circuit(expr.children, goes_on_if=0)

    def _map_logical_or(self, expr: Any) -> None:
        self._short_circuit(expr.children, goes_on_if=1)

    def _short_circuit(self, children: tuple[Any, ...], goes_on_if: int) -> None:
        """Read conditions of which the generated code evaluates the next only if the last leaves it open."""
        self.read(children[0])
        if len(children) > 1:
            with self.only(self.branches(children[0])[goes_on_if]):
                self._short_circuit(children[1:], goes_on_if)

    def _map_bitwise_and(self, expr: Any) -> None:
        self._children(expr, "bit")

    _map_bitwise_or = _map_bitwise_and
    _map_bitwise_xor = _map_bitwise_and

    def _map_bitwise_not(self, expr: Any) -> None:
        self.read(expr.child)
        self.count("bit", expr)

    def _map_left_shift(self, expr: Any) -> None:
        self.read(expr.shiftee)
        self.read(expr.shift)
        self.count("shift", expr)

    _map_right_shift = _map_left_shift

    def _map_min(self, expr: Any) -> None:
        self._children(expr, "min")

    def _map_max(self, expr: Any) -> None:
        self._children(expr, "max")

    # structure

    def _map_if(self, expr: Any) -> None:
        self.read(expr.condition)
        # Where it is not known who takes which, both are summed: the cost under divergence (paper Section 4).
        for branch, chosen in zip(self.branches(expr.condition), (expr.then, expr.else_), strict=True):
            with self.only(branch):
                self.read(chosen)

    # Conversions count in Scops written by hand only (`convert`); of a cast or negation, its operand counts.
    def _map_type_cast(self, expr: Any) -> None:
        self.read(expr.child)

    _map_type_annotation = _map_logical_not = _map_type_cast

    def _map_call(self, expr: Any) -> None:
        for parameter in expr.parameters:
            self.read(parameter)
        function = expr.function
        name = getattr(function, "name", function)
        if not isinstance(name, str):
            self._combine(expr, name)
            return
        name = self.types.function_name(name)
        kind = _FUNCTION_NAMES.get(name, operation_of_function(name))
        if kind:
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
        else:
            # Generated as `segment_flag2 ? op2 : combined`: nothing is combined where a segment begins.
            with self.only(Branch(guarded=True)):
                self.count(kind, expr.parameters[0])


def path_from(reader: ExpressionReader, expr: Any, name: str) -> list[tuple[str, str]] | None:
    """Return the operations (kind, dtype) between a variable and the value of `expr`.

    None where `expr` does not depend on the variable; the longest path where it does so repeatedly.
    """
    method = getattr(expr, "mapper_method", None)
    if method is None or method in {"map_subscript", "map_tagged_variable"}:
        return None
    if method == "map_variable":
        return [] if expr.name == name else None
    if method == "map_sum":
        return _path_through_sum(reader, expr, name)
    children = factors(expr) if method == "map_product" else operands(expr)
    paths = [path for child in children if (path := path_from(reader, child, name)) is not None]
    if not paths:
        return None
    # Asked of the reader, so that chains and operation features agree on what an expression costs.
    own = reader.operations_of(expr)
    for child in children:
        own.subtract(reader.operations_of(child))
    return max(paths, key=len) + [key for key, count in own.items() for _ in range(max(0, count))]


def _path_through_sum(reader: ExpressionReader, expr: Any, name: str) -> list[tuple[str, str]] | None:
    terms = terms_of(expr)
    element = reader.types.dtype_of(expr)
    dtype = element[0]
    feeds = [is_product(term) and reader.types.dtype_of(term) == element for term in terms]
    longest: list[tuple[str, str]] | None = None
    for position, term in enumerate(terms):
        path = path_from(reader, term, name)
        if path is None:
            continue
        # Added from left to right: every later addition waits for this term.
        # n terms have n - 1 additions, of which the first joins the terms 0 and 1.
        first = max(1, position)
        additions = [("madd" if feeds[k] or (k == 1 and feeds[0]) else "add", dtype) for k in range(first, len(terms))]
        if feeds[position] and ("mul", dtype) in path and additions:
            path.remove(("mul", dtype))  # fused into the first of these additions
        path = path + additions
        longest = path if longest is None or len(path) > len(longest) else longest
    return longest
