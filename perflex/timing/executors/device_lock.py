"""A lock for each device of a machine: kernels are timed there by one process at a time."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import DeviceError
from perflex.store.lock import lock_taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.timing.launch.backend import TimedDevice

# Longer than any portion of work takes, with a queue of them before it.
_PATIENCE_S = 3600.0


def lock_path(device: TimedDevice) -> Path:
    """Return the file that stands for a device.

    It lies in the folder for temporary files, which all users and processes of a machine share unless they were given
    different ones; containers share a device, not the lock. All CPU devices of a machine are one: several drivers
    offer the same cores. So do OpenCL and CUDA with NVIDIA's GPUs, under the same names but for the platform's.
    """
    kind = getattr(device, "kind", "")
    if kind == "cpu":
        name = "cpu"
    else:
        names = ("vendor", "name", "ordinal") if kind == "gpu" else ("platform", "vendor", "name", "ordinal")
        facts = [str(getattr(device, fact, "")) for fact in names]
        name = hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir(), f"perflex-device-{name}.lock")


@contextmanager
def device_lock(device: TimedDevice, patience_s: float = _PATIENCE_S) -> Iterator[None]:
    """Hold a device's lock in the block; the system gives it back when the process ends in any way.

    Raises
    ------
    DeviceError
        The lock's file cannot be opened, or others have held the lock for too long.
    """
    path = lock_path(device)
    try:
        handle = _opened(path)
    except OSError as error:
        msg = f"cannot lock {device}: {error}; remove {path}, or set TMPDIR to a folder that can be written"
        raise DeviceError(msg, device=device, path=path) from error
    try:
        if not lock_taken(handle, fcntl.LOCK_EX, patience_s):
            msg = f"other processes have been measuring on {device} for {patience_s:.0f} s; end them (they hold {path})"
            raise DeviceError(msg, device=device, path=path)
        yield
    finally:
        os.close(handle)


def _opened(path: Path) -> int:
    """Open for reading, which is all that locking needs: the file may be another user's. Links are not followed."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        pass
    try:
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
    except FileExistsError:
        return os.open(path, flags)
