"""What counts kernels takes loopy kernels, measurement kernels and Scops alike, and machines by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from perflex import estimate_ecm, estimate_volumes, load_machine
from perflex.features import count_features, extract_scop
from sample_kernels import matmul
from uipick import MeasurementKernel

if TYPE_CHECKING:
    from collections.abc import Callable

SIZES = {"n": 512}
KERNEL = matmul(prefetch=False)


@pytest.mark.parametrize(
    "estimate",
    [
        lambda kernel: estimate_volumes(kernel, SIZES, "V100"),
        lambda kernel: estimate_ecm(kernel, SIZES, "Gold-6248"),
        lambda kernel: count_features(kernel, SIZES),
    ],
    ids=["volumes", "ecm", "counts"],
)
def test_kernels_of_all_kinds(estimate: Callable[[Any], object]) -> None:
    measured = MeasurementKernel(KERNEL, SIZES, "mine", "matmul", {})
    expected = str(estimate(extract_scop(KERNEL)))
    assert [str(estimate(kernel)) for kernel in (KERNEL, measured)] == [expected, expected]


def test_a_machine_by_name() -> None:
    assert estimate_volumes(KERNEL, SIZES, "V100") == estimate_volumes(KERNEL, SIZES, load_machine("V100"))
