"""Everything a kernel contains, as features, and what a model has no feature for."""

from pathlib import Path

import pytest

from perflex.errors import MissingSizeError, UnknownFeatureError
from perflex.features import Target, count_features, extract_scop, parse_feature
from perflex.features.report import uncounted
from sample_kernels import make, matmul, pointwise

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
    assert "AFR n/16 = 4" in everything["f_mem_access_global_float32_load_lstrides:{0:1;1:n}_gstrides:{0:16;1:0}"].note
    odd = counted(pointwise("x[i % 4] + y[i]"), {"n": 64})
    (note,) = [entry.note for entry in odd.values() if "% 4" in entry.note]
    assert note.endswith("not affine in lid(0)")
    # Without a stride to go by, the array tells the access from the others.
    assert odd["f_mem_access_array:x_global_float32_load_gstrides:{0:0}"].value == 64


def test_conditions_make_bounds():
    import numpy as np

    kernel = make("{[i]: 0<=i<n}", "if x[i] > 0\n out[i] = x[i] * 2\nend", {"x": np.float32})
    everything = counted(kernel, {"n": 10})
    assert not everything["f_op_float32_mul"].exact
    assert everything["f_thread_groups"].exact


def test_picked_features():
    picked = counted(
        matmul(prefetch=False), {"n": 64}, identifiers=["f_op_float64_add", "f_sub_groups"], sub_group_size=8
    )
    assert {name: entry.value for name, entry in picked.items()} == {"f_op_float64_add": 0, "f_sub_groups": 512}
    with pytest.raises(UnknownFeatureError):
        counted(matmul(prefetch=False), {"n": 64}, identifiers=["f_op_float32_mad"])


SIZES = {"n": 64}


def test_a_model_without_memory_features_leaves_memory_out_on_purpose():
    assert uncounted(["f_op_float32_madd"], matmul(prefetch=True), SIZES) == []


def test_loads_that_no_feature_fits_are_named():
    missed = uncounted(["f_op_float32_madd", "f_mem_access_tag:aLD"], matmul(prefetch=False), SIZES)
    assert [text.partition(" ")[2] for text in missed] == [
        "(b[k, j_inner + j_outer*16])",
        "(c[i_inner + i_outer*16, j_inner + j_outer*16])",
    ]


def test_directions_and_spaces_are_separate_matters():
    kernel = matmul(prefetch=True)
    assert uncounted(["f_mem_access_global_float32_load"], kernel, SIZES) == []
    stores = uncounted(["f_mem_access_local_float32_load_lstrides:{0:1}"], kernel, SIZES)
    assert len(stores) == 1
    assert "a_fetch" in stores[0]


def test_operations_of_a_counted_type():
    kernel = pointwise("exp(x[i]) * y[i] + x[i]")
    assert uncounted(["f_op_float32_madd"], kernel, SIZES) == ["f_op_float32_exp"]
    assert uncounted(["f_op_float64_madd"], kernel, SIZES) == []


def test_instruction_features_count_what_is_of_their_class():
    kernel = pointwise("exp(x[i]) * y[i] + x[i]")
    assert uncounted(["f_op_float32_madd", "f_inst_fp32"], kernel, SIZES) == []
    assert uncounted(["f_op_float32_madd", "f_inst_total"], kernel, SIZES) == []
    assert uncounted(["f_op_float32_madd", "f_inst_fp64"], kernel, SIZES) == ["f_op_float32_exp"]
    assert uncounted(["f_op_float32_madd", "f_inst_predication"], kernel, SIZES) == ["f_op_float32_exp"]
    stores = "f_mem_access_global_float32_store"
    assert uncounted([stores, "f_inst_ldst_global"], matmul(prefetch=False), SIZES) == []
    assert len(uncounted(["f_mem_access_tag:aLD", "f_inst_ldst_local"], matmul(prefetch=False), SIZES)) == 2
