"""How fast a device is, from one short kernel: sizes of measurement kernels are made to suit it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.features.sized_kernel import SizedKernel
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice

# The shipped models' sizes suit a device of this many single-precision multiply-adds per second.
REFERENCE_RATE = 1.7e11
_PILOT = ("flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64")
# Multiply-adds of the pilot for each of its elements: 32 in each of m = 64 iterations.
_PER_ELEMENT = 32 * 64
# A fast device is done with few elements before its timer can tell, so more follow until a launch takes long enough.
_PILOT_ELEMENTS = (32768, 1048576, 16777216)
_LONG_ENOUGH_S = 2e-4


def multiply_add_rate(device: TimedDevice, recorder: Recorder | None = None) -> float:
    """Return the device's multiply-adds per second, from one short measurement kernel.

    Parameters
    ----------
    device
        Where to run.
    recorder
        What keeps the samples, so that a run that goes on finds the sizes that it had.

    Raises
    ------
    MeasurementError
        The kernel does not run on the device.
    """
    from perflex.timing.measuring import measure
    from uipick import ALL_GENERATORS, KernelCollection

    rate = 0.0
    for elements in _PILOT_ELEMENTS:
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(_PILOT, {"nelements": (elements,)})
        (outcome,) = measure(
            [SizedKernel(kernel.kernel, kernel.sizes, kernel.name)],
            device,
            # The rate only sets sizes, so a few trials are enough.
            TimingOptions(trials=5, min_trials=3, budget_s=1.0),
            recorder=recorder,
        )
        if isinstance(outcome, MeasurementFailure):
            raise outcome.error
        rate = elements * _PER_ELEMENT / outcome.seconds
        if outcome.seconds >= _LONG_ENOUGH_S:
            break
    return rate
