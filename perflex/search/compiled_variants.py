"""Variants of which the best are compiled, without the GPU: what the compiler made of them is predicted anew."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import CalibrationError, warn
from perflex.features.target import Target
from perflex.machines.residency import Resources
from perflex.search.counted_variants import Work, counted_rows, variants_of
from perflex.search.variants import Missing, VariantCode, cause_of
from perflex.timing.machine_code import machine_code
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from perflex.calibration.calibration import Calibration
    from perflex.compiled.program import CompiledProgram
    from perflex.machines.machine import Machine
    from perflex.progress import RunOptions
    from perflex.search.variants import Space, Variants

_SAME = "compiles to the same code as another variant"


def with_code(
    variants: Mapping[str, Any] | Sequence[Any] | Space | Variants,
    calibration: Calibration,
    count: int,
    sizes: Mapping[str, Any] | None = None,
    *,
    machine: str | Path | Machine | None = None,
    run: RunOptions | None = None,
) -> Variants:
    """Compile the variants that are predicted best for a GPU of NVIDIA's or AMD's, and predict them by their code.

    Registers, private memory and, of NVIDIA's, instructions are then those of the code. What is not compiled is
    expected to become faster as those that are, if these do. Since code may put others first, this goes on until so
    many of the best are compiled. Nothing is run; the GPU need not be there.

    Parameters
    ----------
    variants, sizes, machine
        As of `rank`.
    calibration
        One whose model has no features that need compiled code, such as ``general_gpu``.
    count
        How many of the best are compiled.
    run
        Where variants are counted, and who is told how far it is.

    Returns
    -------
    Variants
        What `rank`, `prune` and `tune` take. Variants that do not compile are `missing`; of those that compile to the
        same code the first stays (`same`).

    Raises
    ------
    CalibrationError
        `count` is negative, or none of the variants compiles.
    MachineError, MissingExtraError, EnvironmentSetupError
        As of `machine_code`; and the errors of `rank`.
    """
    if count < 0:
        msg = f"{count} variants cannot be compiled; give a number from 0 on"
        raise CalibrationError(msg)
    found = variants_of(variants, calibration, sizes, machine=machine, run=run)
    while left := _left(found, calibration, count):
        found = _compiled(found, left, calibration, machine, run)
    return found


def _left(variants: Variants, calibration: Calibration, count: int) -> list[int]:
    best = np.argsort(variants.predicted(calibration), kind="stable")[:count].tolist()
    return [number for number in best if number not in variants.code]


def _compiled(
    variants: Variants,
    numbers: Sequence[int],
    calibration: Calibration,
    machine: str | Path | Machine | None,
    run: RunOptions | None,
) -> Variants:
    """Return variants of which some more are compiled."""
    target = calibration.target(machine)
    pairs = [(variants.kernel(number), variants.sizes[number]) for number in numbers]
    outcomes = machine_code(pairs, target.need_machine(), None if run is None else run.progress)
    codes = {n: one for n, one in zip(numbers, outcomes, strict=True) if not isinstance(one, MeasurementFailure)}
    missing = {n: one.reason for n, one in zip(numbers, outcomes, strict=True) if isinstance(one, MeasurementFailure)}
    found = {number: _told(one, variants.values[number]) for number, one in codes.items()}
    first: dict[str, int] = {}
    for number, one in {**variants.code, **found}.items():
        first.setdefault(one.digest, number)
    again = {number: first[one.digest] for number, one in found.items() if first[one.digest] != number}
    counted = [number for number in codes if number not in again]
    given = variants.kernels if variants.build is None else variants.settings
    items = [(given[number], variants.sizes[number], codes[number]) for number in counted]
    work = Work(variants.build, variants.features, target)
    rows = counted_rows(work, items, run, "count:", [variants.names[number] for number in counted])
    values = variants.values.copy()
    for number, row in zip(counted, rows, strict=True):
        if row.cause:
            missing[number] = row.cause
        else:
            values[number] = row.values
    for number, other in again.items():
        values[number] = values[other]
    return _settled(replace(variants, values=values, code={**variants.code, **found}), missing, again)


def _told(code: tuple[CompiledProgram, ...], source: NDArray[np.float64]) -> VariantCode:
    digest = " ".join(one.digest for one in code)
    return VariantCode(Target(code=code).built or Resources(), digest, tuple(source.tolist()))


def _settled(variants: Variants, missing: Mapping[int, str], again: Mapping[int, int]) -> Variants:
    """Return variants without those that do not compile, and, of a space, without those whose code is another one's."""
    named = variants.names
    if variants.build is None and again:
        shown = "; ".join(f"{named[number]} and {named[other]}" for number, other in again.items())
        warn(f"these compile to the same code: {shown}; time one of each")
        again = {}
    gone = {*missing, *again}
    kept = [number for number in range(len(named)) if number not in gone]
    if not kept:
        msg = f"none of the variants compiles: {next(iter(missing.values()))}"
        raise CalibrationError(msg)
    place = {number: at for at, number in enumerate(kept)}
    same: dict[int, tuple[Any, ...]] = {place[n]: others for n, others in variants.same.items() if n in place}
    for number, other in again.items():
        if other in place:
            mine = variants.settings[number], *variants.same.get(number, ())
            same[place[other]] = (*same.get(place[other], ()), *mine)
    causes = Counter([cause_of(reason) for reason in missing.values()] + [_SAME] * len(again))
    lost = tuple(
        Missing(named[number], reason, cause_of(reason), False, None if variants.build else variants.kernels[number])
        for number, reason in missing.items()
    )
    return replace(
        variants,
        names=tuple(named[number] for number in kept),
        sizes=tuple(variants.sizes[number] for number in kept),
        values=variants.values[kept],
        excluded=dict(Counter(variants.excluded) + causes),
        kernels=tuple(variants.kernels[number] for number in kept) if variants.kernels else (),
        settings=tuple(variants.settings[number] for number in kept) if variants.settings else (),
        same=same,
        missing=(*variants.missing, *lost),
        code={place[number]: one for number, one in variants.code.items() if number in place},
    )
