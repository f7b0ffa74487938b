"""Identifiers of features, of accesses and of footprints, and what they select."""

import pickle
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex import Model, gather_feature_values
from perflex.errors import ModelSyntaxError, PerflexError, UnknownFeatureError
from perflex.expression.parser import tokenize
from perflex.features import (
    Family,
    Feature,
    Target,
    count_features,
    extract_scop,
    parse_feature,
    register_family,
    register_feature,
    unregister_feature,
)
from perflex.features.families import registry
from perflex.features.families.memory_accesses import selected as accesses_of
from sample_kernels import make, matmul, pointwise

EXAMPLES = [example for family in registry._families for example in family.examples]


@pytest.mark.parametrize("identifier", [
    "f_mem_access", "f_mem_access_tag:aLD", "f_mem_access_tag:mm_PF_a",
    "f_mem_access_tag:mm_PF_a_global_float32_load", "f_mem_access_global", "f_mem_access_float32",
    "f_mem_access_store", "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1",
    "f_mem_access_local_lstrides:{0:<=n}", "f_mem_access_gstrides:{1:16*n}_afr:>=2",
])  # fmt: skip
def test_canonical_identifiers_round_trip(identifier):
    assert parse_feature(identifier).identifier == identifier


@pytest.mark.parametrize(("identifier", "message"), [
    ("f_op_float32_mad", "did you mean madd"),
    ("f_op_float32", "unknown operation ''"),
    ("f_thread_grops", "did you mean f_thread_groups"),
    ("f_mem_access_globl", "'globl' does not fit; the fields are, in this order, array:NAME, tag:NAME, space"),
    ("f_mem_access_float32_global", "'global' does not fit"),
    ("f_mem_access_lstrides:{0}", "'lstrides:{0}' does not fit"),
    ("f_mem_access_lstrides:{0:>}", "a constraint is a number, a size or a product"),
    ("f_mem_access_lstrides:0:1", "'lstrides:0:1' does not fit"),
    ("f_mem_access_afr:>1_lstrides:{0:1}", "'lstrides:{0:1}' does not fit"),
    ("f_mem_access_afr:~1", "'afr:~1' does not fit"),
    pytest.param("f_mem_access_afr:1" + 5000 * "0", "at most 18 digits", id="digits of a ratio"),
    pytest.param(f"f_mem_access_lstrides:{{0:>n*{5000 * '9'}}}", "at most 18 digits", id="digits of a stride"),
    pytest.param(f"f_mem_access_gstrides:{{{5000 * '9'}:1}}", "at most 18 digits", id="digits of an axis"),
    ("f_mem_access_lstrides:{\u00b2:1}", "'lstrides:{²:1}' does not fit"),
    ("f_mem_access_tag:", "'tag:' does not fit"),
    ("g_op_float32_add", "unknown feature"),
    ("", "unknown feature"),
])  # fmt: skip
def test_bad_identifiers_say_what_is_wrong(identifier, message):
    with pytest.raises(UnknownFeatureError, match=re.escape(message)):
        parse_feature(identifier)


@given(st.text(alphabet="f_memaccsglobdtin3264:{};<>=.*0 ", max_size=40))
def test_any_text_is_a_feature_or_an_error_of_ours(text):
    try:
        feature = parse_feature("f_" + text)
    except PerflexError:
        return
    assert feature.identifier.startswith("f_")


def selected(pattern, n=64):
    scop = extract_scop(matmul(prefetch=True))
    return {item.access.text.partition("[")[0] for item in accesses_of(scop, {"n": n}, parse_feature(pattern).what)}


@pytest.mark.parametrize(("pattern", "arrays"), [
    ("f_mem_access_global", {"a", "b", "c"}), ("f_mem_access_global_lstrides:{1:n}", {"a", "b", "c"}),
    ("f_mem_access_global_gstrides:{0:0}", {"a"}), ("f_mem_access_global_gstrides:{0:16;1:0}", {"b"}),
    ("f_mem_access_global_gstrides:{1:16*n}", {"a", "c"}), ("f_mem_access_global_gstrides:{1:>=1024}", {"a", "c"}),
    ("f_mem_access_global_gstrides:{1:>1024}", set()),
    ("f_mem_access_global_gstrides:{1:<=1024}", {"a", "b", "c"}), ("f_mem_access_global_afr:1", {"c"}),
    ("f_mem_access_global_afr:=4", {"a", "b"}), ("f_mem_access_global_afr:>3.5", {"a", "b"}),
    ("f_mem_access_global_afr:<4", {"c"}), ("f_mem_access_local_lstrides:{0:0}", {"a_fetch"}),
    ("f_mem_access_lstrides:{2:0}_global_float32", set()), ("f_mem_access_global_lstrides:{2:0}", {"a", "b", "c"}),
    ("f_mem_access_global_lstrides:{2:>0}", set()), ("f_mem_access_float64", set()),
    ("f_mem_access_tag:aLD", set()),
])  # fmt: skip
def test_constraints_select_accesses(pattern, arrays):
    if "}_global" in pattern:
        with pytest.raises(UnknownFeatureError):
            parse_feature(pattern)
    else:
        assert selected(pattern) == arrays


def test_user_features():
    @register_feature("f_my_statements", unit="statement")
    def statements(scop, sizes):
        return len(scop.statements)

    try:
        feature = parse_feature("f_my_statements")
        scop = extract_scop(pointwise("x[i] + 1"))
        assert feature.value(scop, {"n": 32}, Target()) == 1
        assert feature.unit == "statement"
        with pytest.raises(UnknownFeatureError, match="exists already"):
            register_feature("f_my_statements")
        with pytest.raises(UnknownFeatureError, match="did you mean f_my_statements"):
            parse_feature("f_my_statement")
    finally:
        unregister_feature("f_my_statements")
    with pytest.raises(UnknownFeatureError):
        parse_feature("f_my_statements")
    with pytest.raises(UnknownFeatureError, match="cannot name a feature"):
        register_feature("my feature")
    with pytest.raises(UnknownFeatureError, match="no feature 'f_none' was registered"):
        unregister_feature("f_none")


