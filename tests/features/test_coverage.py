"""Warnings about what a model has no feature for."""

from __future__ import annotations

from perflex.features.report import uncounted
from sample_kernels import matmul, pointwise

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
