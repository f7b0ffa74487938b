"""What a prediction rests on that nobody measured: facts of a machine that its file assumes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.calibration.record import CalibrationRecord
    from perflex.machines.machine import Machine

# Times at peaks, and the facts that decide them where makers do not state them.
_DECIDING = {
    "f_peak_dram": ("dram_bandwidth",),
    "f_peak_l2": ("l2_bandwidth",),
    "f_peak_group": ("group_start_rate",),
    "f_peak_atomic": ("atomics_per_cycle", "distinct_atomics_per_cycle"),
    "f_peak_latency": ("dram_latency", "l2_latency"),
}
# A cost is large from this part of all on.
_LARGE = 0.25


def assumed_facts(
    calibration: CalibrationRecord, values: Mapping[str, Any], machine: Machine | None
) -> tuple[str, ...]:
    """Return that large costs of a prediction rest on facts that the machine's file assumes, where they do.

    Of arrays of values, costs are those of all together.
    """
    if machine is None or calibration.has_samples or _DECIDING.keys().isdisjoint(values):
        return ()
    costs = {text: float(np.sum(one)) for text, one in calibration.model.terms(calibration.params, values).items()}
    large = [text for text, cost in costs.items() if cost >= _LARGE * sum(costs.values())]
    decide = [fact for text in large for name in re.findall(r"\w+", text) for fact in _DECIDING.get(name, ())]
    assumed = [fact for fact in decide if fact in machine.sources and machine.sources[fact].kind == "assumed"]
    if not assumed:
        return ()
    return (f"large costs rest on {' and '.join(assumed)} of {machine.name}, which nobody measured there",)
