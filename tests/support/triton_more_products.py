"""More matrix products and what is computed as one, each with launches."""
# ruff: noqa: N803, N806  (names as in the public kernels)

import triton
import triton.language as tl

from .triton_case import Case, array, up


# FlagGems and older Triton: programs share a block of the result and add to it.
@triton.jit
def split_k_kernel(
    A, B, C, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr, EVEN_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    pid_z = tl.program_id(1)
    grid_n = tl.cdiv(N, BLOCK_N)
    rm = (pid // grid_n) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = (pid % grid_n) * BLOCK_N + tl.arange(0, BLOCK_N)
    ram = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    rbn = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    rk = pid_z * BLOCK_K + tl.arange(0, BLOCK_K)
    A = A + (ram[:, None] * stride_am + rk[None, :])
    B = B + (rk[:, None] * stride_bk + rbn[None, :])
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K * SPLIT_K)):
        if EVEN_K:
            a = tl.load(A)
            b = tl.load(B)
        else:
            left = K - k * (BLOCK_K * SPLIT_K)
            a = tl.load(A, mask=rk[None, :] < left, other=0.0)
            b = tl.load(B, mask=rk[:, None] < left, other=0.0)
        acc += tl.dot(a, b)
        A += BLOCK_K * SPLIT_K
        B += BLOCK_K * SPLIT_K * stride_bk
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    C = C + (rm[:, None] * stride_cm + rn[None, :])
    if SPLIT_K == 1:
        tl.store(C, acc, mask=mask)
    else:
        tl.atomic_add(C, acc, mask=mask)


def split_k(name, m, n, k, split):
    arguments = {"A": array("fp16", m, k), "B": array("fp16", k, n), "C": array("fp32", m, n)}
    arguments |= {"M": m, "N": n, "K": k, "stride_am": k, "stride_bk": n, "stride_cm": n}
    constexprs = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "SPLIT_K": split, "EVEN_K": k % (32 * split) == 0}
    return Case(name, split_k_kernel, (up(m, 32) * up(n, 32), split), arguments, constexprs)


@triton.jit
def place_of_tile(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M: tl.constexpr):
    group_id = tile_id // num_pid_in_group
    first_pid_m = group_id * GROUP_SIZE_M
    group_size_m = min(num_pid_m - first_pid_m, GROUP_SIZE_M)
    pid_m = first_pid_m + (tile_id % group_size_m)
    pid_n = (tile_id % num_pid_in_group) // group_size_m
    return pid_m, pid_n


