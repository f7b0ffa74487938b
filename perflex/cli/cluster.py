"""``--dask``: kernels are timed by the workers of a cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.calibration import Calibration
    from perflex.timing.launch.backend import TimedDevice

DaskOption = Annotated[
    str, typer.Option("--dask", help="Time on a Dask cluster: its scheduler's address, tcp://HOST:PORT.")
]


@contextmanager
def device_named(device: str, dask: str, calibration: Calibration | None = None) -> Iterator[str | TimedDevice | None]:
    """Give what names a device: the words as they are, or the device of a cluster's workers where one is named.

    That is by default the calibration's, else what the workers prefer.
    """
    if not dask:
        yield device or None
        return
    from perflex.timing.executors.dask import dask_executor

    known = None if calibration is None else calibration.device.get("name")
    with dask_executor(dask) as workers:
        yield workers.device(device or known or None)
