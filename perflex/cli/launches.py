"""Launches of Triton's kernels in the commands ``predict`` and ``rank``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from perflex.cli.arguments import ArgumentError
from perflex.cli.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.features.from_triton.launches import LaunchedKernel
    from perflex.triton import Prediction

_SHOWN = 20


def launch_of(kernel: Any) -> LaunchedKernel | None:
    """Return a kernel that a user's function launches by Triton, None of others."""
    from perflex.features.from_triton.launches import LaunchedKernel

    return kernel if isinstance(kernel, LaunchedKernel) else None


def refuse_for_launch(*, time: bool, assumed: bool) -> None:
    """Stop where a launch of a Triton kernel is to be timed, or predicted for other launches or caches."""
    if time:
        msg = "perflex does not time Triton kernels; leave times out, and calibrate with those of autotuners"
        raise ArgumentError(msg)
    if assumed:
        msg = "Triton kernels are predicted as they were timed; leave out --launches and --caches"
        raise ArgumentError(msg)


def calibration_of_launch(loaded: Calibration, machine: str | None, *, given: bool = True) -> Calibration:
    """Return the calibration that predicts launches, for a machine where one is named.

    Where none is given, that is ``general_tile``, which rests on no time of the machine.
    """
    from perflex.calibration.calibration import USUAL_TILES, Calibration

    if machine is None:
        return loaded
    found = loaded if given else Calibration.load(USUAL_TILES)
    return replace(found, machine=machine, device=found.device or {"name": machine})


def rank_launch(
    terminal: Terminal,
    kernel: LaunchedKernel,
    sizes: Mapping[str, int],
    loaded: Calibration,
    *,
    compiled: int = 0,
    as_json: bool,
) -> None:
    """Show the configurations of a launch by predicted time, and those without; a MachineError where all are."""
    from perflex.errors import MachineError
    from perflex.triton import predict_configurations

    kernel.check_sizes(sizes)
    found = predict_configurations(kernel.launch(sizes), loaded, compiled=compiled)
    order = sorted(found, key=lambda one: one.seconds)
    if as_json:
        print_json(_rows(order))
    else:
        terminal.show(*_lines(order))
    if all(one.reason for one in order):
        what = f"none of {len(order)} configurations can be predicted for this machine"
        msg = f"{kernel.name}: {what}, for the reasons above; give smaller tiles or fewer stages"
        raise MachineError(msg)


def _rows(order: list[Prediction]) -> list[dict[str, Any]]:
    return [
        {"rank": number, "configuration": one.configuration.all()}
        | ({"reason": one.reason} if one.reason else {"predicted_s": one.seconds})
        | ({"doubts": list(one.doubts)} if one.doubts else {})
        | ({"compiled": asdict(one.resources)} if one.resources else {})
        for number, one in enumerate(order, 1)
    ]


def _lines(order: list[Prediction]) -> Iterator[str]:
    predicted = [one for one in order if not one.reason]
    for number, one in enumerate(predicted[:_SHOWN], 1):
        said = f"{number}. {one.configuration}: {1e6 * one.seconds:.4g} us ({one.seconds / order[0].seconds:.2f} x)"
        if (code := one.resources) is not None:
            said += f", compiled: {code.registers} registers, {code.local_bytes} B of shared memory"
            said += f", {code.spilt_bytes:g} B spilt" if code.spilt_bytes else ""
        yield said
    if len(predicted) > _SHOWN:
        yield f"and {len(predicted) - _SHOWN} more; --json prints all"
    others: dict[tuple[bool, str], list[Prediction]] = {}
    for one in order[len(predicted) :]:
        others.setdefault((one.possible, one.reason), []).append(one)
    for (possible, reason), some in others.items():
        more = f" and {len(some) - 1} more" if len(some) > 1 else ""
        yield f"not {'predicted' if possible else 'possible'}: {some[0].configuration}{more}: {reason}"
    yield from dict.fromkeys(f"doubtful: {doubt}" for one in predicted for doubt in one.doubts)
