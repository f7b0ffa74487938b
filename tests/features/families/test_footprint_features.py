"""Footprints as features: identifiers, model strings, and the report of them."""

from __future__ import annotations

import numpy as np
import pytest

from perflex import Model, gather_feature_values
from perflex.errors import ModelSyntaxError, UnknownFeatureError
from perflex.expression.parser import tokenize
from perflex.features import (
    CountedFootprint,
    Target,
    count_features,
    extract_scop,
    parse_feature,
    scop_from_yaml,
)
from sample_kernels import make, matmul

N = 64


def value(identifier: str, kernel: object = None, n: int = N) -> float:
    return parse_feature(identifier).value(extract_scop(kernel or matmul(prefetch=True)), {"n": n}, Target())


@pytest.mark.parametrize(
    ("identifier", "expected"),
    [
        ("f_mem_footprint", 3 * N**2),
        ("f_mem_footprint_global", 3 * N**2),
        ("f_mem_footprint_load", 2 * N**2),
        ("f_mem_footprint_array:a", N**2),
        ("f_mem_footprint_array:a_global_float32_load", N**2),
        ("f_mem_footprint_array:a_store", 0),
        ("f_mem_footprint_array:a_fetch", 0),
        ("f_mem_footprint_array:b_gstrides:{0:16}", N**2),
        ("f_mem_footprint_global_afr:>1", 2 * N**2),
        ("f_mem_footprint_float64", 0),
        ("f_mem_access_array:a", N**3 / 16),
        ("f_mem_access_array:a_fetch", (N**3 + N**3 / 16) / 32),
        ("f_mem_access_array:a_fetch_local_store", N**3 / 16 / 32),
        ("f_mem_access_array:none", 0),
    ],
)
def test_values(identifier: str, expected: float) -> None:
    assert parse_feature(identifier).identifier == identifier
    assert value(identifier) == expected


def test_tags_and_arrays_together() -> None:
    kernel = matmul(prefetch=False)
    assert value("f_mem_footprint_tag:aLD", kernel) == N**2
    assert value("f_mem_footprint_array:a_tag:aLD_load", kernel) == N**2
    assert value("f_mem_footprint_array:a_tag:bLD", kernel) == 0
    assert value("f_mem_access_array:b_tag:bLD", kernel) == N**3


def test_names_that_end_in_words_of_the_pattern() -> None:
    kernel = make(
        "{[i]: 0<=i<n}",
        "out[i] = u$in_load[i] + u_load[2*i] + w_local_load[3*i + i]",
        {"u": np.float32, "u_load": np.float32, "w_local_load": np.float32},
    )
    assert value("f_mem_footprint_array:u", kernel) == N
    assert value("f_mem_access_array:u_load_load", kernel) > 0
    assert [item.array.name for item in _selected("f_mem_access_array:u_load", kernel)] == ["u_load"]
    assert [item.array.name for item in _selected("f_mem_access_array:u_global_load", kernel)] == ["u"]
    assert [item.array.name for item in _selected("f_mem_access_array:w_local_load", kernel)] == ["w_local_load"]
    assert [item.array.name for item in _selected("f_mem_access_array:w_local_load_load", kernel)] == ["w_local_load"]
    assert [item.array.name for item in _selected("f_mem_access_tag:in_load", kernel)] == ["u"]
    assert [item.array.name for item in _selected("f_mem_access_tag:in_load_load", kernel)] == ["u"]
    assert _selected("f_mem_access_tag:in_load_store", kernel) == []
    # Whatever the report lists selects what it stands for.
    scop = extract_scop(kernel)
    for identifier in parse_feature("f_mem_footprint").inventory(scop):
        assert parse_feature(identifier).matches(scop, {"n": N}), identifier


def _selected(identifier: str, kernel: object) -> list:
    return list(parse_feature(identifier).selected(extract_scop(kernel), {"n": N}))


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("f_mem_footprint_local", "local array exists once per work-group; footprints are of global arrays"),
        ("f_mem_footprint_private_float32", "private array exists once per work-item"),
        ("f_mem_footprint_globl", "'globl' is not one of the allowed words"),
        ("f_mem_footprint_array:", "the array '' is not a name"),
        ("f_mem_access_tag:x_array:a", "array: stands before tag:"),
        ("f_mem_footprnt_array:a", "did you mean f_mem_footprint_array:a"),
    ],
)
def test_bad_identifiers(identifier: str, message: str) -> None:
    with pytest.raises(UnknownFeatureError, match=message):
        parse_feature(identifier)


