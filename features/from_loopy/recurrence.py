"""How an instruction's new value depends on a variable's old one: the operations in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features.from_loopy.expression import ExpressionReader
from perflex.features.from_loopy.terms import factors, is_product, operands, terms_of

if TYPE_CHECKING:
    from collections import Counter

    from perflex.features.from_loopy.work import KernelFacts


def path_from(facts: KernelFacts, expr: Any, name: str) -> list[tuple[str, str]] | None:
    """Return the operations (kind, dtype) between a variable and the value of `expr`.

    None where `expr` does not depend on the variable; the longest path where it does so repeatedly.

    Parameters
    ----------
    facts
        What is known of the kernel.
    expr
        A loopy expression that `ExpressionReader` can read.
    name
        The variable.
    """
    method = getattr(expr, "mapper_method", None)
    if method is None or method in {"map_subscript", "map_tagged_variable"}:
        return None
    if method == "map_variable":
        return [] if expr.name == name else None
    if method == "map_sum":
        return _path_through_sum(facts, expr, name)
    children = factors(expr) if method == "map_product" else operands(expr)
    paths = [path for child in children if (path := path_from(facts, child, name)) is not None]
    if not paths:
        return None
    own = _operations(facts, expr)
    for child in children:
        own.subtract(_operations(facts, child))
    return max(paths, key=len) + [key for key, count in own.items() for _ in range(max(0, count))]


def _operations(facts: KernelFacts, expr: Any) -> Counter[tuple[str, str]]:
    reader = ExpressionReader(facts, "", "")
    reader.read(expr)
    return reader.operations


def _path_through_sum(facts: KernelFacts, expr: Any, name: str) -> list[tuple[str, str]] | None:
    terms = terms_of(expr)
    element = facts.dtype_of(expr)
    dtype = element[0]
    feeds = [is_product(term) and facts.dtype_of(term) == element for term in terms]
    longest: list[tuple[str, str]] | None = None
    for position, term in enumerate(terms):
        path = path_from(facts, term, name)
        if path is None:
            continue
        # Added from left to right: every later addition waits for this term.
        first = max(1, position)
        additions = [("madd" if feeds[k] or (k == 1 and feeds[0]) else "add", dtype) for k in range(first, len(terms))]
        if feeds[position] and ("mul", dtype) in path and additions:
            path.remove(("mul", dtype))  # fused into the first of these additions
        path = path + additions
        longest = path if longest is None or len(path) > len(longest) else longest
    return longest