def test_a_family_of_ones_own_is_asked_last(monkeypatch):
    monkeypatch.setattr(registry, "_families", list(registry._families))
    register_family(Family("Mine", "f_mine|f_op_float32_mul", "1", lambda *_: 7))
    try:
        scop = extract_scop(pointwise("x[i] + 1"))
        assert parse_feature("f_mine").value(scop, {"n": 32}, Target()) == 7
        assert parse_feature("f_op_float32_mul").value(scop, {"n": 32}, Target()) == 0
    finally:
        registry._find.cache_clear()


def test_features_reach_other_processes():
    for identifier in EXAMPLES:
        feature = parse_feature(identifier)
        assert pickle.loads(pickle.dumps(feature)) is feature
    own = Feature("f_own", Family("Own", "f_own", "1", selected), "f_own")
    assert pickle.loads(pickle.dumps(own)) == own


def test_names_of_spaces_say_what_accesses_cost():
    costs = {"": "", "_local": "on-chip", "_private_float32": "on-chip", "_global": "memory", "_tag:x_local": "on-chip"}
    for fields, cost in costs.items():
        assert parse_feature(f"f_mem_access{fields}").cost == cost


N = 64


def value(identifier, kernel=None, n=N):
    return parse_feature(identifier).value(extract_scop(kernel or matmul(prefetch=True)), {"n": n}, Target())


@pytest.mark.parametrize(("identifier", "expected"), [
    ("f_mem_footprint", 3 * N**2), ("f_mem_footprint_global", 3 * N**2), ("f_mem_footprint_load", 2 * N**2),
    ("f_mem_footprint_array:a", N**2), ("f_mem_footprint_array:a_global_float32_load", N**2),
    ("f_mem_footprint_array:a_store", 0), ("f_mem_footprint_array:a_fetch", 0),
    ("f_mem_footprint_array:b_gstrides:{0:16}", N**2), ("f_mem_footprint_global_afr:>1", 2 * N**2),
    ("f_mem_footprint_float64", 0), ("f_mem_access_array:a", N**3 / 16),
    ("f_mem_access_array:a_fetch", (N**3 + N**3 / 16) / 32),
    ("f_mem_access_array:a_fetch_local_store", N**3 / 16 / 32), ("f_mem_access_array:none", 0),
])  # fmt: skip
def test_values(identifier, expected):
    assert parse_feature(identifier).identifier == identifier
    assert value(identifier) == expected


def test_tags_and_arrays_together():
    kernel = matmul(prefetch=False)
    assert value("f_mem_footprint_tag:aLD", kernel) == N**2
    assert value("f_mem_footprint_array:a_tag:aLD_load", kernel) == N**2
    assert value("f_mem_footprint_array:a_tag:bLD", kernel) == 0
    assert value("f_mem_access_array:b_tag:bLD", kernel) == N**3


def test_names_that_end_in_words_of_the_pattern():
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


def _selected(identifier, kernel):
    return accesses_of(extract_scop(kernel), {"n": N}, parse_feature(identifier).what)


@pytest.mark.parametrize(("identifier", "message"), [
    ("f_mem_footprint_local", "local array exists once per work-group; footprints are of global arrays"),
    ("f_mem_footprint_private_float32", "private array exists once per work-item"),
    ("f_mem_footprint_globl", "'globl' does not fit"),
    ("f_mem_footprint_array:", "'array:' does not fit"),
    ("f_mem_access_tag:x_array:a", "'array:a' does not fit; the fields are, in this order, array:NAME, tag:NAME"),
    ("f_mem_footprnt_array:a", "did you mean f_mem_footprint_array:a"),
])  # fmt: skip
def test_bad_identifiers(identifier, message):
    with pytest.raises(UnknownFeatureError, match=re.escape(message)):
        parse_feature(identifier)


def test_model_strings():
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


def test_the_report_lists_arrays_directions_and_tags():
    kernel = make("{[i]: 0<=i<n}", "out[i] = out[i] + x$xLD[i]*x[i + 1]", {"x": np.float32, "out": np.float32})
    entries = {
        entry.identifier.removeprefix("f_mem_footprint_"): entry
        for entry in count_features(extract_scop(kernel), {"n": 9})
        if entry.identifier.startswith("f_mem_footprint")
    }
    assert list(entries) == ["array:out", "array:out_load", "array:out_store", "array:x", "tag:xLD"]
    assert [entry.value for entry in entries.values()] == [9, 9, 9, 10, 9]
    assert (entries["array:x"].expression, entries["array:x"].note) == ("(1 + n) : n > 0", "AFR 1.8, 40 B")
    assert all(entry.exact and entry.unit == "element" for entry in entries.values())


def test_bounds_are_marked():
    kernel = make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i]*y[i]\nend", {"x": np.float32, "y": np.float32})
    for sizes, value, note in ((None, None, ""), ({"n": 2**20}, 2**20, "AFR about 1, at most 4 MiB")):
        (entry,) = count_features(extract_scop(kernel), sizes, identifiers=["f_mem_footprint_array:y"])
        assert (entry.expression, str(entry.certainty)) == ("n : n > 0", "upper bound")
        assert (entry.value, entry.note) == (value, note)
