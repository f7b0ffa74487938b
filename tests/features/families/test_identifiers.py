from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex.errors import PerflexError, UnknownFeatureError
from perflex.features import Target, extract_scop, parse_feature, register_feature, unregister_feature
from perflex.features.families.memory import AccessPattern, parse_pattern
from sample_kernels import matmul, pointwise


def written(pattern: AccessPattern) -> str:
    """The identifier that a pattern is read from."""
    text = "f_mem_access"
    for field in ("array", "tag"):
        text += f"_{field}:{getattr(pattern, field)}" if getattr(pattern, field) else ""
    text += "".join(f"_{word}" for word in (pattern.space, pattern.dtype, pattern.direction) if word)
    for name, strides in (("lstrides", pattern.local_strides), ("gstrides", pattern.group_strides)):
        if strides:
            text += f"_{name}:{{{';'.join(f'{axis}:{constraint}' for axis, constraint in strides)}}}"
    return text + (f"_afr:{pattern.afr}" if pattern.afr else "")


@pytest.mark.parametrize(
    "identifier",
    [
        "f_mem_access",
        "f_mem_access_tag:aLD",
        "f_mem_access_tag:mm_PF_a",
        "f_mem_access_tag:mm_PF_a_global_float32_load",
        "f_mem_access_global",
        "f_mem_access_float32",
        "f_mem_access_store",
        "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1",
        "f_mem_access_local_lstrides:{0:<=n}",
        "f_mem_access_gstrides:{1:16*n}_afr:>=2",
    ],
)
def test_canonical_identifiers_round_trip(identifier: str) -> None:
    assert written(parse_pattern(identifier)) == identifier
    assert parse_feature(identifier).identifier == identifier


@pytest.mark.parametrize(
    ("identifier", "message"),
    [
        ("f_op_float32_mad", "did you mean madd"),
        ("f_op_float32", "unknown operation ''"),
        ("f_thread_grops", "did you mean f_thread_groups"),
        ("f_mem_access_globl", "'globl' is not one of the allowed words"),
        ("f_mem_access_float32_global", "'global' is out of order"),
        ("f_mem_access_lstrides:{0}", "not of the form axis:constraint"),
        ("f_mem_access_lstrides:{0:>}", "is not a number"),
        ("f_mem_access_lstrides:0:1", "field lstrides is malformed"),
        ("f_mem_access_afr:>1_lstrides:{0:1}", "field lstrides is malformed|field afr is malformed"),
        ("f_mem_access_afr:~1", "is not a number"),
        pytest.param("f_mem_access_afr:1" + 5000 * "0", "at most 18 digits", id="digits of a ratio"),
        pytest.param(f"f_mem_access_lstrides:{{0:>n*{5000 * '9'}}}", "at most 18 digits", id="digits of a stride"),
        pytest.param(f"f_mem_access_gstrides:{{{5000 * '9'}:1}}", "form axis:constraint", id="digits of an axis"),
        ("f_mem_access_lstrides:{\u00b2:1}", "not of the form axis:constraint"),
        ("f_mem_access_tag:", "the memory access tag '' is not a name"),
        ("g_op_float32_add", "unknown feature"),
        ("", "unknown feature"),
    ],
)
def test_bad_identifiers_say_what_is_wrong(identifier: str, message: str) -> None:
    with pytest.raises(UnknownFeatureError, match=message):
        parse_feature(identifier)


@given(st.text(alphabet="f_memaccsglobdtin3264:{};<>=.*0 ", max_size=40))
def test_any_text_is_a_feature_or_an_error_of_ours(text: str) -> None:
    try:
        feature = parse_feature("f_" + text)
    except PerflexError:
        return
    assert feature.identifier.startswith("f_")


def selected(pattern: str, n: int = 64) -> set[str]:
    scop = extract_scop(matmul(prefetch=True))
    return {item.access.text.partition("[")[0] for item in parse_feature(pattern).selected(scop, {"n": n})}


@pytest.mark.parametrize(
    ("pattern", "arrays"),
    [
        ("f_mem_access_global", {"a", "b", "c"}),
        ("f_mem_access_global_lstrides:{1:n}", {"a", "b", "c"}),
        ("f_mem_access_global_gstrides:{0:0}", {"a"}),
        ("f_mem_access_global_gstrides:{0:16;1:0}", {"b"}),
        ("f_mem_access_global_gstrides:{1:16*n}", {"a", "c"}),
        ("f_mem_access_global_gstrides:{1:>=1024}", {"a", "c"}),
        ("f_mem_access_global_gstrides:{1:>1024}", set()),
        ("f_mem_access_global_gstrides:{1:<=1024}", {"a", "b", "c"}),
        ("f_mem_access_global_afr:1", {"c"}),
        ("f_mem_access_global_afr:=4", {"a", "b"}),
        ("f_mem_access_global_afr:>3.5", {"a", "b"}),
        ("f_mem_access_global_afr:<4", {"c"}),
        ("f_mem_access_local_lstrides:{0:0}", {"a_fetch"}),
        ("f_mem_access_lstrides:{2:0}_global_float32", set()),
        ("f_mem_access_global_lstrides:{2:0}", {"a", "b", "c"}),
        ("f_mem_access_global_lstrides:{2:>0}", set()),
        ("f_mem_access_float64", set()),
        ("f_mem_access_tag:aLD", set()),
    ],
)
def test_constraints_select_accesses(pattern: str, arrays: set[str]) -> None:
    if "}_global" in pattern:
        with pytest.raises(UnknownFeatureError):
            parse_feature(pattern)
    else:
        assert selected(pattern) == arrays


def test_user_features() -> None:
    @register_feature("f_my_statements", unit="statement")
    def statements(scop: object, sizes: object) -> float:
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
