"""Everything a kernel contains, as features, and what a model has no feature for."""

from pathlib import Path

import loopy as lp
import numpy as np
import pytest

from perflex import using_machine
from perflex.errors import MissingSizeError, UnknownFeatureError
from perflex.features import Target, count_features, extract_scop, parse_feature
from perflex.features.report import missed_text, uncounted
from sample_kernels import make, matmul, pointwise

GUARDED = "if x[i] > 0\n out[i] = x[i]\nend"
EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"


def counted(kernel, sizes, **options):
    return {entry.identifier: entry for entry in count_features(extract_scop(kernel), sizes, **options)}


def test_all_that_is_listed_counts_itself():
    scop = extract_scop(matmul(prefetch=True))
    everything = counted(matmul(prefetch=True), {"n": 64})
    for identifier, entry in everything.items():
        feature = parse_feature(identifier)
        assert feature.matches(scop, {"n": 64}), identifier
        assert entry.value == feature.value(scop, {"n": 64}, Target()), identifier
        assert entry.exact
    memory = [entry for entry in everything.values() if entry.identifier.startswith("f_mem_access")]
    total = parse_feature("f_mem_access").value(scop, {"n": 64}, Target())
    assert sum(entry.value for entry in memory) == total


def test_symbolic_counts_need_no_sizes():
    everything = counted(matmul(prefetch=True), None)
    assert all(entry.value is None for entry in everything.values())
    assert everything["f_op_float32_madd"].expression == "1/32 * n^3"
    assert everything["f_sync_barrier_local"].expression == "1/8 * n"
    load = everything["f_mem_access_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16;1:0}"]
    assert (load.expression, load.unit) == ("1/16 * n^3", "access per work-item")
    with pytest.raises(MissingSizeError, match="size parameter n has no value"):
        counted(matmul(prefetch=True), None, identifiers=["f_mem_access_afr:>1"])


def test_reuse_and_missing_strides_are_noted():
    everything = counted(matmul(prefetch=True), {"n": 64})
    assert "AFR 4" in everything["f_mem_access_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16;1:0}"].note
    odd = counted(pointwise("x[i % 4] + y[i]"), {"n": 64})
    (note,) = [entry.note for entry in odd.values() if "% 4" in entry.note]
    assert note.endswith("not affine in lid(0)")
    # Without a stride to go by, the array tells the access from the others.
    assert odd["f_mem_access_array:x_global_float32_load_gstrides:{0:0}"].value == 64


def test_conditions_make_bounds():
    everything = counted(make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i] * 2\nend", {"x": np.float32}), {"n": 10})
    assert [everything[name].exact for name in ("f_op_float32_mul", "f_thread_groups")] == [False, True]


def test_bounds_and_estimates_of_volumes_are_said_to_be_that():
    plain, guarded = (make("{[i]: 0<=i<64}", text, {"x": np.float32}) for text in ("out[i] = x[i]", GUARDED))
    names = ("f_txn_global", "f_inst_total", "f_simd_item_scalar", "f_waves", "f_vol_dram_load", "f_peak_dram")
    words = []
    for kernel in (plain, guarded):
        with using_machine("V100"):
            found = counted(lp.split_iname(kernel, "i", 32, outer_tag="g.0", inner_tag="l.0"), {}, identifiers=names)
        with using_machine("Gold-6248"):
            found |= counted(kernel, {}, identifiers=("f_ecm_vol_l2", "f_traffic_bytes_l2"))
        words.append([str(entry.certainty) for entry in found.values()])
    assert words[0] == [*["exact"] * 4, *["estimated"] * 4]
    assert words[1] == [*["upper bound"] * 3, "exact", *["upper bound estimated"] * 4]


def test_picked_features():
    kernel = matmul(prefetch=False)
    picked = counted(kernel, {"n": 64}, identifiers=["f_op_float64_add", "f_sub_groups"], sub_group_size=8)
    assert {name: entry.value for name, entry in picked.items()} == {"f_op_float64_add": 0, "f_sub_groups": 512}
    with pytest.raises(UnknownFeatureError):
        counted(kernel, {"n": 64}, identifiers=["f_op_float32_mad"])


STORES, SUM = "f_mem_access_global_float32_store", "exp(x[i]) * y[i] + x[i]"


@pytest.mark.parametrize(("kernel", "identifiers", "missed"), [
    # A model without memory features leaves memory out on purpose; directions and spaces are separate matters.
    (True, ["f_op_float32_madd"], []), (True, ["f_mem_access_global_float32_load"], []),
    (True, ["f_mem_access_local_float32_load_lstrides:{0:1}"], ["(a_fetch"]),
    (False, ["f_mem_access_tag:aLD"], ["(b[k, j_inner + j_outer*16])", "(c[i_inner + i_outer*16, j_inner"]),
    (SUM, ["f_op_float32_madd"], ["f_op_float32_exp"]), (SUM, ["f_op_float64_madd"], []),
    # Instruction features count what is of their class.
    (SUM, ["f_op_float32_madd", "f_inst_fp32"], []), (SUM, ["f_op_float32_madd", "f_inst_total"], []),
    (SUM, ["f_op_float32_madd", "f_inst_fp64"], ["f_op_float32_exp"]),
    (SUM, ["f_op_float32_madd", "f_inst_predication"], ["f_op_float32_exp"]),
    (False, [STORES, "f_inst_ldst_global"], []),
    (False, ["f_mem_access_tag:aLD", "f_inst_ldst_local"], ["(b[", "(c["]),
])  # fmt: skip
def test_what_no_feature_counts_is_named(kernel, identifiers, missed):
    made = pointwise(kernel) if isinstance(kernel, str) else matmul(prefetch=kernel)
    found = uncounted(identifiers, made, {"n": 64})
    assert len(found) == len(missed)
    assert all(words in text for words, text in zip(missed, found, strict=True))


@pytest.mark.parametrize(
    ("missed", "text"), [(["a"], "a"), (["a", "b", "c"], "a; b; c"), ([*"abcde"], "a; b; c; and 2 more")]
)
def test_a_message_tells_the_first_of_what_is_missed(missed, text):
    assert missed_text(missed) == text
