"""Operations and array accesses of one loopy expression."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["ExpressionReader", "RawAccess"]

# Library functions under the names that OpenCL and C give them -> the operation's name in features.
_FUNCTION_NAMES = {
    "fabs": "abs",
    "fmin": "min",
    "fmax": "max",
    "isnan": "cmp",
    "real": "",
    "imag": "",
}


@dataclass(frozen=True)
class RawAccess:
    """An array access as loopy has it: name, subscript expressions, tag."""

    array: str
    indices: tuple[Any, ...]
    tag: str | None
    text: str


@dataclass
class ExpressionReader:
    """Walk an expression, collecting operations by (kind, dtype) and array accesses.

    A multiply-add is recognised wherever a product feeds a sum of the same type (paper Section 5):
    ``a*b + c`` is one, ``a*b + c*d`` is one and a multiplication. Arithmetic inside subscripts is not
    counted; a factor of 1 or -1 is a sign, not a multiplication.

    Parameters
    ----------
    dtype_of
        Gives the numpy dtype of a sub-expression.
    is_array
        Tells whether a name is an array (as opposed to a scalar, loop variable or size).
    function_name
        Gives a function's own name: loopy numbers a function's versions for different types.
    kernel_name, insn_id
        For messages.
    """

    dtype_of: Callable[[Any], Any]
    is_array: Callable[[str], bool]
    function_name: Callable[[str], str]
    kernel_name: str
    insn_id: str
    operations: Counter[tuple[str, str]] = field(default_factory=Counter)
    accesses: list[RawAccess] = field(default_factory=list)
    conditional: bool = False

    def read(self, expr: Any) -> None:
        """Add what `expr` does."""
        if _is_constant(expr):
            return
        method = expr.mapper_method
        handler = getattr(self, f"_{method}", None)
        if handler is None:
            self._refuse(f"has an expression of kind {type(expr).__name__} ({expr})")
        else:
            handler(expr)

    def _refuse(self, what: str) -> None:
        msg = (
            f"instruction {self.insn_id!r} of kernel {self.kernel_name!r} {what}, which cannot be counted; "
            "rewrite it with arithmetic, calls and subscripts"
        )
        raise UnsupportedKernelError(msg, kernel=self.kernel_name, instruction=self.insn_id)

    def _count(self, kind: str, expr: Any, times: int = 1) -> None:
        if times:
            self.operations[kind, str(self.dtype_of(expr))] += times

    # leaves

    def _map_variable(self, expr: Any) -> None:
        if self.is_array(expr.name):
            self.accesses.append(RawAccess(expr.name, (), None, str(expr.name)))

    def _map_tagged_variable(self, expr: Any) -> None:
        self._access(expr, ())

    def _map_nan(self, expr: Any) -> None:
        pass

    def _map_subscript(self, expr: Any) -> None:
        self._access(expr.aggregate, expr.index_tuple)

    def _access(self, aggregate: Any, indices: tuple[Any, ...]) -> None:
        name = getattr(aggregate, "name", None)
        if name is None:
            self._refuse(f"subscripts {aggregate}, which is not an array")
            return
        tags: frozenset[Any] = getattr(aggregate, "tags", frozenset())
        tag = next((str(getattr(t, "value", t)) for t in sorted(tags, key=str)), None)
        text = f"{name}[{', '.join(map(str, indices))}]" if indices else str(name)
        inner = replace(self, operations=Counter(), accesses=[], conditional=False)
        for index in indices:
            inner.read(index)
        if inner.accesses:
            msg = (
                f"access {text} in instruction {self.insn_id!r} of kernel {self.kernel_name!r} is indirect: its "
                f"subscript reads {inner.accesses[0].text}; which elements it touches depends on the data"
            )
            raise UnsupportedKernelError(msg, kernel=self.kernel_name, access=text)
        self.accesses.append(RawAccess(str(name), tuple(indices), tag, text))

    # arithmetic

    def _map_sum(self, expr: Any) -> None:
        terms = _terms(expr)
        for term in terms:
            self.read(term)
        additions = len(terms) - 1
        if additions <= 0:
            return
        dtype = self.dtype_of(expr)
        feeds = [_is_product(term) and self.dtype_of(term) == dtype for term in terms]
        # The generated code adds from left to right: of the first two terms one product at most is fused.
        fused = int(feeds[0] or feeds[1]) + sum(feeds[2:])
        self.operations["mul", str(dtype)] -= fused
        if not self.operations["mul", str(dtype)]:
            del self.operations["mul", str(dtype)]
        self._count("madd", expr, fused)
        self._count("add", expr, additions - fused)

    def _map_product(self, expr: Any) -> None:
        for factor in _factors(expr):
            self.read(factor)
        self._count("mul", expr, max(0, len(_factors(expr)) - 1))

    def _map_quotient(self, expr: Any) -> None:
        self.read(expr.numerator)
        self.read(expr.denominator)
        self._count("div", expr)

    def _map_floor_div(self, expr: Any) -> None:
        self.read(expr.numerator)
        self.read(expr.denominator)
        self._count("floordiv", expr)

    def _map_remainder(self, expr: Any) -> None:
        self.read(expr.numerator)
        self.read(expr.denominator)
        self._count("mod", expr)

    def _map_power(self, expr: Any) -> None:
        self.read(expr.base)
        if _is_square(expr):  # generated as base*base
            self._count("mul", expr)
            return
        self.read(expr.exponent)
        if expr.exponent not in {0, 1}:
            self._count("pow", expr)

    # comparisons and bits

    def _map_comparison(self, expr: Any) -> None:
        self.read(expr.left)
        self.read(expr.right)
        self._count("cmp", expr.left if getattr(expr.left, "mapper_method", None) else expr.right)

    def _children(self, expr: Any, kind: str) -> None:
        for child in expr.children:
            self.read(child)
        self._count(kind, expr, len(expr.children) - 1)

    def _map_logical_and(self, expr: Any) -> None:
        self._logical(expr.children)

    def _map_logical_or(self, expr: Any) -> None:
        self._logical(expr.children)

    def _map_logical_not(self, expr: Any) -> None:
        self._logical((expr.child,))

    def _logical(self, children: tuple[Any, ...]) -> None:
        for child in children:
            self.read(child)

    def _map_bitwise_and(self, expr: Any) -> None:
        self._children(expr, "bit")

    _map_bitwise_or = _map_bitwise_and
    _map_bitwise_xor = _map_bitwise_and

    def _map_bitwise_not(self, expr: Any) -> None:
        self.read(expr.child)
        self._count("bit", expr)

    def _map_left_shift(self, expr: Any) -> None:
        self.read(expr.shiftee)
        self.read(expr.shift)
        self._count("shift", expr)

    _map_right_shift = _map_left_shift

    def _map_min(self, expr: Any) -> None:
        self._children(expr, "min")

    def _map_max(self, expr: Any) -> None:
        self._children(expr, "max")

    # structure

    def _map_if(self, expr: Any) -> None:
        # Both branches are summed: the cost under divergent control flow (paper Section 4).
        self.conditional = True
        self.read(expr.condition)
        self.read(expr.then)
        self.read(expr.else_)

    def _map_type_cast(self, expr: Any) -> None:
        self.read(expr.child)

    def _map_type_annotation(self, expr: Any) -> None:
        self.read(expr.child)

    def _map_call(self, expr: Any) -> None:
        for parameter in expr.parameters:
            self.read(parameter)
        function = expr.function
        name = getattr(function, "name", function)
        if not isinstance(name, str):  # a reduction's combiner, e.g. of an argmax
            name = type(name).__name__.lower()
        name = self.function_name(name)
        kind = _FUNCTION_NAMES.get(name, name)
        if kind:
            self._count(kind, expr)

    def _operations_only(self) -> ExpressionReader:
        return replace(self, is_array=lambda _: False, operations=Counter(), accesses=[], conditional=False)

    def path_from(self, expr: Any, name: str) -> list[tuple[str, str]] | None:
        """Return the operations (kind, dtype) between a variable and the value of `expr`.

        None where `expr` does not depend on the variable; the longest path where it does so repeatedly.
        """
        method = getattr(expr, "mapper_method", None)
        if method is None or method in {"map_subscript", "map_tagged_variable"}:
            return None
        if method == "map_variable":
            return [] if expr.name == name else None
        if method == "map_sum":
            return self._path_through_sum(expr, name)
        children = _factors(expr) if method == "map_product" else _children(expr)
        paths = [path for child in children if (path := self.path_from(child, name)) is not None]
        if not paths:
            return None
        own = self._operations_only()
        own.read(expr)
        for child in children:
            inner = self._operations_only()
            inner.read(child)
            own.operations.subtract(inner.operations)
        return max(paths, key=len) + [key for key, count in own.operations.items() for _ in range(max(0, count))]

    def _path_through_sum(self, expr: Any, name: str) -> list[tuple[str, str]] | None:
        terms = _terms(expr)
        dtype = self.dtype_of(expr)
        feeds = [_is_product(term) and self.dtype_of(term) == dtype for term in terms]
        longest: list[tuple[str, str]] | None = None
        for position, term in enumerate(terms):
            path = self.path_from(term, name)
            if path is None:
                continue
            # Added from left to right: every later addition waits for this term.
            first = max(1, position)
            additions = [
                ("madd" if feeds[k] or (k == 1 and feeds[0]) else "add", str(dtype)) for k in range(first, len(terms))
            ]
            if feeds[position] and ("mul", str(dtype)) in path and additions:
                path.remove(("mul", str(dtype)))  # fused into the first of these additions
            path = path + additions
            longest = path if longest is None or len(path) > len(longest) else longest
        return longest


_OPERANDS = (
    "children", "parameters", "numerator", "denominator", "base", "exponent", "left", "right", "child", "condition",
    "then", "else_", "shiftee", "shift",
)  # fmt: skip


def _children(expr: Any) -> list[Any]:
    """Return the operands of an expression node."""
    operands: list[Any] = []
    for name in _OPERANDS:
        value = getattr(expr, name, None)
        if value is not None:
            operands += value if isinstance(value, tuple) else [value]
    return operands


def _flattened(expr: Any, method: str) -> list[Any]:
    """Children of nested sums or products: code is generated without parentheses between them."""
    if getattr(expr, "mapper_method", None) != method:
        return [expr]
    return [inner for child in expr.children for inner in _flattened(child, method)]


def _factors(product: Any) -> list[Any]:
    return _folded([factor for factor in _flattened(product, "map_product") if not _is_sign(factor)])


def _terms(total: Any) -> list[Any]:
    return _folded([term for term in _flattened(total, "map_sum") if not _is_constant_zero(term)])


def _folded(operands: list[Any]) -> list[Any]:
    """Let the numbers that come first be one, as compilers do."""
    numbers = next((i for i, operand in enumerate(operands) if not _is_constant(operand)), len(operands))
    return operands[max(0, numbers - 1) :]


def _is_constant(expr: Any) -> bool:
    """Whether an expression is a number, or sums, products and quotients of numbers only."""
    method = getattr(expr, "mapper_method", None)
    if method in {"map_sum", "map_product"}:
        return all(_is_constant(child) for child in expr.children)
    if method == "map_quotient":
        return _is_constant(expr.numerator) and _is_constant(expr.denominator)
    return _is_number(expr)


def _is_number(expr: Any) -> bool:
    return getattr(expr, "mapper_method", None) is None


def _is_sign(expr: Any) -> bool:
    return _is_number(expr) and bool(expr in {1, -1})


def _is_constant_zero(expr: Any) -> bool:
    return _is_number(expr) and bool(expr == 0)


def _is_square(expr: Any) -> bool:
    return _is_number(expr.exponent) and bool(expr.exponent == 2)


def _is_product(expr: Any) -> bool:
    method = getattr(expr, "mapper_method", None)
    if method == "map_product" and not _is_constant(expr):
        factors = _factors(expr)
        return len(factors) >= 2 or any(_is_product(factor) for factor in factors)
    return method == "map_power" and _is_square(expr)
