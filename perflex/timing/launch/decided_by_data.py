"""What the data decide of a loopy kernel: which elements it touches, and how often its loops run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loopy.symbolic import WalkMapper, get_dependencies

from perflex.isl import isl

if TYPE_CHECKING:
    from collections.abc import Iterator


def decided_by_data(entry: Any) -> str:
    """Return the first subscript or loop of a kernel that the values in its arrays decide; empty where none is."""
    data = _data(entry)
    for instruction in entry.instructions:
        for subscript in _subscripts(instruction):
            if get_dependencies(subscript.index) & data:
                return f"which element {subscript} is"
    for domain in entry.domains:
        if set(domain.get_var_names(isl.dim_type.param)) & data:
            return f"how often loop {', '.join(domain.get_var_names(isl.dim_type.set))} runs"
    return ""


def _data(entry: Any) -> set[str]:
    """Return the names of arrays that a kernel is given, and of all that it computes from them."""
    from loopy.kernel.data import ValueArg

    found = {argument.name for argument in entry.args if not isinstance(argument, ValueArg)}
    before = 0
    while len(found) > before:
        before = len(found)
        for instruction in entry.instructions:
            if instruction.read_dependency_names() & found:
                found |= set(instruction.assignee_var_names())
    return found


class _Subscripts(WalkMapper):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Any] = []

    def map_subscript(self, expr: Any) -> None:
        self.found.append(expr)
        super().map_subscript(expr)


def _subscripts(instruction: Any) -> Iterator[Any]:
    mapper = _Subscripts()

    def look(expression: Any) -> Any:
        mapper(expression)
        return expression

    instruction.with_transformed_expressions(look)
    yield from mapper.found
