"""Kernels for what a reader of TTIR must know and other kernels do not use; nobody runs them."""
# ruff: noqa: N803  (names and words as in kernels)

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait, globaltimer, libdevice, smid

ALL = ("3.5.1", "3.9.0")


@dataclass(frozen=True)
class Snippet:
    """A kernel that is compiled only."""

    kernel: Any
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    capabilities: tuple[int, ...] = (80,)
    versions: tuple[str, ...] = ALL
    options: Mapping[str, Any] = field(default_factory=dict)


@triton.jit
def sort_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr, K: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    tl.store(y_ptr + at, tl.sort(x, descending=True))
    tl.store(z_ptr + tl.arange(0, K), tl.topk(x, K))
    tl.store(z_ptr + at, tl.flip(x, 0) + tl.xor_sum(x.to(tl.int32)) + tl.cumprod(x, axis=0, reverse=True))


@triton.jit
def gather_kernel(x_ptr, i_ptr, y_ptr, M: tl.constexpr, N: tl.constexpr):
    at = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(y_ptr + at, tl.gather(tl.load(x_ptr + at), tl.load(i_ptr + at), axis=1))


@triton.jit
def shapes_kernel(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = tl.load(y_ptr + at)
    joined = tl.join(x, y)
    cube = tl.reshape(joined, (N // 2, 2, 2))
    left, right = tl.split(tl.permute(cube, (0, 2, 1)))
    both = tl.interleave(tl.ravel(left), tl.ravel(right))
    cat = tl.cat(x, y, can_reorder=True)
    wide = tl.view(both + cat, (2, N)) + tl.expand_dims(x, 0)
    wide = tl.broadcast_to(tl.sum(wide, axis=0, keep_dims=True), (2, N)) + tl.full((2, N), 3, tl.float32)
    tl.store(z_ptr + tl.arange(0, 2)[:, None] * N + at[None, :], wide)
    tl.store(z_ptr + tl.sum(tl.swizzle2d(at, at, N, N, 4)[0], axis=0), tl.min(x, axis=0))


@triton.jit
def dot_scaled_kernel(
    a_ptr, sa_ptr, b_ptr, sb_ptr, c_ptr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, TYPE: tl.constexpr
):
    rm, rn, rk = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    packed: tl.constexpr = 2 if TYPE == "e2m1" else 1
    rp = tl.arange(0, K // packed)
    a = tl.load(a_ptr + rm[:, None] * (K // packed) + rp[None, :])
    b = tl.load(b_ptr + rk[:, None] * N + rn[None, :])
    scales = tl.arange(0, K // 32)
    sa = tl.load(sa_ptr + rm[:, None] * (K // 32) + scales[None, :])
    sb = tl.load(sb_ptr + rn[:, None] * (K // 32) + scales[None, :])
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], tl.dot_scaled(a, sa, TYPE, b, sb, "e5m2"))


@triton.jit
def casts_kernel(x_ptr, e4_ptr, e5_ptr, i_ptr, h_ptr, d_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    e5 = x.to(tl.float8e5, fp_downcast_rounding="rtne")
    tl.store(e5_ptr + at, e5)
    tl.store(e4_ptr + at, tl.load(e4_ptr + at).to(tl.float16).to(tl.float8e5).to(tl.float8e4nv, bitcast=True))
    tl.store(i_ptr + at, x.to(tl.int32) + x.to(tl.uint32).to(tl.int32) + x.to(tl.int32, bitcast=True))
    half = x.to(tl.float16, fp_downcast_rounding="rtz") + e5.to(tl.float16) + x.to(tl.bfloat16).to(tl.float16)
    tl.store(h_ptr + at, half)
    i = tl.load(i_ptr + at)
    tl.store(d_ptr + at, x.to(tl.float64) + i.to(tl.float64) + i.to(tl.uint32, bitcast=True).to(tl.float64))
    address = d_ptr.to(tl.int64, bitcast=True)
    tl.store(h_ptr + (address % 16) + at, (i != 0).to(tl.float16))
    tl.store((address + 8).to(tl.pointer_type(tl.float64)), 1.0)


@triton.jit
def assembly_kernel(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    y = tl.inline_asm_elementwise("shl.b32 $0, $1, 3;", "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)
    low, high = tl.inline_asm_elementwise(
        "mov.b32 $0, $2; mov.b32 $1, $2;", "=r,=r,r", [y], dtype=(tl.int32, tl.int32), is_pure=False, pack=1
    )
    tl.store(y_ptr + at, low + high + smid() + globaltimer().to(tl.int32))


@triton.jit
def debug_kernel(x_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    tl.device_assert(n < 100, "too many")
    x = tl.load(x_ptr + at)
    tl.device_print("value", x, n, hex=True)
    tl.device_assert(x >= 0, "negative", mask=at < n)
    assert n > 0
    tl.assume(n % 8 == 0)
    tl.store(x_ptr + at, x + tl.arange(0, N), mask=at < n)
    tl.debug_barrier()


@triton.jit
def functions_kernel(x_ptr, y_ptr, i_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    i = tl.load(i_ptr + at)
    y = libdevice.tanh(x) + libdevice.pow(x, x) + libdevice.rsqrt(x) + libdevice.isnan(x).to(tl.float32)
    y += tl.exp(x) + tl.exp2(x) + tl.log(x) + tl.log2(x) + tl.sin(x) + tl.cos(x) + tl.sqrt(x) + tl.rsqrt(x)
    y += tl.sqrt_rn(x) + tl.div_rn(x, y) + tl.erf(x) + tl.floor(x) + tl.ceil(x) + tl.abs(x) + tl.fma(x, x, x)
    y += tl.fdiv(x, y) + tl.sigmoid(x) + tl.softmax(x) + x % 3.0 + (-x)
    y = tl.maximum(y, x, propagate_nan=tl.PropagateNan.ALL) + tl.minimum(y, x)
    y = tl.minimum(y, x, propagate_nan=tl.PropagateNan.ALL) * tl.maximum(y, x)
    y = tl.clamp(y, 0.0, 1.0) + tl.clamp(y, 0.0, 6.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + at, tl.where((y < x) | (y >= 2.0) | (y == x), y, tl.where((x != 1.5) & (y <= x), x, 0.0)))
    j = tl.abs(i) + tl.umulhi(i.to(tl.uint32), 7).to(tl.int32) + (i // 3) + (i % 5) + (i >> 2) + (i << 1)
    j += (i.to(tl.uint32) // 3 + i.to(tl.uint32) % 5 + (i.to(tl.uint32) >> 2)).to(tl.int32)
    j += (i & 3) | (i ^ 5) | (~i) | tl.maximum(i, 3) | tl.minimum(i, 9) | tl.cdiv(i, 4)
    u = i.to(tl.uint32)
    j = tl.where((u < 7) | (u >= 100) | (i <= 2) | (i > 4), j, tl.maximum(u, 3).to(tl.int32))
    tl.store(i_ptr + at, j + tl.minimum(u, 9).to(tl.int32) + (i.to(tl.int64) * 3 >> 1).to(tl.int32) - (-i))
    not_zero = i != 0
    tl.store(i_ptr + at, (not not_zero).to(tl.int32), mask=not_zero.logical_or(i == 4))


@triton.jit
def loops_kernel(x_ptr, y_ptr, n, STAGES: tl.constexpr):
    at = tl.arange(0, 64)
    acc = tl.zeros((64,), tl.float32)
    for i in tl.range(0, n, num_stages=STAGES, loop_unroll_factor=2, disallow_acc_multi_buffer=True):
        acc += tl.load(x_ptr + i * 64 + at)
    for i in tl.range(0, n, flatten=True, warp_specialize=True):
        for j in tl.range(i, n, 2, disable_licm=True):
            acc += tl.load(x_ptr + j * 64 + at)
    for i in tl.static_range(3):
        acc += tl.load(x_ptr + i * 32 + at)
    for i in range(n, 0, -1):
        acc += tl.load(x_ptr + i * 64 + at)
    for i in range(tl.load(y_ptr).to(tl.int64), n.to(tl.int64)):
        acc += tl.load(x_ptr + i * 64 + at)
    while n > 0:
        acc = acc * 2
        n = n // 2
        if n == 7:
            acc += 1.0
            n -= 1
        elif n == 5:
            acc -= 1.0
    tl.store(x_ptr + at, acc)


@triton.jit
def hints_kernel(x_ptr, y_ptr, n, N: tl.constexpr):
    at = tl.program_id(0) * N + tl.arange(0, N)
    at = tl.max_contiguous(tl.multiple_of(at, N), N)
    at = tl.max_constancy(at, 4)
    m = tl.multiple_of(n, 8)
    x = tl.load(x_ptr + at, mask=at < m, other=0.0, cache_modifier=".ca", eviction_policy="evict_last")
    x += tl.load(x_ptr + at + 1, cache_modifier=".cg", eviction_policy="evict_first")
    x += tl.load(x_ptr + at + 2, volatile=True) + tl.load(x_ptr + at + 3, cache_modifier=".cv")
    tl.store(y_ptr + at, x, cache_modifier=".wb", eviction_policy="evict_first")
    tl.store(y_ptr + at + 1, x, mask=at < m, cache_modifier=".cs")


@triton.jit
def atomics_kernel(f_ptr, i_ptr, u_ptr, h_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    mask = at < n
    i = tl.load(i_ptr + at)
    x = tl.load(f_ptr + at)
    i += tl.atomic_add(i_ptr + at, i, mask=mask, sem="acquire", scope="cta")
    i += tl.atomic_max(i_ptr + at, i, sem="release", scope="sys") + tl.atomic_min(i_ptr + at, i, sem="relaxed")
    i += tl.atomic_and(i_ptr + at, i) + tl.atomic_or(i_ptr + at, i) + tl.atomic_xor(i_ptr + at, i)
    i += tl.atomic_xchg(i_ptr + at, i) + tl.atomic_cas(i_ptr + at, i, i + 1)
    x += tl.atomic_max(f_ptr + at, x) + tl.atomic_min(f_ptr + at, x, mask=mask) + tl.atomic_xchg(f_ptr + at, x)
    u = tl.load(u_ptr + at)
    u += tl.atomic_max(u_ptr + at, u) + tl.atomic_min(u_ptr + at, u)
    tl.atomic_add(h_ptr + at, x.to(tl.float16), mask=mask)
    tl.store(f_ptr + at, x)
    tl.store(i_ptr + at, i)
    tl.store(u_ptr + at, u)


@triton.jit
def atomic_memory_kernel(i_ptr, y_ptr, n, N: tl.constexpr):
    at = tl.arange(0, N)
    x = tl.atomic_load(i_ptr + at, mask=at < n, sem="acquire")
    tl.atomic_store(y_ptr + at, x, mask=at < n, sem="release")
    tl.store(y_ptr, tl.atomic_poll(i_ptr, 3).to(tl.int32))


@triton.jit
def descriptors_kernel(a, b, i_ptr, x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    tile = a.load([tl.program_id(0) * BM, 0])
    rows = tl.load(i_ptr + tl.arange(0, BM))
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BM, BN], padding_option="nan")
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [1, BN])
    gathered = y.gather(rows, 0)
    y.scatter(gathered + tile, rows, BN)
    x.atomic_add([0, 0], tile)
    x.store([BM, 0], tile + x.load([0, BN]))
    b.store([0, tl.program_id(1)], tile)


@triton.jit
def combine(value, index, other_value, other_index):
    greater = (value > other_value) | ((value == other_value) & (index < other_index))
    return tl.where(greater, value, other_value), tl.where(greater, index, other_index)


@triton.jit
def choose(a, b):
    if a > b:
        return a
    return b


@triton.jit
def reductions_kernel(x_ptr, y_ptr, i_ptr, M: tl.constexpr, N: tl.constexpr):
    rows, cols = tl.arange(0, M), tl.arange(0, N)
    x = tl.load(x_ptr + rows[:, None] * N + cols[None, :])
    value, index = tl.reduce((x, tl.broadcast_to(cols[None, :], (M, N))), 1, combine)
    low, low_at = tl.min(x, axis=1, return_indices=True, return_indices_tie_break_left=False)
    tl.store(y_ptr + rows, value + low + tl.max(x, axis=1) + tl.sum(tl.sum(x, axis=0), axis=0))
    some = tl.reduce_or((x > 0).to(tl.int32), axis=1)
    tl.store(i_ptr + rows, index + low_at + tl.argmin(x, axis=1) + some)
    mapped = tl.map_elementwise(choose, x, x * 2.0)
    tl.store(x_ptr + rows[:, None] * N + cols[None, :], tl.associative_scan(mapped, 1, choose, reverse=True))
    everything = tl.sum(x.to(tl.float64)) + tl.max(x).to(tl.float64)
    tl.store(y_ptr, everything.to(tl.float32))
    tl.store(i_ptr + tl.arange(0, 32), tl.histogram(tl.ravel(x).to(tl.int32), 32))


@triton.jit(noinline=True)
def pair_of(x_ptr, at, limit):
    if at >= limit:
        return at, 0.0
    return at + 1, tl.load(x_ptr + at)


@triton.jit(noinline=True)
def write_to(y_ptr, at, value):
    tl.store(y_ptr + at, value)


@triton.jit
def branches_kernel(x_ptr, y_ptr, n):
    pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0) + tl.program_id(2) * tl.num_programs(1)
    if pid >= n:
        return
    at, value = pair_of(x_ptr, pid, n)
    if value > 0:
        write_to(y_ptr, at, value)
        if value > 1:
            return
        value = value * 2
    else:
        value = 1.0 if pid == 3 else tl.load(x_ptr + at)
    for i in range(n):
        if i % 2 == 0:
            value, at = value + tl.load(x_ptr + i), at + 1
    tl.store(y_ptr + pid, value if value < 3.0 else value + at)


@triton.jit
def early(x_ptr, at, n):
    value = tl.load(x_ptr + at)
    if value > n:
        return value
    return tl.load(x_ptr + at + 1) * value


@triton.jit
def returns_kernel(x_ptr, y_ptr, n, N: tl.constexpr):
    total = early(x_ptr, tl.program_id(0), n)
    for i in range(n):
        total += early(x_ptr, i, n)
    one = tl.load(x_ptr + tl.arange(0, 1))
    tl.store(y_ptr + tl.program_id(1), total + one.item())


@triton.jit
def random_kernel(y_ptr, seed, N: tl.constexpr):
    at = tl.arange(0, N)
    a, b, c, d = tl.randint4x(seed, at)
    normal = tl.randn(seed, at)
    tl.store(y_ptr + at, normal + (a ^ b ^ c ^ d).to(tl.float32) + tl.rand(seed, at.to(tl.int64)))


@triton.jit
def dots_kernel(a_ptr, b_ptr, c_ptr, d_ptr, N: tl.constexpr):
    r = tl.arange(0, N)
    at = r[:, None] * N + r[None, :]
    a = tl.load(a_ptr + at)
    b = tl.load(b_ptr + at)
    c = tl.dot(a, b, input_precision="tf32x3") + tl.dot(a, tl.trans(b), input_precision="ieee")
    e = tl.dot(a.to(tl.float8e5), b.to(tl.float8e5), max_num_imprecise_acc=32)
    h = tl.dot(a.to(tl.float16), b.to(tl.float16), out_dtype=tl.float16)
    tl.store(c_ptr + at, c + e + h.to(tl.float32))
    cube = tl.arange(0, 2)[:, None, None] * N * N + at[None, :, :]
    tl.store(d_ptr + cube, tl.dot(tl.load(d_ptr + cube), tl.permute(tl.load(d_ptr + cube + 1), (0, 2, 1))))
    tl.store(c_ptr + at + 1, tl.sum(a[:, :, None] * b[None, :, :], axis=1))


@triton.jit
def dependent_kernel(x_ptr, y_ptr, N: tl.constexpr):
    gdc_wait()
    at = tl.arange(0, N)
    x = tl.load(x_ptr + at)
    gdc_launch_dependents()
    tl.store(y_ptr + at, x)


@triton.jit
def block_pointers_kernel(x_ptr, y_ptr, M, N, BM: tl.constexpr, BN: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    y = tl.make_block_ptr(y_ptr, (M, N), (N, 1), (tl.program_id(0) * BM, 0), (BM, BN), (1, 0))
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, N, BN):
        acc += tl.load(x, boundary_check=(0, 1), padding_option="zero").to(tl.float32)
        x = tl.advance(x, (0, BN))
    tl.store(y, acc.to(tl.float16), boundary_check=(0,))


H, F, I = "*fp16", "*fp32", "*i32"  # noqa: E741
SCALED = {"a_ptr": "*u8", "sa_ptr": "*u8", "b_ptr": "*fp8e5", "sb_ptr": "*u8", "c_ptr": F}
HINTED = {"x_ptr": F, "y_ptr": F, "n": "i32"}
SNIPPETS = {
    "sort": Snippet(sort_kernel, {"x_ptr": F, "y_ptr": F, "z_ptr": F}, {"N": 64, "K": 8}),
    "gather": Snippet(gather_kernel, {"x_ptr": F, "i_ptr": I, "y_ptr": F}, {"M": 16, "N": 32}),
    "shapes": Snippet(shapes_kernel, {"x_ptr": F, "y_ptr": F, "z_ptr": F}, {"N": 64}),
    "dot_scaled": Snippet(
        dot_scaled_kernel, SCALED, {"M": 128, "N": 64, "K": 64, "TYPE": "e2m1"}, capabilities=(80, 100)
    ),
    "casts": Snippet(
        casts_kernel,
        {"x_ptr": F, "e4_ptr": "*fp8e4nv", "e5_ptr": "*fp8e5", "i_ptr": I, "h_ptr": H, "d_ptr": "*fp64"},
        {"N": 128},
        capabilities=(90,),
    ),
    "assembly": Snippet(assembly_kernel, {"x_ptr": I, "y_ptr": I}, {"N": 128}),
    "debug": Snippet(debug_kernel, {"x_ptr": F, "n": "i32"}, {"N": 64}, options={"debug": True}),
    "functions": Snippet(functions_kernel, {"x_ptr": F, "y_ptr": F, "i_ptr": I}, {"N": 64}),
    "loops": Snippet(loops_kernel, {"x_ptr": F, "y_ptr": I, "n": "i32"}, {"STAGES": 3}, capabilities=(80, 100)),
    "hints": Snippet(hints_kernel, HINTED, {"N": 128}),
    "atomics": Snippet(atomics_kernel, {"f_ptr": F, "i_ptr": I, "u_ptr": "*u32", "h_ptr": H, "n": "i32"}, {"N": 64}),
    "atomic_memory": Snippet(
        atomic_memory_kernel, {"i_ptr": I, "y_ptr": I, "n": "i32"}, {"N": 64}, versions=("3.9.0",)
    ),
    "descriptors": Snippet(
        descriptors_kernel,
        {
            "a": "tensordesc<fp16[32, 64]>", "b": "tensordesc<fp16[32, 64]>", "i_ptr": I, "x_ptr": H, "y_ptr": H,
            "M": "i32", "N": "i32",
        },
        {"BM": 32, "BN": 64},
        capabilities=(80, 90, 100),
    ),
    "reductions": Snippet(reductions_kernel, {"x_ptr": F, "y_ptr": F, "i_ptr": I}, {"M": 16, "N": 32}),
    "branches": Snippet(branches_kernel, {"x_ptr": F, "y_ptr": F, "n": "i32"}),
    "returns": Snippet(returns_kernel, {"x_ptr": F, "y_ptr": F, "n": "i32"}, {"N": 16}),
    "random": Snippet(random_kernel, {"y_ptr": F, "seed": "i64"}, {"N": 64}),
    "dots": Snippet(dots_kernel, {"a_ptr": F, "b_ptr": F, "c_ptr": F, "d_ptr": F}, {"N": 32}, capabilities=(90,)),
    "dependent": Snippet(dependent_kernel, {"x_ptr": F, "y_ptr": F}, {"N": 64}, capabilities=(90,)),
    "block_pointers": Snippet(
        block_pointers_kernel,
        {"x_ptr": H, "y_ptr": H, "M": "i32", "N": "i32"},
        {"BM": 32, "BN": 64},
        versions=("3.5.1",),
    ),
}  # fmt: skip
