"""Launches of Triton's kernels in the commands that predict."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from perflex.cli.arguments import ArgumentError

if TYPE_CHECKING:
    from perflex.calibration.calibration import Calibration


def is_launch(kernel: Any) -> bool:
    """Return whether a user's function launches it by Triton."""
    from perflex.features.tiles.tile_kernel import TileKernel

    if not isinstance(kernel, TileKernel):
        return False
    from perflex.features.from_triton.launches import LaunchedKernel

    return isinstance(kernel, LaunchedKernel)


def predictor_of(
    kernel: Any, loaded: Calibration, machine: str | None, *, given: bool, time: bool, assumed: bool
) -> Calibration:
    """Return the calibration that predicts a kernel: for launches ``general_tile``, where none is given.

    An error where a launch is to be timed, or predicted for other launches or caches.
    """
    if not is_launch(kernel):
        return loaded
    if time:
        msg = "perflex does not time Triton kernels; leave times out, and calibrate with those of autotuners"
        raise ArgumentError(msg)
    if assumed:
        msg = "Triton kernels are predicted as they were timed; leave out --launches and --caches"
        raise ArgumentError(msg)
    if given or machine is None:
        return loaded
    from perflex.calibration.calibration import USUAL_TILES, Calibration

    return replace(Calibration.load(USUAL_TILES), device={**loaded.device, "calibration": USUAL_TILES})
