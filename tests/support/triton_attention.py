"""Attention of all kinds as users of Triton have it, each with launches."""
# ruff: noqa: N803, N806  (names as in the public kernels)

import numpy as np
import triton
import triton.language as tl

from .triton_case import Case, array, given, up


@triton.jit
def attention_inner(
    acc, l_i, m_i, q, k_ptr, v_ptr, stride_n, start_m, qk_scale, N_CTX,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    if STAGE == 1:
        lo, hi = 0, start_m * BLOCK_M
    elif STAGE == 2:
        lo, hi = start_m * BLOCK_M, (start_m + 1) * BLOCK_M
        lo = tl.multiple_of(lo, BLOCK_M)
    else:
        lo, hi = 0, N_CTX
    for start in tl.range(lo, hi, BLOCK_N):
        start_n = tl.multiple_of(start, BLOCK_N)
        at = (start_n + offs_n)[:, None] * stride_n + offs_d[None, :]
        inside = (start_n + offs_n)[:, None] < N_CTX
        k = tl.load(k_ptr + at, mask=inside, other=0.0)
        qk = tl.dot(q, k.T)
        if STAGE == 2:
            mask = offs_m[:, None] >= (start_n + offs_n[None, :])
            qk = qk * qk_scale + tl.where(mask, 0, -1.0e6)
            m_ij = tl.maximum(m_i, tl.max(qk, 1))
            qk -= m_ij[:, None]
        else:
            m_ij = tl.maximum(m_i, tl.max(qk, 1) * qk_scale)
            qk = qk * qk_scale - m_ij[:, None]
        p = tl.math.exp2(qk)
        alpha = tl.math.exp2(m_i - m_ij)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None]
        v = tl.load(v_ptr + at, mask=inside, other=0.0)
        acc = tl.dot(p.to(v.dtype), v, acc)
        m_i = m_ij
    return acc, l_i, m_i


# Triton tutorial 06: causal attention takes the full blocks first, then those on the diagonal.
@triton.jit
def attention_forward_kernel(
    Q, K, V, sm_scale, M, Out, stride_z, stride_h, stride_n, H, N_CTX,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STAGE: tl.constexpr,
):  # fmt: skip
    tl.static_assert(BLOCK_N <= HEAD_DIM)
    start_m = tl.program_id(0)
    off_hz = tl.program_id(1)
    base = (off_hz // H).to(tl.int64) * stride_z + (off_hz % H).to(tl.int64) * stride_h
    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    at = base + offs_m[:, None] * stride_n + tl.arange(0, HEAD_DIM)[None, :]
    inside = offs_m < N_CTX
    m_i = tl.zeros([BLOCK_M], dtype=tl.float32) - float("inf")
    l_i = tl.zeros([BLOCK_M], dtype=tl.float32) + 1.0
    acc = tl.zeros([BLOCK_M, HEAD_DIM], dtype=tl.float32)
    qk_scale = sm_scale * 1.44269504
    q = tl.load(Q + at, mask=inside[:, None], other=0.0)
    if STAGE & 1:
        acc, l_i, m_i = attention_inner(
            acc, l_i, m_i, q, K + base, V + base, stride_n, start_m, qk_scale, N_CTX,
            HEAD_DIM, BLOCK_M, BLOCK_N, 4 - STAGE,
        )  # fmt: skip
    if STAGE & 2:
        acc, l_i, m_i = attention_inner(
            acc, l_i, m_i, q, K + base, V + base, stride_n, start_m, qk_scale, N_CTX,
            HEAD_DIM, BLOCK_M, BLOCK_N, 2,
        )  # fmt: skip
    m_i += tl.math.log2(l_i)
    tl.store(M + off_hz * N_CTX + offs_m, m_i, mask=inside)
    tl.store(Out + at, (acc / l_i[:, None]).to(Out.dtype.element_ty), mask=inside[:, None])


def attention(name, batch, heads, context, dim, causal):
    shape = (batch, heads, context, dim)
    arguments = {key: array("fp16", *shape) for key in "QKV"} | {"sm_scale": 0.5}
    arguments |= {"M": array("fp32", batch, heads, context), "Out": array("fp16", *shape)}
    arguments |= {"stride_z": heads * context * dim, "stride_h": context * dim, "stride_n": dim}
    arguments |= {"H": heads, "N_CTX": context}
    constexprs = {"HEAD_DIM": dim, "BLOCK_M": 64, "BLOCK_N": 32, "STAGE": 3 if causal else 1}
    return Case(name, attention_forward_kernel, (up(context, 64), batch * heads), arguments, constexprs, stages=2)


# Triton tutorial 06, backward: keys and values of a block stay, queries pass by.
@triton.jit
def attention_backward_kernel(
    Q, K, V, DO, DK, DV, M, D, stride_n, N_CTX, sm_scale,
    HEAD_DIM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    base = tl.program_id(1).to(tl.int64) * N_CTX * stride_n
    first = tl.program_id(0) * BLOCK_N
    offs_n = first + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    at_n = base + offs_n[:, None] * stride_n + offs_d[None, :]
    mask_n = (offs_n < N_CTX)[:, None]
    k = tl.load(K + at_n, mask=mask_n, other=0.0)
    v = tl.load(V + at_n, mask=mask_n, other=0.0)
    dk = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], dtype=tl.float32)
    for start in range(first, N_CTX, BLOCK_M):
        offs_m = start + tl.arange(0, BLOCK_M)
        mask_m = offs_m < N_CTX
        at_m = base + offs_m[:, None] * stride_n + offs_d[None, :]
        q = tl.load(Q + at_m, mask=mask_m[:, None], other=0.0)
        m = tl.load(M + tl.program_id(1) * N_CTX + offs_m, mask=mask_m, other=0.0)
        pT = tl.math.exp2(tl.dot(k, tl.trans(q)) - m[None, :])
        pT = tl.where(offs_m[None, :] >= offs_n[:, None], pT, 0.0)
        do = tl.load(DO + at_m, mask=mask_m[:, None], other=0.0)
        dv += tl.dot(pT.to(tl.float16), do)
        d = tl.load(D + tl.program_id(1) * N_CTX + offs_m, mask=mask_m, other=0.0)
        dsT = pT * (tl.dot(v, tl.trans(do)).to(tl.float32) - d[None, :])
        dk += tl.dot(dsT.to(tl.float16), q)
    tl.store(DV + at_n, dv.to(tl.float16), mask=mask_n)
    tl.store(DK + at_n, (dk * sm_scale).to(tl.float16), mask=mask_n)


