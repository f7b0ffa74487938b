"""An instance of a template is described like the kernel that is written with its types."""

from __future__ import annotations

import pytest

from perflex.features import scop_to_yaml, source_kernel

_TEMPLATE = """
template <typename T, int ROWS, int WIDTH> __global__ void k(const T *x, T *y, int n)
{
  __shared__ T tile[ROWS][WIDTH];
  T sum = 0;
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  for (int r = 0; r < ROWS; ++r) tile[r][threadIdx.x] = x[r * n + i];
  __syncthreads();
  for (int r = 0; r < ROWS; ++r) sum += tile[r][31 - threadIdx.x];
  y[i] = sum;
}
"""


@pytest.mark.parametrize("dtype", ["float", "double", "short"])
def test_an_instance_is_its_twin(dtype: str) -> None:
    twin = _written_out(_TEMPLATE.replace("template <typename T, int ROWS, int WIDTH> ", ""), dtype)
    launch = {"local": [32], "groups": ["n / 32"]}
    instance = source_kernel(_TEMPLATE, f"k<{dtype}, 4, 35>", **launch).scop()
    # Texts of accesses are as written.
    assert _written_out(scop_to_yaml(instance), dtype) == scop_to_yaml(source_kernel(twin, "k", **launch).scop())
    assert {array.itemsize for array in instance.arrays} == {{"float": 4, "double": 8, "short": 2}[dtype]}


def _written_out(text: str, dtype: str) -> str:
    for name, value in {"ROWS": "4", "WIDTH": "35", "T ": f"{dtype} "}.items():
        text = text.replace(name, value)
    return text