def test_model_strings() -> None:
    text = "p_a * f_mem_footprint_array:a_load + p_b*f_mem_access_array:b_tag:bLD_lstrides:{0:1}"
    assert [token.text for token in tokenize(text) if token.text.startswith("f_")] == [
        "f_mem_footprint_array:a_load",
        "f_mem_access_array:b_tag:bLD_lstrides:{0:1}",
    ]
    with pytest.raises(ModelSyntaxError, match="array: must be followed by letters, digits and _"):
        tokenize("p_a * f_mem_footprint_array: + 1")
    model = Model("f_mem_footprint_array:c", "p_a * f_mem_footprint_array:a + p_c * f_mem_footprint_tag:bLD")
    table = gather_feature_values(model.all_features(), [(matmul(prefetch=False), {"n": n}) for n in (16, 64)])
    assert table.values.tolist() == [[n * n] * 3 for n in (16, 64)]
    assert (table.info["f_mem_footprint_array:a"].amount, table.info["f_mem_footprint_array:a"].amount_unit) == (4, "B")


def test_the_report_lists_arrays_directions_and_tags() -> None:
    kernel = make("{[i]: 0<=i<n}", "out[i] = out[i] + x$xLD[i]*x[i + 1]", {"x": np.float32, "out": np.float32})
    entries = {
        entry.identifier.removeprefix("f_mem_footprint_"): entry
        for entry in count_features(extract_scop(kernel), {"n": 9})
        if isinstance(entry, CountedFootprint)
    }
    assert list(entries) == ["array:out", "array:out_load", "array:out_store", "array:x", "tag:xLD"]
    assert [entry.value for entry in entries.values()] == [9, 9, 9, 10, 9]
    assert (entries["array:x"].accesses.value, entries["array:x"].bytes.value) == (18, 40)
    assert entries["array:x"].afr.value == pytest.approx(1.8)
    assert entries["array:x"].afr.expression == "2*n/(n + 1)"
    assert all(entry.exact and entry.unit == "element" for entry in entries.values())


def test_bounds_and_statements_are_marked() -> None:
    kernel = make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i]*y[i]\nend", {"x": np.float32, "y": np.float32})
    (entry,) = count_features(extract_scop(kernel), None, identifiers=["f_mem_footprint_array:y"])
    quantities = (entry.elements, entry.accesses, entry.bytes, entry.afr)
    assert [(one.relation, one.expression) for one in quantities] == [
        ("<=", "n"),
        ("<=", "n"),
        ("<=", "4*n"),
        ("~", "1"),
    ]
    assert str(entry.certainty) == "upper bound"
    stated = scop_from_yaml(STATED)
    counted = {entry.identifier: entry for entry in count_features(stated, {"n": 6})}
    assert {str(entry.certainty) for name, entry in counted.items() if "op_" in name or "access" in name} == {
        "as stated"
    }
    assert not counted["f_op_float32_add"].exact
    assert str(counted["f_thread_groups"].certainty) == "exact"
    assert "AFR about 1" in next(entry.note for name, entry in counted.items() if "access" in name)
    assert str(counted["f_mem_footprint_array:x"].certainty) == "as stated"


STATED = """
schema: perflex-scop/1
name: stated
parameters: [n]
assumptions: "[n] -> { : n >= 1 }"
launches:
- {groups: [n], items: [1]}
arrays:
- {name: x, space: global, dtype: float32, shape: [n], strides: [1]}
statements:
- name: first
  stated: "loop j makes 2.5 trips"
  domain: "[n] -> { [g, l] : 0 <= g < n and l = 0 }"
  accesses:
  - {array: x, direction: load, relation: "{ [g, l] -> [g] }"}
  operations:
  - {kind: add, dtype: float32}
"""
