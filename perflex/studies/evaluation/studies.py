"""What the paper's Section 8 predicts: three computations, their variants and sizes, and their kernels on a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.models import SizeRule, measurement_kernels

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.expression.model import Model
    from uipick import MeasurementKernel

# Names of the ways to compose costs, the simplest first; models are called <study>_<overlap>. The first three add or
# overlap costs per operation and access (paper Section 8.1); the last one has the in-core time of each variant.
OVERLAPS = ("linear", "overlap", "partial", "incore")


@dataclass(frozen=True)
class Study:
    """One computation in several variants."""

    name: str
    title: str
    # Where in the paper.
    source: str
    # Filter tags of each variant, without the size, and the name of the size argument.
    variants: Mapping[str, tuple[str, ...]]
    size: str
    # Sizes at which the variants are timed to choose among models, smaller than those to predict. Both suit a device
    # of `perflex.calibration.ready.REFERENCE_RATE`.
    trial_sizes: tuple[int, ...]
    sizes: tuple[int, ...]
    # How they are made to suit another one; None to take them as they are. Odd multiples: even ones share the factor
    # two with caches' sets.
    rule: SizeRule | None
    # What the size is, for pictures.
    axis: str
    # Names of shipped models by what they are called in the study, such as `OVERLAPS`, the simplest first.
    models: Mapping[str, str]
    # Baselines scale the time at half of the smallest size to predict, rounded down to a multiple of this; None where
    # they scale that at the largest of the trial sizes.
    half_step: int | None = None

    def sizes_for(self, scale: float) -> tuple[int, ...]:
        """Return sizes to predict on a device that is `scale` times as fast as the reference: increasing."""
        return self._all_sizes(scale)[len(self.trial_sizes) :]

    def trial_sizes_for(self, scale: float) -> tuple[int, ...]:
        """Return smaller sizes for the choice of a model: increasing."""
        return self._all_sizes(scale)[: len(self.trial_sizes)]

    def small_size_for(self, scale: float) -> int | None:
        """Return the size whose time baselines scale, below all to predict; None if there is none."""
        if self.half_step is None:
            return max(self.trial_sizes_for(scale), default=None)
        return min(self.sizes_for(scale)) // (2 * self.half_step) * self.half_step or None

    def _all_sizes(self, scale: float) -> tuple[int, ...]:
        # Scaled together, so that trial sizes stay below those to predict.
        sizes = (*self.trial_sizes, *self.sizes)
        return sizes if self.rule is None else self.rule.sizes(sizes, scale)

    def kernel(self, variant: str, size: int) -> MeasurementKernel:
        """Return a variant's kernel at a size."""
        from uipick import ALL_GENERATORS, KernelCollection

        tags = [*self.variants[variant], f"{self.size}:{size}"]
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
        return kernel


_GROUPS = ("dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True")

STUDIES = {
    study.name: study
    for study in (
        Study(
            name="matmul",
            title="Matrix multiplication",
            source="Section 8.3, Figure 7",
            variants={
                "prefetch": ("matmul_sq", *_GROUPS, "prefetch:True"),
                "no_prefetch": ("matmul_sq", *_GROUPS, "prefetch:False"),
            },
            size="n",
            trial_sizes=(288, 352),
            sizes=(416, 544, 672, 800, 928, 1056),
            rule=SizeRule(power=3, step=32, least=3),
            axis="matrix size n",
            models={overlap: f"matmul_{overlap}" for overlap in OVERLAPS} | {"partial": "matmul_sq"},
        ),
        Study(
            name="dg",
            title="DG differentiation",
            source="Section 8.4, Figure 8",
            variants={
                variant: ("dg_diff", *_GROUPS, f"variant:{variant}", "nmatrices:3", "nunit_nodes:64")
                for variant in ("plain", "u_prefetch", "diff_mat_prefetch", "diff_mat_prefetch_transposed")
            },
            size="nelements",
            trial_sizes=(3088, 4112),
            sizes=(6160, 9232, 12304, 16400, 20496, 24592),
            rule=SizeRule(power=1, step=16, most=64),
            axis="number of elements",
            models={overlap: f"dg_{overlap}" for overlap in OVERLAPS},
        ),
        Study(
            name="fdiff",
            title="Finite differences",
            source="Section 8.5, Figure 9",
            variants={
                f"{tile}x{tile}": ("fdiff", "dtype:float32", "groups_fit:True", f"tile:{tile}") for tile in (16, 18)
            },
            size="n",
            # Larger than caches, as in the paper: a cost per access knows nothing of them.
            trial_sizes=(2352, 2800),
            sizes=(3024, 3472, 3920, 4368, 4816, 5264),
            rule=SizeRule(power=2, step=112, only_up=True, most=16),
            axis="rows and columns n",
            models={overlap: f"fdiff_{overlap}" for overlap in OVERLAPS},
        ),
    )
}


@dataclass(frozen=True)
class Plan:
    """What a study runs on a device: its models by name, and the measurement kernels of each."""

    study: Study
    models: Mapping[str, Model]
    kernels: Mapping[str, Sequence[MeasurementKernel]]
    # The variants' kernels by variant and size: small ones to choose a model by, and those to predict.
    trials: Mapping[tuple[str, int], MeasurementKernel]
    targets: Mapping[tuple[str, int], MeasurementKernel]
    # Each variant at the size whose time baselines scale; empty where no size is below those to predict.
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
    """Return the kernels of a study, for the output feature of a device that is `scale` times the reference's speed."""
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
