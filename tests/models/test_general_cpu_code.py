"""The general model of CPUs with compiled code: all calls have a cost, accesses have those of general_cpu."""

import re

from perflex import Model
from perflex.features import extract_scop, parse_feature
from perflex.models import load_model
from sample_kernels import matmul

DESCRIPTION = load_model("general_cpu_code")
MODEL = Model("f_cl_wall_time", DESCRIPTION.expression)


def test_all_calls_have_a_cost():
    listed = parse_feature("f_code_cycles").inventory(extract_scop(matmul(prefetch=False)))
    calls = {name for name in listed if name.startswith("f_code_calls_")}
    assert calls
    assert calls <= set(MODEL.all_features())


def test_accesses_and_transfers_are_those_of_general_cpu():
    def chosen(name):
        return set(re.findall(r"f_(?:simd_(?:load|store|item|barrier)|traffic)_\w+", load_model(name).expression))

    # These two terms were chosen for counts alone, without a look at code.
    assert chosen("general_cpu") - chosen("general_cpu_code") == {"f_traffic_store_streams_l2", "f_traffic_bytes_tlb"}
    assert chosen("general_cpu_code") <= chosen("general_cpu")
