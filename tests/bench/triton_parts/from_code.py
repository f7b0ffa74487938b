"""Tile programs in closed form beside those that perflex makes of Triton's code, TTIR or compiled."""
# ruff: noqa: N803  (names as in the code that PyTorch generates)

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import triton
import triton.language as tl
from msgspec import structs

from perflex.features.from_triton.launches import Configuration, StandIn, TritonKernel, TritonLaunch
from perflex.features.tiles.costs import TileCosts
from perflex.machines.files import load_machine
from perflex.models import load_model

from .problems import MACHINES, Product

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.tiles.tile_program import TileProgram, TileResources

    from .problems import Rows

PROGRAMS, CASES = 64, 20


@triton.jit
def product(
    A, B, C, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, stride_am: tl.constexpr, stride_ak: tl.constexpr,
    stride_bk: tl.constexpr, stride_bn: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, EVEN_K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    grid_m = (M + BLOCK_M - 1) // BLOCK_M
    grid_n = (N + BLOCK_N - 1) // BLOCK_N
    width = GROUP_M * grid_n
    group_id = pid // width
    group_size = min(grid_m - group_id * GROUP_M, GROUP_M)
    pid_m = group_id * GROUP_M + (pid % group_size)
    pid_n = (pid % width) // group_size
    rm = pid_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = pid_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if (stride_am == 1 and stride_ak == M) or (stride_am == K and stride_ak == 1):
        ram = tl.max_contiguous(tl.multiple_of(rm % M, BLOCK_M), BLOCK_M)
    else:
        ram = rm % M
    if (stride_bk == 1 and stride_bn == K) or (stride_bk == N and stride_bn == 1):
        rbn = tl.max_contiguous(tl.multiple_of(rn % N, BLOCK_N), BLOCK_N)
    else:
        rbn = rn % N
    rk = tl.arange(0, BLOCK_K)
    a_at = A + (ram[:, None] * stride_am + rk[None, :] * stride_ak)
    b_at = B + (rk[:, None] * stride_bk + rbn[None, :] * stride_bn)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(K, 0, -BLOCK_K):
        if EVEN_K:
            a = tl.load(a_at)
            b = tl.load(b_at)
        else:
            a = tl.load(a_at, mask=rk[None, :] < k, other=0.0)
            b = tl.load(b_at, mask=rk[:, None] < k, other=0.0)
        acc += tl.dot(a, b, input_precision=PRECISION)
        a_at += BLOCK_K * stride_ak
        b_at += BLOCK_K * stride_bk
    mask = (rm[:, None] < M) & (rn[None, :] < N)
    tl.store(C + (rn[None, :] + N * rm[:, None]), acc.to(C.dtype.element_ty), mask)


def from_code(row: Mapping[str, Any], capability: int) -> TritonKernel:
    """Return a row as a launch of this kernel."""
    m, n, k, kind = row["m"], row["n"], row["k"], row["type"]
    dtype = {"fp16": "float16", "bf16": "bfloat16"}.get(kind, "float32")
    arrays = {"A": StandIn(dtype, m, k), "B": StandIn(dtype, k, n), "C": StandIn(dtype, m, n)}
    strides = zip(("stride_am", "stride_ak", "stride_bk", "stride_bn"), ("a0", "a1", "b0", "b1"), strict=True)
    constants = {name: row[f"stride_{short}"] for name, short in strides} | {"M": m, "N": n, "K": k}
    constants |= {f"BLOCK_{side.upper()}": row[f"block_{side}"] for side in "mnk"}
    constants |= {"GROUP_M": 8, "EVEN_K": k % row["block_k"] == 0, "PRECISION": "ieee" if kind == "fp32" else "tf32"}
    grid = (-(-m // row["block_m"]) * -(-n // row["block_n"]),)
    configuration = Configuration(constants, row["num_warps"], row["num_stages"])
    return TritonKernel(TritonLaunch(product, arrays, grid), configuration, capability, most=PROGRAMS)


def compare(sets: Sequence[Rows]) -> None:
    """Print by how much costs in closed form differ from those of code, for random rows, relative to the larger."""
    random = np.random.default_rng(0)
    worst: dict[str, tuple[float, str]] = {}
    for rows in sets * -(-CASES // len(sets)):
        kernel, machine = Product(rows, int(random.integers(len(rows)))), load_machine(MACHINES[rows.gpu])
        code = from_code(kernel.row, 80 if rows.gpu == "A100" else 90)
        closed, made = (TileCosts(one.program({}), machine).features() for one in (kernel, code))
        found = {name: abs(closed[name] - made[name]) / max(closed[name], made[name], 1e-30) for name in closed}
        about = f"{kernel.label}: {' '.join(map(str, kernel.row.values()))}"
        print(f"{about}: largest {100 * max(found.values()):.2f} %", flush=True)
        worst |= {name: (value, about) for name, value in found.items() if value > worst.get(name, (1e-4,))[0]}
    for name, (value, about) in sorted(worst.items(), key=lambda item: -item[1][0]):
        print(f"{name}: {100 * value:.2f} %, {about}")


def choose(rows: Rows) -> list[str]:
    """Return losses of the first choice by usual values: with formulas, then with what compiled code takes."""
    facts, found, losses = load_machine(MACHINES[rows.gpu]), load_model("general_tile"), []
    model = found.model()
    known: dict[Any, TileResources] = {}
    names = {name: name.removeprefix("f_tile_") for name in model.input_features()}

    def seconds(program: TileProgram) -> float:
        costs = TileCosts(program, facts)
        if costs.refusal:
            return math.inf
        row = costs.features()
        return float(model.evaluate(found.usual, {name: row[short] for name, short in names.items()}))

    def compiled(row: dict[str, Any]) -> TileResources:
        """Return what the code of a tile takes; sizes matter as far as they decide masks and vectors."""
        size = 4096 if row["k"] % row["block_k"] == 0 else 4112 if row["k"] % 16 == 0 else 4097
        strides = [size if row[f"stride_{one}"] != 1 else 1 for one in ("a0", "a1", "b0", "b1")]
        kept = {name: row[name] for name in ("block_m", "block_n", "block_k", "num_stages", "num_warps")}
        like = dict.fromkeys("mnk", size) | kept
        like |= dict(zip(("stride_a0", "stride_a1", "stride_b0", "stride_b1"), strides, strict=True))
        key = tuple((like | {"type": row["type"]}).items())
        if key not in known:
            kernel = from_code(like | {"type": row["type"]}, 80 if rows.gpu == "A100" else 90)
            known[key] = kernel._launched[0].resources(kernel.configuration.told())
        return known[key]

    for problem in dict.fromkeys(rows["problem"].tolist()):
        places = np.flatnonzero((rows["problem"] == problem) & np.isfinite(rows["seconds"]))
        kernels, times = [Product(rows, place) for place in places], rows["seconds"][places]
        programs = [one.program({}) for one in kernels]
        exact = [
            structs.replace(one, resources=compiled(kernel.row))
            for one, kernel in zip(programs, kernels, strict=True)
        ]  # fmt: skip
        losses.append([times[np.argmin(list(map(seconds, some)))] / times.min() - 1 for some in (programs, exact)])
    by_way = 100 * np.array(losses).T
    said = [f"{np.median(one):.1f}, {one.mean():.1f}, {one.max():.0f} %" for one in by_way]
    return [f"{rows.gpu} {rows.part}", str(len(losses)), *said]
