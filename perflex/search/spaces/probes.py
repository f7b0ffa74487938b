"""Short launches of the most promising variants: their predictions become those of the launches."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import DeviceError, MeasurementError, PerflexError, PerflexWarning
from perflex.features.sized_kernel import SizedKernel
from perflex.features.values import kernel_of
from perflex.search.spaces.candidates import sizes_of
from perflex.timing.short_launch import ShortLauncher

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.search.spaces.candidates import Candidates
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.short_launch import Probe

    Array = NDArray[np.float64]


@dataclass(frozen=True)
class ProbedCandidates:
    """Predictions of variants, some of them by short launches.

    Attributes
    ----------
    predicted
        Seconds, shape ``(n,)``: of variants that were probed those of the launch, of the others what was predicted,
        times `ratio`; infinity where a launch failed.
    ratio
        Median ratio of the launches to what was predicted of them; 1 without launches.
    probes
        What each launch said, by the variant's number.
    failures
        Why launches failed, by the variant's number.
    """

    predicted: Array
    ratio: float
    probes: Mapping[int, Probe]
    failures: Mapping[int, str]

    @property
    def order(self) -> NDArray[np.intp]:
        """All variants, fastest first: those that were probed before the others, those that failed last."""
        kind = np.array([0 if n in self.probes else 2 if n in self.failures else 1 for n in range(len(self.predicted))])
        return np.lexsort((self.predicted, kind)).astype(np.intp)

    @property
    def cost_s(self) -> float:
        """Seconds that the launches took, building included."""
        return math.fsum(probe.cost_s for probe in self.probes.values())


def probe_candidates(
    candidates: Candidates, numbers: Sequence[int], predicted: Array, device: TimedDevice, limit_s: float = math.inf
) -> ProbedCandidates:
    """Launch parts of some variants, and correct what is predicted of the others by what that shows.

    Parameters
    ----------
    candidates, numbers
        The variants, and which of them are launched.
    predicted
        Predicted seconds of all of them, shape ``(n,)``.
    device
        Where.
    limit_s
        After so many seconds no other launch begins.

    Warns
    -----
    PerflexWarning
        A variant fails.

    Raises
    ------
    MeasurementError
        All of them fail.
    DeviceError
        The device cannot be opened, or is lost.
    """
    probes: dict[int, Probe] = {}
    failures: dict[int, str] = {}
    if not numbers:
        return ProbedCandidates(predicted, 1.0, probes, failures)
    begun = time.perf_counter()
    with ShortLauncher(device) as launcher:
        for number in numbers:
            if probes and time.perf_counter() - begun > limit_s:
                break
            try:
                probes[number] = launcher.probe(_job(candidates, number))
            except DeviceError:
                raise
            except PerflexError as error:
                failures[number] = error.message
                warnings.warn(f"{error.message}; the variant is not probed", PerflexWarning, stacklevel=3)
    if not probes:
        msg = f"none of the {len(numbers)} variants could be probed; the last: {failures[numbers[-1]]}"
        raise MeasurementError(msg, device=str(device))
    ratio = float(np.median([probe.seconds / predicted[number] for number, probe in probes.items()]))
    corrected = np.array(predicted, dtype=np.float64) * ratio
    corrected[list(failures)] = math.inf
    corrected[list(probes)] = [probe.seconds for probe in probes.values()]
    return ProbedCandidates(corrected, ratio, probes, failures)


def _job(candidates: Candidates, number: int) -> SizedKernel:
    kernel: Any = kernel_of(candidates.kernel(number))
    return SizedKernel(kernel, sizes_of(candidates, number), candidates.names[number])
