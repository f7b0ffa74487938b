"""Scops as JSON text: what is remembered, and what crosses process borders. Reading it parses nothing by isl."""

from __future__ import annotations

import hashlib
import json
from fractions import Fraction
from typing import Any

from perflex._islpy import isl
from perflex.features._polynomial_record import polynomial_from_record, polynomial_record
from perflex.features._quasipolynomial import QuasiPolynomial
from perflex.features._scop import Access, Array, Barrier, Launch, Operation, Recurrence, Scop, Statement
from perflex.features._scop_yaml import scop_document

__all__ = ["content_hash", "scop_from_text", "scop_to_text"]


def scop_to_text(scop: Scop) -> str:
    """Return the Scop as JSON; `scop_from_text` restores an equal Scop."""
    text: str | None = scop.__dict__.get("_text")
    if text is None:
        document = {**scop_document(scop), "validity": polynomial_record(scop.validity)}
        text = scop.__dict__["_text"] = json.dumps(document, separators=(",", ":"))
    return text


def content_hash(scop: Scop) -> str:
    """Return a digest of everything that counts depend on."""
    return text_hash(scop_to_text(scop))


def text_hash(text: str) -> str:
    """Return the digest of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def scop_from_text(text: str) -> Scop:
    """Return the Scop that `scop_to_text` wrote; unlike with YAML, nothing is checked."""
    document = json.loads(text)
    names = tuple(document["parameters"])
    return Scop.with_texts(
        {"assumptions": (isl.Set, document["assumptions"])},
        name=document["name"],
        parameters=names,
        launches=tuple(
            Launch(_kept(launch["groups"]), tuple(launch["items"]), QuasiPolynomial.kept(launch["repeats"]))
            for launch in document["launches"]
        ),
        arrays=tuple(
            Array(
                array["name"],
                array["space"],
                array["dtype"],
                _kept(array["shape"]),
                _kept(array["strides"]),
                array["alignment"],
            )
            for array in document["arrays"]
        ),
        statements=tuple(_statement(item, names) for item in document["statements"]),
        barriers=tuple(_barrier(item, names) for item in document["barriers"]),
        validity=polynomial_from_record(document["validity"]),
        _text=text,
    )


def _kept(texts: list[str]) -> tuple[QuasiPolynomial, ...]:
    return tuple(QuasiPolynomial.kept(text) for text in texts)


def _statement(item: dict[str, Any], names: tuple[str, ...]) -> Statement:
    recurrence = item["recurrence"]
    return Statement.with_texts(
        {"domain": (isl.Set, item["domain"])},
        names,
        name=item["name"],
        accesses=tuple(_access(access, names) for access in item["accesses"]),
        operations=_operations(item["operations"]),
        launch=item["launch"],
        schedule=tuple(item["schedule"]),
        guarded=item["guarded"],
        recurrence=None
        if recurrence is None
        else Recurrence(recurrence["variable"], _operations(recurrence["operations"])),
        assigns=item["assigns"],
        averages=_averages(item["averages"]),
        stated=item["stated"],
    )


def _access(item: dict[str, Any], names: tuple[str, ...]) -> Access:
    return Access.with_texts(
        {"relation": (isl.Map, item["relation"])},
        names,
        array=item["array"],
        direction=item["direction"],
        tag=item["tag"],
        text=item["text"],
        strides=None if item["strides"] is None else _kept(item["strides"]),
        distinct=item["distinct"],
        stated=item["stated"],
    )


def _barrier(item: dict[str, Any], names: tuple[str, ...]) -> Barrier:
    return Barrier.with_texts(
        {"domain": (isl.Set, item["domain"])},
        names,
        kind=item["kind"],
        launch=item["launch"],
        schedule=tuple(item["schedule"]),
        averages=_averages(item["averages"]),
    )


def _operations(items: list[dict[str, Any]]) -> tuple[Operation, ...]:
    return tuple(Operation(item["kind"], item["dtype"], item["count"]) for item in items)


def _averages(items: dict[str, str]) -> tuple[tuple[str, Fraction], ...]:
    return tuple((loop, Fraction(average)) for loop, average in items.items())
