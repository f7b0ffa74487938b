"""One process of a machine at a time measures on a device: a lock that all of them know."""

from __future__ import annotations

import fcntl
import hashlib
import os
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.errors import DeviceError, warn

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perflex.timing.launch.backend import TimedDevice

# Longer than any calibration takes, with a queue of them before it.
_PATIENCE_S = 3600.0
_PAUSE_S = 0.01
_LONGEST_COMMAND = 80
# Open files of locks, and what threads of this process hold: files, and the threads' identifiers.
_opened_here: set[int] = set()
_held: set[tuple[Path, int]] = set()


def lock_path(device: TimedDevice) -> Path:
    """Return the file that stands for a device.

    It lies in the folder for temporary files, which all users and processes of a machine share unless they were given
    different ones; containers share a device, not the lock. All CPU devices of a machine are one: several drivers
    offer the same cores. So do OpenCL and CUDA with NVIDIA's GPUs, at one place on the PCI bus; where the driver does
    not tell that, equal GPUs are told apart by their UUID or number. A MIG instance reached through CUDA has a file of
    its own; OpenCL's drivers do not say whose UUID they give, so that there the whole GPU's file stands for it.
    """
    return _paths(device)[0]


def _paths(device: TimedDevice) -> list[Path]:
    """Return the file that stands for a device, and for a MIG instance its GPU's, which instances hold together."""
    kind = getattr(device, "kind", "")
    names = ("vendor", "name", "ordinal") if kind == "gpu" else ("platform", "vendor", "name", "ordinal")
    uuid = getattr(device, "uuid", "")
    place = getattr(device, "pci_address", "") or uuid or "\n".join(str(getattr(device, name, "")) for name in names)
    # CUDA's names are such as "NVIDIA A100-PCIE-40GB MIG 1g.5gb".
    is_instance = uuid and getattr(device, "api", "") == "cuda" and "MIG" in getattr(device, "name", "").split()
    places = [uuid, place] if is_instance else [place]
    files = ["cpu"] if kind == "cpu" else [hashlib.sha256(one.encode()).hexdigest()[:16] for one in places]
    return [Path(tempfile.gettempdir(), f"perflex-device-{file}.lock") for file in files]


@contextmanager
def device_lock(*devices: TimedDevice, patience_s: float = _PATIENCE_S, tells: bool = False) -> Iterator[TimedDevice]:
    """Hold the lock of the first device that is free in the block; the system gives it back when the process ends.

    A thread that holds one already, such as where a callback of `tune` times a kernel, has it without waiting.

    Parameters
    ----------
    devices
        Any of these will do.
    patience_s
        So long others may measure on all of them.
    tells
        Whether a warning says for whom this process waits.

    Yields
    ------
    Device
        The one that is held.

    Raises
    ------
    DeviceError
        There can be no lock, or others held all of them all the time.
    """
    thread = threading.get_ident()
    mine = next((one for one in devices if any((path, thread) in _held for path in _paths(one))), None)
    if mine is not None:
        yield mine
        return
    handles: list[list[int]] = []
    hold: set[tuple[Path, int]] = set()
    try:
        for device in devices:
            handles.append([])
            for path in _paths(device):
                handles[-1].append(_opened(device, path))
                _opened_here.add(handles[-1][-1])
        device = devices[_taken(devices, handles, patience_s, tells=tells)]
        hold.update((path, thread) for path in _paths(device))
        _held.update(hold)
        yield device
    finally:
        _held.difference_update(hold)
        # In a forked process they are closed already, and their numbers may be those of other files.
        for handle in _opened_here.intersection(chain.from_iterable(handles)):
            _opened_here.discard(handle)
            # Not by closing it alone: what a library forks meanwhile has it, too.
            fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _after_fork() -> None:
    """Leave the locks to the parent: who inherits an open file would hold them when the parent is gone."""
    for handle in _opened_here:
        os.close(handle)
    _opened_here.clear()
    _held.clear()


os.register_at_fork(after_in_child=_after_fork)


def _taken(devices: Sequence[TimedDevice], handles: Sequence[Sequence[int]], patience_s: float, *, tells: bool) -> int:
    """Take the locks of one of the devices, and return which; the system's own wait has no limit."""
    deadline = time.monotonic() + patience_s
    while True:
        busy = 0
        for number, files in enumerate(handles):
            refused = _refused(files)
            if refused is None:
                return number
            # Messages are about the first device.
            busy = busy if number else refused
        if time.monotonic() > deadline:
            path, holder = _paths(devices[0])[busy], _holder(handles[0][busy])
            msg = (
                f"others have been measuring on {devices[0]} for {patience_s:.0f} s, now {holder}; end it (it holds "
                f"{path})"
            )
            raise DeviceError(msg, device=devices[0], path=path)
        if tells:
            msg = f"{_holder(handles[0][busy])} is measuring on {devices[0]}; waiting until it has done"
            warn(msg)
            tells = False
        time.sleep(_PAUSE_S)


def _refused(files: Sequence[int]) -> int | None:
    """Take the locks of one device, the first alone and a second with others; where one is refused, return which."""
    for number, (file, mode) in enumerate(zip(files, (fcntl.LOCK_EX, fcntl.LOCK_SH), strict=False)):
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            for taken in files[:number]:
                fcntl.flock(taken, fcntl.LOCK_UN)
            return number
    return None


def _opened(device: TimedDevice, path: Path) -> int:
    """Open for reading, which is all that locking needs: the file may be another user's. Links are not followed."""
    # Nor does somebody's pipe there keep it waiting.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        with suppress(FileNotFoundError):
            return os.open(path, flags)
        try:
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return os.open(path, flags)
        os.fchmod(handle, 0o644)  # whatever this user's umask takes away
    except OSError as error:
        msg = f"cannot lock {device}: {error}; remove {path}, or set TMPDIR to a folder that can be written"
        raise DeviceError(msg, device=device, path=path) from error
    return handle


def _holder(handle: int) -> str:
    """Return who holds a lock, as far as the system tells."""
    file = os.fstat(handle)
    # Some file systems tell another device here; then it stays unknown, which is better than a wrong process.
    place = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    with suppress(OSError):
        # A line is "1: FLOCK ADVISORY WRITE PROCESS MAJOR:MINOR:INODE 0 EOF"; see proc_locks(5).
        for words in map(str.split, Path("/proc/locks").read_text(encoding="utf-8").splitlines()):
            if words[1] == "FLOCK" and words[5] == place:
                command = Path(f"/proc/{words[4]}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                # On one line, also where it is a program of several.
                return f"process {words[4]} ({' '.join(command.split())[:_LONGEST_COMMAND]})"
    return "another process"
