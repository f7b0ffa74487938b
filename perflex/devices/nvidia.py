"""Where NVIDIA's driver keeps its libraries: with the dynamic linker, or in folders that it does not look into."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

CUDA_LIBRARY = "libcuda.so.1"
OPENCL_LIBRARY = "libnvidia-opencl.so.1"
NVML_LIBRARY = "libnvidia-ml.so.1"

# Containers mount the driver in the first two; the third is the Windows driver's under WSL.
# fmt: off
DRIVER_FOLDERS = tuple(map(Path, (
    "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu/nvidia/current", "/usr/lib/nvidia", "/usr/lib64",
    "/usr/lib64/nvidia", "/usr/lib", "/run/opengl-driver/lib", "/opt/nvidia/lib64",
)))
# fmt: on
# A line of ldconfig -p: libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1
_CACHE_LINE = re.compile(r"^\s*(\S+) \(.*\) => (\S+)$", re.MULTILINE)
_CACHE_TIME_LIMIT_S = 5.0


@dataclass(frozen=True)
class Found:
    """Where a library is, and whether the dynamic linker finds it by its bare name."""

    path: str
    on_path: bool


def find_library(
    name: str, environment: Mapping[str, str] | None = None, folders: Iterable[Path] | None = None
) -> Found | None:
    """Return where a library of NVIDIA's driver is, None if it is nowhere.

    Parameters
    ----------
    name
        File name, such as ``libcuda.so.1``; a file of a fuller version does, too.
    environment
        Environment variables to go by; the process's own by default.
    folders
        Where to look beside the places of the dynamic linker; by default where drivers are known to be put.
    """
    environment = os.environ if environment is None else environment
    # In the dynamic linker's own order: this variable, then its cache.
    for entry in filter(None, environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        if path := _in_folder(Path(entry), name):
            # A file of a fuller version is not found by the bare name.
            return Found(path, on_path=Path(path).name == name)
    cached = linker_cache().get(name)
    if cached is not None:
        return Found(cached, on_path=True)
    for folder in DRIVER_FOLDERS if folders is None else folders:
        if path := _in_folder(folder, name):
            return Found(path, on_path=False)
    return None


def _in_folder(folder: Path, name: str) -> str | None:
    try:
        exact = folder / name
        if exact.is_file():
            return str(exact)
        # A mounted driver may lack the links: libcuda.so.580.82 without libcuda.so.1.
        others = sorted(folder.glob(f"{name.partition('.so')[0]}.so.*"))
    except OSError:
        return None
    return next((str(path) for path in others if path.is_file()), None)


@lru_cache(maxsize=1)
def linker_cache() -> Mapping[str, str]:
    """Return the libraries that the dynamic linker knows, path by name; empty where it does not tell."""
    # The PATH of users may lack /sbin.
    for program in ("ldconfig", "/sbin/ldconfig"):
        try:
            done = subprocess.run(  # noqa: S603
                [program, "-p"], capture_output=True, text=True, timeout=_CACHE_TIME_LIMIT_S, check=False
            )
        except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
            continue
        # Of several (32 and 64 bits) the first counts, as for the linker's own search of one architecture.
        paths: dict[str, str] = {}
        for library, path in _CACHE_LINE.findall(done.stdout):
            if "i386" not in path and "/lib32" not in path:
                paths.setdefault(library, path)
        return paths
    return {}
