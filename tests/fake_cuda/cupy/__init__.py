"""Stands in for CuPy and a CUDA driver: CUDA C++ is compiled by g++, and work-items run one after another on the CPU.

Offers what perflex uses of CuPy and nothing else, with CuPy's names and error messages. FAKE_CUDA_... variables set
what the driver says of itself (so that child processes see the same); kernels with certain names fail as on a GPU.
"""

from __future__ import annotations

import types

from cupy import _compiler, _driver

__version__ = "14.0.0"

RawModule = _compiler.RawModule
cuda = types.SimpleNamespace(
    Event=_driver.Event,
    Stream=_driver.Stream,
    alloc_pinned_memory=_driver.alloc_pinned_memory,
    compiler=types.SimpleNamespace(CompileException=_compiler.CompileException),
    driver=types.SimpleNamespace(get_build_version=_driver.build_version),
    get_elapsed_time=_driver.get_elapsed_time,
    nvrtc=types.SimpleNamespace(getVersion=lambda: (13, 0)),
    runtime=_driver.Runtime(),
)
