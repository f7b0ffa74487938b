"""Other ways to order configurations: formulas of Triton and of Origami, tiles by size, trees, one order for all."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import load_machine

from .problems import MACHINES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .problems import Rows

_GROUP = 8  # Rows of tiles that programs take one after another.
_CONFIGURATION = ("block_m", "block_n", "block_k", "num_stages", "num_warps")


def _facts(rows: Rows) -> tuple[Any, NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the machine, bytes of an element, the grid, and operations per cycle of a compute unit."""
    machine, kinds = load_machine(MACHINES[rows.gpu]), rows["type"]
    width = np.where(np.char.endswith(kinds, "32"), 4, 2)
    rates = {"tf32": machine.need("tensor_tf32_per_cycle"), "fp32": machine.need("fp32_per_cycle")}
    peak = np.array([rates.get(kind, machine.need("tensor_fp16_per_cycle")) for kind in kinds])
    return machine, width, -(-rows["m"] // rows["block_m"]), -(-rows["n"] // rows["block_n"]), peak


def matmul_perf_model(rows: Rows) -> NDArray[np.float64]:
    """Return the times of Triton's own model (triton.ops.matmul_perf_model, as up to Triton 2), which prunes, too."""
    machine, width, grid_m, grid_n, peak = _facts(rows)
    m, n = np.maximum(rows["m"], rows["block_m"]), np.maximum(rows["n"], rows["block_n"])
    k, warps, programs = rows["k"], rows["num_warps"], grid_m * grid_n
    # It takes float32 for TF32 always.
    peak = np.where(rows["type"] == "fp32", machine.need("tensor_tf32_per_cycle"), peak) * machine.need("clock_hz")
    units = machine.need("compute_units")
    busy = np.minimum(4 * units, programs * np.minimum(warps, 4)) / 4
    computing = 2.0 * m * n * k / (busy * peak)
    filled, more = np.minimum(1, programs / 32), np.clip((programs - 32) / (108 - 32), 0, 1)
    rate = machine.need("dram_bandwidth") * (0.95 * filled + 0.05 * more)
    first, second = m * k * width, n * k * width
    loading = (first * (1 + 0.2 * (grid_n - 1)) + second * (1 + 0.2 * (grid_m - 1))) / rate
    loading += 0.8 * (first * (grid_n - 1) + second * (grid_m - 1)) / (4 * rate)
    found = np.maximum(computing, loading) + m * n * width / (0.6 * rate)
    # Of equal tiles and warps the numbers of stages that hide the latency best come first.
    cycles = 8 * rows["block_m"] * rows["block_n"] * rows["block_k"] / (16 * 8 * 16) / np.minimum(4, warps)
    spare = rows["num_stages"] - 300 / cycles
    found = found * (1 + 1e-6 * np.where(spare < 0, 10 + np.abs(spare), spare))
    local = (rows["block_m"] + rows["block_n"]) * rows["block_k"] * rows["num_stages"] * width
    return np.where(local <= machine.need("local_bytes_per_group"), found, np.inf)


def origami(rows: Rows) -> NDArray[np.float64]:
    """Return the times of AMD's Origami (tritonBLAS), with an NVIDIA GPU's facts."""
    machine, width, grid_m, grid_n, peak = _facts(rows)
    tile_m, tile_n, tile_k, k = rows["block_m"], rows["block_n"], rows["block_k"], rows["k"]
    units, clock, programs = machine.need("compute_units"), machine.need("clock_hz"), grid_m * grid_n
    active, waves = np.minimum(programs, units), np.ceil(programs / units)
    computing = np.ceil(tile_m / 16) * np.ceil(tile_n / 8) * np.ceil(tile_k / 16) * (2.0 * 16 * 8 * 16) / peak
    # Of the programs that run together so many rows and columns of tiles differ.
    lines = np.minimum(_GROUP, grid_m)
    columns = np.minimum(np.ceil(active / lines), grid_n)
    first, second = lines * tile_m * tile_k * width, columns * tile_n * tile_k * width
    hits = np.clip(1 - (first + second) / (first * columns + second * lines), 0, 1)
    beyond = (rows["m"] * k + k * rows["n"]) * width > 2 * machine.need("l2_effective_bytes")
    hits = np.where(beyond, np.minimum(hits, 0.5), hits)
    loaded = 128 * active * (np.ceil(tile_m * tile_k * width / 128) + np.ceil(tile_n * tile_k * width / 128))
    cache = loaded * clock / machine.need("l2_bandwidth") * units / active
    rate = machine.need("dram_bandwidth") / clock * np.minimum(1, active / (0.35 * units))
    memory = np.maximum(cache, (1 - hits) * loaded / rate + machine.need("dram_latency") * clock * (hits < 1))
    steps = -(-k // tile_k)
    waste = (grid_m * tile_m * grid_n * tile_n * steps * tile_k) / (rows["m"] * rows["n"] * k)
    ends = active * tile_m * tile_n * width / rate + computing * waste
    found = np.maximum(computing, memory) * waste * np.maximum(steps - 1, 1) + 1.5 * memory * waste + 2 * ends
    found += k % tile_k / k * 50000
    return found * waves / clock * (1 - 1e-6 * np.log(tile_m * tile_n / (tile_m + tile_n)))


def largest_tile(rows: Rows) -> NDArray[np.float64]:
    tile = rows["block_m"] * rows["block_n"]
    return -(tile * 1e6 + rows["block_k"] * 1e3 + rows["num_stages"] * 10.0 + rows["num_warps"])


def fixed_order(known: Sequence[Rows], rows: Rows) -> NDArray[np.float64]:
    """Return one order for all problems: by the mean of best time over time, which few problems pull towards 0."""

    def configurations(asked: Rows) -> list[tuple[int, ...]]:
        return list(zip(*(asked[name].tolist() for name in _CONFIGURATION), strict=True))

    speeds: dict[tuple[int, ...], list[float]] = defaultdict(list)
    for each in known:
        problems, place = np.unique(each["problem"], return_inverse=True)
        best = np.full(len(problems), np.inf)
        np.minimum.at(best, place, each["seconds"])
        for key, speed in zip(configurations(each), (best[place] / each["seconds"]).tolist(), strict=True):
            speeds[key].append(speed)
    return np.array([-sum(speeds[key]) / (len(speeds[key]) + 3) for key in configurations(rows)])


def _table(rows: Rows) -> NDArray[np.float64]:
    """Return what trees see: sizes, type, strides, the configuration, and what follows from them."""
    machine, width, grid_m, grid_n, _ = _facts(rows)
    programs, units = grid_m * grid_n, machine.need("compute_units")
    logs = [rows[name] for name in ("m", "n", "k", "block_m", "block_n", "block_k")]
    logs += [programs, -(-rows["k"] // rows["block_k"]), rows["m"] * rows["n"] * rows["k"]]
    logs += [rows["block_m"] * rows["block_n"], (rows["block_m"] + rows["block_n"]) * rows["block_k"] * width]
    plain = [rows["num_stages"], rows["num_warps"], np.ceil(programs / units) / (programs / units)]
    plain += [rows["type"] == kind for kind in ("fp16", "bf16", "tf32")]
    for one, other in (("stride_a0", "stride_a1"), ("stride_b1", "stride_b0")):
        lying = rows[other] == 1
        stride = np.where(lying, rows[one], rows[other])
        logs.append(stride)
        plain += [lying, stride % 8 == 0]
    return np.column_stack([*(np.log2(each) for each in logs), *plain]).astype(float)


def trees(known: Sequence[Rows], rows: Rows, count: int) -> NDArray[np.float64]:
    from sklearn.ensemble import ExtraTreesRegressor

    table = np.concatenate([_table(each) for each in known])
    logs = np.log(np.concatenate([each["seconds"] for each in known]))
    there = np.isfinite(logs)
    learner = ExtraTreesRegressor(count, min_samples_leaf=2, n_jobs=1, random_state=0)
    return np.exp(learner.fit(table[there], logs[there]).predict(_table(rows)))
