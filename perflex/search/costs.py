"""What predictions are made of: seconds of each kind of cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.contributions import contributions
from perflex.expression.tree import Name, Product, Sum, evaluate, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.expression.model import Model
    from perflex.expression.tree import Node
    from perflex.search.variants import Variants

    Array = NDArray[np.float64]

KINDS = ("memory", "on-chip", "overhead", "other")


def feature_kind(identifier: str) -> str:
    """Return the kind of cost of a feature; accesses of which the identifier does not say the space are of memory."""
    from perflex.features import parse_feature

    return parse_feature(identifier).cost or "memory"


def variant_costs(variants: Variants, calibration: Calibration) -> dict[str, Array]:
    """Return seconds of each of `KINDS` in the predictions of variants, shape ``(len(variants),)``."""
    columns = variants.columns(calibration.model.input_features())
    return model_costs(calibration.model, calibration.params, columns, lambda name: _kind_of(name, variants, columns))


def _kind_of(name: str, variants: Variants, columns: Mapping[str, Array]) -> str:
    """Return a feature's kind of cost; what an access tag stands for is looked up in a kernel that has it."""
    from perflex.features import counts_of, extract_scop, parse_feature

    feature, place = parse_feature(name), int(np.argmax(columns[name]))
    if feature.cost or not columns[name][place] > 0:
        return feature_kind(name)
    scop = extract_scop(variants.kernel(place), variants.sizes[place])
    sizes = scop.checked(variants.sizes[place])
    spaces = {item.array.space for item in counts_of(scop).accesses if feature.covers(item, sizes)}
    return "on-chip" if spaces <= {"local", "private"} else "memory"


def model_costs(
    model: Model,
    params: Mapping[str, float],
    columns: Mapping[str, Array],
    kind_of: Callable[[str], str] = feature_kind,
) -> dict[str, Array]:
    """Return how much of each prediction is a cost of each of `KINDS`, shape ``(n,)``; together they are the whole.

    `columns` has the values of each input feature, shape ``(n,)``.
    """
    count = next((len(column) for column in columns.values()), 1)
    values: dict[str, Any] = {**columns, **{name: params[name] for name in model.params()}}
    found: dict[str, Any] = {}
    for sign, term, value in contributions(model.tree, values):
        for kind, share in _shares(term, values, kind_of).items():
            found[kind] = found.get(kind, 0.0) + sign * share * value
    return {kind: np.array(np.broadcast_to(found.get(kind, 0.0), (count,)), dtype=np.float64) for kind in KINDS}


def dominating(costs: Mapping[str, Array]) -> tuple[list[str], Array]:
    """Return the kind of the largest cost of each prediction and its share, shape ``(n,)``."""
    # A calibration may allow negative costs; those dominate nothing.
    table = np.stack([np.maximum(costs[kind], 0.0) for kind in KINDS])
    total = table.sum(axis=0)
    largest = table.argmax(axis=0)
    with np.errstate(all="ignore"):
        share = np.where(total > 0, table.max(axis=0) / total, np.nan)
    return [KINDS[place] for place in largest], share


def _shares(node: Node, values: Mapping[str, Any], kind_of: Callable[[str], str]) -> dict[str, Any]:
    """Return the kinds of cost in a term, and the share of its value that each is."""
    if isinstance(node, Product):
        inner = [
            factor for power, factor in node.factors if power > 0 and isinstance(factor, Sum) and _features(factor)
        ]
        # Only one sum can be split by kind: the other factors scale each of its terms alike.
        if len(inner) == 1:
            return _shares(inner[0], values, kind_of)
    if not isinstance(node, Sum):
        return {_kind(node, kind_of): 1.0}
    whole = evaluate(node, values)
    total: dict[str, Any] = {}
    with np.errstate(all="ignore"):
        for sign, term in node.terms:
            part = np.where(np.asarray(whole) != 0, sign * np.asarray(evaluate(term, values)) / whole, 0.0)
            for kind, share in _shares(term, values, kind_of).items():
                total[kind] = total.get(kind, 0.0) + part * share
    return total


def _features(node: Node) -> list[str]:
    return [inner.identifier for inner in walk(node) if isinstance(inner, Name) and not inner.is_parameter]


def _kind(node: Node, kind_of: Callable[[str], str]) -> str:
    kinds = {kind_of(feature) for feature in _features(node)}
    # Without a feature it is a constant time.
    return next((kind for kind in ("memory", "on-chip", "other") if kind in kinds), "overhead")
