"""Cycles of the first cache by each maker's rules, and machines whose rules are not known."""

from __future__ import annotations

import numpy as np
import pytest

from perflex.errors import MachineError
from perflex.features import kernel_feature_values
from perflex.features.gpu.l1 import cdna2_cycles, rdna2_cycles
from support.volume_kernels import one_axis

# A load's eight offsets in the benchmark, in elements.
OFFSETS = np.array([0, 4, 8, 12, 20, 16, 24, 28])
# Bytes of an element, stride in elements, measured cycles per load and 32 work-items on an MI210 (github
# te42kyfo/gpu-benches at 0a45416, gpu-strides/mi210.txt). Strides up to 34 were used for the rules.
STRIDES = [
    (4, 1, 2.18), (4, 3, 8.1), (4, 5, 14.1), (4, 8, 32.2), (4, 15, 24.2),
    (4, 18, 16.1), (4, 21, 14.1), (4, 36, 32.2), (4, 55, 14.1), (4, 63, 24.2),
    (8, 0, 8.1), (8, 4, 16.1), (8, 10, 12.1), (8, 11, 16.1), (8, 16, 32.2),
    (8, 17, 16.1), (8, 19, 12.1), (8, 25, 8.1), (8, 30, 24.2), (8, 31, 28.2),
]  # fmt: skip
# The same for rows of so many work-items, 4098 elements apart; of these, floats four wide were used.
BLOCKS = [(4, 2, 24.2), (4, 4, 7.5), (4, 8, 4.03), (4, 64, 2.18), (8, 1, 24.2), (8, 2, 12.1), (8, 16, 8.1)]


def per_load(first: np.ndarray, size: int, cycles=cdna2_cycles, lanes: int = 64) -> float:
    """Cycles per load and 32 work-items."""
    addresses = size * (first[None, :] + OFFSETS[:, None])
    return float(cycles(addresses.reshape(len(OFFSETS), -1, lanes), size).sum()) * 32 / addresses.size


@pytest.mark.parametrize(("size", "stride", "measured"), STRIDES)
def test_strides_on_cdna2(size: int, stride: int, measured: float) -> None:
    # Times have a launch in them: a cycle of four is 4.36.
    assert per_load(np.arange(1024) % 64 * stride, size) == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize(("size", "width", "measured"), BLOCKS)
def test_blocks_on_cdna2(size: int, width: int, measured: float) -> None:
    items = np.arange(1024)
    first = items % width + (items // width % 32 + 1) * 4098
    assert per_load(first, size) == pytest.approx(measured, rel=0.09)


@pytest.mark.parametrize(
    ("size", "stride", "measured"),
    [(4, 1, 1.0), (4, 9, 2.99), (4, 32, 31.9), (4, 51, 11.2), (8, 1, 4.34), (8, 21, 10.5)],
)
def test_strides_on_rdna2(size: int, stride: int, measured: float) -> None:
    assert per_load(np.arange(1024) % 64 * stride, size, rdna2_cycles, 32) == pytest.approx(measured, rel=0.09)


def test_what_is_not_known_is_refused() -> None:
    scop = one_axis(2048, [64], 1, 4)
    for identifier in ("f_l1_wavefronts", "f_peak_l1"):
        with pytest.raises(MachineError, match="no fact l1_rules") as caught:
            kernel_feature_values([identifier], scop, {}, machine="W7800")
        assert caught.value.fact == "l1_rules"
