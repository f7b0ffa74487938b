from __future__ import annotations

import subprocess
import sys

import pytest

import uipick


def test_public_names_are_there_and_sorted():
    assert uipick.__all__ == sorted(uipick.__all__)
    for name in uipick.__all__:
        assert getattr(uipick, name) is not None
    assert dir(uipick) == uipick.__all__


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = uipick.nothing


def test_choosing_generators_needs_neither_loopy_nor_sympy():
    script = (
        "import sys, uipick; uipick.KernelCollection(uipick.ALL_GENERATORS).matching_generators(['matmul_sq']); "
        "print([m for m in ('loopy', 'sympy', 'pyopencl', 'islpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
