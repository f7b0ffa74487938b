"""What sources and samples together say of each kernel on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.carried_over import CarriedOver, CarriedTerm
from perflex.calibration.transfer.devices import log_times
from perflex.calibration.transfer.one_factor import one_factor_log_times
from perflex.calibration.transfer.residuals import carry_over

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.calibration.transfer.devices import Sources, TargetFit
    from perflex.fit.table import FeatureTable


def carried_terms(
    sources: Sources,
    chosen: Sequence[int],
    target: TargetFit,
    samples: FeatureTable,
    number: int,
    asked: Sequence[tuple[str, str]],
) -> CarriedOver:
    """Return what is carried over to a target, of the model alone; its limits and conflict are not known yet.

    Parameters
    ----------
    sources, chosen
        The devices, and those of them that count.
    target, samples, number
        The target's fit, its samples, and its number among the devices.
    asked
        Program and label of kernels; those that no source has timed have no term of their own.
    """
    components = sources.components
    carried = carry_over(target.residuals, components, sources.distance, number, asked)
    timed = set(target.residuals.kernels)
    times = one_factor_log_times(sources.times(chosen), log_times(sources.model, samples))
    kernels = {
        label: CarriedTerm(float(mean), float(deviation), program, times.get(label))
        for (program, label), mean, deviation in zip(asked, carried.correction, carried.deviation, strict=True)
        if label in timed
    }
    programs = {program: CarriedTerm(*pair) for program, pair in carried.programs.items()}
    unknown = float(np.hypot(components.unseen, components.noise))
    names = tuple(sources.fits[i].name for i in chosen)
    return CarriedOver(names, len(samples), kernels, programs, unknown)
