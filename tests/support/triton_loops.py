"""Kernels whose loops and calls are of many kinds, each with launches."""
# ruff: noqa: N803  (names as in the public kernels)

import numpy as np
import triton
import triton.language as tl

from .triton_case import Case, array, given, randoms, up


# FlagGems: a mean over the middle axis; the compiler unrolls the loop.
@triton.jit
def mean_kernel(x_ptr, out_ptr, M, N, K, BLOCK_K: tl.constexpr, UNROLL: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.program_id(1) * BLOCK_K + tl.arange(0, BLOCK_K)
    mask = cols < K
    acc = tl.zeros([BLOCK_K], dtype=tl.float32)
    for n in tl.range(0, N, loop_unroll_factor=UNROLL):
        acc += tl.load(x_ptr + (row * N + n) * K + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * K + cols, acc / N, mask=mask)


def mean(name, m, n, k, unroll):
    arguments = {"x_ptr": array("bf16", m, n, k), "out_ptr": array("fp32", m, k), "M": m, "N": n, "K": k}
    return Case(name, mean_kernel, (m, up(k, 64)), arguments, {"BLOCK_K": 64, "UNROLL": unroll})


# A filter: the taps are unrolled by Python, rows go backwards, and the last loop counts in 64 bits.
@triton.jit
def filter_kernel(x_ptr, taps_ptr, out_ptr, first_ptr, rows, cols, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < cols
    for row in range(rows - 1, -1, -1):
        acc = tl.zeros([BLOCK], dtype=tl.float32)
        for tap in tl.static_range(TAPS):
            source = at + tap - TAPS // 2
            mask = (source >= 0) & (source < cols)
            acc += tl.load(taps_ptr + tap) * tl.load(x_ptr + row * cols + source, mask=mask, other=0.0)
        tl.store(out_ptr + row * cols + at, acc, mask=inside)
    first = tl.load(first_ptr).to(tl.int64)
    last = tl.full([], 0, tl.int64) + rows
    for row in range(first, last, 3):
        tl.atomic_max(out_ptr + row * cols + at, 0.25, mask=inside)


def filtered(name, rows, cols, taps, first):
    arguments = {
        "x_ptr": array("fp32", rows, cols),
        "taps_ptr": array("fp32", taps),
        "out_ptr": array("fp32", rows, cols),
        "first_ptr": given("i32", [first]),
        "rows": rows,
        "cols": cols,
    }
    return Case(name, filter_kernel, (up(cols, 64),), arguments, {"TAPS": taps, "BLOCK": 64})


# Programs take tiles from a common counter until none is left.
@triton.jit
def queue_kernel(x_ptr, out_ptr, counter_ptr, tiles, n, BLOCK: tl.constexpr):
    tile = tl.atomic_add(counter_ptr, 1)
    while tile < tiles:
        at = tile * BLOCK + tl.arange(0, BLOCK)
        mask = at < n
        x = tl.load(x_ptr + at, mask=mask, other=0.0)
        tl.store(out_ptr + at, tl.exp(x.to(tl.float32)), mask=mask)
        tile = tl.atomic_add(counter_ptr, 1)


def queue(name, n, programs, block):
    arguments = {"x_ptr": array("fp16", n), "out_ptr": array("fp32", n), "counter_ptr": given("i32", [0])}
    return Case(name, queue_kernel, (programs,), arguments | {"tiles": up(n, block), "n": n}, {"BLOCK": block})


@triton.jit
def weight_of(kinds_ptr, weights_ptr, at, limit):
    kind = tl.load(kinds_ptr + at)
    if kind > limit:
        return 0.0
    return tl.load(weights_ptr + kind)


# A function that returns early, called once where it is made part of the kernel and in a loop where it is not.
@triton.jit
def early_kernel(kinds_ptr, weights_ptr, out_ptr, n, limit):
    pid = tl.program_id(0)
    total = weight_of(kinds_ptr, weights_ptr, pid, limit)
    for step in range(1, n):
        total += weight_of(kinds_ptr, weights_ptr, (pid + step * step) % n, limit)
    tl.store(out_ptr + pid, total)


def early(name, n, kinds, limit):
    arguments = {
        "kinds_ptr": given("i32", randoms(name).integers(0, kinds, n)),
        "weights_ptr": array("fp32", kinds),
        "out_ptr": array("fp32", n),
        "n": n,
        "limit": limit,
    }
    return Case(name, early_kernel, (n,), arguments, warps=1)


# vLLM: the experts of each token, the greatest first.
@triton.jit
def topk_kernel(
    logits_ptr, weights_ptr, ids_ptr, rows, experts, TOPK: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_E: tl.constexpr
):
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    expert = tl.arange(0, BLOCK_E)
    mask = (row < rows)[:, None] & (expert < experts)[None, :]
    x = tl.load(logits_ptr + row[:, None] * experts + expert[None, :], mask=mask, other=-1e4).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=1)[:, None])
    x = x / tl.sum(x, axis=1)[:, None]
    for k in range(TOPK):
        best = tl.argmax(x, axis=1)
        tl.store(weights_ptr + row * TOPK + k, tl.max(x, axis=1), mask=row < rows)
        tl.store(ids_ptr + row * TOPK + k, best, mask=row < rows)
        x = tl.where(expert[None, :] == best[:, None], -1.0, x)


