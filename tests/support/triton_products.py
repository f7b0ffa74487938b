"""Matrix products as users of Triton have them, each with launches."""
# ruff: noqa: N803, N806  (names as in the public kernels)

import numpy as np
import triton
import triton.language as tl

from .triton_case import Array, Case, array, given, up


@triton.jit
def leaky_relu(x):
    return tl.where(x >= 0, x, 0.01 * x)


# Triton tutorial 03: blocks of the result in groups of rows, so that L2 serves more.
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    ACTIVATION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    tl.assume(pid_m >= 0)
    tl.assume(pid_n >= 0)
    offs_am = (pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)) % M
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=offs_k[None, :] < K - k * BLOCK_SIZE_K, other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator = tl.dot(a, b, accumulator)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if ACTIVATION == "leaky_relu":
        accumulator = leaky_relu(accumulator)
    c = accumulator.to(c_ptr.dtype.element_ty)
    offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + stride_cn * offs_cn[None, :]
    tl.store(c_ptrs, c, mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def matmul(name, m, n, k, kind, activation="", result=None):
    arguments = {
        "a_ptr": array(kind, m, k),
        "b_ptr": array(kind, k, n),
        "c_ptr": array(result or kind, m, n),
        "M": m,
        "N": n,
        "K": k,
        "stride_am": k,
        "stride_ak": 1,
        "stride_bk": n,
        "stride_bn": 1,
        "stride_cm": n,
        "stride_cn": 1,
    }
    constexprs = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2}
    grid = (up(m, 64) * up(n, 32),)
    return Case(
        name, matmul_kernel, grid, arguments, constexprs | {"ACTIVATION": activation}, capabilities=(80, 90), stages=4
    )


# FlagGems and FLA: one program of the grid's third axis for each matrix of the batch.
@triton.jit
def bmm_kernel(
    A, B, Out, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, DIVISIBLE_M: tl.constexpr
):
    batch = tl.program_id(2)
    A += batch * M * K
    B += batch * K * N
    Out += batch * M * N
    rows = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M)
    cols = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N)
    inner = tl.arange(0, TILE_K)
    a_ptrs = A + rows[:, None] * K + inner[None, :]
    b_ptrs = B + inner[:, None] * N + cols[None, :]
    o_ptrs = Out + rows[:, None] * N + cols[None, :]
    acc = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, TILE_K)):
        k_mask = inner < K - step * TILE_K
        mask_a = k_mask[None, :]
        if not DIVISIBLE_M:
            mask_a = mask_a & (rows[:, None] < M)
        mask_b = k_mask[:, None] & (cols[None, :] < N)
        acc += tl.dot(tl.load(a_ptrs, mask_a, other=0.0), tl.load(b_ptrs, mask_b, other=0.0), allow_tf32=False)
        a_ptrs += TILE_K
        b_ptrs += TILE_K * N
    mask_o = cols[None, :] < N
    if not DIVISIBLE_M:
        mask_o = mask_o & (rows[:, None] < M)
    tl.store(o_ptrs, acc.to(Out.dtype.element_ty), mask_o)


def bmm(name, batch, m, n, k, kind):
    arguments = {"A": array(kind, batch, m, k), "B": array(kind, batch, k, n), "Out": array(kind, batch, m, n)}
    arguments |= {"M": m, "N": n, "K": k}
    constexprs = {"TILE_M": 32, "TILE_N": 32, "TILE_K": 16, "DIVISIBLE_M": m % 32 == 0}
    return Case(name, bmm_kernel, (up(m, 32), up(n, 32), batch), arguments, constexprs)


