"""NVIDIA's compiler without a GPU: CUDA C++ to machine code, and what ptxas says of registers and spills."""

from __future__ import annotations

import ctypes
import sysconfig
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.machines.resources import resources_in_log

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.machines.resources import Resources

__all__ = ["Compiled", "compile_cuda", "nvrtc_library"]


@dataclass(frozen=True)
class Compiled:
    """Outcome of a compilation: what each kernel takes, the log, and the machine code."""

    resources: Mapping[str, Resources]
    log: str
    binary: bytes


@lru_cache(maxsize=1)
def nvrtc_library() -> ctypes.CDLL | None:
    """Return NVRTC from the Python environment or CUDA's own folder, None where there is none."""
    site = Path(sysconfig.get_path("purelib"), "nvidia")
    folders = [*sorted(site.glob("*/lib")), Path("/usr/local/cuda/lib64"), Path("/usr/lib/x86_64-linux-gnu")]
    for folder in folders:
        for path in sorted(folder.glob("libnvrtc.so.*")):
            try:
                return ctypes.CDLL(str(path))
            except OSError:
                continue
    return None


def compile_cuda(source: str, arch: str) -> Compiled:
    """Compile; RuntimeError with the log where that fails."""
    library = nvrtc_library()
    assert library is not None
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        options = [f"--gpu-architecture={arch}".encode(), b"--std=c++17", b"--ptxas-options=-v"]
        failed = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        if failed:
            raise RuntimeError(log)
        binary = _text(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))
    return Compiled(resources_in_log(log), log, binary)


def _text(size_of: object, get: object, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))  # type: ignore[operator]
    buffer = ctypes.create_string_buffer(size.value)
    _check(get(program, buffer))  # type: ignore[operator]
    return buffer.raw


def _check(code: int) -> None:
    if code:
        msg = f"NVRTC error {code}"
        raise RuntimeError(msg)
