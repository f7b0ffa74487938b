"""Probes: a kernel's time on the device, by the rules of calibrations, with a small budget."""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import MeasurementError
from perflex.features.sized_kernel import sized_kernels
from perflex.timing.measuring import chosen_device, measure
from perflex.timing.options import TimingOptions
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.results import MeasurementFailure

# Device time for one kernel; long kernels take what the fewest timings take.
_BUDGET_S = 0.1
# Standard deviation of the logarithm of a measured time about a probe's, chosen with every half of
# tests/bench/probe.py in view: two CPU runtimes, one machine.
_DEVIATION = 0.08


@dataclass(frozen=True)
class Probe:
    """A kernel's time by a probe.

    Attributes
    ----------
    label
        Which kernel and sizes.
    seconds
        Time of a whole launch, in seconds.
    deviation
        Standard deviation of its logarithm: how far a measurement is expected to be from it.
    device_s
        Seconds that its launches took on the device.
    """

    label: str
    seconds: float
    deviation: float
    device_s: float

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the interval in which a measurement lies with this confidence, in seconds.

        Raises
        ------
        MeasurementError
            The confidence is not between 0 and 1.
        """
        if not 0 < confidence < 1:
            msg = f"confidence must be a share between 0 and 1, e.g. 0.95, not {confidence}"
            raise MeasurementError(msg)
        factor = math.exp(statistics.NormalDist().inv_cdf((1 + confidence) / 2) * self.deviation)
        return self.seconds / factor, self.seconds * factor


def probe_kernel(
    kernel: Any,
    sizes: Mapping[str, Any],
    device: str | TimedDevice | None = None,
    timing: TimingOptions | None = None,
) -> Probe:
    """Time a kernel by the rules of calibrations, with a small budget; it needs no calibration.

    Parameters
    ----------
    kernel
        A loopy translation unit, what `annotate` returned for one, or one of `source_kernel`.
    sizes
        Value of each size parameter.
    device
        Where to run: a device, or parts of its name; by default the default one.
    timing
        How kernels are timed; by default 0.1 s of device time for each.

    Returns
    -------
    Probe
        The time of a whole launch in seconds.

    Raises
    ------
    DeviceError
        No working device fits, several do, or it is lost.
    MeasurementError
        The kernel does not build or run.
    MissingSizeError
        A size parameter has no value.
    """
    [outcome] = probe_kernels(sized_kernels([(kernel, sizes)]), chosen_device(device), timing)
    if isinstance(outcome, Probe):
        return outcome
    raise outcome.error


def probe_kernels(
    jobs: Sequence[SizedKernel], device: TimedDevice, timing: TimingOptions | None = None
) -> list[Probe | MeasurementFailure]:
    """Return a probe or failure of each kernel, timed in rounds as `measure` does."""
    options = timing or TimingOptions(budget_s=_BUDGET_S)
    return [_probe(outcome, options) for outcome in measure(jobs, device, options)]


def _probe(outcome: Timing | MeasurementFailure, options: TimingOptions) -> Probe | MeasurementFailure:
    if not isinstance(outcome, Timing):
        return outcome
    repeatability = outcome.repeatability if math.isfinite(outcome.repeatability) else 0.0
    device_s = math.fsum(outcome.samples) * (outcome.launches + options.warmups)
    return Probe(outcome.label, outcome.seconds, math.hypot(_DEVIATION, repeatability), device_s)