# Triton tutorial 08: a fixed number of programs takes the tiles of many products, whose addresses lie in memory.
@triton.jit
def grouped_matmul_kernel(
    a_addresses, b_addresses, c_addresses, sizes, strides, group_size,
    NUM_SM: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tile_idx = tl.program_id(0)
    last_problem_end = 0
    for g in range(group_size):
        gm = tl.load(sizes + g * 3)
        gn = tl.load(sizes + g * 3 + 1)
        gk = tl.load(sizes + g * 3 + 2)
        num_n_tiles = tl.cdiv(gn, BLOCK_N)
        num_tiles = tl.cdiv(gm, BLOCK_M) * num_n_tiles
        while tile_idx >= last_problem_end and tile_idx < last_problem_end + num_tiles:
            lda = tl.load(strides + g * 3)
            ldb = tl.load(strides + g * 3 + 1)
            ldc = tl.load(strides + g * 3 + 2)
            a_ptr = tl.load(a_addresses + g).to(tl.pointer_type(tl.float16))
            b_ptr = tl.load(b_addresses + g).to(tl.pointer_type(tl.float16))
            c_ptr = tl.load(c_addresses + g).to(tl.pointer_type(tl.float16))
            tile = tile_idx - last_problem_end
            offs_am = (tile // num_n_tiles) * BLOCK_M + tl.arange(0, BLOCK_M)
            offs_bn = (tile % num_n_tiles) * BLOCK_N + tl.arange(0, BLOCK_N)
            offs_k = tl.arange(0, BLOCK_K)
            a_ptrs = a_ptr + offs_am[:, None] * lda + offs_k[None, :]
            b_ptrs = b_ptr + offs_k[:, None] * ldb + offs_bn[None, :]
            accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            for _kk in range(tl.cdiv(gk, BLOCK_K)):
                tl.multiple_of(a_ptrs, [16, 16])
                tl.multiple_of(b_ptrs, [16, 16])
                accumulator += tl.dot(tl.load(a_ptrs), tl.load(b_ptrs))
                a_ptrs += BLOCK_K
                b_ptrs += BLOCK_K * ldb
            tl.store(c_ptr + ldc * offs_am[:, None] + offs_bn[None, :], accumulator.to(tl.float16))
            tile_idx += NUM_SM
        last_problem_end = last_problem_end + num_tiles


def grouped_matmul(name, products, programs):
    arguments, others = {}, {}
    for key, axes in {"a": (0, 2), "b": (2, 1), "c": (0, 1)}.items():
        members = {f"{key}_{place}": array("fp16", *(p[axis] for axis in axes)) for place, p in enumerate(products)}
        others |= members
        places = tuple((member, 0) for member in members)
        arguments[f"{key}_addresses"] = Array("i64", len(products), points_to=places)
    arguments |= {"sizes": given("i32", products), "strides": given("i32", [[k, n, n] for _, n, k in products])}
    arguments |= {"group_size": len(products)}
    constexprs = {"NUM_SM": programs, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
    return Case(name, grouped_matmul_kernel, (programs,), arguments, constexprs, others)


# vLLM: each block of sorted tokens belongs to one expert.
@triton.jit
def fused_moe_kernel(
    a_ptr, b_ptr, c_ptr, topk_weights_ptr, sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
    N, K, EM, num_valid_tokens, stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    MUL_ROUTED_WEIGHT: tl.constexpr, top_k: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(EM, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    group_id = pid // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + ((pid % num_pid_in_group) % group_size_m)
    pid_n = (pid % num_pid_in_group) // group_size_m
    if pid_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    offs_token_id = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M).to(tl.int64)
    offs_token = tl.load(sorted_token_ids_ptr + offs_token_id).to(tl.int64)
    token_mask = offs_token < num_valid_tokens
    offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_ptrs = c_ptr + stride_cm * offs_token[:, None] + stride_cn * offs_cn[None, :]
    c_mask = token_mask[:, None] & (offs_cn[None, :] < N)
    off_experts = tl.load(expert_ids_ptr + pid_m).to(tl.int64)
    if off_experts == -1:
        tl.store(c_ptrs, tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float16), mask=c_mask)
        return
    offs_bn = (pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N).to(tl.int64)) % N
    offs_k = tl.arange(0, BLOCK_SIZE_K)
    a_ptrs = a_ptr + (offs_token[:, None] // top_k * stride_am + offs_k[None, :] * stride_ak)
    b_ptrs = b_ptr + off_experts * stride_be + (offs_k[:, None] * stride_bk + offs_bn[None, :] * stride_bn)
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_SIZE_K)):
        a = tl.load(a_ptrs, mask=token_mask[:, None] & (offs_k[None, :] < K - k * BLOCK_SIZE_K), other=0.0)
        b = tl.load(b_ptrs, mask=offs_k[:, None] < K - k * BLOCK_SIZE_K, other=0.0)
        accumulator += tl.dot(a, b)
        a_ptrs += BLOCK_SIZE_K * stride_ak
        b_ptrs += BLOCK_SIZE_K * stride_bk
    if MUL_ROUTED_WEIGHT:
        accumulator = accumulator * tl.load(topk_weights_ptr + offs_token, mask=token_mask, other=0)[:, None]
    tl.store(c_ptrs, accumulator.to(tl.float16), mask=c_mask)


def fused_moe(name, tokens, experts, n, k, top_k, block=16, spare=2):
    chosen = np.random.default_rng(7).integers(0, experts, tokens * top_k)
    ids, owners = [], []
    for expert in range(experts):
        mine = np.flatnonzero(chosen == expert).tolist()
        mine += [tokens * top_k] * (-len(mine) % block)
        ids += mine
        owners += [expert or -1] * (len(mine) // block)
    padded = len(ids)
    ids += [tokens * top_k] * (spare * block)
    owners += [0] * spare
    arguments = {
        "a_ptr": array("fp16", tokens, k),
        "b_ptr": array("fp16", experts, n, k),
        "c_ptr": array("fp16", tokens * top_k, n),
        "topk_weights_ptr": array("fp32", tokens * top_k),
        "sorted_token_ids_ptr": given("i32", ids),
        "expert_ids_ptr": given("i32", owners),
        "num_tokens_post_padded_ptr": given("i32", [padded]),
        "N": n,
        "K": k,
        "EM": len(ids),
        "num_valid_tokens": tokens * top_k,
        "stride_am": k,
        "stride_ak": 1,
        "stride_be": n * k,
        "stride_bk": 1,
        "stride_bn": k,
        "stride_cm": n,
        "stride_cn": 1,
    }
    constexprs = {"BLOCK_SIZE_M": block, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2}
    grid = (up(len(ids), block) * up(n, 32),)
    return Case(name, fused_moe_kernel, grid, arguments, constexprs | {"MUL_ROUTED_WEIGHT": True, "top_k": top_k})


# vLLM's AWQ and GPTQ: eight weights of four bits in an integer, scales and zero points for groups of rows; split K.
@triton.jit
def int4_matmul_kernel(
    a_ptr, b_ptr, c_ptr, scales_ptr, zeros_ptr, M, N, K, groupsize, NO_GROUPS: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, SPLIT_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    pid_k = tl.program_id(1)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    offs_m = (pid // num_pid_n) * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
    offs_n = (pid % num_pid_n) * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    offs_k = pid_k * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
    n_mask = offs_n < N
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + (offs_k[:, None] // 8) * N + offs_n[None, :]
    shifter = (offs_k % 8) * 4
    zeros_shifter = (offs_n % 8) * 4
    accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    if NO_GROUPS:
        scales = tl.load(scales_ptr + offs_n, mask=n_mask, other=0.0)
        zeros = (tl.load(zeros_ptr + offs_n // 8, mask=n_mask, other=0) >> zeros_shifter) & 0xF
    for k in range(tl.cdiv(K, BLOCK_SIZE_K * SPLIT_K)):
        a_mask = (offs_m[:, None] < M) & (offs_k[None, :] < K)
        b_mask = (offs_k[:, None] < K) & n_mask[None, :]
        a = tl.load(a_ptrs, mask=a_mask, other=0.0, eviction_policy="evict_last")
        b = tl.load(b_ptrs, mask=b_mask, other=0, eviction_policy="evict_first")
        if not NO_GROUPS:
            group = ((k * SPLIT_K + pid_k) * BLOCK_SIZE_K) // groupsize
            scales = tl.load(scales_ptr + group * N + offs_n, mask=n_mask, other=0.0)
            zeros = tl.load(zeros_ptr + group * (N // 8) + offs_n // 8, mask=n_mask, other=0)
            zeros = (zeros >> zeros_shifter) & 0xF
        b = (((b >> shifter[:, None]) & 0xF) - zeros[None, :]) * scales[None, :]
        accumulator = tl.dot(a, b.to(a.dtype), accumulator)
        offs_k += BLOCK_SIZE_K * SPLIT_K
        a_ptrs += BLOCK_SIZE_K * SPLIT_K
        b_ptrs += (BLOCK_SIZE_K * SPLIT_K // 8) * N
    c_ptrs = c_ptr + offs_m[:, None] * N + offs_n[None, :]
    c_mask = (offs_m[:, None] < M) & n_mask[None, :]
    if SPLIT_K == 1:
        tl.store(c_ptrs, accumulator.to(tl.float16), mask=c_mask)
    else:
        tl.atomic_add(c_ptrs, accumulator.to(tl.float16), mask=c_mask, sem="relaxed")


def int4_matmul(name, sizes, groupsize, split):
    m, n, k = sizes
    groups = k // groupsize
    arguments = {
        "a_ptr": array("fp16", m, k),
        "b_ptr": array("i32", k // 8, n),
        "c_ptr": array("fp16", m, n),
        "scales_ptr": array("fp16", groups, n),
        "zeros_ptr": array("i32", groups, n // 8),
        "M": m,
        "N": n,
        "K": k,
        "groupsize": groupsize,
    }
    constexprs = {"NO_GROUPS": groups == 1, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32}
    return Case(
        name, int4_matmul_kernel, (up(m, 16) * up(n, 32), split), arguments, constexprs | {"SPLIT_K": split}, stages=2
    )


PRODUCTS = (
    matmul("matmul", 131, 77, 95, "fp16", "leaky_relu"),
    matmul("matmul_even", 128, 64, 96, "bf16", result="fp32"),
    matmul("matmul_fp8", 65, 48, 64, "fp8e5", result="fp16"),
    bmm("bmm", 3, 45, 70, 33, "fp32"),
    bmm("bmm_even", 2, 64, 64, 48, "fp16"),
    grouped_matmul("grouped_matmul", [(64, 96, 32), (32, 32, 128), (96, 64, 64)], 5),
    fused_moe("fused_moe", 21, 4, 72, 80, 2),
    fused_moe("fused_moe_even", 32, 3, 64, 64, 1),
    int4_matmul("int4_matmul", (19, 72, 160), 32, 1),
    int4_matmul("int4_matmul_split", (16, 64, 192), 192, 3),
)
