"""Scops as JSON text: in the store, and on the way to other processes. Reading it parses nothing by isl."""

from __future__ import annotations

import copyreg
import hashlib
import json
from fractions import Fraction
from functools import lru_cache
from typing import Any

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial, polynomial_from_record, polynomial_record
from perflex.features.scop.scop import (
    Access,
    Array,
    Barrier,
    Launch,
    Operation,
    Recurrence,
    Scop,
    Statement,
    require_scop,
)
from perflex.features.scop.yaml import scop_document
from perflex.isl import isl


def scop_to_text(scop: Scop) -> str:
    """Return the Scop as JSON; `scop_from_text` restores an equal Scop."""

    def compute() -> str:
        document = {**scop_document(scop), "validity": polynomial_record(scop.validity)}
        # Fields in their order, no spaces: `content_hash` digests this very text.
        return json.dumps(document, separators=(",", ":"))

    return scop.derived("text", (), compute)


def content_hash(scop: Scop) -> str:
    """Return a digest of everything that counts depend on."""
    require_scop(scop)
    return scop.derived("content hash", (), lambda: hashlib.sha256(scop_to_text(scop).encode()).hexdigest())


def scop_from_text(text: str) -> Scop:
    """Return the Scop that `scop_to_text` wrote; unlike with YAML, nothing is checked."""
    document = json.loads(text)
    names = tuple(document["parameters"])
    values = {
        "name": document["name"],
        "parameters": names,
        "launches": tuple(
            Launch(
                _polynomials(launch["groups"]),
                tuple(launch["items"]),
                QuasiPolynomial.unparsed(launch["repeats"]),
                tuple(launch["host_loops"]),
                tuple(launch["unrolled"]),
            )
            for launch in document["launches"]
        ),
        "arrays": tuple(_array(item) for item in document["arrays"]),
        "statements": tuple([_statement(item, names) for item in document["statements"]]),
        "barriers": tuple([_barrier(item, names) for item in document["barriers"]]),
        "numbered": True,
        # Checking sizes reads its pieces only, so that nothing needs to be parsed.
        "validity": polynomial_from_record(document["validity"]),
    }
    scop = Scop.with_texts(values, {"assumptions": (isl.Set, document["assumptions"])})
    # Writing it again would parse all of isl's texts.
    scop.derived("text", (), lambda: text)
    return scop


def _array(item: dict[str, Any]) -> Array:
    shape, strides = _polynomials(item["shape"]), _polynomials(item["strides"])
    return Array(item["name"], item["space"], item["dtype"], shape, strides, item["alignment"])


def _polynomials(texts: list[str]) -> tuple[QuasiPolynomial, ...]:
    return tuple(QuasiPolynomial.unparsed(text) for text in texts)


def _statement(item: dict[str, Any], names: tuple[str, ...]) -> Statement:
    """Make a statement of what `json` read, which is used up."""
    # Popped: left among the values, the text would be taken for the parsed field.
    texts = {"domain": (isl.Set, item.pop("domain"))}
    item["accesses"] = tuple([_access(access, names) for access in item["accesses"]])
    item["operations"] = _operations(item["operations"])
    item["schedule"] = tuple(item["schedule"])
    item["averages"] = _averages(item["averages"]) if item["averages"] else ()
    recurrence = item["recurrence"]
    if recurrence is not None:
        item["recurrence"] = Recurrence(recurrence["variable"], _operations(recurrence["operations"]))
    return Statement.with_texts(item, texts, names)


def _access(item: dict[str, Any], names: tuple[str, ...]) -> Access:
    texts = {"relation": (isl.Map, item.pop("relation"))}
    if item["strides"] is not None:
        item["strides"] = _polynomials(item["strides"])
    return Access.with_texts(item, texts, names)


def _barrier(item: dict[str, Any], names: tuple[str, ...]) -> Barrier:
    texts = {"domain": (isl.Set, item.pop("domain"))}
    item["schedule"] = tuple(item["schedule"])
    item["averages"] = _averages(item["averages"])
    return Barrier.with_texts(item, texts, names)


def _operations(items: list[dict[str, Any]]) -> tuple[Operation, ...]:
    return tuple([_operation(item["kind"], item["dtype"], item["count"]) for item in items])


# Most operations of a kernel are equal: they share one object.
_operation = lru_cache(maxsize=1024)(Operation)


def _averages(items: dict[str, str]) -> tuple[tuple[str, Fraction], ...]:
    return tuple((loop, Fraction(average)) for loop, average in items.items())


def _pickled(scop: Scop) -> tuple[Any, tuple[str]]:
    return scop_from_text, (scop_to_text(scop),)


# Objects of isl cannot be pickled. The class itself cannot say how: this module knows it, not the other way round.
copyreg.pickle(Scop, _pickled)
