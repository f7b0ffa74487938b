"""Devices of a Dask cluster's workers, which ``--device`` names by the cluster's address."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.calibration.calibration import Calibration
    from perflex.timing.executors.dask import DaskExecutor
    from perflex.timing.launch.backend import TimedDevice

# The scheduler's address, and behind it parts of the device's name.
_ON_CLUSTER = re.compile(r"(\w+://[^/\s]+)(?:/(.*))?")


@contextmanager
def cluster_named(device: str) -> Iterator[tuple[DaskExecutor | None, str]]:
    """Give the workers whose device is named, None where it is one of this machine; and parts of the device's name."""
    found = _ON_CLUSTER.fullmatch(device)
    if found is None:
        yield None, device
        return
    from perflex.timing.executors.dask import dask_executor

    with dask_executor(found[1]) as workers:
        yield workers, found[2] or ""


@contextmanager
def device_named(device: str, calibration: Calibration | None = None) -> Iterator[str | TimedDevice | None]:
    """Give what names a device: the words as they are, or the device of a cluster's workers.

    Where only the cluster is named, that is the calibration's device, else what the workers prefer.
    """
    with cluster_named(device) as (workers, words):
        if workers is None:
            yield words or None
        else:
            known = None if calibration is None else calibration.device.get("name")
            yield workers.device(words or known or None)
