"""Under what a kernel's samples are kept: everything that its time depends on."""

from __future__ import annotations

import hashlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from perflex.devices.device import identity
from perflex.errors import MeasurementError, UnsupportedKernelError
from perflex.features.from_source.launching import identity_of
from perflex.features.from_source.source import SourceKernel
from perflex.features.scop.checks import is_whole
from perflex.store.records import MeasurementKey
from perflex.timing.isolation.affinity import affinity_of
from perflex.timing.launch.plan import plan_launch

if TYPE_CHECKING:
    from perflex.devices.device import Api
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.options import TimingOptions

# Part of every key. It counts what changes measured times of one kernel under one loopy: how code is generated,
# buffers are filled and launches are timed. Samples taken otherwise are not mixed.
_SCHEME = 3


def measurement_key(
    job: SizedKernel, device: Any, options: TimingOptions, affinity: str | None = None
) -> MeasurementKey:
    """Return the key of a kernel with sizes on a device, whose processors a setting decides on (`Affinity`).

    By default it is the setting of a process that this one starts.

    The kernel is its loopy description and loopy's version, without generating code, which takes a hundred times as
    long; of one from source code it is the text, its headers and its launch. Where code comes from Python functions
    that came with the kernel, the description does not say which, and the code counts, too.
    """
    # The store keeps sizes as integers; scalars such as 0.5 are among the conditions.
    whole = {name: int(value) for name, value in job.sizes.items() if is_whole(value)}
    others = "".join(f" {name}={value}" for name, value in sorted(job.sizes.items()) if name not in whole)
    # Virtual machines that share a store may have equal names, and not as many processors.
    others += f" units={units}" if (units := getattr(device, "compute_units", 0)) else ""
    others += " caches=cold" if options.caches == "cold" else ""
    setting = affinity_of(device, isolate=options.isolate).setting if affinity is None else affinity
    # Trials, precision and seed are no part: they say how many samples are taken and when, not how long one takes.
    return MeasurementKey(
        kernel=_digest(job.translation_unit, getattr(device, "api", "opencl")),
        sizes=tuple(sorted(whole.items())),
        device=identity(device),
        driver=str(getattr(device, "driver", "")),
        conditions=f"scheme={_SCHEME} warmups={options.warmups}{others}{f' affinity={setting}' if setting else ''}",
    )


def _digest(kernel: Any, api: Api) -> str:
    from perflex.features.count_store import kernel_key

    if isinstance(kernel, SourceKernel):
        try:
            return identity_of(kernel)
        except UnsupportedKernelError as error:
            raise MeasurementError(error.message, kernel=kernel.name) from error
    # Another version may generate other code from the same description.
    loopy = f"loopy {version('loopy')}"
    if not _brings_functions(kernel):
        try:
            return kernel_key(kernel, loopy)
        except (TypeError, AttributeError):  # something in it has no persistent hash; its code has
            pass
    plan = plan_launch(kernel, api)
    text = f"{loopy}|{plan.source}|{plan.programs}|{sorted(plan.arrays.items())}|{sorted(plan.scalars.items())}"
    return hashlib.sha256(text.encode()).hexdigest()


def _brings_functions(kernel: Any) -> bool:
    """Return whether code of a kernel comes from functions or classes that are not loopy's own."""
    table = getattr(kernel, "callables_table", {})
    for known in table.values():
        if not type(known).__module__.startswith("loopy."):
            return True
        if getattr(getattr(known, "subkernel", None), "preamble_generators", ()):
            return True
    return False
