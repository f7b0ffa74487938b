"""What drivers that work answered when they were tried, kept for a day: trying one takes seconds."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from perflex.caches import cache_folder
from perflex.devices.cuda import find_library
from perflex.errors import FileFormatError
from perflex.file_io import read_bytes, writing
from perflex.version import __version__

_KEPT_S = 86400.0
# Of environment variables that drivers and their loaders read.
_PREFIXES = (
    "CL_", "CUDA_", "CUPY_", "DPCPP_", "GPU_", "HIP_", "HSA_", "IGC_", "LD_", "MESA_", "NEO_", "NVIDIA_", "OCL_",
    "POCL_", "ROCR_", "RUSTICL_", "SYCL_", "ZE_",
)  # fmt: skip
# That of the loader, which perflex sets; a driver has its own key.
_NOT_READ = "OCL_ICD_VENDORS"
# What changes when devices do, or the share of the machine that a process has.
_SYSTEM = (
    "/proc/sys/kernel/random/boot_id", "/proc/sys/kernel/hostname", "/sys/module/nvidia/version",
    "/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/memory.max",
)  # fmt: skip
_NODES = ("nvidia*", "dri/*", "kfd", "dxg")


def kept(name: str, library: str) -> dict[str, Any] | None:
    """Return what is kept of a driver's library, None where that is nothing, or something it depends on has changed."""
    path = _place(name, library)
    with suppress(FileFormatError, OSError, ValueError):
        if time.time() - _KEPT_S < path.stat().st_mtime <= time.time():
            found: dict[str, Any] = json.loads(read_bytes(path))
            return found
    return None


def keep(name: str, library: str, content: dict[str, Any]) -> None:
    """Keep a driver's answers; where that fails it is tried again the next time."""
    path = _place(name, library)
    with suppress(FileFormatError, OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with writing(path) as stream:
            json.dump(content, stream)


def forget() -> None:
    """Have all drivers tried again."""
    shutil.rmtree(_folder(), ignore_errors=True)


def _folder() -> Path:
    return cache_folder() / "drivers"


def _place(name: str, library: str) -> Path:
    """Return the file of a driver; another one where the driver, or what its answers depend on, is another."""
    facts: list[object] = [__version__, metadata.version("pyopencl"), name, library]
    # Files that name drivers mostly do so without a folder, as the dynamic linker finds them.
    place = None if Path(library).is_absolute() else find_library(library)
    with suppress(OSError):
        found = Path(library if place is None else place.path).resolve().stat()
        facts += [found.st_mtime_ns, found.st_size]
    for fact in _SYSTEM:
        with suppress(OSError):
            facts.append(Path(fact).read_text(encoding="utf-8"))
    facts.append(sorted(str(path) for pattern in _NODES for path in Path("/dev").glob(pattern)))
    facts.append(sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())
    read = (item for item in os.environ.items() if item[0].startswith(_PREFIXES) and item[0] != _NOT_READ)
    facts.append(sorted(read))
    return _folder() / f"{hashlib.sha256(repr(facts).encode('utf-8', 'surrogatepass')).hexdigest()[:32]}.json"