def topk(name, rows, experts, k):
    arguments = {"logits_ptr": array("fp16", rows, experts), "weights_ptr": array("fp32", rows, k)}
    arguments |= {"ids_ptr": array("i32", rows, k), "rows": rows, "experts": experts}
    constexprs = {"TOPK": k, "BLOCK_M": 8, "BLOCK_E": 1 << (experts - 1).bit_length()}
    return Case(name, topk_kernel, (up(rows, 8),), arguments, constexprs)


# Mamba: a state for each channel, updated token by token; sequences of different lengths lie one behind the other.
@triton.jit
def selective_scan_kernel(
    u_ptr, delta_ptr, a_ptr, b_ptr, c_ptr, out_ptr, begins_ptr, dim,
    STATES: tl.constexpr, PADDED: tl.constexpr, BLOCK: tl.constexpr, HAS_SOFTPLUS: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(1)
    channel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    state = tl.arange(0, PADDED)
    in_channel = channel < dim
    in_state = state < STATES
    a = tl.load(
        a_ptr + channel[:, None] * STATES + state[None, :], mask=in_channel[:, None] & in_state[None, :], other=0.0
    )
    x = tl.zeros((BLOCK, PADDED), dtype=tl.float32)
    begin = tl.load(begins_ptr + sequence)
    end = tl.load(begins_ptr + sequence + 1)
    for token in range(begin, end):
        delta = tl.load(delta_ptr + token * dim + channel, mask=in_channel, other=0.0).to(tl.float32)
        if HAS_SOFTPLUS:
            delta = tl.where(delta <= 20.0, tl.log(1.0 + tl.exp(delta)), delta)
        u = tl.load(u_ptr + token * dim + channel, mask=in_channel, other=0.0).to(tl.float32)
        b = tl.load(b_ptr + token * STATES + state, mask=in_state, other=0.0)
        c = tl.load(c_ptr + token * STATES + state, mask=in_state, other=0.0)
        x = tl.exp(delta[:, None] * a) * x + (delta * u)[:, None] * b[None, :]
        tl.store(out_ptr + token * dim + channel, tl.sum(x * c[None, :], axis=1).to(tl.float16), mask=in_channel)


def selective_scan(name, lengths, dim, states):
    tokens = sum(lengths)
    arguments = {
        "u_ptr": array("fp16", tokens, dim),
        "delta_ptr": array("fp16", tokens, dim),
        "a_ptr": array("fp32", dim, states),
        "b_ptr": array("fp32", tokens, states),
        "c_ptr": array("fp32", tokens, states),
        "out_ptr": array("fp16", tokens, dim),
        "begins_ptr": given("i32", np.cumsum([0, *lengths])),
        "dim": dim,
    }
    constexprs = {"STATES": states, "PADDED": 16, "BLOCK": 32, "HAS_SOFTPLUS": True}
    return Case(name, selective_scan_kernel, (up(dim, 32), len(lengths)), arguments, constexprs)


LOOPS = (
    mean("mean", 4, 11, 90, 1),
    mean("mean_unrolled", 3, 23, 100, 4),
    filtered("filter", 8, 150, 5, 2),
    queue("queue", 2100, 5, 256),
    early("early", 31, 12, 6),
    topk("topk", 27, 13, 3),
    selective_scan("selective_scan", [5, 0, 9], 75, 12),
)
