"""Cache volumes against a cache simulated access by access, away from the thresholds of layer conditions."""

from __future__ import annotations

import random

import loopy as lp
import numpy as np
import pytest

from oracles.lru import Reference, lru_crossings, trace_of
from perflex import estimate_ecm
from perflex.features import extract_scop
from support.ecm_kernels import loopy_kernel, on_grid, small_machine, star_offsets, terms

A, B, C, D, E = (place << 26 for place in range(5))


def assert_agrees(kernel, sizes, traces, iterations, caches, *, rel=0.12, least=1, **options):
    """Compare each cache that no condition is near to; at least so many must be."""
    lines, stores = (np.concatenate(parts) for parts in zip(*traces, strict=True))
    estimate = estimate_ecm(extract_scop(kernel), sizes, small_machine(*caches), **options)
    compared = 0
    for number, cache in enumerate(caches):
        needs = [entry.needed_bytes / cache for entry in estimate.conditions if entry.level == f"L{number + 1}"]
        if any(0.7 < need < 1.45 for need in needs):
            continue
        found, wanted = estimate.levels[number + 1], lru_crossings(lines, stores, cache)
        if needs[0] > 1:  # the simulation's cache is empty at first
            assert found.load_bytes == pytest.approx(64 * wanted.loads / iterations, rel=rel)
            assert found.store_bytes == pytest.approx(64 * wanted.evicts / iterations, rel=rel, abs=0.05)
            compared += 1
    assert compared >= least


