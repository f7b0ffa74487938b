"""Which cost dominates a prediction: memory, on-chip work, overhead, or what else the model's terms stand for.

A feature stands for one kind of cost. A term's value counts as the kind of its costliest feature, products of a count
with a number of work-groups or the like as that of the count; within an overlap each cost counts with what it adds, so
that one that is hidden counts for nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.expression.contributions import contributions
from perflex.expression.tree import Name, Product, Sum, evaluate, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from perflex.expression.model import Model
    from perflex.expression.tree import Node

    Array = NDArray[np.float64]

KINDS = ("memory", "on-chip", "overhead", "other")
# The first that an identifier begins with decides.
_BEGINNINGS = {
    **dict.fromkeys(("f_peak_group", "f_simd_item_", "f_simd_barrier_", "f_host_"), "overhead"),
    **dict.fromkeys(("f_sync_", "f_thread_", "f_sub_groups", "f_wave", "f_occupancy", "f_oversub_"), "overhead"),
    "f_su_imbalance": "overhead",
    **dict.fromkeys(("f_mem_", "f_vol_", "f_txn_", "f_su_v_", "f_ecm_", "f_traffic_"), "memory"),
    **dict.fromkeys(("f_peak_dram", "f_peak_l2"), "memory"),
    # Of updates in local memory; others go to L2.
    "f_peak_atomic_local": "on-chip",
    "f_peak_atomic": "memory",
    # Waiting for memory, local memory and arithmetic.
    "f_peak_latency": "other",
    "f_peak_exposed": "other",
    **dict.fromkeys(("f_op_", "f_chain_", "f_inst_", "f_l1_", "f_lmem_", "f_simd_", "f_code_", "f_peak_"), "on-chip"),
}


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
    return next((kind for beginning, kind in _BEGINNINGS.items() if identifier.startswith(beginning)), "other")


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
        inner = [factor for power, factor in node.factors if power > 0 and isinstance(factor, Sum) and _counts(factor)]
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


def _counts(node: Node) -> bool:
    return any(isinstance(inner, Name) and not inner.is_parameter for inner in walk(node))


def _kind(node: Node, kind_of: Callable[[str], str]) -> str:
    features = [inner.identifier for inner in walk(node) if isinstance(inner, Name) and not inner.is_parameter]
    if not features:
        return "overhead"  # a constant time
    kinds = {kind_of(feature) for feature in features}
    return next(kind for kind in ("memory", "on-chip", "other", "overhead") if kind in kinds)
