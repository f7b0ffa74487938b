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


N = 64
TILED, PLAIN = matmul(prefetch=True), matmul(prefetch=False)


def value(identifier, kernel=TILED):
    return parse_feature(identifier).value(extract_scop(kernel), {"n": N}, Target())


def selected(identifier, kernel=TILED):
    return {item.array.name for item in accesses_of(extract_scop(kernel), {"n": N}, parse_feature(identifier).what)}


@pytest.mark.parametrize(("identifier", "message"), [
    ("f_op_float32_mad", "did you mean madd"),
    ("f_op_float32", "unknown operation ''"),
    ("f_thread_grops", "did you mean f_thread_groups"),
    ("f_mem_access_globl", "'globl' does not fit; the fields are, in this order, array:NAME, tag:NAME, space"),
    ("f_mem_access_float32_global", "'global' does not fit"),
    ("f_mem_access_lstrides:{2:0}_global_float32", "'global_float32' does not fit"),
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
    ("f_mem_access_tag:x_array:a", "'array:a' does not fit; the fields are, in this order, array:NAME, tag:NAME"),
    ("f_mem_footprint_local", "local array exists once per work-group; footprints are of global arrays"),
    ("f_mem_footprint_private_float32", "private array exists once per work-item"),
    ("f_mem_footprint_globl", "'globl' does not fit"),
    ("f_mem_footprint_array:", "'array:' does not fit"),
    ("f_mem_footprnt_array:a", "did you mean f_mem_footprint_array:a"),
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


GLOBAL, LOCAL = {"a", "b", "c"}, {"a_fetch", "b_fetch"}


@pytest.mark.parametrize(("fields", "arrays"), [
    ("", GLOBAL | LOCAL), ("_float32", GLOBAL | LOCAL), ("_float64", set()), ("_store", LOCAL | {"c"}),
    ("_global", GLOBAL), ("_global_lstrides:{1:n}", GLOBAL), ("_global_gstrides:{0:0}", {"a"}),
    ("_global_gstrides:{0:16;1:0}", {"b"}), ("_global_gstrides:{1:16*n}", {"a", "c"}),
    ("_global_gstrides:{1:>=1024}", {"a", "c"}), ("_global_gstrides:{1:>1024}", set()),
    ("_global_gstrides:{1:<=1024}", GLOBAL), ("_global_afr:1", {"c"}), ("_global_afr:=4", {"a", "b"}),
    ("_global_afr:>3.5", {"a", "b"}), ("_global_afr:<4", {"c"}), ("_gstrides:{1:16*n}_afr:>=2", {"a"}),
    ("_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1", {"b"}),
    ("_local_lstrides:{0:0}", {"a_fetch"}), ("_local_lstrides:{0:<=n}", LOCAL),
    ("_global_lstrides:{2:0}", GLOBAL), ("_global_lstrides:{2:>0}", set()),
    ("_tag:aLD", set()), ("_tag:mm_PF_a", set()), ("_tag:mm_PF_a_global_float32_load", set()),
])  # fmt: skip
def test_constraints_select_accesses(fields, arrays):
    identifier = f"f_mem_access{fields}"
    assert parse_feature(identifier).identifier == identifier
    assert selected(identifier) == arrays


def test_user_features():
    @register_feature("f_my_statements", unit="statement")
    def statements(scop, sizes):
        return len(scop.statements)

    try:
        feature = parse_feature("f_my_statements")
        assert (value("f_my_statements", pointwise("x[i] + 1")), feature.unit) == (1, "statement")
        with pytest.raises(UnknownFeatureError, match="exists already"):
            register_feature("f_my_statements")
        with pytest.raises(UnknownFeatureError, match="did you mean f_my_statements"):
            parse_feature("f_my_statement")
    finally:
        unregister_feature("f_my_statements")
    for call, name, message in (
        (parse_feature, "f_my_statements", "unknown"), (register_feature, "my feature", "cannot name a feature"),
        (unregister_feature, "f_none", "no feature 'f_none' was registered"),
    ):  # fmt: skip
        with pytest.raises(UnknownFeatureError, match=message):
            call(name)


def test_a_family_of_ones_own_is_asked_last(monkeypatch):
    monkeypatch.setattr(registry, "_families", list(registry._families))
    register_family(Family("Mine", "f_mine|f_op_float32_mul", "1", lambda *_: 7))
    try:
        assert [value(name, pointwise("x[i] + 1")) for name in ("f_mine", "f_op_float32_mul")] == [7, 0]
    finally:
        registry._find.cache_clear()


def test_features_reach_other_processes():
    own = Feature("f_own", Family("Own", "f_own", "1", selected), "f_own")
    assert pickle.loads(pickle.dumps(own)) == own
    for feature in map(parse_feature, EXAMPLES):
        assert pickle.loads(pickle.dumps(feature)) is feature


def test_names_of_spaces_say_what_accesses_cost():
    costs = {"": "", "_local": "on-chip", "_private_float32": "on-chip", "_global": "memory", "_tag:x_local": "on-chip"}
    for fields, cost in costs.items():
        assert parse_feature(f"f_mem_access{fields}").cost == cost


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


@pytest.mark.parametrize(("identifier", "expected"), [
    ("footprint_tag:aLD", N**2), ("footprint_array:a_tag:aLD_load", N**2), ("footprint_array:a_tag:bLD", 0),
    ("access_array:b_tag:bLD", N**3),
])  # fmt: skip
def test_tags_and_arrays_together(identifier, expected):
    assert value(f"f_mem_{identifier}", PLAIN) == expected


NAMED_BY_WORDS = make(
    "{[i]: 0<=i<n}", "out[i] = u$in_load[i] + u_load[2*i] + w_local_load[3*i + i]",
    {"u": np.float32, "u_load": np.float32, "w_local_load": np.float32},
)  # fmt: skip


@pytest.mark.parametrize(("fields", "array"), [
    ("array:u_load", "u_load"), ("array:u_load_load", "u_load"), ("array:u_global_load", "u"),
    ("array:w_local_load", "w_local_load"), ("array:w_local_load_load", "w_local_load"), ("tag:in_load", "u"),
    ("tag:in_load_load", "u"), ("tag:in_load_store", None),
])  # fmt: skip
def test_names_that_end_in_words_of_the_pattern(fields, array):
    assert selected(f"f_mem_access_{fields}", NAMED_BY_WORDS) == ({array} if array else set())


def test_footprints_that_are_listed_are_there():
    assert value("f_mem_footprint_array:u", NAMED_BY_WORDS) == N
    scop = extract_scop(NAMED_BY_WORDS)
    for identifier in parse_feature("f_mem_footprint").inventory(scop):
        assert parse_feature(identifier).matches(scop, {"n": N}), identifier


def test_model_strings():
    text = "p_a * f_mem_footprint_array:a_load + p_b*f_mem_access_array:b_tag:bLD_lstrides:{0:1}"
    assert [token.text for token in tokenize(text) if token.text.startswith("f_")] == [
        "f_mem_footprint_array:a_load",
        "f_mem_access_array:b_tag:bLD_lstrides:{0:1}",
    ]
    with pytest.raises(ModelSyntaxError, match="array: must be followed by letters, digits and _"):
        tokenize("p_a * f_mem_footprint_array: + 1")
    model = Model("f_mem_footprint_array:c", "p_a * f_mem_footprint_array:a + p_c * f_mem_footprint_tag:bLD")
    table = gather_feature_values(model.all_features(), [(PLAIN, {"n": n}) for n in (16, 64)])
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
