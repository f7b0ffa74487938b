"""Variables of loops that begin where data say: what they would be if the loops began with 0."""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from perflex.features.from_source.copies import replace
from perflex.features.from_source.expressions import Expressions
from perflex.features.from_source.integers import Integer, NotAffineError
from perflex.features.from_source.loop_headers import Header
from perflex.features.from_source.parsing import Node
from perflex.features.from_source.values import Unknown, Value

_ONES = {"x++": 1, "++x": 1, "x--": -1, "--x": -1}


def counted(value: Value, header: Header, key: Hashable, iteration: Integer, expressions: Expressions) -> Value:
    """Return a variable at the start of an iteration with what it would be if the loop began with 0.

    Of a variable that data set before the loop, and that the header or the end of the body adds the same to each time.
    """
    parts = [part for part in (header.step, header.body) if part is not None]
    steps, walk = [step for part in parts for step in _changes(part, key)], expressions.walk
    if not walk.stand_ins or not isinstance(value, Unknown) or len(steps) != 1:
        return value
    [step] = steps
    if step.kind == "UNARY_OPERATOR":
        each: Value = Integer.of(_ONES[step.sign])
    else:
        with walk.trial():
            each = expressions.value(step.children[1])
    if not isinstance(each, Integer):
        return value
    try:
        times = each.times(iteration, walk.sizes)
    except NotAffineError:
        return value
    subtracts = step.kind != "UNARY_OPERATOR" and step.binary_operator.name == "SubAssign"
    return replace(value, counted=times.scaled(-1) if subtracts else times)


def _changes(part: Node, key: Hashable) -> Iterator[Node]:
    """Yield the expressions that add to a variable in the step of a loop, or as statements of its body."""
    for each in part.children if part.kind == "COMPOUND_STMT" else part.preorder():
        target = each.children[0].stripped if each.children else each
        adds = each.kind == "COMPOUND_ASSIGNMENT_OPERATOR" and each.binary_operator.name in {"AddAssign", "SubAssign"}
        adds = adds or (each.kind == "UNARY_OPERATOR" and each.sign in _ONES)
        if adds and target.kind == "DECL_REF_EXPR" and target.referenced is not None and target.referenced.key == key:
            yield each
