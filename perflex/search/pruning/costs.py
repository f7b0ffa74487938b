"""Which cost dominates a prediction: memory, on-chip work, overhead, or what else the model's terms stand for.

A feature stands for one kind of cost. A term's value counts as the kind of its costliest feature, products of a count
with a number of work-groups or the like as that of the count; an overlap or maximum counts as its largest argument, for
that hides the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.tree import Call, Name, Product, Sum, evaluate, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.tree import Node

    Array = NDArray[np.float64]

KINDS = ("memory", "on-chip", "overhead", "other")
# Functions whose arguments hide one another, and where those end that are times: others set how sharp an edge is.
_OVERLAPPING = {"max": None, "smooth_max": -1, "overlap": 2, "partial_overlap": 2}
_ON_CHIP = ("f_op_", "f_chain_", "f_inst_", "f_l1_", "f_lmem_")
_MEMORY = ("f_mem_", "f_vol_", "f_txn_", "f_su_v_", "f_ecm_")
_OVERHEAD = ("f_sync_", "f_thread_", "f_sub_groups", "f_wave", "f_occupancy", "f_oversub_", "f_su_imbalance")


def feature_kind(identifier: str, space: str | None = None) -> str:
    """Return the kind of cost that a feature stands for.

    Parameters
    ----------
    identifier
        Of the feature.
    space
        Address space of what it counts, where its identifier does not say so (an access tag).
    """
    if identifier.startswith("f_mem_"):
        parts = identifier.split("_")
        named = next((part for part in ("global", "local", "private") if part in parts), space)
        return "on-chip" if named in {"local", "private"} else "memory"
    for kind, beginnings in (("on-chip", _ON_CHIP), ("memory", _MEMORY), ("overhead", _OVERHEAD)):
        if identifier.startswith(beginnings):
            return kind
    return "other"


def model_costs(
    model: Model,
    params: Mapping[str, float],
    columns: Mapping[str, Array],
    kind_of: Callable[[str], str] = feature_kind,
) -> dict[str, Array]:
    """Return how much of each prediction is a cost of each kind.

    Parameters
    ----------
    model, params
        The model and its parameters.
    columns
        Values of each input feature, shape ``(n,)``.
    kind_of
        Kind of each feature.

    Returns
    -------
    dict
        For each of `KINDS` an array of shape ``(n,)`` in the output's unit; together they are the prediction.
    """
    count = next((len(column) for column in columns.values()), 1)
    values: dict[str, Any] = {**columns, **{name: params[name] for name in model.params()}}
    found = _costs(model.tree, values, kind_of)
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


def _costs(node: Node, values: Mapping[str, Any], kind_of: Callable[[str], str]) -> dict[str, Any]:
    if isinstance(node, Sum):
        total: dict[str, Any] = {}
        for sign, term in node.terms:
            for kind, cost in _costs(term, values, kind_of).items():
                total[kind] = total.get(kind, 0.0) + sign * cost
        return total
    if isinstance(node, Product):
        inner = [factor for power, factor in node.factors if power > 0 and _branches(factor) and _counts(factor)]
        # Only one sum or overlap can be split by kind: the other factors scale each of its costs alike.
        if len(inner) == 1:
            return _scaled(_costs(inner[0], values, kind_of), evaluate(node, values), evaluate(inner[0], values))
    if isinstance(node, Call) and node.function in _OVERLAPPING:
        return _of_largest(node, values, kind_of)
    return {_kind(node, kind_of): evaluate(node, values)}


def _of_largest(node: Call, values: Mapping[str, Any], kind_of: Callable[[str], str]) -> dict[str, Any]:
    """Give the value of an overlap to the costs of its largest argument."""
    arguments = node.arguments[: _OVERLAPPING[node.function]]
    sizes = np.broadcast_arrays(*(np.asarray(evaluate(argument, values)) for argument in arguments))
    largest = np.argmax(np.stack(sizes), axis=0)
    whole = evaluate(node, values)
    total: dict[str, Any] = {}
    for place, argument in enumerate(arguments):
        shares = _scaled(_costs(argument, values, kind_of), whole, sizes[place])
        for kind, cost in shares.items():
            total[kind] = total.get(kind, 0.0) + np.where(largest == place, cost, 0.0)
    return total


def _scaled(costs: Mapping[str, Any], whole: Any, part: Any) -> dict[str, Any]:
    with np.errstate(all="ignore"):
        factor = np.where(np.asarray(part) != 0, np.asarray(whole) / np.asarray(part), 0.0)
    return {kind: cost * factor for kind, cost in costs.items()}


def _branches(node: Node) -> bool:
    return isinstance(node, Sum) or (isinstance(node, Call) and node.function in _OVERLAPPING)


def _counts(node: Node) -> bool:
    return any(isinstance(inner, Name) and not inner.is_parameter for inner in walk(node))


def _kind(node: Node, kind_of: Callable[[str], str]) -> str:
    features = [inner.identifier for inner in walk(node) if isinstance(inner, Name) and not inner.is_parameter]
    if not features:
        return "overhead"  # a constant time
    kinds = {kind_of(feature) for feature in features}
    return next(kind for kind in ("memory", "on-chip", "other", "overhead") if kind in kinds)
