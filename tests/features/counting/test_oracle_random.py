"""Symbolic counts of random kernels against brute-force enumeration."""

import pytest

from oracles.compare import check_counts
from oracles.random_kernels import make_random_kernel


# Some have footprints that take minutes symbolically; those are counted at the given sizes.
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(60))
def test_random_kernel(seed):
    check_counts(make_random_kernel(seed))
