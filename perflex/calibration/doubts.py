"""Reasons not to rely on a prediction: what the calibration has no kernels like, and what models cannot know.

Further checks of kernels stand in `KERNEL_CHECKS`. Each is called with a kernel as `Calibration.predict` takes it, its
sizes, and the target that its features are counted for (with the machine, where one is known); it returns short texts
without a full stop, none where it has no doubt. What cannot be checked is no doubt.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from perflex.calibration.record import CalibrationRecord
    from perflex.features.target import Target

    KernelCheck = Callable[[Any, Mapping[str, Any], Target], Iterable[str]]

KERNEL_CHECKS: list[KernelCheck] = []


def kernel_doubts(kernel: Any, sizes: Mapping[str, Any], target: Target) -> tuple[str, ...]:
    """Return the doubts of all `KERNEL_CHECKS`, each once."""
    return tuple(dict.fromkeys(text for check in KERNEL_CHECKS for text in check(kernel, sizes, target)))


def range_doubts(calibration: CalibrationRecord, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what about feature values is outside of the calibration's measurement kernels, as short texts.

    Parameters
    ----------
    calibration
        The calibration; one that keeps no measured values has no doubts of this kind.
    values
        A number or array per input feature.
    """
    place = calibration.place_of(values)
    return () if place is None else place.doubts


def warn_of_prediction(doubts: Iterable[str]) -> None:
    """Give one `PerflexWarning` with all doubts about a prediction, if there are any."""
    if text := "; ".join(doubts):
        msg = f"this prediction is doubtful: {text}; measure the kernel, or calibrate with kernels like it"
        # The line that called `Calibration.predict` or `predict_interval`.
        warnings.warn(msg, PerflexWarning, stacklevel=3)
