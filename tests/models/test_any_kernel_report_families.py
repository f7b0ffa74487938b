"""Families of kernels that are kept for the report: results against numpy on each platform, and their form."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

PARTS = Path(__file__).parents[1] / "bench" / "any_kernel_parts"
# Names only: loopy is imported, and kernels are made, when a test runs.
MODULES = sorted(path.stem for path in PARTS.glob("report_*.py"))


def _families(module: str) -> tuple[Any, ...]:
    return import_module(f"bench.any_kernel_parts.{module}").FAMILIES


@pytest.mark.slow
@pytest.mark.parametrize("module", MODULES)
def test_every_variant_computes_what_numpy_says(module: str, contexts: list[Any]) -> None:
    from bench.any_kernel_parts.checking import check_variant

    for family in _families(module):
        for variant in family.variants:
            for context in contexts:
                check_variant(family, variant, context)


@pytest.mark.slow
def test_there_are_enough_families_of_the_promised_form() -> None:
    found = [family for module in MODULES for family in _families(module)]
    assert len(found) >= 14
    for family in found:
        assert 6 <= len(family.variants) <= 12, family.name
        assert len(family.sizes) == 3
        kernels = [make() for make in family.variants.values()]
        bytes_of = [_bytes(family.name, kernels, dict(sizes)) for sizes in family.sizes]
        assert bytes_of == sorted(set(bytes_of)), f"{family.name}: sizes do not grow"


def _bytes(name: str, kernels: list[Any], sizes: dict[str, int]) -> int:
    """Bytes of all arrays of a family, which all variants have in common."""
    from pymbolic import evaluate

    all_bytes = set()
    for kernel in kernels:
        total = 0
        for argument in kernel.default_entrypoint.args:
            if hasattr(argument, "shape"):
                elements = 1
                for extent in argument.shape:
                    elements *= int(evaluate(extent, sizes))
                total += elements * argument.dtype.numpy_dtype.itemsize
        all_bytes.add(total)
    assert len(all_bytes) == 1, f"{name}: arrays differ between variants"
    return all_bytes.pop()
