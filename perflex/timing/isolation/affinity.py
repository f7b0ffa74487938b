"""Which processors a CPU device's worker threads run on: the drivers' own settings, and when they may be made.

Workers that are not pinned share a processor part of the time, while another is idle; a launch then takes twice as
long. Drivers read the settings from the environment when they are loaded, so that they are made for new processes only.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.timing.launch.backend import TimedDevice


@dataclass(frozen=True)
class Affinity:
    """What decides on the processors of a device's workers.

    Attributes
    ----------
    variables
        Environment variables that the process which runs kernels gets.
    setting
        The variables that are in effect, perflex's or the user's, as ``NAME=value``; empty where there are none.
    description
        What a calibration says of it: the setting and whose it is, or why there is none. Empty for devices whose
        workers are not the host's threads, and for drivers without such settings.
    """

    variables: Mapping[str, str] = field(default_factory=dict)
    setting: str = ""
    description: str = ""


@dataclass(frozen=True)
class _Runtime:
    """A driver of CPU devices: its devices' names, what pins its workers, and all variables that say where they run."""

    platform: str
    name: re.Pattern[str]
    pins: Mapping[str, str]
    known: tuple[str, ...]
    needs_all_processors: bool = False


_INTEL_NAMES = ("CU_AFFINITY", "PLACES", "NUM_CUS")
_RUNTIMES = (
    # Worker n is pinned to processor n. The drivers "cpu-tbb" and "cpu-minimal" do not know the variable.
    # Source: PoCL's documentation, "Environment variables".
    _Runtime(
        "Portable Computing Language",
        re.compile(r"(pthread|cpu(?!-(tbb|minimal)))-"),
        {"POCL_AFFINITY": "1"},
        ("POCL_AFFINITY",),
    ),
    # The thread that enqueues works, too, and is pinned with the others; each gets one hardware thread. Either variable
    # needs the other. Source: oneAPI DPC++/C++ Compiler Developer Guide, "CPU environment variables".
    _Runtime(
        "Intel(R) OpenCL",
        re.compile(""),
        {"DPCPP_CPU_CU_AFFINITY": "close", "DPCPP_CPU_PLACES": "threads"},
        tuple(f"{prefix}_CPU_{name}" for prefix in ("DPCPP", "SYCL", "CL_CONFIG") for name in _INTEL_NAMES),
        needs_all_processors=True,
    ),
)


def affinity_of(device: TimedDevice, *, isolate: bool, environment: Mapping[str, str] | None = None) -> Affinity:
    """Return what decides on the processors of a device's workers in a process that this one starts.

    A user's own setting is left as it is. Where this process may not use all the processors that the driver would pin
    its workers to (``taskset``, a batch system's or container's share), nothing is set: PoCL leaves the share then, or
    fails.
    """
    runtime = _runtime_of(device)
    if runtime is None:
        return Affinity()
    environment = os.environ if environment is None else environment
    own = _in_words({name: environment[name] for name in runtime.known if name in environment})
    if own:
        return Affinity({}, own, f"{own} (the user's own)")
    obstacle = _obstacle(runtime, int(getattr(device, "compute_units", 0)), isolate=isolate)
    if obstacle:
        return Affinity({}, "", f"none: {obstacle}")
    setting = _in_words(runtime.pins)
    return Affinity(dict(runtime.pins), setting, setting)


def _runtime_of(device: TimedDevice) -> _Runtime | None:
    if getattr(device, "kind", "") != "cpu":
        return None
    platform, name = (str(getattr(device, fact, "")) for fact in ("platform", "name"))
    return next((one for one in _RUNTIMES if one.platform == platform and one.name.match(name)), None)


def _obstacle(runtime: _Runtime, workers: int, *, isolate: bool) -> str:
    """Return why workers are not pinned, nothing where they are."""
    if not isolate:
        return "kernels ran in the user's own process (isolate=False)"
    if workers < 2:
        return "the device has one worker"
    known = _processors()
    if known is None:
        return "the system does not report which processors a process may use"
    allowed, present = known
    if allowed != frozenset(range(workers)) or (runtime.needs_all_processors and len(allowed) != present):
        return f"the process may use {len(allowed)} of {present} processors, and the device has {workers} workers"
    return ""


def _processors() -> tuple[frozenset[int], int] | None:
    """Return the numbers of the processors that this thread may use, and how many the machine has."""
    if not hasattr(os, "sched_getaffinity"):
        return None
    return frozenset(os.sched_getaffinity(0)), os.sysconf("SC_NPROCESSORS_ONLN")


def _in_words(variables: Mapping[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in variables.items())
