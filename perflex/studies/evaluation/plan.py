"""What a study runs on a device: measurement kernels, variants at small sizes, and variants to predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.models.kernel_sets import measurement_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.expression.model import Model
    from perflex.studies.evaluation.studies import Study
    from uipick import MeasurementKernel


@dataclass(frozen=True)
class Plan:
    """The kernels of a study.

    Attributes
    ----------
    study
        The study.
    models, kernels
        Models by their names in the study, and the measurement kernels of each.
    trials, targets
        The variants' kernels by variant and size: small ones to choose a model by, and those to predict.
    small
        Each variant at the size whose time baselines scale; empty where no size is below those to predict.
    """

    study: Study
    models: Mapping[str, Model]
    kernels: Mapping[str, Sequence[MeasurementKernel]]
    trials: Mapping[tuple[str, int], MeasurementKernel]
    targets: Mapping[tuple[str, int], MeasurementKernel]
    small: Mapping[str, MeasurementKernel]

    def confined(self, variant: MeasurementKernel) -> MeasurementKernel | None:
        """Return the smallest measurement kernel that is a variant's work on confined data; None without any."""
        same = {name: value for name, value in variant.arguments.items() if name != self.study.size}
        own = [
            kernel
            for kernels in self.kernels.values()
            for kernel in kernels
            if kernel.generator == f"{variant.generator}_core"
            and all(kernel.arguments.get(name, value) == value for name, value in same.items())
        ]
        return min(own, key=lambda kernel: kernel.sizes[self.study.size]) if own else None


def plan_of(study: Study, output: str, scale: float) -> Plan:
    """Return the kernels of a study.

    Parameters
    ----------
    study
        The study.
    output
        Identifier of the time on the device.
    scale
        The device's speed in multiples of the reference's.
    """
    from perflex.models import load_model

    described = {name: load_model(shipped) for name, shipped in study.models.items()}
    small = study.small_size_for(scale)
    return Plan(
        study,
        models={name: description.model(output) for name, description in described.items()},
        kernels={name: measurement_kernels(description, scale) for name, description in described.items()},
        trials=_variants(study, study.trial_sizes_for(scale)),
        targets=_variants(study, study.sizes_for(scale)),
        small={} if small is None else {variant: study.kernel(variant, small) for variant in study.variants},
    )


def _variants(study: Study, sizes: Iterable[int]) -> dict[tuple[str, int], MeasurementKernel]:
    return {(variant, size): study.kernel(variant, size) for size in sizes for variant in study.variants}
