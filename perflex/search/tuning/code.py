"""Code of variants that are to be timed, generated side by side in an executor's workers.

For large kernels loopy's code generation takes longer than building and timing what it gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.errors import PerflexError
from perflex.features.many import EXECUTOR_FAULTS, explained_fault
from perflex.features.sized_kernel import SizedKernel
from perflex.isl import ISL_LOCK
from perflex.search.spaces.building import built

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from typing import Any

    from perflex.devices.device import Device
    from perflex.search.spaces.building import Settings
    from perflex.timing.launch.request import LaunchRequest


def generate_code(
    build: Callable[..., Any],
    variants: Sequence[tuple[str, Settings]],
    sizes: Mapping[str, Any],
    device: Device,
    executor: Executor,
) -> list[LaunchRequest | PerflexError]:
    """Return of each variant what the device's process builds, or why there is no such thing.

    Parameters
    ----------
    build
        What makes a kernel of settings.
    variants
        Name and settings of each.
    sizes
        Value of each size parameter.
    device
        Where they will run.
    executor
        Where code is generated.

    Raises
    ------
    ExecutorError
        The executor failed.
    """
    pending: list[Future[LaunchRequest | PerflexError]] = []
    try:
        pending += [executor.submit(_generated, build, name, settings, sizes, device) for name, settings in variants]
        return [future.result() for future in pending]
    except EXECUTOR_FAULTS as error:
        fault = explained_fault(error, executor)
        # An error of the work itself goes on as it is: as its own cause it would be an endless chain.
        if fault is error:
            raise
        raise fault from error
    finally:
        # After a fault, what has not begun would keep the workers busy; on finished ones it has no effect.
        for future in pending:
            future.cancel()


def _generated(
    build: Callable[..., Any], name: str, settings: Settings, sizes: Mapping[str, Any], device: Device
) -> LaunchRequest | PerflexError:
    """Work in a worker: another process, or a thread that must not disturb others' use of isl."""
    from perflex.timing.launch.request import launch_request

    try:
        with ISL_LOCK:
            return launch_request(SizedKernel(built(build, settings), dict(sizes), name), device)
    # Returned, not raised: the code of the other variants is wanted all the same.
    except PerflexError as error:
        return error
