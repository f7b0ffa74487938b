"""Kernels of rows and elements as users of Triton have them, each with launches."""
# ruff: noqa: N803, N806  (names as in the public kernels)

import numpy as np
import triton
import triton.language as tl

from .triton_case import Array, Case, array, given, up


# Triton tutorial 01.
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n_elements, BLOCK_SIZE: tl.constexpr):
    pid = tl.program_id(axis=0)
    offsets = pid * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    y = tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x + y, mask=mask)


def add(name, n, kind, block=256):
    arguments = {"x_ptr": array(kind, n), "y_ptr": array(kind, n), "out_ptr": array(kind, n), "n_elements": n}
    return Case(name, add_kernel, (up(n, block),), arguments, {"BLOCK_SIZE": block})


# Triton tutorial 02: each program takes rows in turn.
@triton.jit
def softmax_kernel(
    out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        cols = tl.arange(0, BLOCK_SIZE)
        mask = cols < n_cols
        row = tl.load(in_ptr + row_idx * in_stride + cols, mask=mask, other=-float("inf"))
        numerator = tl.exp(row - tl.max(row, axis=0))
        tl.store(out_ptr + row_idx * out_stride + cols, numerator / tl.sum(numerator, axis=0), mask=mask)


def softmax(name, rows, cols, stride, programs, block):
    arguments = {
        "out_ptr": array("fp32", rows, cols),
        "in_ptr": array("fp32", rows, stride),
        "in_stride": stride,
        "out_stride": cols,
        "n_rows": rows,
        "n_cols": cols,
    }
    return Case(name, softmax_kernel, (programs,), arguments, {"BLOCK_SIZE": block, "num_stages": 2})


# Triton tutorial 05.
@triton.jit
def layer_norm_kernel(X, Y, W, B, Mean, Rstd, stride, N, eps, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0)
    Y += row * stride
    X += row * stride
    _mean = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        _mean += tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
    mean = tl.sum(_mean, axis=0) / N
    _var = tl.zeros([BLOCK_SIZE], dtype=tl.float32)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X + cols, mask=cols < N, other=0.0).to(tl.float32)
        x = tl.where(cols < N, x - mean, 0.0)
        _var += x * x
    rstd = 1 / tl.sqrt(tl.sum(_var, axis=0) / N + eps)
    tl.store(Mean + row, mean)
    tl.store(Rstd + row, rstd)
    for off in range(0, N, BLOCK_SIZE):
        cols = off + tl.arange(0, BLOCK_SIZE)
        mask = cols < N
        w = tl.load(W + cols, mask=mask)
        b = tl.load(B + cols, mask=mask)
        x = tl.load(X + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(Y + cols, (x - mean) * rstd * w + b, mask=mask)


def layer_norm(name, rows, cols, block):
    arguments = {key: array("fp16", rows, cols) for key in "XY"}
    arguments |= {key: array("fp16", cols) for key in "WB"}
    arguments |= {"Mean": array("fp32", rows), "Rstd": array("fp32", rows), "stride": cols, "N": cols, "eps": 1e-5}
    return Case(name, layer_norm_kernel, (rows,), arguments, {"BLOCK_SIZE": block})


# Triton tutorial 05, backward: rows add to shared sums of the weights' gradients, one at a time behind a lock.
@triton.jit
def layer_norm_backward_kernel(
    DX, DY, DW, DB, X, W, Mean, Rstd, Lock, stride, N, GROUP_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr
):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE_N)
    mask = cols < N
    X += row * stride
    DY += row * stride
    DX += row * stride
    lock_id = row % GROUP_SIZE_M
    Lock += lock_id
    Count = Lock + GROUP_SIZE_M
    DW = DW + lock_id * N + cols
    DB = DB + lock_id * N + cols
    x = tl.load(X + cols, mask=mask, other=0).to(tl.float32)
    dy = tl.load(DY + cols, mask=mask, other=0).to(tl.float32)
    w = tl.load(W + cols, mask=mask).to(tl.float32)
    mean = tl.load(Mean + row)
    rstd = tl.load(Rstd + row)
    xhat = tl.where(mask, (x - mean) * rstd, 0.0)
    wdy = tl.where(mask, w * dy, 0.0)
    c1 = tl.sum(xhat * wdy, axis=0) / N
    c2 = tl.sum(wdy, axis=0) / N
    tl.store(DX + cols, (wdy - (xhat * c1 + c2)) * rstd, mask=mask)
    partial_dw = (dy * xhat).to(w.dtype)
    partial_db = dy.to(w.dtype)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    count = tl.load(Count)
    if count == 0:
        tl.atomic_xchg(Count, 1)
    else:
        partial_dw += tl.load(DW, mask=mask)
        partial_db += tl.load(DB, mask=mask)
    tl.store(DW, partial_dw, mask=mask)
    tl.store(DB, partial_db, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(Lock, 0)


def layer_norm_backward(name, rows, cols, group, block):
    arguments = {"DX": array("fp16", rows, cols), "DY": array("fp16", rows, cols)}
    arguments |= {key: array("fp32", group, cols) for key in ("DW", "DB")}
    arguments |= {"X": array("fp16", rows, cols), "W": array("fp16", cols)}
    arguments |= {"Mean": array("fp32", rows), "Rstd": array("fp32", rows)}
    arguments |= {"Lock": given("i32", np.zeros(2 * group, int)), "stride": cols, "N": cols}
    return Case(
        name, layer_norm_backward_kernel, (rows,), arguments, {"GROUP_SIZE_M": group, "BLOCK_SIZE_N": block}, warps=8
    )


# Liger.
@triton.jit
def rms_norm_kernel(Y, Y_stride, X, X_stride, W, RSTD, n_cols, eps, offset, BLOCK_SIZE: tl.constexpr):
    row_idx = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    x = tl.load(X + row_idx * X_stride + cols, mask=mask, other=0)
    w = tl.load(W + cols, mask=mask, other=0)
    dtype = x.dtype
    x = x.to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / n_cols + eps)
    tl.store(RSTD + row_idx, rstd)
    tl.store(Y + row_idx * Y_stride + cols, (x * rstd).to(dtype) * (offset + w), mask=mask)