def attention_backward(name, heads, context, dim):
    arguments = {key: array("fp16", heads, context, dim) for key in ("Q", "K", "V", "DO", "DK", "DV")}
    arguments |= {key: array("fp32", heads, context) for key in "MD"}
    arguments |= {"stride_n": dim, "N_CTX": context, "sm_scale": 0.5}
    constexprs = {"HEAD_DIM": dim, "BLOCK_M": 32, "BLOCK_N": 32}
    return Case(name, attention_backward_kernel, (up(context, 32), heads), arguments, constexprs, stages=2)


# vLLM: one query for each sequence; a table says where the blocks of its keys and values lie.
@triton.jit
def paged_attention_kernel(
    out_ptr, q_ptr, k_cache_ptr, v_cache_ptr, block_tables_ptr, seq_lens_ptr, scale, max_blocks, num_kv_heads,
    QUERIES: tl.constexpr, HEAD_DIM: tl.constexpr, PAGE: tl.constexpr, PADDED: tl.constexpr,
):  # fmt: skip
    seq = tl.program_id(0)
    kv_head = tl.program_id(1)
    seq_len = tl.load(seq_lens_ptr + seq)
    heads = tl.arange(0, PADDED)
    dims = tl.arange(0, HEAD_DIM)
    head_mask = heads < QUERIES
    q_at = ((seq * num_kv_heads + kv_head) * QUERIES + heads[:, None]) * HEAD_DIM + dims[None, :]
    q = tl.load(q_ptr + q_at, mask=head_mask[:, None], other=0.0)
    m = tl.full([PADDED], float("-inf"), dtype=tl.float32)
    total = tl.full([PADDED], 1.0, dtype=tl.float32)
    acc = tl.zeros([PADDED, HEAD_DIM], dtype=tl.float32)
    for page in range(tl.cdiv(seq_len, PAGE)):
        physical = tl.load(block_tables_ptr + seq * max_blocks + page).to(tl.int64)
        slots = tl.arange(0, PAGE)
        inside = page * PAGE + slots < seq_len
        at = ((physical * num_kv_heads + kv_head) * PAGE + slots[:, None]) * HEAD_DIM + dims[None, :]
        k = tl.load(k_cache_ptr + at, mask=inside[:, None], other=0.0)
        scores = scale * tl.dot(q, tl.trans(k))
        scores = tl.where(inside[None, :], scores, float("-inf"))
        m_new = tl.maximum(m, tl.max(scores, 1))
        p = tl.exp(scores - m_new[:, None])
        alpha = tl.exp(m - m_new)
        total = total * alpha + tl.sum(p, 1)
        v = tl.load(v_cache_ptr + at, mask=inside[:, None], other=0.0)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v)
        m = m_new
    tl.store(out_ptr + q_at, (acc / total[:, None]).to(tl.float16), mask=head_mask[:, None])


