"""Launches of Triton's kernels in the commands ``predict`` and ``rank``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from perflex.cli.json_output import print_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.calibration import Calibration
    from perflex.cli.terminal import Terminal
    from perflex.features.from_triton.launches import LaunchedKernel

_SHOWN = 20


def launch_of(kernel: Any) -> LaunchedKernel | None:
    """Return a kernel that a user's function launches by Triton, None of others."""
    from perflex.features.from_triton.launches import LaunchedKernel

    return kernel if isinstance(kernel, LaunchedKernel) else None


def rank_launch(
    terminal: Terminal,
    kernel: LaunchedKernel,
    sizes: Mapping[str, int],
    loaded: Calibration,
    *,
    machine: str | None,
    as_json: bool,
) -> None:
    """Show the configurations of a launch by predicted time, and those that the machine cannot run."""
    from perflex.triton import predict_configurations

    kernel.check_sizes(sizes)
    found = predict_configurations(kernel.launch(sizes), loaded if machine is None else machine)
    order = sorted(found, key=lambda one: one.seconds)
    if as_json:
        rows = [
            {"rank": number, "configuration": one.configuration.all()}
            | ({"reason": one.reason} if one.reason else {"predicted_s": one.seconds})
            for number, one in enumerate(order, 1)
        ]
        print_json(rows)
        return
    best = order[0].seconds
    possible = [one for one in order if math.isfinite(one.seconds)]
    for number, one in enumerate(possible[:_SHOWN], 1):
        terminal.show(f"{number}. {one.configuration}: {1e6 * one.seconds:.4g} us ({one.seconds / best:.2f} x)")
    if len(possible) > _SHOWN:
        terminal.show(f"and {len(possible) - _SHOWN} more; --json prints all")
    for one in order[len(possible) :]:
        terminal.show(f"not possible: {one.configuration}: {one.reason}")


def predicted_launch(
    kernel: LaunchedKernel, sizes: Mapping[str, int], loaded: Calibration, machine: str | None
) -> dict[str, Any]:
    """Return what the model says of a launch with one configuration, as ``perflex predict`` prints it."""
    from perflex.features.values import kernel_feature_values
    from perflex.models import load_model
    from perflex.triton import model_facts

    facts, values = model_facts(loaded if machine is None else machine)
    model = load_model("general_tile").model()
    columns = kernel_feature_values(model.input_features(), kernel, sizes, machine=facts)
    return {
        "sizes": sizes,
        "predicted_s": float(model.evaluate(values, columns)),
        "knowledge": "code",
        "doubts": [],
        "terms": {text: float(value) for text, value in model.terms(values, columns).items()},
    }
