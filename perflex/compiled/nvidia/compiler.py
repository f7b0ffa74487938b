"""NVIDIA's run-time compiler (NVRTC) as a library of its own: CUDA C++ to a cubin, without a GPU or its driver."""

from __future__ import annotations

import ctypes
import re
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from perflex.errors import MissingExtraError

_LIBRARY = re.compile(r"libnvrtc\.so\.(\d+)")


@dataclass(frozen=True)
class Compiled:
    """A cubin and what the compiler wrote; the cubin is empty where it failed."""

    cubin: bytes
    log: str


@lru_cache(maxsize=1)
def _libraries() -> tuple[Any, ...]:
    """Return the libraries of the Python environment, newest first, then those of CUDA's own folders."""
    found: list[tuple[int, str]] = []
    for folder in ("purelib", "platlib"):
        found += _in(Path(sysconfig.get_path(folder), "nvidia"), "*/lib")
    found += _in(Path("/usr/local"), "cuda*/lib64") + _in(Path("/usr/lib"), "x86_64-linux-gnu")
    loaded = []
    for _, path in sorted(dict.fromkeys(found), key=lambda entry: -entry[0]):
        try:
            loaded.append(ctypes.CDLL(path))
        except OSError:
            continue  # of another processor, say
    return tuple(loaded)


def _in(root: Path, folders: str) -> list[tuple[int, str]]:
    paths = [path for folder in root.glob(folders) for path in folder.glob("libnvrtc.so.*")]
    return [(int(match[1]), str(path)) for path in paths if (match := _LIBRARY.match(path.name))]


def _architectures(library: Any) -> list[int]:
    count = ctypes.c_int()
    library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
    numbers = (ctypes.c_int * count.value)()
    library.nvrtcGetSupportedArchs(numbers)
    return list(numbers)


def supported_architectures() -> list[str]:
    """Return what the compilers here make code for, as ``"sm_90"``; nothing where there is no compiler."""
    return [f"sm_{number}" for number in sorted({one for library in _libraries() for one in _architectures(library)})]


def compiler_version(architecture: str) -> str:
    """Return the version of the compiler that `compile_cuda` takes, as ``"13.5"``; empty where there is none."""
    library = _compiler_for(architecture)
    if library is None:
        return ""
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


def _compiler_for(architecture: str) -> Any | None:
    return next((one for one in _libraries() if architecture in [f"sm_{n}" for n in _architectures(one)]), None)


def compile_cuda(source: str, architecture: str, options: tuple[str, ...] = ()) -> Compiled:
    """Compile CUDA C++.

    Parameters
    ----------
    source
        The code; its kernels have C linkage.
    architecture
        As ``"sm_90"``.
    options
        Of the compiler, beside that.

    Raises
    ------
    MissingExtraError
        There is no compiler, or none for the architecture.
    """
    library = _compiler_for(architecture)
    if library is None:
        known = supported_architectures()
        msg = (
            f"NVRTC here makes code for {known[0]} to {known[-1]}, not for {architecture}; older GPUs need an older "
            "compiler: pip install nvidia-cuda-nvrtc-cu12"
            if known
            else "compiling for NVIDIA's GPUs needs NVRTC; install it with: pip install 'perflex[cuda-code]'"
        )
        raise MissingExtraError(msg, extra="cuda-code")
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
    try:
        words = [f"--gpu-architecture={architecture}".encode(), *(option.encode() for option in options)]
        failed = library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words))
        log = _content(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        cubin = b"" if failed else _content(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
        return Compiled(cubin, log.rstrip(b"\0").decode("utf-8", "replace"))
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _content(size_of: Any, get: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.raw