def paged_attention(name, lengths, kv_heads, queries, dim, page):
    longest = max(up(length, page) for length in lengths)
    pages = sum(up(length, page) for length in lengths) + 3
    order = np.random.default_rng(11).permutation(pages).tolist()
    table = np.zeros((len(lengths), longest), int)
    for row, length in enumerate(lengths):
        for column in range(up(length, page)):
            table[row, column] = order.pop()
    arguments = {
        "out_ptr": array("fp16", len(lengths), kv_heads * queries, dim),
        "q_ptr": array("fp16", len(lengths), kv_heads * queries, dim),
        "k_cache_ptr": array("fp16", pages, kv_heads, page, dim),
        "v_cache_ptr": array("fp16", pages, kv_heads, page, dim),
        "block_tables_ptr": given("i32", table),
        "seq_lens_ptr": given("i32", lengths),
        "scale": 0.25,
        "max_blocks": longest,
        "num_kv_heads": kv_heads,
    }
    constexprs = {"QUERIES": queries, "HEAD_DIM": dim, "PAGE": page, "PADDED": 16}
    return Case(name, paged_attention_kernel, (len(lengths), kv_heads), arguments, constexprs)


# FLA: the state between chunks, then the result of each chunk; states and tiles as descriptors.
@triton.jit
def chunk_state_kernel(
    k, v, h, ht, T, H: tl.constexpr, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr,
    BV: tl.constexpr, STORE_FINAL: tl.constexpr,
):  # fmt: skip
    i_k, i_v, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    NT = tl.cdiv(T, BT)
    o_k = i_k * BK + tl.arange(0, BK)
    o_v = i_v * BV + tl.arange(0, BV)
    at_state = o_k[:, None] * V + o_v[None, :]
    b_h = tl.zeros([BK, BV], dtype=tl.float32)
    for i_t in range(NT):
        tl.store(h + (i_bh * NT + i_t).to(tl.int64) * K * V + at_state, b_h.to(h.dtype.element_ty))
        o_t = i_t * BT + tl.arange(0, BT)
        m_t = o_t < T
        at = (i_bh * T + o_t).to(tl.int64)
        b_k = tl.load(k + at[None, :] * K + o_k[:, None], mask=m_t[None, :], other=0.0)
        b_v = tl.load(v + at[:, None] * V + o_v[None, :], mask=m_t[:, None], other=0.0)
        b_h += tl.dot(b_k, b_v)
    if STORE_FINAL:
        tl.store(ht + i_bh * K * V + at_state, b_h)


