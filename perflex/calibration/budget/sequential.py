"""Measuring within a budget of device time: a pilot first, then batches chosen with what was learnt.

What a kernel costs, and which parameters of a nonlinear model it informs, depends on the parameters themselves. So a
small batch is chosen with rough values; the model is fitted to it; and each further batch is chosen with the fitted
values, until the budget is spent or further timings would tell little.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.budget.course import SequentialDesign
from perflex.calibration.budget.everything import measure_everything
from perflex.calibration.budget.guess import rough_parameters
from perflex.calibration.budget.measured import KernelPool, clock_of
from perflex.calibration.gathering import gather
from perflex.errors import CalibrationError
from perflex.features.sized_kernel import sized_kernels
from perflex.store.resume import RecordOnly, recording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.calibration.gathering import Measuring
    from perflex.expression.model import Model
    from perflex.fit.loss import Loss
    from perflex.fit.table import FeatureTable


@dataclass(frozen=True)
class BudgetReport:
    """What a budget was spent on.

    Attributes
    ----------
    budget_s, spent_s
        Seconds: given, and device time spent on timings with their warm-ups and first launches.
    seconds
        Time of the host in s, by what it was for: counting, opening the device, building, timing, choosing.
    everything_s
        What building and timing all kernels was estimated to take; infinite where it was out of reach.
    everything
        Whether all kernels were measured, in the ordinary way.
    pool
        Number of measurement kernels to choose from, by generator.
    chosen
        Number of kernels that were timed.
    batches
        Number of batches.
    ended
        Why no more were timed.
    samples, disturbed_samples, kernels_disturbed, affinity
        As in `TimingSummary`.
    """

    budget_s: float
    spent_s: float
    seconds: Mapping[str, float]
    everything_s: float
    everything: bool
    pool: Mapping[str, int]
    chosen: int
    batches: int
    ended: str
    samples: int
    disturbed_samples: int
    kernels_disturbed: int
    affinity: str

    def facts(self) -> dict[str, Any]:
        """Return the content of a calibration's options."""
        found = {
            "choice": "everything" if self.everything else "D-optimal on the scaled Jacobian, in batches",
            "device_time_budget_s": self.budget_s,
            "device_time_spent_s": round(self.spent_s, 6),
            "everything_estimate_s": round(self.everything_s, 3) if math.isfinite(self.everything_s) else None,
            **{f"{name}_s": round(seconds, 3) for name, seconds in self.seconds.items()},
            "pool_kernels": sum(self.pool.values()),
            "pool": [f"{generator}: {count}" for generator, count in self.pool.items()],
            "chosen_kernels": self.chosen,
            "batches": self.batches,
            "ended": self.ended,
        }
        # Where all are measured together, the summary of that tells these.
        return (
            found
            if self.everything
            else {
                **found,
                "samples": self.samples,
                "disturbed_samples": self.disturbed_samples,
                "kernels_disturbed": self.kernels_disturbed,
                "affinity": self.affinity,
            }
        )


def measure_within_budget(
    model: Model,
    kernels: Sequence[Any],
    budget_s: float,
    measuring: Measuring,
    *,
    guess: Mapping[str, float] | None = None,
    relative: bool = True,
    nonnegative: bool = True,
    loss: Loss = "squared",
) -> tuple[FeatureTable, BudgetReport]:
    """Count all kernels; time all of them where that fits into the budget, else those that tell most for their time.

    Parameters
    ----------
    model
        A differentiable model whose output is a wall time.
    kernels
        The pool to choose from: measurement kernels, or pairs ``(loopy kernel, sizes)``.
    budget_s
        Seconds for timing kernels, warm-ups included, and for choosing them. Counting and building are not limited.
    measuring
        How kernels are counted and timed. A chosen kernel gets three timings at a time, or ``min_trials`` if these are
        fewer, and more of them, up to ``trials``, where that tells more than another kernel. Of the samples that the
        recorder keeps none is taken back: which kernels are measured next depends on the timings.
    guess
        Parameter values to choose the first batch with, for those that are known better than roughly.
    relative, nonnegative, loss
        As `perflex.calibrate`.

    Returns
    -------
    tuple
        The table of the kernels timed, as `gather_feature_values` makes it, and what the budget was spent on.

    Raises
    ------
    CalibrationError
        The budget is not positive, or no choice within it determines every parameter that kernels determine.
    NoMatchError, MissingSizeError, ExecutorError
        As `gather_feature_values`.
    """
    if not (np.isfinite(budget_s) and budget_s > 0):
        msg = f"the budget must be a positive number of seconds, not {budget_s}"
        raise CalibrationError(msg)
    clock = clock_of(measuring.device)
    began = clock()
    # Counting takes no device time, so that all kernels can be weighed against one another.
    counted = gather(tuple(model.input_features()), kernels, measuring)
    counting_s = clock() - began
    # Some kernels may have been left out while counting, so labels, not positions, tie rows to kernels.
    rows = {row.label: row for row in sized_kernels(kernels)}
    jobs = [rows[label] for label in counted.kernels]
    with recording(str(measuring.device), counted.kernels, measuring.recorder) as keeps:
        kept = None if keeps is None else RecordOnly(keeps)
        pool = KernelPool(counted, jobs, measuring.device, kept, clock=clock, executor=measuring.executor)
        design = SequentialDesign(
            model,
            pool,
            measuring.timing,
            budget_s,
            relative=relative,
            nonnegative=nonnegative,
            loss=loss,
            strict=not measuring.may_lack,
        )
        design.parameters = rough_parameters(model, counted, guess or {})
        design.estimate(measuring.progress)
        batches, ended = (0, "") if design.everything_fits else design.run(measuring.progress)
        everything = design.everything_fits and batches <= 1
        if everything:
            ended = "everything fits into the budget"
            table = measure_everything(pool, model.output_feature, measuring.timing, measuring.progress)
        else:
            table = pool.table(model.output_feature)
    if not len(table):
        failed = [f"{label}: {reason}" for label, reason in table.dropped]
        reasons = "; ".join(failed[:3])
        msg = f"none of the kernels could be timed within {budget_s:.3g} s ({reasons}); give a larger budget"
        raise CalibrationError(msg)
    report = BudgetReport(
        budget_s,
        pool.spent_s,
        {
            "counting": counting_s,
            "opening": pool.opening_s,
            "building": pool.building_s,
            "timing": pool.timing_s,
            "choosing": design.design_s,
        },
        design.everything_s,
        everything,
        Counter(counted.groups),
        len(table),
        batches,
        ended,
        pool.samples,
        pool.disturbed_samples,
        len(pool.rest_on_disturbed),
        pool.affinity,
    )
    return table, report
