"""Cache volumes of loops whose range depends on others, against a cache simulated access by access."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from oracles.lru import Reference, lru_crossings, trace_of
from perflex import estimate_ecm
from perflex.features import extract_scop
from support.ecm_kernels import loopy_kernel, small_machine

A, B, C = (place << 26 for place in range(3))


def rows(*elements: int) -> tuple[int, ...]:
    return tuple(8 * count for count in elements)


@dataclass(frozen=True)
class Case:
    """A kernel, the ranges and accesses of its loops, and which iterations of these ranges run."""

    domain: str
    code: str
    arrays: dict[str, str]
    order: str
    ranges: list[range]
    references: list[Reference]
    keep: np.ndarray

    def kernel(self):
        return loopy_kernel(self.domain, self.code, self.arrays, self.order)


def _grid(*ranges: range) -> list[np.ndarray]:
    return np.meshgrid(*ranges, indexing="ij")


def triangular_product(n: int, *, lower: bool) -> Case:
    i, j = _grid(range(n), range(n))
    bounds = "0<=j<=i" if lower else "i<=j<n"
    along = [Reference(B, rows(1, 0)), Reference(A, rows(n, 1)), Reference(C, rows(0, 1))]
    return Case(
        f"{{[i,j]: 0<=i<n and {bounds}}}",
        "y[i] = y[i] + a[i,j]*x[j] {id=u, dep=}",
        {"a": "(n,n)", "x": "(n)", "y": "(n)"},
        "i,j",
        [range(n)] * 2,
        [*along, Reference(B, rows(1, 0), 0, store=True)],
        j <= i if lower else j >= i,
    )


def half_transposition(n: int) -> Case:
    i, j = _grid(range(n), range(n))
    references = [Reference(A, rows(1, n)), Reference(B, rows(n, 1), 0, store=True)]
    arrays = {"a": "(n,n)", "b": "(n,n)"}
    return Case(
        "{[i,j]: 0<=i<n and 0<=j<=i}", "b[i,j] = a[j,i]", arrays, "i,j", [range(n)] * 2, references, j <= i
    )  # fmt: skip


def triangular_stencil(n: int) -> Case:
    j, i = _grid(range(1, n - 1), range(1, n - 1))
    around = [(0, -1), (0, 1), (-1, 0), (1, 0)]
    references = [Reference(A, rows(n, 1), 8 * (y * n + x)) for y, x in around]
    return Case(
        "{[j,i]: 1<=j<n-1 and 1<=i<=j}",
        "b[j,i] = a[j,i-1] + a[j,i+1] + a[j-1,i] + a[j+1,i]",
        {"a": "(n,n)", "b": "(n,n)"},
        "j,i",
        [range(1, n - 1)] * 2,
        [*references, Reference(B, rows(n, 1), 0, store=True)],
        i <= j,
    )


def compare(case: Case, n: int, caches: tuple[int, ...], within: float) -> None:
    scop = extract_scop(case.kernel())
    lines, stores = trace_of(case.ranges, case.references, keep=case.keep)
    iterations = int(case.keep.sum())
    for cache in caches:
        found, wanted = estimate_ecm(scop, {"n": n}, small_machine(cache)), lru_crossings(lines, stores, cache)
        assert found.iterations == iterations
        assert found.varying
        bytes_wanted = 64 * (wanted.loads + wanted.evicts) / iterations
        assert 1 / within < found.levels[1].bytes / bytes_wanted < within


@pytest.mark.parametrize(
    ("case", "n"),
    [
        (triangular_product(160, lower=True), 160),
        (triangular_product(160, lower=False), 160),
        (half_transposition(160), 160),
        (triangular_stencil(200), 200),
    ],
)
def test_triangles_in_caches_that_hold_part_of_them(case: Case, n: int) -> None:
    # Through the range in which only the shorter ones of the inner loops fit.
    compare(case, n, (512, 1024, 2048, 8192, 16384), 1.13)