def chunk_state(name, heads, length, dims, chunk):
    key_dim, value_dim = dims
    chunks = up(length, chunk)
    arguments = {
        "k": array("bf16", heads, length, key_dim),
        "v": array("bf16", heads, length, value_dim),
        "h": array("bf16", heads, chunks, key_dim, value_dim),
        "ht": array("fp32", heads, key_dim, value_dim),
        "T": length,
    }
    constexprs = {"H": heads, "K": key_dim, "V": value_dim, "BT": chunk, "BK": 32, "BV": 32, "STORE_FINAL": True}
    return Case(name, chunk_state_kernel, (key_dim // 32, value_dim // 32, heads), arguments, constexprs)


@triton.jit
def chunk_output_kernel(
    q, k, v, h, o, scale, T, K: tl.constexpr, V: tl.constexpr, BT: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr
):
    i_v, i_t, i_bh = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    NT = tl.cdiv(T, BT)
    first = i_bh.to(tl.int64) * T
    d_q = tl.make_tensor_descriptor(q + first * K, [T, K], [K, 1], [BT, BK])
    d_k = tl.make_tensor_descriptor(k + first * K, [T, K], [K, 1], [BT, BK])
    d_v = tl.make_tensor_descriptor(v + first * V, [T, V], [V, 1], [BT, BV])
    d_o = tl.make_tensor_descriptor(o + first * V, [T, V], [V, 1], [BT, BV])
    d_h = tl.make_tensor_descriptor(h + (i_bh * NT + i_t).to(tl.int64) * K * V, [K, V], [V, 1], [BK, BV])
    b_o = tl.zeros([BT, BV], dtype=tl.float32)
    b_s = tl.zeros([BT, BT], dtype=tl.float32)
    for i_k in range(tl.cdiv(K, BK)):
        b_q = d_q.load([i_t * BT, i_k * BK])
        b_k = d_k.load([i_t * BT, i_k * BK])
        b_o += tl.dot(b_q, d_h.load([i_k * BK, i_v * BV]))
        b_s += tl.dot(b_q, tl.trans(b_k))
    o_t = tl.arange(0, BT)
    b_s = tl.where(o_t[:, None] >= o_t[None, :], b_s, 0)
    b_v = d_v.load([i_t * BT, i_v * BV])
    b_o = (b_o + tl.dot(b_s.to(b_v.dtype), b_v)) * scale
    d_o.store([i_t * BT, i_v * BV], b_o.to(o.dtype.element_ty))


def chunk_output(name, heads, length, dims, chunk):
    key_dim, value_dim = dims
    chunks = up(length, chunk)
    arguments = {
        "q": array("fp16", heads, length, key_dim),
        "k": array("fp16", heads, length, key_dim),
        "v": array("fp16", heads, length, value_dim),
        "h": array("fp16", heads, chunks, key_dim, value_dim),
        "o": array("fp16", heads, length, value_dim),
        "scale": 0.125,
        "T": length,
    }
    constexprs = {"K": key_dim, "V": value_dim, "BT": chunk, "BK": 32, "BV": 32}
    grid = (value_dim // 32, chunks, heads)
    return Case(name, chunk_output_kernel, grid, arguments, constexprs, capabilities=(80, 90))


# FLA: token by token, with gates.
@triton.jit
def recurrent_kernel(
    q, k, v, g, o, h0, scale, T, K: tl.constexpr, V: tl.constexpr, BK: tl.constexpr, BV: tl.constexpr,
    REVERSE: tl.constexpr,
):  # fmt: skip
    i_v, i_bh = tl.program_id(0), tl.program_id(1).to(tl.int64)
    o_k = tl.arange(0, BK)
    o_v = i_v * BV + tl.arange(0, BV)
    m_k, m_v = o_k < K, o_v < V
    begin = i_bh * T + ((T - 1) if REVERSE else 0)
    p_q, p_k = q + begin * K + o_k, k + begin * K + o_k
    p_v, p_o = v + begin * V + o_v, o + begin * V + o_v
    p_g = g + begin
    mask = m_k[:, None] & m_v[None, :]
    b_h = tl.load(h0 + i_bh * K * V + o_k[:, None] * V + o_v[None, :], mask=mask, other=0).to(tl.float32)
    for _ in range(T):
        b_q = tl.load(p_q, mask=m_k, other=0).to(tl.float32) * scale
        b_k = tl.load(p_k, mask=m_k, other=0).to(tl.float32)
        b_v = tl.load(p_v, mask=m_v, other=0).to(tl.float32)
        b_h = b_h * tl.exp(tl.load(p_g).to(tl.float32)) + b_k[:, None] * b_v[None, :]
        tl.store(p_o, tl.sum(b_h * b_q[:, None], axis=0).to(p_o.dtype.element_ty), mask=m_v)
        p_q += (-1 if REVERSE else 1) * K
        p_k += (-1 if REVERSE else 1) * K
        p_v += (-1 if REVERSE else 1) * V
        p_o += (-1 if REVERSE else 1) * V
        p_g += -1 if REVERSE else 1


def recurrent(name, heads, length, dims, reverse):
    key_dim, value_dim = dims
    arguments = {
        "q": array("fp16", heads, length, key_dim),
        "k": array("fp16", heads, length, key_dim),
        "v": array("fp16", heads, length, value_dim),
        "g": array("fp32", heads, length),
        "o": array("fp16", heads, length, value_dim),
        "h0": array("fp32", heads, key_dim, value_dim),
        "scale": 0.125,
        "T": length,
    }
    constexprs = {"K": key_dim, "V": value_dim, "BK": 32, "BV": 16, "REVERSE": reverse}
    return Case(name, recurrent_kernel, (up(value_dim, 16), heads), arguments, constexprs, warps=1)


ATTENTION = (
    attention("attention", 1, 2, 200, 64, causal=False),
    attention("attention_causal", 2, 2, 200, 64, causal=True),
    attention("attention_causal_even", 1, 2, 256, 32, causal=True),
    attention_backward("attention_backward", 2, 107, 32),
    paged_attention("paged_attention", [37, 5, 64, 17, 1], 2, 5, 64, 16),
    paged_attention("paged_attention_even", [32, 96], 4, 16, 32, 32),
    chunk_state("chunk_state", 3, 75, (64, 32), 32),
    chunk_output("chunk_output", 2, 75, (64, 64), 32),
    recurrent("recurrent", 3, 19, (24, 40), reverse=False),
    recurrent("recurrent_reverse", 2, 7, (32, 32), reverse=True),
)