def rms_norm(name, rows, cols, block, kind):
    arguments = {
        "Y": array(kind, rows, cols),
        "Y_stride": cols,
        "X": array(kind, rows, cols),
        "X_stride": cols,
        "W": array(kind, cols),
        "RSTD": array("fp32", rows),
        "n_cols": cols,
        "eps": 1e-6,
        "offset": 1.0,
    }
    return Case(name, rms_norm_kernel, (rows,), arguments, {"BLOCK_SIZE": block})


# vLLM and Liger: rotary embedding in place, all heads of a token in one program.
@triton.jit
def rope_kernel(
    q_ptr, q_stride, k_ptr, k_stride, cos_ptr, sin_ptr, cos_stride, seq_len,
    N_QH: tl.constexpr, N_KH: tl.constexpr, PAD_QH: tl.constexpr, PAD_KH: tl.constexpr, HD: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0).to(tl.int64)
    q_ptr += pid * q_stride
    k_ptr += pid * k_stride
    half = tl.arange(0, HD // 2)
    position = pid % seq_len
    cos = tl.load(cos_ptr + position * cos_stride + half)
    sin = tl.load(sin_ptr + position * cos_stride + half)
    q_off = tl.arange(0, PAD_QH)[:, None] * HD + half[None, :]
    k_off = tl.arange(0, PAD_KH)[:, None] * HD + half[None, :]
    q_mask = (tl.arange(0, PAD_QH)[:, None] < N_QH) & (half[None, :] < HD // 2)
    k_mask = (tl.arange(0, PAD_KH)[:, None] < N_KH) & (half[None, :] < HD // 2)
    q1 = tl.load(q_ptr + q_off, mask=q_mask, other=0).to(sin.dtype)
    k1 = tl.load(k_ptr + k_off, mask=k_mask, other=0).to(sin.dtype)
    q2 = tl.load(q_ptr + q_off + HD // 2, mask=q_mask, other=0).to(sin.dtype)
    k2 = tl.load(k_ptr + k_off + HD // 2, mask=k_mask, other=0).to(sin.dtype)
    tl.store(q_ptr + q_off, q1 * cos - q2 * sin, mask=q_mask)
    tl.store(q_ptr + q_off + HD // 2, q2 * cos + q1 * sin, mask=q_mask)
    tl.store(k_ptr + k_off, k1 * cos - k2 * sin, mask=k_mask)
    tl.store(k_ptr + k_off + HD // 2, k2 * cos + k1 * sin, mask=k_mask)


def rope(name, batch, seq, heads, kv_heads, dim):
    tokens = batch * seq
    arguments = {
        "q_ptr": array("fp16", tokens, heads, dim),
        "q_stride": heads * dim,
        "k_ptr": array("fp16", tokens, kv_heads, dim),
        "k_stride": kv_heads * dim,
        "cos_ptr": array("fp32", seq, dim),
        "sin_ptr": array("fp32", seq, dim),
        "cos_stride": dim,
        "seq_len": seq,
    }
    constexprs = {"N_QH": heads, "N_KH": kv_heads, "PAD_QH": 1 << (heads - 1).bit_length()}
    constexprs |= {"PAD_KH": 1 << (kv_heads - 1).bit_length(), "HD": dim}
    return Case(name, rope_kernel, (tokens,), arguments, constexprs)


# Liger.
@triton.jit
def silu(x):
    return x * tl.sigmoid(x)


@triton.jit
def swiglu_kernel(a_ptr, b_ptr, c_ptr, stride, n_cols: tl.constexpr, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    a = tl.load(a_ptr + row * stride + cols, mask=mask, other=0).to(tl.float32)
    b = tl.load(b_ptr + row * stride + cols, mask=mask, other=0)
    tl.store(c_ptr + row * stride + cols, silu(a).cast(b.dtype) * b, mask=mask)


def swiglu(name, rows, cols, block):
    arguments = {f"{key}_ptr": array("fp16", rows, cols) for key in "abc"} | {"stride": cols}
    return Case(name, swiglu_kernel, (rows,), arguments, {"n_cols": cols, "BLOCK_SIZE": block})


# Liger: the sum of exponentials in one pass, then the gradient over the logits.
@triton.jit
def cross_entropy_kernel(
    X_ptr, X_stride, Y_ptr, loss_ptr, n_cols, n_rows, ignore_index, label_smoothing, BLOCK_SIZE: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    y = tl.load(Y_ptr + row)
    X_ptr += row * X_stride
    if y == ignore_index:
        for i in range(0, n_cols, BLOCK_SIZE):
            cols = i + tl.arange(0, BLOCK_SIZE)
            tl.store(X_ptr + cols, 0.0, mask=cols < n_cols)
        return
    m = float("-inf")
    d = 0.0
    label_x = tl.load(X_ptr + y).cast(tl.float32)
    for i in range(0, n_cols, BLOCK_SIZE):
        cols = i + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X_ptr + cols, mask=cols < n_cols, other=float("-inf")).cast(tl.float32)
        m_new = tl.maximum(m, tl.max(x))
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(x - m_new))
        m = m_new
    for i in range(0, n_cols, BLOCK_SIZE):
        cols = i + tl.arange(0, BLOCK_SIZE)
        x = tl.load(X_ptr + cols, mask=cols < n_cols, other=float("-inf")).cast(tl.float32)
        x = tl.exp(x - m) / d - label_smoothing
        x = tl.where(cols != y, x, x - (1 - label_smoothing)) / n_rows
        tl.store(X_ptr + cols, x, mask=cols < n_cols)
    tl.debug_barrier()
    tl.store(loss_ptr + row, m + tl.log(d) - label_x)


def cross_entropy(name, rows, cols, block, ignored=-100):
    labels = np.random.default_rng(5).integers(0, cols, rows)
    labels[:: max(2, rows // 3)] = ignored
    arguments = {
        "X_ptr": array("fp32", rows, cols),
        "X_stride": cols,
        "Y_ptr": given("i64", labels),
        "loss_ptr": array("fp32", rows),
        "n_cols": cols,
        "n_rows": rows,
        "ignore_index": ignored,
        "label_smoothing": 0.1,
    }
    return Case(name, cross_entropy_kernel, (rows,), arguments, {"BLOCK_SIZE": block}, warps=8)


# Triton tutorial 04.
@triton.jit
def dropout_kernel(x_ptr, out_ptr, n_elements, p, seed, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=mask)
    keep = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, tl.where(keep, x / (1 - p), 0.0), mask=mask)


def dropout(name, n, block):
    arguments = {"x_ptr": array("fp32", n), "out_ptr": array("fp32", n), "n_elements": n, "p": 0.5, "seed": 123}
    return Case(name, dropout_kernel, (up(n, block),), arguments, {"BLOCK_SIZE": block})


# FlagGems.
@triton.jit
def transpose_kernel(
    in_ptr, out_ptr, M, N, stride_im, stride_in, stride_om, stride_on, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tile = tl.load(in_ptr + rows[:, None] * stride_im + cols[None, :] * stride_in, mask=mask)
    out = out_ptr + cols[:, None] * stride_om + rows[None, :] * stride_on
    tl.store(out, tl.trans(tile), mask=tl.trans(mask))


def transpose(name, m, n, block_m, block_n):
    arguments = {"in_ptr": array("fp16", m, n), "out_ptr": array("fp16", n, m), "M": m, "N": n}
    arguments |= {"stride_im": n, "stride_in": 1, "stride_om": m, "stride_on": 1}
    constexprs = {"BLOCK_M": block_m, "BLOCK_N": block_n}
    return Case(name, transpose_kernel, (up(m, block_m), up(n, block_n)), arguments, constexprs)


# Liger and FlagGems.
@triton.jit
def embedding_kernel(table_ptr, index_ptr, out_ptr, n, dim, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_mask = rows < n
    col_mask = cols < dim
    index = tl.load(index_ptr + rows, mask=row_mask, other=0)
    mask = row_mask[:, None] & col_mask[None, :]
    value = tl.load(table_ptr + index[:, None] * dim + cols[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + rows[:, None] * dim + cols[None, :], value, mask=mask)


def embedding(name, vocabulary, n, dim):
    index = np.random.default_rng(3).integers(0, vocabulary, n)
    arguments = {"table_ptr": array("fp16", vocabulary, dim), "index_ptr": given("i64", index)}
    arguments |= {"out_ptr": array("fp16", n, dim), "n": n, "dim": dim}
    return Case(name, embedding_kernel, (up(n, 8), up(dim, 64)), arguments, {"BLOCK_M": 8, "BLOCK_N": 64})


def one(kind: str, value: int) -> Array:
    """Return an array of one given element."""
    return given(kind, [value])


ROWS = (
    add("add", 4097, "fp32"),
    add("add_bf16", 2048, "bf16", 512),
    softmax("softmax", 37, 781, 800, 8, 1024),
    softmax("softmax_odd", 13, 129, 129, 4, 256),
    layer_norm("layer_norm", 17, 1151, 512),
    layer_norm("layer_norm_even", 8, 512, 256),
    layer_norm_backward("layer_norm_backward", 19, 313, 4, 512),
    rms_norm("rms_norm", 23, 769, 1024, "fp16"),
    rms_norm("rms_norm_fp32", 12, 256, 256, "fp32"),
    rope("rope", 2, 11, 6, 2, 64),
    rope("rope_small", 1, 24, 4, 1, 32),
    swiglu("swiglu", 29, 1003, 1024),
    cross_entropy("cross_entropy", 14, 1031, 256),
    dropout("dropout", 3001, 512),
    transpose("transpose", 77, 131, 32, 64),
    transpose("transpose_even", 64, 128, 32, 32),
    embedding("embedding", 1000, 45, 97),
)
