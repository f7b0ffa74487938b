"""Shapes and strides that no address holds are refused by the array's name."""

from __future__ import annotations

import loopy as lp
import numpy as np
import pytest

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features import kernel_feature_values, scop_from_yaml

FEATURES = ["f_mem_access_global_float32_load"]
COPY = """
schema: perflex-scop/1
name: copy
parameters: [n]
launches: [{{groups: [n], items: [1]}}]
arrays: [{{name: a, space: global, dtype: float32, shape: [n, n], strides: ["{stride}", 1]}}]
statements:
- name: s
  domain: "[n] -> {{ [g, l] : 0 <= g < n and l = 0 }}"
  accesses: [{{array: a, direction: load, relation: "{{ [g, l] -> [g, 0] }}"}}]
"""


def copying(**array: object) -> lp.TranslationUnit:
    """Return a kernel that copies an array of a shape and with strides."""
    arguments = [lp.GlobalArg("a", np.float32, **array), lp.GlobalArg("b", np.float32, shape="n, n"), "..."]
    kernel = lp.make_kernel(
        "{[i, j]: 0 <= i, j < n}", "b[i, j] = a[i, j]", arguments, target=lp.OpenCLTarget(), lang_version=(2018, 2)
    )
    return lp.split_iname(kernel, "i", 16, outer_tag="g.0", inner_tag="l.0")


@pytest.mark.parametrize("digits", [20, 300, 4000, 5000])
@pytest.mark.parametrize("where", ["strides", "shape"])
def test_numbers_in_loopy_kernels(where: str, digits: int) -> None:
    long = 10**digits - 1
    kernel = copying(shape="n, n", strides=(long, 1)) if where == "strides" else copying(shape=(long, long))
    with pytest.raises(UnsupportedKernelError, match=f"a number of {digits} digits, and .* give one below"):
        kernel_feature_values(FEATURES, kernel, {"n": 64})


@pytest.mark.parametrize("size", [2, 64, 2**20])
@pytest.mark.parametrize("stride", ["999999999999999*999999999999999", "n^300", "-n^300", "n^70"])
def test_products_in_descriptions(stride: str, size: int) -> None:
    with pytest.raises(MissingSizeError, match=r"array 'a' of kernel 'copy' .* give smaller sizes or strides"):
        kernel_feature_values(FEATURES, scop_from_yaml(COPY.format(stride=stride)), {"n": size})


def test_long_strides_within_addresses_are_counted() -> None:
    for stride in ("999999999999999", "n^4"):
        scop = scop_from_yaml(COPY.format(stride=stride))
        assert kernel_feature_values(FEATURES, scop, {"n": 64}) == {FEATURES[0]: 64}
    assert kernel_feature_values(FEATURES, copying(shape="n, n", strides=(10**14, 1)), {"n": 64}) == {FEATURES[0]: 4096}
