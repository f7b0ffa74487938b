"""The random kernels are valid, repeatable and varied."""

from __future__ import annotations

import re

import pytest

from .random_kernels import make_random_kernel


def test_a_seed_gives_the_same_kernel():
    first, second = make_random_kernel(7), make_random_kernel(7)
    assert first.text == second.text
    assert first.sizes == second.sizes
    assert make_random_kernel(8).text != first.text


@pytest.mark.slow
def test_kernels_are_varied():
    drawn = [make_random_kernel(seed) for seed in range(30)]
    text = "\n".join(kernel.text for kernel in drawn)
    for feature in ("if ", "reduce(", "// 2", "% 4", "j <= i", "+ 2 and j < n", "g.0+l.0", "w0[", "**2", "f[i"):
        assert feature in text, feature
    assert {str(d.kernel.default_entrypoint.arg_dict["out0"].dtype.numpy_dtype) for d in drawn} == {
        "float32",
        "float64",
    }
    assert any(re.search(r"i:[^:]+:\d\nj:", kernel.text) for kernel in drawn)
