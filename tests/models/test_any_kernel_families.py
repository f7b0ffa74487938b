"""Every variant of the any-kernel benchmark's development half computes what its family says, on each platform."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest
from pymbolic import evaluate

from tests.bench.any_kernel_parts.checking import check_variant
from tests.bench.any_kernel_parts.families import families

FAMILIES = {family.name: family for family in families("develop")}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_every_variant_gives_the_reference(name: str, contexts: list[Any]) -> None:
    for variant in FAMILIES[name].variants:
        for context in contexts:
            check_variant(FAMILIES[name], variant, context)


# Counting a stencil of 27 points for all variants takes seconds.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "box27" else name for name in sorted(FAMILIES)]
)
def test_a_family_is_one_task_at_growing_sizes(name: str) -> None:
    family = FAMILIES[name]
    assert 6 <= len(family.variants) <= 12
    assert len(family.sizes) == 3
    assert all(size.keys() == family.tiny.keys() for size in family.sizes)
    arrays = {variant: _arrays(make()) for variant, make in family.variants.items()}
    first = next(iter(arrays.values()))
    assert [variant for variant, own in arrays.items() if own != first] == []
    moved = [_bytes(first, size) for size in family.sizes]
    assert moved[0] < moved[1] < moved[2]
    # Data of the smallest size fits in two L2 caches of 2 MiB, that of the largest does not.
    assert moved[0] < 4 << 20
    assert moved[2] > 4 << 20


def _arrays(kernel: Any) -> dict[str, tuple[Any, ...]]:
    arguments = [argument for argument in kernel.default_entrypoint.args if hasattr(argument, "shape")]
    return {str(a.name): (a.dtype.numpy_dtype, a.shape, a.is_input, a.is_output) for a in arguments}


def _bytes(arrays: dict[str, tuple[Any, ...]], sizes: Any) -> int:
    elements = {name: prod(evaluate(extent, dict(sizes)) for extent in array[1]) for name, array in arrays.items()}
    return sum(int(count) * arrays[name][0].itemsize for name, count in elements.items())
