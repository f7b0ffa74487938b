"""Reasons not to rely on predictions of variants: those that `Calibration.doubts` has of one kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.assumed_facts import assumed_facts
from perflex.calibration.doubts import kernel_doubts, machine_doubts, value_doubts
from perflex.errors import DoubtfulPredictionWarning, warn
from perflex.features.sized_kernel import kernel_of
from perflex.search.variants import alike

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perflex.calibration.calibration import Calibration
    from perflex.machines.machine import Machine
    from perflex.search.variants import Variants

# So many different doubts are told in words.
_TOLD = 5


def doubts_of(
    calibration: Calibration, found: Variants, machine: str | Path | Machine | None, numbers: Iterable[int]
) -> list[tuple[str, ...]]:
    """Return the doubts of each variant; those that only kernels tell, which are built for it, by `numbers`."""
    target = calibration.target(machine)
    columns = found.columns(calibration.model.input_features())
    doubtful = True if calibration.transferred is not None else calibration.place_of(columns).outside
    doubtful = np.broadcast_to(doubtful, (len(found),))
    mixed = machine_doubts(calibration, target.machine)
    own = [
        (*(value_doubts(calibration, {name: c[n] for name, c in columns.items()}) if doubtful[n] else ()), *mixed)
        for n in range(len(found))
    ]
    for n in numbers:
        more = kernel_doubts(calibration, kernel_of(found.kernel(n)), found.sizes[n], target)
        more += assumed_facts(calibration, {name: c[n] for name, c in columns.items()}, target.machine)
        own[n] = tuple(dict.fromkeys((*own[n], *more)))
    return own


def doubt_lines(names: Sequence[str], doubts: Sequence[Sequence[str]]) -> list[str]:
    """Return the doubts of variants in few lines: one of those alike but for numbers, those of most variants first."""
    owners: dict[str, list[tuple[str, str]]] = {}
    for name, texts in zip(names, doubts, strict=True):
        for text in texts:
            owners.setdefault(alike(text), []).append((name, text))
    lines = []
    for found in sorted(owners.values(), key=lambda found: -len(found)):
        name, text = found[0]
        of_all = len(found) == len(names) and len({text for _, text in found}) == 1
        more = "" if len(found) == 1 else f" (and {len(found) - 1} more alike)"
        lines.append(text if of_all else f"{name}: {text}{more}")
    return lines if len(lines) <= _TOLD else [*lines[:_TOLD], f"and {len(lines) - _TOLD} more"]


def warn_of_missing(found: Variants) -> None:
    """Give a warning of each kind of variants that cannot be predicted."""
    for line in found.left_out:
        warn(f"left out: {line}")


def warn_of_variants(names: Sequence[str], doubts: Sequence[Sequence[str]]) -> None:
    """Give one warning of all doubts about the predictions of variants, if there are any."""
    if count := sum(map(bool, doubts)):
        told = "; ".join(doubt_lines(names, doubts))
        msg = f"{count} of {len(names)} predictions are doubtful: {told}; measure them, or calibrate with such kernels"
        warn(msg, DoubtfulPredictionWarning)