# Triton tutorial 09: as many programs as the GPU has multiprocessors take tiles in turn; tiles through descriptors.
@triton.jit
def descriptor_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    EPILOGUE_SUBTILE: tl.constexpr, NUM_SMS: tl.constexpr,
):  # fmt: skip
    dtype = c_ptr.dtype.element_ty
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    k_tiles = tl.cdiv(K, BLOCK_SIZE_K)
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BLOCK_SIZE_M, BLOCK_SIZE_K])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_SIZE_N, BLOCK_SIZE_K])
    c_desc = tl.make_tensor_descriptor(
        c_ptr,
        shape=[M, N],
        strides=[N, 1],
        block_shape=[BLOCK_SIZE_M, BLOCK_SIZE_N if not EPILOGUE_SUBTILE else BLOCK_SIZE_N // 2],
    )
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    for tile_id in tl.range(start_pid, num_pid_m * num_pid_n, NUM_SMS, flatten=True):
        pid_m, pid_n = place_of_tile(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M)
        offs_am = pid_m * BLOCK_SIZE_M
        offs_bn = pid_n * BLOCK_SIZE_N
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BLOCK_SIZE_K
            a = a_desc.load([offs_am, offs_k])
            b = b_desc.load([offs_bn, offs_k])
            accumulator = tl.dot(a, b.T, accumulator)
        if EPILOGUE_SUBTILE:
            acc = tl.reshape(accumulator, (BLOCK_SIZE_M, 2, BLOCK_SIZE_N // 2))
            acc0, acc1 = tl.split(tl.permute(acc, (0, 2, 1)))
            c_desc.store([offs_am, offs_bn], acc0.to(dtype))
            c_desc.store([offs_am, offs_bn + BLOCK_SIZE_N // 2], acc1.to(dtype))
        else:
            c_desc.store([offs_am, offs_bn], accumulator.to(dtype))


def descriptor_matmul(name, sizes, programs, subtile):
    m, n, k = sizes
    arguments = {"a_ptr": array("fp16", m, k), "b_ptr": array("fp16", n, k), "c_ptr": array("fp16", m, n)}
    constexprs = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2}
    constexprs |= {"EPILOGUE_SUBTILE": subtile, "NUM_SMS": programs}
    return Case(
        name, descriptor_matmul_kernel, (programs,), arguments | {"M": m, "N": n, "K": k}, constexprs,
        capabilities=(80, 90),
    )  # fmt: skip


# Triton tutorial 09 without descriptors.
@triton.jit
def persistent_matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_bk, stride_cm,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M: tl.constexpr,
    NUM_SMS: tl.constexpr,
):  # fmt: skip
    start_pid = tl.program_id(axis=0)
    num_pid_m = tl.cdiv(M, BLOCK_SIZE_M)
    num_pid_n = tl.cdiv(N, BLOCK_SIZE_N)
    k_tiles = tl.cdiv(K, BLOCK_SIZE_K)
    tile_id_c = start_pid - NUM_SMS
    num_pid_in_group = GROUP_SIZE_M * num_pid_n
    offs_k_for_mask = tl.arange(0, BLOCK_SIZE_K)
    for tile_id in tl.range(start_pid, num_pid_m * num_pid_n, NUM_SMS, flatten=True):
        pid_m, pid_n = place_of_tile(tile_id, num_pid_in_group, num_pid_m, GROUP_SIZE_M)
        offs_am = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
        offs_bn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
        offs_am = tl.where(offs_am < M, offs_am, 0)
        offs_bn = tl.where(offs_bn < N, offs_bn, 0)
        offs_am = tl.max_contiguous(tl.multiple_of(offs_am, BLOCK_SIZE_M), BLOCK_SIZE_M)
        offs_bn = tl.max_contiguous(tl.multiple_of(offs_bn, BLOCK_SIZE_N), BLOCK_SIZE_N)
        accumulator = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
        for ki in range(k_tiles):
            offs_k = ki * BLOCK_SIZE_K + tl.arange(0, BLOCK_SIZE_K)
            a_ptrs = a_ptr + (offs_am[:, None] * stride_am + offs_k[None, :])
            b_ptrs = b_ptr + (offs_k[:, None] * stride_bk + offs_bn[None, :])
            a = tl.load(a_ptrs, mask=offs_k_for_mask[None, :] < K - ki * BLOCK_SIZE_K, other=0.0)
            b = tl.load(b_ptrs, mask=offs_k_for_mask[:, None] < K - ki * BLOCK_SIZE_K, other=0.0)
            accumulator = tl.dot(a, b, accumulator)
        tile_id_c += NUM_SMS
        pid_m, pid_n = place_of_tile(tile_id_c, num_pid_in_group, num_pid_m, GROUP_SIZE_M)
        offs_cm = pid_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)
        offs_cn = pid_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
        c_ptrs = c_ptr + stride_cm * offs_cm[:, None] + offs_cn[None, :]
        tl.store(c_ptrs, accumulator.to(tl.float16), mask=(offs_cm[:, None] < M) & (offs_cn[None, :] < N))


def persistent_matmul(name, m, n, k, programs):
    arguments = {"a_ptr": array("fp16", m, k), "b_ptr": array("fp16", k, n), "c_ptr": array("fp16", m, n)}
    arguments |= {"M": m, "N": n, "K": k, "stride_am": k, "stride_bk": n, "stride_cm": n}
    constexprs = {"BLOCK_SIZE_M": 32, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 2, "NUM_SMS": programs}
    return Case(name, persistent_matmul_kernel, (programs,), arguments, constexprs)


# FlagGems: a convolution as a product; rows are places of the output, columns its channels.
@triton.jit
def conv2d_kernel(
    in_ptr, weight_ptr, out_ptr, bias_ptr, batch, in_h, in_w, out_c, out_h, out_w,
    IN_C: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr, STRIDE: tl.constexpr, PAD: tl.constexpr,
    BLOCK_NHW: tl.constexpr, BLOCK_CI: tl.constexpr, BLOCK_CO: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0) * BLOCK_NHW + tl.arange(0, BLOCK_NHW)
    co = tl.program_id(1) * BLOCK_CO + tl.arange(0, BLOCK_CO)
    n = place // (out_h * out_w)
    y = (place // out_w) % out_h
    x = place % out_w
    acc = tl.zeros((BLOCK_NHW, BLOCK_CO), dtype=tl.float32)
    blocks_ci: tl.constexpr = (IN_C + BLOCK_CI - 1) // BLOCK_CI
    for hwc in range(KH * KW * blocks_ci):
        ci = (hwc % blocks_ci) * BLOCK_CI + tl.arange(0, BLOCK_CI)
        hw = hwc // blocks_ci
        h = hw // KW
        w = hw % KW
        in_y = h - PAD + STRIDE * y
        in_x = w - PAD + STRIDE * x
        in_at = ((n * IN_C)[:, None] + ci[None, :]) * in_h * in_w + (in_y * in_w + in_x)[:, None]
        inside = (n < batch) & (in_y >= 0) & (in_y < in_h) & (in_x >= 0) & (in_x < in_w)
        weight_at = (co[None, :] * IN_C + ci[:, None]) * (KH * KW) + h * KW + w
        weight_mask = (ci[:, None] < IN_C) & (co[None, :] < out_c)
        values = tl.load(in_ptr + in_at, mask=inside[:, None] & (ci < IN_C)[None, :], other=0.0)
        weights = tl.load(weight_ptr + weight_at, mask=weight_mask, other=0.0)
        acc += tl.dot(values, weights, allow_tf32=False)
    acc += tl.load(bias_ptr + co, mask=co < out_c, other=0.0)[None, :].to(tl.float32)
    out_at = ((n[:, None] * out_c + co[None, :]) * out_h + y[:, None]) * out_w + x[:, None]
    tl.store(out_ptr + out_at, acc.to(tl.float16), mask=(n < batch)[:, None] & (co < out_c)[None, :])


def conv2d(name, shape, channels, window, stride, pad):
    batch, in_c, in_h, in_w = shape
    out_h, out_w = ((size + 2 * pad - window) // stride + 1 for size in (in_h, in_w))
    arguments = {
        "in_ptr": array("fp16", *shape),
        "weight_ptr": array("fp16", channels, in_c, window, window),
        "out_ptr": array("fp16", batch, channels, out_h, out_w),
        "bias_ptr": array("fp16", channels),
        "batch": batch,
        "in_h": in_h,
        "in_w": in_w,
        "out_c": channels,
        "out_h": out_h,
        "out_w": out_w,
    }
    constexprs = {"IN_C": in_c, "KH": window, "KW": window, "STRIDE": stride, "PAD": pad}
    constexprs |= {"BLOCK_NHW": 64, "BLOCK_CI": 16, "BLOCK_CO": 32}
    return Case(name, conv2d_kernel, (up(batch * out_h * out_w, 64), up(channels, 32)), arguments, constexprs)


# vLLM: int8 times int8 with a scale for each row and each column.
@triton.jit
def scaled_matmul_kernel(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, c_ptr, bias_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    num_pid_n = tl.cdiv(N, BLOCK_N)
    rows = (pid // num_pid_n) * BLOCK_M + tl.arange(0, BLOCK_M).to(tl.int64)
    cols = (pid % num_pid_n) * BLOCK_N + tl.arange(0, BLOCK_N).to(tl.int64)
    row_mask = rows < M
    col_mask = cols < N
    inner = tl.arange(0, BLOCK_K).to(tl.int64)
    a_ptrs = a_ptr + rows[:, None] * K + inner[None, :]
    b_ptrs = b_ptr + inner[:, None] + cols[None, :] * K
    accumulator = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.int32)
    for _ in range(tl.cdiv(K, BLOCK_K)):
        k_mask = inner < K
        a = tl.load(a_ptrs, mask=k_mask[None, :] & row_mask[:, None], other=0)
        b = tl.load(b_ptrs, mask=k_mask[:, None] & col_mask[None, :], other=0)
        accumulator = tl.dot(a, b, accumulator, out_dtype=tl.int32)
        inner += BLOCK_K
        a_ptrs += BLOCK_K
        b_ptrs += BLOCK_K
    scale_a = tl.load(scale_a_ptr + rows, mask=row_mask, other=0.0)
    scale_b = tl.load(scale_b_ptr + cols, mask=col_mask, other=0.0)
    c = scale_a[:, None] * accumulator.to(tl.float32) * scale_b[None, :]
    c = c.to(tl.float16) + tl.load(bias_ptr + cols, mask=col_mask, other=0.0)[None, :]
    tl.store(c_ptr + rows[:, None] * N + cols[None, :], c, mask=row_mask[:, None] & col_mask[None, :])


def scaled_matmul(name, m, n, k):
    arguments = {
        "a_ptr": array("i8", m, k),
        "b_ptr": array("i8", n, k),
        "scale_a_ptr": array("fp32", m),
        "scale_b_ptr": array("fp32", n),
        "c_ptr": array("fp16", m, n),
        "bias_ptr": array("fp16", n),
        "M": m,
        "N": n,
        "K": k,
    }
    constexprs = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 64}
    return Case(name, scaled_matmul_kernel, (up(m, 32) * up(n, 32),), arguments, constexprs)


# Products of rows with a matrix for a few rows: no matrix unit.
@triton.jit
def gemv_kernel(a_ptr, x_ptr, y_ptr, M, N, stride, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    cols = tl.arange(0, BLOCK_N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for start in range(0, N, BLOCK_N):
        mask = start + cols < N
        a = tl.load(a_ptr + rows * stride + start + cols, mask=(rows < M) & mask, other=0.0).to(tl.float32)
        acc += a * tl.load(x_ptr + start + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(y_ptr + rows, tl.sum(acc, axis=1)[:, None], mask=rows < M)


def gemv(name, m, n):
    arguments = {"a_ptr": array("bf16", m, n), "x_ptr": array("bf16", n), "y_ptr": array("fp32", m)}
    arguments |= {"M": m, "N": n, "stride": n}
    return Case(name, gemv_kernel, (up(m, 8),), arguments, {"BLOCK_M": 8, "BLOCK_N": 64})


MORE_PRODUCTS = (
    split_k("split_k", 45, 67, 150, 3),
    split_k("split_k_even", 64, 64, 256, 4),
    descriptor_matmul("descriptor_matmul", (136, 80, 112), 4, subtile=False),
    descriptor_matmul("descriptor_matmul_subtile", (128, 96, 64), 3, subtile=True),
    persistent_matmul("persistent_matmul", 83, 75, 61, 5),
    conv2d("conv2d", (3, 19, 9, 11), 37, 3, 2, 1),
    conv2d("conv2d_even", (1, 32, 8, 8), 64, 3, 1, 1),
    scaled_matmul("scaled_matmul", 43, 50, 100),
    gemv("gemv", 29, 200),
)
