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
        msg = "perflex does not time Triton kernels; leave --time out, and give times of autotuners by --times"
        raise ArgumentError(msg)
    if assumed:
        msg = "Triton kernels are predicted as they were timed; leave out --launches and --caches"
        raise ArgumentError(msg)


def calibration_of_launch(loaded: Calibration, machine: str | None, *, given: bool = True) -> Calibration:
    """Return the calibration that predicts launches, for a machine where one is named.

    Where none is given, the usual values of ``general_tile`` predict; one of another model is refused.
    """
    from perflex.calibration.usual_prior import usual_calibration
    from perflex.models import load_model

    if machine is None:
        return loaded
    description = load_model("general_tile")
    if loaded.model.expression == description.model().expression:
        return replace(loaded, machine=machine)
    if given:
        msg = "the calibration is of another model than general_tile, which predicts Triton kernels; leave it out"
        raise ArgumentError(msg)
    return usual_calibration(description, machine)


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


def predicted_launch(
    kernel: LaunchedKernel, sizes: Mapping[str, int], loaded: Calibration, confidence: float | None
) -> dict[str, Any]:
    """Return what the model says of a launch with one configuration, as ``perflex predict`` prints it."""
    from perflex.calibration.interval import interval_at
    from perflex.features.tiles.costs import TileCosts
    from perflex.features.tiles.doubts import UNLIKE_DEVIATION, tile_doubts, unlike_judged
    from perflex.features.values import kernel_feature_values
    from perflex.triton import has_times, model_facts

    facts, values = model_facts(loaded)
    # As for `rank`: kernels may depend on what they are compiled for.
    kernel.capability = int(10 * facts.need("compute_capability"))
    costs = TileCosts(kernel.program(sizes), facts)
    columns = kernel_feature_values(loaded.model.input_features(), kernel, sizes, machine=facts)
    carried = () if loaded.transferred is None else loaded.transferred.remarks
    found = {
        "sizes": sizes,
        "predicted_s": float(loaded.model.evaluate(values, columns)),
        "knowledge": "code",
        "doubts": [*carried, *tile_doubts(costs, timed=has_times(loaded))],
        "terms": {text: float(value) for text, value in loaded.model.terms(values, columns).items()},
    }
    if confidence is not None:
        interval = interval_at(loaded, columns, confidence)
        if unlike_judged(costs):
            interval = interval.widened(UNLIKE_DEVIATION)
        found |= {"low_s": interval.low, "high_s": interval.high, "confidence": confidence}
        found |= {"extrapolated": interval.extrapolated}
    return found
