"""Launches that are not alike: loops of few work-items are told, even ones are not."""

import pytest

from perflex.features import extract_scop, source_kernel
from perflex.features.gpu.uneven_work import uneven_doubts
from support.written_kernels import written

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


@pytest.mark.parametrize(("condition", "extent", "told"), [("", 64, 0), ("", 65536, 0), (", if=(i == 0)", 65536, 1)])
def test_launches_in_a_loop_of_the_host_run_one_after_another(condition, extent, told):
    text = f"for s\n for i, j\n  y[i] = y[i] + x[j] {{id=a{condition}}}\n end\n ... gbarrier {{id=bar, dep=a}}\nend"
    domains = ["{[s]: 0<=s<1000}", f"{{[i]: 0<=i<{extent}}}", "{[j]: 0<=j<n}"]
    arrays = f"x: float32[n]; y: float32[{extent}]"
    scop = extract_scop(written(domains, text, arrays, "i/64: g.0, l.0", assume="n >= 1"))
    assert float(scop.launches[0].repeats.evaluate({"n": 4096})) == 1000
    assert len(uneven_doubts(scop, {"n": 4096}, 32)) == told