def rows(*strides):
    """Bytes per iteration of loops, for elements of 8 bytes."""
    return tuple(8 * stride for stride in strides)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_random_stencils_in_either_order_of_loops(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - no secret
    n = 112
    offsets = sorted({(rng.randint(-2, 2), rng.randint(-2, 2)) for _ in range(rng.randint(2, 6))})
    order = rng.choice(["j,i", "i,j"]) if seed else "i,j"
    code = f"b[j,i] = {terms('a', 'ji', offsets)}"
    kernel = loopy_kernel("{[i,j]: 2<=i,j<n-2}", code, {"a": "(n,n)", "b": "(n,n)"}, order)
    coefficients = rows(n, 1) if order == "j,i" else rows(1, n)
    references = [Reference(A, coefficients, 8 * (n * y + x)) for y, x in offsets]
    references.append(Reference(B, coefficients, 0, store=True))
    trace = trace_of([range(2, n - 2)] * 2, references)
    assert_agrees(kernel, {"n": n}, [trace], (n - 4) ** 2, (2048, 16384, 65536), rel=0.15)


def test_a_star_in_three_dimensions() -> None:
    n, m = 48, 22
    offsets = star_offsets(3, 1)
    domain = "{[k,j,i]: 1<=k<m-1 and 1<=j<n-1 and 1<=i<n-1}"
    kernel = loopy_kernel(domain, f"b[k,j,i] = {terms('a', 'kji', offsets)}", {"a": "(m,n,n)", "b": "(m,n,n)"}, "k,j,i")
    coefficients = rows(n * n, n, 1)
    references = [Reference(A, coefficients, 8 * (n * n * z + n * y + x)) for z, y, x in offsets]
    references.append(Reference(B, coefficients, 0, store=True))
    trace = trace_of([range(1, m - 1), range(1, n - 1), range(1, n - 1)], references)
    assert_agrees(kernel, {"n": n, "m": m}, [trace], 46 * 46 * 20, (1024, 16384, 131072), rel=0.2, least=3)


@pytest.mark.parametrize("order", ["i,j,k", "i,k,j", "j,k,i", "k,i,j"])
def test_matrix_products_in_any_order_of_loops(order: str) -> None:
    n = 48
    code = "c[i,j] = c[i,j] + a[i,k]*b[k,j] {id=update, dep=}"
    kernel = loopy_kernel("{[i,j,k]: 0<=i,j,k<n}", code, dict.fromkeys("abc", "(n,n)"), order)
    strides = {"a": {"i": n, "k": 1}, "b": {"k": n, "j": 1}, "c": {"i": n, "j": 1}}
    along = {name: rows(*(own.get(loop, 0) for loop in order.split(","))) for name, own in strides.items()}
    references = [Reference(C, along["c"]), Reference(A, along["a"]), Reference(B, along["b"])]
    references.append(Reference(C, along["c"], 0, store=True))
    trace = trace_of([range(n)] * 3, references)
    assert_agrees(kernel, {"n": n}, [trace], n**3, (512, 1024, 2048, 8192, 32768), least=2)


@pytest.mark.parametrize(("block_j", "block_i"), [(124, 20), (10, 30), (8, 8), (31, 62)])
def test_blocked_loops(block_j: int, block_i: int) -> None:
    n = 128
    offsets = [(0, 0), *star_offsets(2, 2)]
    kernel = loopy_kernel(
        "{[j,i]: 2<=i,j<n-2}", f"b[j,i] = {terms('a', 'ji', offsets)}", {"a": "(n,n)", "b": "(n,n)"}, "j,i"
    )
    blocks = [range(124 // block_j), range(124 // block_i), range(block_j), range(block_i)]
    coefficients = rows(n * block_j, block_i, n, 1)
    references = [Reference(A, coefficients, 8 * (n * (y + 2) + x + 2)) for y, x in offsets]
    references.append(Reference(B, coefficients, 8 * (2 * n + 2), store=True))
    iterations = np.prod([len(block) for block in blocks])
    chosen = {"i": block_i, "j": block_j}
    assert_agrees(kernel, {"n": n}, [trace_of(blocks, references)], iterations, (4096, 16384, 65536), blocks=chosen)


@pytest.mark.parametrize(("items_0", "items_1"), [(16, 4), (8, 8), (64, 1)])
def test_work_items_that_sweep_through_planes(items_0: int, items_1: int) -> None:
    n, m, lanes = 64, 16, 8
    padded = n + 2
    offsets = [(0, 0, 0), *star_offsets(3, 1)]
    shifted = [tuple(step + 1 for step in offset) for offset in offsets]
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=k<m and 0<=i,j<n}",
        f"b[k,j,i] = {terms('a', 'kji', shifted)}",
        {"a": "(m+2,n+2,n+2)", "b": "(m,n,n)"},
    )
    kernel = on_grid(lp.assume(kernel, "n mod 64 = 0"), i=(0, items_0), j=(1, items_1))
    loops = [range(n // items_1), range(n // items_0), range(items_1), range(items_0 // lanes), range(m), range(lanes)]
    over_a = rows(padded * items_1, items_0, padded, lanes, padded * padded, 1)
    over_b = rows(n * items_1, items_0, n, lanes, n * n, 1)
    references = [Reference(A, over_a, 8 * (padded * padded * z + padded * y + x)) for z, y, x in shifted]
    references.append(Reference(B, over_b, 0, store=True))
    trace = trace_of(loops, references)
    assert_agrees(kernel, {"n": n, "m": m}, [trace], n * n * m, (1024, 16384, 65536), lanes=lanes, rel=0.15)


def test_tiles_in_local_memory() -> None:
    n, tile = 96, 16
    kernel = loopy_kernel("{[i,j,k]: 0<=i,j,k<n}", "c[i,j] = sum(k, a[i,k]*b[k,j])", dict.fromkeys("abc", "(n,n)"))
    kernel = on_grid(lp.assume(kernel, "n mod 16 = 0"), i=(1, tile), j=(0, tile))
    kernel = lp.split_iname(kernel, "k", tile)
    kernel = lp.add_prefetch(kernel, "a", ["k_inner", "i_inner"], default_tag="l.auto")
    kernel = lp.add_prefetch(kernel, "b", ["k_inner", "j_inner"], default_tag="l.auto")
    local_a, local_b = D, D + 8 * tile * tile
    square, tall = [range(tile)] * 2, [range(tile)] * 3
    traces = []
    for row in range(0, n, tile):
        for column in range(0, n, tile):
            for depth in range(0, n, tile):
                own = [
                    Reference(A, rows(n, 1), 8 * (n * row + depth)),
                    Reference(local_a, rows(tile, 1), 0, store=True),
                ]
                traces.append(trace_of(square, own))
                own = [
                    Reference(B, rows(n, 1), 8 * (n * depth + column)),
                    Reference(local_b, rows(tile, 1), 0, store=True),
                ]
                traces.append(trace_of(square, own))
                own = [Reference(local_a, rows(tile, 0, 1)), Reference(local_b, rows(0, 1, tile))]
                traces.append(trace_of(tall, own))
            traces.append(trace_of(square, [Reference(C, rows(n, 1), 8 * (n * row + column), store=True)]))
    assert_agrees(kernel, {"n": n}, traces, n**3, (16384, 65536), lanes=1, least=1)


@pytest.mark.parametrize(
    ("dtype", "tile", "n"),
    [(np.float64, 8, 192), (np.float64, 16, 192), (np.float32, 8, 192), (np.float32, 16, 240), (np.float64, 4, 188)],
)
def test_tiles_of_split_loops_at_aligned_bases(dtype: type, tile: int, n: int) -> None:
    size = np.dtype(dtype).itemsize
    kernel = loopy_kernel("{[i,j]: 0<=i,j<n}", "b[j,i] = a[i,j]", {"a": "(n,n)", "b": "(n,n)"}, dtype=dtype)
    kernel = lp.split_iname(lp.split_iname(lp.assume(kernel, f"n mod {tile} = 0"), "i", tile), "j", tile)
    kernel = lp.prioritize_loops(kernel, "j_outer,i_outer,j_inner,i_inner")
    tiles = [range(n // tile), range(n // tile), range(tile), range(tile)]
    references = [
        Reference(A, (size * tile, size * n * tile, size, size * n)),
        Reference(B, (size * n * tile, size * tile, size * n, size), 0, store=True),
    ]
    assert_agrees(kernel, {"n": n}, [trace_of(tiles, references)], n * n, (4096, 16384), rel=0.03)
