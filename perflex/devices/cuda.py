"""CuPy and the CUDA driver: loaded when first used, and what is wrong where they cannot be."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import subprocess
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

from perflex.errors import DeviceError, MissingExtraError

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
class LibraryPlace:
    """Where a library is, and whether the dynamic linker finds it by its bare name."""

    path: str
    on_path: bool


def find_library(
    name: str, environment: Mapping[str, str] | None = None, folders: Iterable[Path] | None = None
) -> LibraryPlace | None:
    """Return where a library of NVIDIA's driver is, None if it is nowhere."""
    environment = os.environ if environment is None else environment
    # In the dynamic linker's own order: this variable, then its cache.
    for entry in filter(None, environment.get("LD_LIBRARY_PATH", "").split(os.pathsep)):
        if path := _in_folder(Path(entry), name):
            # A file of a fuller version is not found by the bare name.
            return LibraryPlace(path, on_path=Path(path).name == name)
    cached = linker_cache().get(name)
    if cached is not None:
        return LibraryPlace(cached, on_path=True)
    for folder in DRIVER_FOLDERS if folders is None else folders:
        if path := _in_folder(folder, name):
            return LibraryPlace(path, on_path=False)
    return None


def _in_folder(folder: Path, name: str) -> str | None:
    try:
        exact = folder / name
        if exact.is_file():
            return str(exact)
        # A mounted driver may lack the links: libcuda.so.580.82 without libcuda.so.1. Of several the newest.
        others = sorted(folder.glob(f"{name.partition('.so')[0]}.so.*"), key=_version_of, reverse=True)
    except OSError:
        return None
    return next((str(path) for path in others if path.is_file()), None)


