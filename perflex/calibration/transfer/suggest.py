"""Which samples of a device to next sample: those that tell most of the candidates' times.

A sample tells of the parameters, of its program and of its kernel. What it tells of all candidates is how much it
lowers the sum of the variances of their predictions' logarithms (A-optimal: Atkinson, Donev and Tobias, Optimum
Experimental Designs, with SAS, 2007, chapter 10), all else known so far. Samples are taken one after the other, each
the best beside those taken before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from perflex.calibration.budget.choose import elasticities
from perflex.errors import CalibrationError
from perflex.fit.posterior import posterior_of_logarithms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from perflex.calibration.record import CalibrationRecord
    from perflex.fit.table import FeatureTable

    Array = NDArray[np.float64]

# Of a deviation, the part that is noise of the measurement and not of the kernel.
_NOISE = 1e-2
# Of the variance of a kernel's residual, the part that kernels of its program have in common, if nothing is known.
_IN_COMMON = 0.5


def suggest_samples(calibration: CalibrationRecord, candidates: FeatureTable, count: int) -> tuple[str, ...]:
    """Return labels of the samples to take next, the one that tells most first.

    Parameters
    ----------
    calibration
        One that was transferred, with samples or without.
    candidates
        Rows that may be timed, which are also those whose times matter; groups are programs. No output is needed.
    count
        How many.

    Raises
    ------
    CalibrationError
        The calibration was not transferred, the model gives a candidate no positive time, or there are fewer candidates
        that are no samples yet than asked for.
    """
    carried = calibration.transferred
    if carried is None:
        msg = "only a transferred calibration can suggest samples; make one with transfer(sources)"
        raise CalibrationError(msg)
    taken = set(calibration.table.kernels)
    free = [row for row, label in enumerate(candidates.kernels) if label not in taken]
    if not 0 < count <= len(free):
        msg = (
            f"{count} samples were requested, but {len(free)} candidates are not samples yet; request 1 to {len(free)}"
        )
        raise CalibrationError(msg)
    _, rows = elasticities(calibration.model, calibration.fit, candidates)
    programs = np.array(candidates.generators)
    deviation = []
    for label, program in zip(candidates.kernels, programs, strict=True):
        term = carried.kernels.get(label) or carried.programs.get(program)
        deviation.append(carried.unknown if term is None else term.deviation)
    covariance = rows @ posterior_of_logarithms(calibration.fit) @ rows.T
    variance = np.array(deviation) ** 2
    alike = programs[:, None] == programs[None, :]
    covariance += _IN_COMMON * alike * np.sqrt(np.outer(variance, variance))
    covariance += np.diag((1.0 - _IN_COMMON) * variance)
    return tuple(candidates.kernels[row] for row in _greedy(covariance, free, count))


def _greedy(covariance: Array, free: list[int], count: int) -> list[int]:
    """Return the rows that lower the trace of a covariance most, one after the other."""
    left, chosen = covariance.copy(), []
    for _ in range(count):
        rest = np.array([row for row in free if row not in chosen], dtype=np.intp)
        gain = (left[rest] ** 2).sum(axis=1) / (np.diag(left)[rest] + _NOISE**2)
        best = int(rest[int(np.argmax(gain))])
        chosen.append(best)
        column = left[:, best].copy()
        left -= np.outer(column, column) / (column[best] + _NOISE**2)
    return chosen
