"""Ranking variants by predicted time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from perflex._coverage import warn_uncounted
from perflex._gather import kernel_feature_values, kernel_of
from perflex._machines.choice import else_machine
from perflex.errors import CalibrationError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from perflex._calibration import Calibration
    from perflex._machines import Machine

__all__ = ["RankedVariant", "rank"]


@dataclass(frozen=True)
class RankedVariant:
    """A variant's place among its rivals.

    Attributes
    ----------
    rank
        1 for the fastest.
    name
        Of the variant.
    predicted
        In the output feature's unit: seconds for a wall time.
    ratio
        Predicted time as a multiple of the fastest variant's.
    terms
        What each top-level term of the model contributes, in the same unit.
    kernel
        The variant itself.
    """

    rank: int
    name: str
    predicted: float
    ratio: float
    terms: Mapping[str, float] = field(repr=False)
    kernel: Any = field(repr=False, compare=False)


def rank(
    variants: Mapping[str, Any] | Sequence[Any],
    calibration: Calibration,
    sizes: Mapping[str, Any] | None = None,
    *,
    machine: str | Path | Machine | None = None,
) -> list[RankedVariant]:
    """Order variants by predicted time, fastest first; nothing is run.

    Parameters
    ----------
    variants
        Loopy kernels or measurement kernels, by name or in a sequence.
    calibration
        From `perflex.calibrate` or `Calibration.load`.
    sizes
        Value of each size parameter; measurement kernels bring their own if none are given.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`, else the
        calibration's.

    Returns
    -------
    list of RankedVariant
        Equal times keep the order of `variants`.

    Raises
    ------
    CalibrationError
        There are no variants, or sizes are needed and missing.
    MachineError, MissingSizeError, UnsupportedKernelError
        As for predictions.
    """
    named = list(variants.items()) if isinstance(variants, Mapping) else _named(variants)
    if not named:
        msg = "there are no variants to rank"
        raise CalibrationError(msg)
    features = calibration.model.input_features()
    predictions = []
    for name, variant in named:
        own = getattr(variant, "sizes", None)
        chosen = sizes if sizes is not None else own
        if chosen is None:
            msg = f"variant {name!r} needs sizes; pass e.g. rank(variants, calibration, {{'n': 1024}})"
            raise CalibrationError(msg, variant=name)
        with else_machine(calibration.machine):
            values = kernel_feature_values(features, variant, chosen, calibration.sub_group_size, machine=machine)
        warn_uncounted(features, variant, chosen)
        seconds = float(calibration.model.evaluate(calibration.params, values))
        terms = calibration.model.terms(calibration.params, values)
        predictions.append((seconds, name, variant, {text: float(value) for text, value in terms.items()}))
    predictions.sort(key=lambda entry: entry[0])
    fastest = predictions[0][0]
    return [
        RankedVariant(
            rank=place,
            name=name,
            predicted=seconds,
            ratio=seconds / fastest if fastest else float("nan"),
            terms=terms,
            kernel=variant,
        )
        for place, (seconds, name, variant, terms) in enumerate(predictions, start=1)
    ]


def _named(variants: Sequence[Any]) -> list[tuple[str, Any]]:
    named: list[tuple[str, Any]] = []
    taken: set[str] = set()
    for variant in variants:
        base = name = str(getattr(variant, "name", "") or ",".join(sorted(kernel_of(variant).entrypoints)))
        number = 1
        while name in taken:
            number += 1
            name = f"{base} #{number}"
        taken.add(name)
        named.append((name, variant))
    return named
