"""Building kernels only to see what they take of a device."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

from perflex.errors import DeviceError, PerflexError
from perflex.timing.launch.request import request_for
from perflex.timing.measuring import open_backend
from perflex.timing.options import TimingOptions
from perflex.timing.results import MeasurementFailure

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.sized_kernel import SizedKernel
    from perflex.machines.resources import Resources
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice


def resource_use(
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions | None = None,
    progress: Progress | None = None,
) -> list[Resources | MeasurementFailure]:
    """Build kernels on a device, without running them.

    Parameters
    ----------
    jobs
        The kernels with their sizes.
    device
        Where to build.
    options
        Whether in a process of their own, and how long a build may take.
    progress
        Called with kernels done, kernels in all, and the label of the one at work.

    Returns
    -------
    list
        `Resources`, or why a kernel does not build, in the order of the jobs.

    Raises
    ------
    DeviceError
        The device cannot be opened, or does not tell what kernels take.
    """
    found: list[Resources | MeasurementFailure] = []
    with closing(open_backend(device, options or TimingOptions())) as backend:
        for number, job in enumerate(jobs):
            if progress is not None:
                progress(number, len(jobs), f"building {job.label}")
            try:
                runnable = backend.build(request_for(job, backend.device))
            except DeviceError:
                raise  # without the device no other kernel would build either
            except PerflexError as error:
                found.append(MeasurementFailure(job.label, error.message, "prepare", error))
                continue
            # A fake device builds nothing that could take anything.
            resources: Resources | None = getattr(runnable, "resources", None)
            if resources is None:
                msg = f"{device} does not tell what kernels take; leave out features such as f_registers"
                raise DeviceError(msg, device=device)
            found.append(resources)
    return found
