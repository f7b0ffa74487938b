"""NVIDIA's compiler without a GPU: CUDA C++ to machine code, and what ptxas says of registers and spills."""

import ctypes
import re
import sysconfig
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from perflex.machines.residency import Resources, resources_in_log


@dataclass(frozen=True)
class Compiled:
    """Outcome of a compilation: what each kernel takes, the log, and the machine code."""

    resources: Mapping[str, Resources]
    log: str
    binary: bytes


@lru_cache(maxsize=1)
def nvrtc_library():
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


def compile_cuda(source, arch):
    """Compile; RuntimeError with the log where that fails."""
    log, binary = _compiled(source, [f"--gpu-architecture={arch}", "--std=c++17", "--ptxas-options=-v"], "CUBIN")
    return Compiled(resources_in_log(log), log, binary)


def loads_in_ptx(source, arch="compute_75"):
    """Return how many loads of global and shared memory stand in the optimised code, those in loops once."""
    _, code = _compiled(source, [f"--gpu-architecture={arch}"], "PTX")
    return Counter(re.findall(r"\bld\.(global|shared)\b", code.rstrip(b"\0").decode()))


def _compiled(source, options, what):
    library = nvrtc_library()
    assert library is not None
    program = ctypes.c_void_p()
    _check(library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None))
    try:
        failed = library.nvrtcCompileProgram(
            program, len(options), (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        )
        log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).rstrip(b"\0").decode()
        if failed:
            raise RuntimeError(log)
        size_of, get = (getattr(library, f"nvrtcGet{what}{part}") for part in ("Size", ""))
        return log, _text(size_of, get, program)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _text(size_of, get, program):
    size = ctypes.c_size_t()
    _check(size_of(program, ctypes.byref(size)))  # type: ignore[operator]
    buffer = ctypes.create_string_buffer(size.value)
    _check(get(program, buffer))  # type: ignore[operator]
    return buffer.raw


def _check(code):
    if code:
        msg = f"NVRTC error {code}"
        raise RuntimeError(msg)
