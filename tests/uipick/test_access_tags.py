from __future__ import annotations

import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import Target, extract_scop, parse_feature
from sample_kernels import matmul
from uipick import tag_accesses


def test_tags_survive_where_prefetching_dropped_them():
    kernel = matmul(prefetch=True)
    feature = parse_feature("f_mem_access_tag:bLD")
    assert feature.value(extract_scop(kernel), {"n": 64}, Target()) == 0
    tagged = tag_accesses(kernel, loads={"b": "bLD"}, stores={"c": "cST"})
    scop = extract_scop(tagged)
    assert feature.value(scop, {"n": 64}, Target()) == 64**3 / 16
    assert parse_feature("f_mem_access_tag:cST").value(scop, {"n": 64}, Target()) == 64**2
    assert parse_feature("f_mem_access_global_load").value(scop, {"n": 64}, Target()) == 2 * 64**3 / 16


def test_unknown_arrays_are_named():
    with pytest.raises(UnsupportedKernelError, match=r"has no array 'd'; it has .*a, .*b, c"):
        tag_accesses(matmul(prefetch=False), loads={"d": "dLD"})
