"""Random kernels checked in several processes, for the tests and for the benchmark."""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import cpu_count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["Outcome", "outcome", "outcomes"]

Outcome = tuple[int, str, float]


def outcome(seed: int) -> Outcome:
    """Return the seed, what is wrong with the counts of its kernel (or nothing), and the seconds it took."""
    from perflex.errors import UnsupportedKernelError

    from .brute import NotEnumerableError
    from .compare import check_counts
    from .random_kernels import make_random_kernel

    start = time.perf_counter()
    wrong = ""
    try:
        check_counts(make_random_kernel(seed))
    except AssertionError as error:
        wrong = f"MISMATCH {error}"
    except UnsupportedKernelError as error:
        wrong = f"refused: {error}"
    except NotEnumerableError as error:
        wrong = f"not enumerable: {error}"
    return seed, wrong, time.perf_counter() - start


def outcomes(seeds: Iterable[int]) -> Iterator[Outcome]:
    """Check kernels on all cores, in order of the seeds."""
    # Forking would copy isl's and OpenCL's state.
    with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as pool:
        yield from pool.map(outcome, seeds, chunksize=4)
