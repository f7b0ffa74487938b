"""Launches that are not alike: loops of few work-items are told, even ones are not."""

import pytest

from perflex.features import extract_scop, source_kernel
from perflex.features.gpu.uneven_work import uneven_doubts

TEXT = """__global__ void f(float *a, float *b, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  {body}
}}
"""
LOOP = "for (int j = 0; j < n; ++j) b[j] += 1;"


@pytest.mark.parametrize(("body", "groups", "told"), [
    (f"if (i == 0) {LOOP}", 4096, True), (f"if (blockIdx.x == 0 && threadIdx.x == 0) {LOOP}", 4096, True),
    (f"if (blockIdx.x < 3) {LOOP}", 4096, True), (f"if (threadIdx.x == 0) {LOOP}", 4096, False), (LOOP, 4096, False),
    (f"if (i < n) {LOOP}", 4096, False), (f"if (i == 0) {LOOP}", 1, False),
    ("for (int j = 0; j < i; ++j) b[j] += 1;", 64, False), (f"if (i < 4) a[i] = 1; {LOOP}", 4096, False),
])  # fmt: skip
def test_loops_of_few_sub_groups_are_doubted(body, groups, told):
    scop = extract_scop(source_kernel(TEXT.format(body=body), "f", local=64, groups=groups), {"n": 262144})
    found = uneven_doubts(scop, {"n": 262144}, 32)
    assert len(found) == told
    assert all("sub-groups execute line 3, but the model shares their work out" in each for each in found)
