"""Building kernels in the workers that measure: what the compiler there makes of them."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError
from perflex.timing.compiled_code import compiled_code, resource_use
from perflex.timing.executors.pool import Pool
from perflex.timing.executors.portions import devices_here, divide, require_version
from perflex.timing.results import MeasurementFailure
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Sequence
    from concurrent.futures import Executor

    from perflex.features.sized_kernel import SizedKernel
    from perflex.progress import Progress
    from perflex.timing.launch.backend import TimedDevice
    from perflex.timing.options import TimingOptions


@dataclass(frozen=True)
class Builds:
    """Kernels to build for a device as the sender knows it; for their machine code, or for what they take."""

    version: str
    device: TimedDevice
    options: TimingOptions
    jobs: tuple[SizedKernel, ...]
    code: bool


@dataclass(frozen=True)
class BuildsResult:
    """What came of each kernel, or why of none; `worker` as of an `Answer`."""

    outcomes: tuple[Any, ...]
    error: PerflexError | None = None
    worker: str = ""


def built_on(
    executor: Executor,
    jobs: Sequence[SizedKernel],
    device: TimedDevice,
    options: TimingOptions,
    progress: Progress | None = None,
    *,
    code: bool,
) -> list[Any]:
    """Return what `compiled_code` (with `code`) or `resource_use` makes of kernels in an executor's workers."""
    found: list[Any] = []
    with closing(Pool(executor)) as pool:
        parts = divide(jobs, pool.width(1))
        works = [Builds(__version__, device, options, tuple(part), code) for part in parts]
        for result in pool.results(_built, works):
            if result.error is not None:
                raise result.error
            found += result.outcomes
            if progress is not None:
                progress(len(found), len(jobs), f"building {jobs[len(found) - 1].label}")
    return found


def _built(builds: Builds) -> BuildsResult:
    """Build in a worker."""
    try:
        require_version(builds.version)
        device = devices_here(builds.device)[0]
        build = compiled_code if builds.code else resource_use
        outcomes: list[Any] = build(builds.jobs, device, builds.options)
    except PerflexError as error:
        return BuildsResult((), error.alone())
    return BuildsResult(tuple(map(_alone, outcomes)))


def _alone(outcome: Any) -> Any:
    return replace(outcome, error=outcome.error.alone()) if isinstance(outcome, MeasurementFailure) else outcome
