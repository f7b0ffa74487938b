"""Triton: configurations of an autotuner are chosen before anything is compiled, and predicted without a GPU.

One line above what is there already::

    @perflex.triton.prune(machine="H100-SXM", keep=5)
    @triton.autotune(configs=[...], key=["M", "N", "K"])
    @triton.jit
    def matmul_kernel(...): ...
"""

from __future__ import annotations

from perflex.calibration.times.tuning_files import record
from perflex.features.from_triton.launches import (
    Configuration,
    LaunchedKernel,
    StandIn,
    TritonKernel,
    TritonLaunch,
    captured_launch,
)
from perflex.features.tiles.tile_program import TileResources
from perflex.search.triton_configurations import prune, rank

__all__ = [
    "Configuration", "LaunchedKernel", "TileResources", "TritonKernel", "TritonLaunch", "capture", "prune", "rank",
    "record", "tensor",
]  # fmt: skip

tensor = StandIn
capture = captured_launch
