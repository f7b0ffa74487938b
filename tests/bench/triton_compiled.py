"""What `general_tile` takes for granted of Triton's compiler, beside what that compiles; and how long both take.

    python tests/bench/triton_compiled.py [--every N] [--out FILE.json]

Triton compiles for GPUs that are not there. Of each kernel, each N-th configuration (7 by default) is compiled for
capabilities 8.0, 8.9 and 9.0, and compared: bytes of shared memory of a program, whether the GPU can run it, programs
that registers and shared memory let a compute unit hold at once, and whether registers are spilt. The time of
Triton's compiler stands beside that of predictions: with empty caches, with TTIR that Triton's cache has, and at other
sizes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

from judging import table
from msgspec import structs

sys.path.insert(0, str(Path(__file__).parents[1]))

from perflex import load_machine
from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton import front_end
from perflex.features.from_triton.launches import Configuration, StandIn, TritonKernel, TritonLaunch
from perflex.features.tiles.costs import TileCosts
from perflex.triton import rank
from support.triton_attention import attention_forward_kernel
from support.triton_more_products import scaled_matmul_kernel
from support.triton_products import int4_matmul_kernel, matmul_kernel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.tiles.tile_program import TileProgram

MACHINES = {80: "A100-80GB", 89: "L40S", 90: "H100-SXM"}
M, N, K = 4096, 4096, 4096
TILES = tuple(itertools.product((32, 64, 128, 256), (32, 64, 128, 256), (32, 64, 128), (4, 8), (2, 3, 4)))
MEASURES = ("configurations", "shared memory", "possible", "resident", "spilt")


def blocks(constants: dict[str, int], sizes: tuple[str, str]) -> tuple[int, int]:
    """Return the grid of a product."""
    return (-(-M // constants[sizes[0]]) * -(-N // constants[sizes[1]]), 1)


def product(kernel: Any, arguments: dict[str, Any], names: tuple[str, str, str], **constants: Any) -> TritonLaunch:
    tiles = [one for one in TILES if one[0] * one[1] <= 128 * 256]
    space = tuple(
        Configuration({**constants, **dict(zip(names, tile, strict=False))}, *tile[3:]) for tile in tiles
    )  # fmt: skip
    return TritonLaunch(kernel, arguments, lambda given: blocks(given, names[:2]), space)


def attention(dtype: str, width: int, *, causal: bool) -> TritonLaunch:
    batch, heads = 4, 16
    q, k, v, out = (StandIn(dtype, batch, heads, M, width) for _ in range(4))
    arguments = {
        "Q": q, "K": k, "V": v, "Out": out, "sm_scale": 0.5, "M": StandIn("fp32", batch * heads, M), "N_CTX": M,
        "stride_z": heads * M * width, "stride_h": M * width, "stride_n": width, "H": heads, "HEAD_DIM": width,
        "STAGE": 3 if causal else 1,
    }  # fmt: skip
    space = tuple(
        Configuration({"BLOCK_M": rows, "BLOCK_N": columns}, warps, stages)
        for rows, columns, warps, stages in itertools.product((32, 64, 128), (32, 64, 128), (4, 8), (2, 3, 4))
        if columns <= width and rows % columns == 0
    )
    return TritonLaunch(arguments=arguments, function=attention_forward_kernel, configurations=space,
                        grid=lambda given: (-(-M // given["BLOCK_M"]), batch * heads))  # fmt: skip


def cases() -> Iterator[tuple[str, TritonLaunch, tuple[int, ...]]]:
    """Yield kernels with all configurations, and the capabilities that they are compiled for."""
    sizes = {"M": M, "N": N, "K": K}
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
    strides = {"stride_am": K, "stride_ak": 1, "stride_bk": N, "stride_bn": 1, "stride_cm": N, "stride_cn": 1}
    for dtype, capabilities in (("fp16", (80, 90)), ("fp32", (80,)), ("fp8e4nv", (89, 90))):
        pointers = {"a_ptr": StandIn(dtype, M, K), "b_ptr": StandIn(dtype, K, N), "c_ptr": StandIn("fp16", M, N)}
        arguments = {**pointers, **sizes, **strides, "ACTIVATION": ""}
        yield f"product, {dtype}", product(matmul_kernel, arguments, names, GROUP_SIZE_M=8), capabilities
    arguments = {
        "a_ptr": StandIn("i8", M, K), "b_ptr": StandIn("i8", N, K), "scale_a_ptr": StandIn("fp32", M),
        "scale_b_ptr": StandIn("fp32", N), "c_ptr": StandIn("fp16", M, N), "bias_ptr": StandIn("fp16", N),
    }  # fmt: skip
    yield "int8", product(scaled_matmul_kernel, arguments | sizes, ("BLOCK_M", "BLOCK_N", "BLOCK_K")), (80, 90)
    arguments = {
        "a_ptr": StandIn("fp16", M, K), "b_ptr": StandIn("i32", K // 8, N), "c_ptr": StandIn("fp16", M, N),
        "scales_ptr": StandIn("fp16", K // 128, N), "zeros_ptr": StandIn("i32", K // 128, N // 8), "groupsize": 128,
    }  # fmt: skip
    yield "int4", product(int4_matmul_kernel, arguments | sizes, names, NO_GROUPS=False, SPLIT_K=1), (80, 90)
    for dtype, width, causal in (("fp16", 64, False), ("fp16", 128, True), ("fp32", 64, False)):
        what = f"attention, {dtype}, {width}{', causal' if causal else ''}"
        yield what, attention(dtype, width, causal=causal), (80, 90)


def compiled(launch: TritonLaunch, configuration: Configuration, capability: int) -> TileProgram | None:
    """Return the tile program with what compiled code takes; None where Triton cannot compile it."""
    try:
        return TritonKernel(launch, configuration, capability, most=16, compiled=True).program({})
    except UnsupportedKernelError:
        return None


@contextmanager
def empty_cache() -> Iterator[None]:
    """Let Triton keep nothing beyond the block."""
    with tempfile.TemporaryDirectory() as cache, mock.patch.dict(os.environ, TRITON_CACHE_DIR=cache):
        front_end._codes.clear()
        yield


def race() -> str:
    """Return how long 30 configurations of 19 tiles take to predict and to compile."""
    _, launch, (capability, *_) = next(cases())
    by_tile: dict[Any, list[Configuration]] = defaultdict(list)
    for one in launch.configurations:
        if one.stages == 3:
            by_tile[tuple(one.constants.values())].append(one)
    chosen = [some[: 2 if number < 11 else 1] for number, some in enumerate(list(by_tile.values())[::2][:19])]
    launch = replace(launch, configurations=tuple(itertools.chain.from_iterable(chosen)))
    other = replace(launch, arguments=launch.arguments | {"M": M // 2})

    def seconds(run: Any) -> float:
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    rank(launch, MACHINES[capability])  # imports
    with empty_cache():
        first = seconds(lambda: rank(launch, MACHINES[capability]))
        front_end._codes.clear()
        later = seconds(lambda: rank(launch, MACHINES[capability]))
        sizes = seconds(lambda: rank(other, MACHINES[capability]))
    kernels = [TritonKernel(launch, one, capability, most=16, compiled=True) for one in launch.configurations]
    with empty_cache():
        for kernel in kernels:
            kernel._launched  # noqa: B018 - what is compiled, made before the time is taken
        everything = seconds(lambda: [kernel._launched[0].resources(kernel.configuration.told()) for kernel in kernels])
    count = len(launch.configurations)
    return (
        f"{count} configurations of {len(chosen)} tiles: predicted in {first:.2f} s, by a later process in "
        f"{later:.2f} s, at other sizes in {sizes:.2f} s; compiled in {everything:.1f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=7)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows, found = defaultdict(lambda: [0] * 6), []
    with empty_cache():
        for what, launch, capabilities in cases():
            for capability in capabilities:
                machine, row = load_machine(MACHINES[capability]), rows[what, MACHINES[capability]]
                for configuration in launch.configurations[:: given.every]:
                    code = compiled(launch, configuration, capability)
                    if code is None:
                        continue
                    true, costs = TileCosts(code, machine), TileCosts(structs.replace(code, resources=None), machine)
                    sizes = [one.local_bytes for one in (true, costs)]
                    runs = [size <= machine.need("local_bytes_per_group") for size in sizes]
                    row[0] += 1
                    row[1:3] = [row[1] + (sizes[0] == sizes[1]), row[2] + (runs[0] == runs[1])]
                    if all(runs):
                        spilt = [one.registers[1] > 0 for one in (true, costs)]
                        row[3:] = [
                            row[3] + 1,
                            row[4] + (costs.resident == true.resident),
                            row[5] + (spilt[0] == spilt[1]),
                        ]
                    found.append(
                        {"kernel": what, "machine": machine.name, "configuration": configuration.all()}
                        | {name: {"shared": one.local_bytes, "registers": one.allocated, "resident": one.resident}
                           for name, one in (("compiled", true), ("predicted", costs))}
                    )  # fmt: skip
    whole = [sum(column) for column in zip(*rows.values(), strict=True)]
    lines = [
        [*key, row[0], f"{row[1]}", f"{row[2]}", f"{row[4]} of {row[3]}", f"{row[5]} of {row[3]}"]
        for key, row in (*rows.items(), (("all", ""), whole))
    ]
    print(table(("kernel", "GPU", *MEASURES), [list(map(str, line)) for line in lines]))
    print(f"\n{race()}")
    if given.out:
        given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
