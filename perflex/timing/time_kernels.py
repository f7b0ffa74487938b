"""Times of a user's kernels, without a calibration: with data of the user's, and compared with an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from perflex.devices.device import Device
from perflex.errors import MeasurementError, PerflexError, warn
from perflex.features.sized_kernel import sized_kernels
from perflex.progress import progress_shown
from perflex.timing.executors.worker_device import WorkerDevice
from perflex.timing.launch.request import launch_request
from perflex.timing.launch.source_plan import names_taken
from perflex.timing.measuring import chosen_device, measure
from perflex.timing.result_check import ResultCheck
from perflex.timing.results import Measured, MeasurementFailure, Timing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.options import TimingOptions
    from perflex.timing.result_check import Answer

# As for variants that `tune` compares.
_TOLERANCE = 1e-3


def time_kernel(
    kernel: Any,
    sizes: Mapping[str, Any],
    device: str | TimedDevice | None = None,
    timing: TimingOptions | None = None,
    *,
    arrays: Mapping[str, Any] | None = None,
    answer: Answer | Mapping[str, Any] | None = None,
) -> Timing:
    """Time a kernel as `calibrate` times measurement kernels; it needs no calibration.

    Arrays that are not given have made-up data: floating-point numbers between 0.5 and 1.5, and integers of one; and
    floating-point arguments that `sizes` does not name are 0.75. Which side of a condition on data is taken, these
    decide.

    Parameters
    ----------
    kernel
        A loopy translation unit, what `annotate` returned for one, or one of `source_kernel`.
    sizes
        Value of each size parameter, and of other scalar arguments that are to have one.
    device
        Where to run: a device, one of workers too (`DaskExecutor.device`), or parts of its name; by default the default
        one.
    timing
        How it is timed.
    arrays
        Data of arrays by name: with the elements' own types, at least as long as the kernel reaches, and as they lie in
        memory. With all arrays that a kernel reads, data may decide what it does.
    answer
        What the kernel has to write: arrays by name, or a function that returns them, which is called with what the
        kernel reads, by name; shape ``(length,)``. Floating-point elements may differ by a thousandth.

    Returns
    -------
    Timing
        The time of one launch in seconds, its interval, and how it was measured.

    Raises
    ------
    DeviceError
        No working device fits, several do, or it is lost.
    MeasurementError
        The kernel does not build or run, its results are wrong, data do not fit its arrays, or made-up ones decide its
        subscripts or trip counts.
    MissingSizeError
        A size parameter has no value.

    Warns
    -----
    PerflexWarning
        `sizes` names something that the kernel does not take.
    """
    (found,) = time_kernels([(kernel, sizes)], device, timing, arrays=arrays, answer=answer)
    if isinstance(found, MeasurementFailure):
        raise found.error
    return found


def time_kernels(
    kernels: Sequence[Any],
    device: str | TimedDevice | None = None,
    timing: TimingOptions | None = None,
    *,
    arrays: Mapping[str, Any] | None = None,
    answer: Answer | Mapping[str, Any] | None = None,
    progress: bool | Progress | None = None,
) -> Measured:
    """Time kernels side by side: in rounds, each in another random order, so that what disturbs one disturbs all.

    Parameters
    ----------
    kernels
        Pairs of a kernel and its sizes, or measurement kernels.
    device, timing
        As of `time_kernel`.
    arrays, answer
        As of `time_kernel`, for each kernel that has such arrays; with True the answer is what the first kernel writes.
    progress
        True for a progress bar; or called with (done, total, what).

    Returns
    -------
    Measured
        For each kernel, in their order, a `Timing`, or a `MeasurementFailure` that says why there is none.

    Raises
    ------
    DeviceError
        No working device fits, several do, or it is lost.
    MeasurementError
        None of the kernels has an array of that name.

    Warns
    -----
    PerflexWarning
        Sizes name something that a kernel does not take.
    """
    jobs, where = sized_kernels(kernels), chosen_device(device)
    there = where.device if isinstance(where, WorkerDevice) else where
    given: Sequence[SizedKernel | LaunchRequest | PerflexError] = jobs
    if arrays:
        given = _with_data(jobs, there, arrays)
    expected = (lambda _: answer) if isinstance(answer, Mapping) else answer
    check = None if expected is None else ResultCheck(expected, _TOLERANCE)
    ready = [one for one in given if not isinstance(one, PerflexError)]
    with progress_shown(progress, "time:") as report:
        found = measure(ready, where, timing, report, check=check)
    outcomes = iter(found)
    together = [
        MeasurementFailure(job.label, one.message, "prepare", one) if isinstance(one, PerflexError) else next(outcomes)
        for job, one in zip(jobs, given, strict=True)
    ]
    if isinstance(there, Device):
        for job, outcome in zip(jobs, together, strict=True):
            if isinstance(outcome, Timing):
                _warn_of_others(job, there)
    return Measured(together, affinity=found.affinity)


def _with_data(
    jobs: Sequence[SizedKernel], device: TimedDevice, arrays: Mapping[str, Any]
) -> list[LaunchRequest | PerflexError]:
    """Return the kernels' launches with data, or why there is none."""
    if not isinstance(device, Device):
        msg = f"{device} runs no kernels, which could take data; leave out arrays"
        raise MeasurementError(msg, device=str(device))
    found: list[LaunchRequest | PerflexError] = []
    names: dict[str, None] = {}
    for job in jobs:
        try:
            request = launch_request(job, device)
            names |= dict.fromkeys(request.slots)
            found.append(request.with_data({name: arrays[name] for name in arrays if name in request.slots}))
        except PerflexError as error:
            found.append(error)
    if names and (unknown := [name for name in arrays if name not in names]):
        msg = f"no kernel has an array {unknown[0]}; there are {', '.join(names)}"
        raise MeasurementError(msg)
    return found


def _warn_of_others(job: SizedKernel, device: Device) -> None:
    taken = names_taken(job, device.api)
    if unknown := [name for name in job.sizes if name not in taken]:
        warn(f"kernel {job.group!r} takes no {', '.join(unknown)}; it takes {', '.join(taken) or 'no number'}")
