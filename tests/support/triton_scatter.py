"""Reductions, scans, atomic operations and loops without a known end, as users of Triton have them."""
# ruff: noqa: N803  (names as in the public kernels)

import numpy as np
import triton
import triton.language as tl

from .triton_case import Array, Case, array, given, randoms, up


# vLLM: how many tokens each expert has.
@triton.jit
def count_experts_kernel(ids_ptr, counts_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    ids = tl.load(ids_ptr + offsets, mask=mask, other=0)
    tl.atomic_add(counts_ptr + ids, 1, mask=mask)


def count_experts(name, n, experts, block):
    ids = randoms(name).integers(0, experts, n)
    arguments = {"ids_ptr": given("i32", ids), "counts_ptr": array("i32", experts), "n": n}
    return Case(name, count_experts_kernel, (up(n, block),), arguments, {"BLOCK": block})


# FlagGems: a histogram for each program, added to the common one.
@triton.jit
def histogram_kernel(x_ptr, bins_ptr, n, BINS: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0)
    counts = tl.histogram(x, BINS, mask=mask)
    tl.atomic_add(bins_ptr + tl.arange(0, BINS), counts, mask=counts > 0, sem="relaxed")


def histogram(name, n, bins, block):
    values = given("i32", randoms(name).integers(0, bins // 2, n))
    arguments = {"x_ptr": values, "bins_ptr": array("i32", bins), "n": n}
    return Case(name, histogram_kernel, (up(n, block),), arguments, {"BINS": bins, "BLOCK": block})


# FlagGems: rows added to rows that an index names.
@triton.jit
def scatter_add_kernel(src_ptr, index_ptr, out_ptr, rows, cols, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    r = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    c = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    mask = (r < rows) & (c < cols)
    index = tl.load(index_ptr + r, mask=r < rows, other=0)
    value = tl.load(src_ptr + r * cols + c, mask=mask, other=0.0)
    tl.atomic_add(out_ptr + index * cols + c, value, mask=mask, sem="relaxed")


def scatter_add(name, rows, cols, targets):
    arguments = {
        "src_ptr": array("fp32", rows, cols),
        "index_ptr": given("i64", randoms(name).integers(0, targets, rows)),
    }
    arguments |= {"out_ptr": array("fp32", targets, cols), "rows": rows, "cols": cols}
    return Case(name, scatter_add_kernel, (up(rows, 8), up(cols, 32)), arguments, {"BLOCK_M": 8, "BLOCK_N": 32})


# FlagGems: a row's running sum, a block after the other.
@triton.jit
def cumsum_kernel(x_ptr, out_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = tl.zeros([1], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * n_cols + cols, tl.cumsum(x, axis=0) + carry, mask=mask)
        carry += tl.sum(x, axis=0)


def cumsum(name, rows, cols, block):
    arguments = {"x_ptr": array("fp16", rows, cols), "out_ptr": array("fp32", rows, cols), "n_cols": cols}
    return Case(name, cumsum_kernel, (rows,), arguments, {"BLOCK": block})


@triton.jit
def linear_step(a1, b1, a2, b2):
    return a1 * a2, b1 * a2 + b2


# FLA: x[t] = a[t] x[t-1] + b[t] as an associative scan.
@triton.jit
def linear_scan_kernel(a_ptr, b_ptr, out_ptr, T, D, BLOCK_T: tl.constexpr, BLOCK_D: tl.constexpr):
    t = tl.arange(0, BLOCK_T)[:, None]
    d = tl.program_id(0) * BLOCK_D + tl.arange(0, BLOCK_D)[None, :]
    mask = (t < T) & (d < D)
    a = tl.load(a_ptr + t * D + d, mask=mask, other=1.0)
    b = tl.load(b_ptr + t * D + d, mask=mask, other=0.0)
    decay, state = tl.associative_scan((a, b), 0, linear_step)
    tl.store(out_ptr + t * D + d, state + 0.0 * decay, mask=mask)


def linear_scan(name, length, dim):
    arguments = {key: array("fp32", length, dim) for key in ("a_ptr", "b_ptr", "out_ptr")}
    arguments |= {"T": length, "D": dim}
    return Case(name, linear_scan_kernel, (up(dim, 8),), arguments, {"BLOCK_T": 32, "BLOCK_D": 8})


# FlagGems: the greatest element of each block and where it is, then the greatest of these.
@triton.jit
def argmax_blocks_kernel(x_ptr, value_ptr, index_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offsets = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=-float("inf"))
    value, index = tl.max(x, axis=0, return_indices=True)
    tl.store(value_ptr + pid, value)
    tl.store(index_ptr + pid, pid * BLOCK + index)


@triton.jit
def argmax_last_kernel(value_ptr, index_ptr, out_ptr, blocks, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    best = tl.argmax(tl.load(value_ptr + offsets, mask=offsets < blocks, other=-float("inf")), axis=0)
    tl.store(out_ptr, tl.load(index_ptr + best))


def argmax_blocks(name, n, block):
    blocks = up(n, block)
    arguments = {"x_ptr": array("fp32", n), "value_ptr": array("fp32", blocks), "index_ptr": array("i32", blocks)}
    return Case(name, argmax_blocks_kernel, (blocks,), arguments | {"n": n}, {"BLOCK": block})


def argmax_last(name, blocks, block):
    values = given("i32", randoms(name).permutation(blocks))
    arguments = {"value_ptr": values, "index_ptr": array("i32", blocks), "out_ptr": array("i64", 1), "blocks": blocks}
    return Case(name, argmax_last_kernel, (1,), arguments, {"BLOCK": block})


# FlagGems: where a value belongs in a sorted list.
@triton.jit
def searchsorted_kernel(sorted_ptr, value_ptr, out_ptr, n):
    pid = tl.program_id(0)
    value = tl.load(value_ptr + pid)
    low = 0
    high = n
    while low < high:
        middle = (low + high) // 2
        if tl.load(sorted_ptr + middle) < value:
            low = middle + 1
        else:
            high = middle
    tl.store(out_ptr + pid, low)


def searchsorted(name, n, queries):
    arguments = {"sorted_ptr": given("i32", np.sort(randoms(name).integers(0, 1000, n)))}
    arguments |= {
        "value_ptr": given("i32", randoms(name).integers(-10, 1010, queries)),
        "out_ptr": array("i32", queries),
    }
    return Case(name, searchsorted_kernel, (queries,), arguments | {"n": n})


# A sparse matrix in compressed rows times a vector.
@triton.jit
def csr_kernel(values_ptr, cols_ptr, begins_ptr, x_ptr, y_ptr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    begin = tl.load(begins_ptr + row)
    end = tl.load(begins_ptr + row + 1)
    acc = tl.zeros([BLOCK], dtype=tl.float32)
    for at in range(begin, end, BLOCK):
        offsets = at + tl.arange(0, BLOCK)
        mask = offsets < end
        cols = tl.load(cols_ptr + offsets, mask=mask, other=0)
        acc += tl.load(values_ptr + offsets, mask=mask, other=0.0) * tl.load(x_ptr + cols, mask=mask, other=0.0)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))


def csr(name, rows, cols, longest):
    rng = randoms(name)
    lengths = rng.integers(0, longest, rows)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    filled = np.concatenate([np.sort(rng.permutation(cols)[:length]) for length in lengths])
    arguments = {
        "values_ptr": array("fp32", len(filled)),
        "cols_ptr": given("i32", filled),
        "begins_ptr": given("i32", begins),
        "x_ptr": array("fp32", cols),
        "y_ptr": array("fp32", rows),
    }
    return Case(name, csr_kernel, (rows,), arguments, {"BLOCK": 32})


@triton.jit(noinline=True)
def norm_of_part(x_ptr, start, n, BLOCK: tl.constexpr):
    offsets = start + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    return tl.sum(x * x, axis=0)


# A function that stays a function, called in a loop.
@triton.jit
def called_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for start in range(0, n, BLOCK):
        total += norm_of_part(x_ptr + row * n, start, n, BLOCK)
    tl.store(out_ptr + row, tl.sqrt(total))


def called(name, rows, n, block):
    arguments = {"x_ptr": array("fp32", rows, n), "out_ptr": array("fp32", rows), "n": n}
    return Case(name, called_kernel, (rows,), arguments, {"BLOCK": block})


# vLLM: int8 with one scale for a group of a token's elements.
@triton.jit
def quantise_kernel(x_ptr, q_ptr, scale_ptr, group_size, cols, eps, BLOCK: tl.constexpr):
    group = tl.program_id(0)
    groups_per_row = cols // group_size
    row = group // groups_per_row
    first = row.to(tl.int64) * cols + (group % groups_per_row) * group_size
    offsets = tl.arange(0, BLOCK)
    mask = offsets < group_size
    x = tl.load(x_ptr + first + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x)), eps) / 127.0
    q = tl.clamp(x / scale, -127.0, 127.0).to(tl.int8)
    tl.store(q_ptr + first + offsets, q, mask=mask)
    tl.store(scale_ptr + group, scale)


def quantise(name, rows, cols, group):
    arguments = {
        "x_ptr": array("fp16", rows, cols),
        "q_ptr": array("i8", rows, cols),
        "scale_ptr": array("fp32", rows * cols // group),
        "group_size": group,
        "cols": cols,
        "eps": 1e-10,
    }
    block = 1 << (group - 1).bit_length()
    return Case(name, quantise_kernel, (rows * cols // group,), arguments, {"BLOCK": block}, warps=1)


# FlagGems: elements that a mask selects, packed; where they go was summed up before.
@triton.jit
def masked_select_kernel(x_ptr, chosen_ptr, sums_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    chosen = tl.load(chosen_ptr + offsets, mask=mask, other=0).to(tl.int1) & mask
    at = tl.load(sums_ptr + offsets, mask=chosen, other=0) - 1
    tl.store(out_ptr + at, tl.load(x_ptr + offsets, mask=chosen, other=0.0), mask=chosen)


def masked_select(name, n, block):
    chosen = randoms(name).integers(0, 2, n)
    arguments = {
        "x_ptr": array("fp32", n),
        "chosen_ptr": given("i8", chosen),
        "sums_ptr": given("i64", np.cumsum(chosen)),
        "out_ptr": Array("fp32", int(chosen.sum())),
        "n": n,
    }
    return Case(name, masked_select_kernel, (up(n, block),), arguments, {"BLOCK": block})


SCATTER = (
    count_experts("count_experts", 333, 24, 128),
    histogram("histogram", 1001, 64, 256),
    scatter_add("scatter_add", 37, 70, 11),
    cumsum("cumsum", 9, 301, 64),
    linear_scan("linear_scan", 27, 45),
    argmax_blocks("argmax_blocks", 5001, 256),
    argmax_last("argmax_last", 20, 32),
    searchsorted("searchsorted", 137, 41),
    csr("csr", 53, 211, 90),
    called("called", 7, 515, 128),
    quantise("quantise", 5, 360, 72),
    quantise("quantise_even", 4, 512, 128),
    masked_select("masked_select", 700, 128),
)