def _version_of(library: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", library.name)]


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


_REASON_LENGTH = 300
# What wheels of CuPy are called, and CuPy built from source.
_DISTRIBUTIONS = ("cupy-cuda13x", "cupy-cuda12x", "cupy-cuda11x", "cupy")
# Resolution of CUDA events as NVIDIA states it (cudaEventElapsedTime in the CUDA Runtime API).
_EVENT_RESOLUTION_NS = 500


def cupy_is_installed() -> bool:
    """Return whether there is a CuPy, without loading it."""
    return importlib.util.find_spec("cupy") is not None


def cupy_name() -> str:
    """Return CuPy's name and version, which say what CUDA it is made for: ``cupy-cuda13x 14.2.0``."""
    for name in _DISTRIBUTIONS:
        with suppress(metadata.PackageNotFoundError):
            return f"{name} {metadata.version(name)}"
    return "CuPy"


def cuda_absence() -> str:
    """Return why CUDA cannot be used, as far as that shows without loading anything; empty where it might be."""
    driver = find_library(CUDA_LIBRARY)
    missing = []
    if driver is None:
        missing.append(f"no NVIDIA driver ({CUDA_LIBRARY}) on this machine")
    if not cupy_is_installed():
        missing.append("CuPy is not installed (pip install 'perflex[cuda]')")
    return " and ".join(missing)


def load_cupy() -> Any:
    """Return CuPy, checked to go with the driver."""
    if not cupy_is_installed():
        msg = "CUDA devices are reached through CuPy, which is not installed: pip install 'perflex[cuda]'"
        raise MissingExtraError(msg, extra="cuda")
    _load_driver()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # CuPy remarks on folders of CUDA that kernels here do not need
            cupy = import_module("cupy")
        cuda = cupy.cuda
        built_for, supported = int(cuda.driver.get_build_version()), int(cuda.runtime.driverGetVersion())
    except (ImportError, OSError, AttributeError, RuntimeError) as error:
        msg = f"{cupy_name()} does not load: {first_line(error)}; install the one for the driver's CUDA version"
        raise DeviceError(msg) from error
    # cudaDriverGetVersion gives 0, and no error, where no driver is installed.
    if not supported:
        msg = f"{cupy_name()} finds no NVIDIA driver ({CUDA_LIBRARY}); install one, or use OpenCL devices"
        raise DeviceError(msg)
    # Drivers run what was made for an older CUDA, or for a newer one of the same major version.
    if built_for // 1000 > supported // 1000:
        msg = (
            f"{cupy_name()} is made for CUDA {_version(built_for)}, the driver supports CUDA {_version(supported)}; "
            f"install the one for it: pip uninstall cupy-cuda{built_for // 1000}x, "
            f"pip install cupy-cuda{supported // 1000}x"
        )
        raise DeviceError(msg)
    return cupy


def _load_driver() -> None:
    """Load the driver's library from where it is, so that it is there under its name when CuPy asks for it."""
    found = find_library(CUDA_LIBRARY)
    if found is None or found.on_path:
        return
    try:
        ctypes.CDLL(found.path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        msg = f"the NVIDIA driver's {found.path} does not load: {first_line(error)}"
        raise DeviceError(msg) from error


def properties_of(cupy: Any, number: int) -> dict[str, Any]:
    """Return what is known of a CUDA device, as the fields of a `Device` other than its ordinal."""
    runtime = cupy.cuda.runtime
    facts: Mapping[str, Any] = runtime.getDeviceProperties(number)
    name = facts["name"]
    return {
        "platform": "CUDA",
        "vendor": "NVIDIA Corporation",
        "name": (name.decode() if isinstance(name, bytes) else str(name)).strip("\0 "),
        "driver": _driver(cupy),
        "kind": "gpu",
        "sub_group_size": int(facts["warpSize"]),
        "compute_units": int(facts["multiProcessorCount"]),
        "local_memory_bytes": int(facts["sharedMemPerBlock"]),
        "most_local_memory_bytes": int(facts["sharedMemPerBlockOptin"]),
        "global_memory_bytes": int(facts["totalGlobalMem"]),
        # CUDA limits a single buffer by the device's memory only.
        "max_allocation_bytes": int(facts["totalGlobalMem"]),
        "max_work_group_size": int(facts["maxThreadsPerBlock"]),
        "max_work_item_sizes": [int(size) for size in facts["maxThreadsDim"]],
        "max_groups": [int(size) for size in facts["maxGridSize"]],
        "timer_resolution_ns": _EVENT_RESOLUTION_NS,
        # Every NVIDIA GPU from compute capability 1.3 on has it.
        "double_precision": True,
        "api": "cuda",
        "compute_capability": f"{facts['major']}.{facts['minor']}",
        "pci_address": str(runtime.deviceGetPCIBusId(number)).lower(),
        "uuid": _uuid(number),
    }


def _uuid(number: int) -> str:
    """Return the UUID of a GPU or of a MIG instance; empty where the driver does not tell."""
    found = find_library(CUDA_LIBRARY)
    device, uuid = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    try:
        # CuPy's own ends at the first byte that is 0.
        driver = ctypes.CDLL(found.path if found else CUDA_LIBRARY)
        failed = driver.cuInit(0) or driver.cuDeviceGet(ctypes.byref(device), number)
        # The one without _v2 gives all instances that of their GPU.
        failed = failed or driver.cuDeviceGetUuid_v2(uuid, device)
    except (OSError, AttributeError):
        return ""
    return "" if failed else str(UUID(bytes=bytes(uuid)))


def _driver(cupy: Any) -> str:
    """Return versions of all that decides on a kernel's code and time: the driver and the compiler."""
    cuda = cupy.cuda
    try:
        major, minor = cuda.nvrtc.getVersion()
    except (RuntimeError, OSError) as error:
        made_for = int(cuda.driver.get_build_version()) // 1000
        # From CUDA 13 on the wheels' names have no suffix.
        package = "nvidia-cuda-nvrtc" if made_for >= 13 else f"nvidia-cuda-nvrtc-cu{made_for}"
        msg = f"{cupy_name()} finds no compiler, NVRTC ({first_line(error)}); pip install {package}, or CUDA's toolkit"
        raise DeviceError(msg) from error
    return f"CUDA {_version(int(cuda.runtime.driverGetVersion()))} (NVRTC {major}.{minor})"


def _version(number: int) -> str:
    # CUDA writes 12.4 as 12040.
    return f"{number // 1000}.{number % 1000 // 10}"


def first_line(error: BaseException) -> str:
    """Return the line of a driver's or package's message that says most."""
    # CuPy frames its longer messages with lines of equals signs.
    lines = [line.strip(" =\t") for line in str(error).splitlines()]
    return next(filter(None, lines), type(error).__name__)[:_REASON_LENGTH]
