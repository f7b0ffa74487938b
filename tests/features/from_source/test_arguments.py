"""Structs that the host program gives: names of the arrays and sizes in them. Truth by hand."""

from __future__ import annotations

import pytest

from perflex import source_kernel
from perflex.errors import UnsupportedKernelError
from perflex.features import count_features

HEAD = """
struct Extent {{ int n, ld; }};
struct Params {{ const float *x; float *y; Extent e; float alpha; }};
__constant__ Params c;
__device__ void put(float *y, int at, float v) {{ y[at] = v; }}
__global__ void k({}) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {} }}
"""
BODIES = [
    ("Params p", "if (i < p.e.n) p.y[i] = p.alpha * p.x[i];", "p", 100),
    ("Params p", "if (i < p.e.n) for (int j = 0; j < p.e.ld; ++j) p.y[i * p.e.ld + j] = p.x[i * p.e.ld];", "p", 700),
    ("const Params p", "for (int j = 0; i < p.e.n && j < p.e.ld; ++j) put(p.y, i * p.e.ld + j, p.x[j]);", "p", 700),
    ("Params p", "float *y = p.y + i; if (i < p.e.n) for (int j = 0; j < p.e.ld; ++j) *y++ = p.x[j];", "p", 700),
    ("Params p", "Params q = p; q.y += 1; for (int j = 0; j < 7; ++j) q.y[i + 128 * j] = q.x[i];", "p", 7 * 128),
    ("", "if (i < c.e.n) for (int j = 0; j < c.e.ld; ++j) c.y[i * c.e.ld + j] = c.x[j];", "c", 700),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "body", "name", "right"), BODIES)
def test_pointers_and_sizes_in_structs(parameters, body, name, right):
    kernel = source_kernel(HEAD.format(parameters, body), "k", local=64, groups=2)
    sizes = {f"{name}_e_n": 100, f"{name}_e_ld": 7}
    assert sorted(kernel.sizes) == (sorted(sizes) if parameters else [])
    found = {each.identifier: each for each in count_features(kernel, sizes)}
    stored = sum(each.value for identifier, each in found.items() if "global_float32_store" in identifier)
    assert stored == right
    assert all(str(each.certainty) == "exact" for each in found.values())
    assert {f"f_mem_footprint_array:{name}_{array}" for array in "xy"} <= found.keys()


@pytest.mark.parametrize(
    ("parameters", "body"), [("Params p, int p_e_n", "p.y[i] = p.e.n"), ("float *c_y", "c.y[i] = 1")]
)
def test_names_that_two_have(parameters, body):
    kernel = source_kernel(HEAD.format(parameters, body + ";"), "k", local=64, groups=2)
    with pytest.raises(UnsupportedKernelError, match="would both be called"):
        kernel.scop({})
