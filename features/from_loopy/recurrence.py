"""How an instruction's new value depends on a variable's old one: the operations in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.features.from_loopy.terms import factors, is_product, operands, terms_of

if TYPE_CHECKING:
    from perflex.features.from_loopy.expression import ExpressionReader


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
