"""Symbolic counts of random kernels against brute-force enumeration; thousands more in ``tests/bench``."""

from __future__ import annotations

import pytest

from oracles.outcomes import outcomes

# Some have footprints that take minutes symbolically; those are counted at the given sizes.
SEEDS = range(250)


@pytest.fixture(scope="module")
def wrong() -> dict[int, str]:
    """What is wrong with each kernel: nothing."""
    return {seed: text for seed, text, _ in outcomes(SEEDS)}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernel(seed: int, wrong: dict[int, str]) -> None:
    assert not wrong[seed]
