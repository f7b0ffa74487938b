"""A kernel in CUDA C++ or HIP for clang's HIP: to see what it makes of it, not to be launched."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from perflex.features.from_source.kernel_text import kernel_text
from perflex.features.from_source.source import SourceKernel

_HEADERS = ("cuda_as_hip.h", "hip_device.h")


def hip_text(kernel: SourceKernel, name: str) -> str:
    """Return a kernel with all that it needs; of a template, the instance of that name."""
    instance = f"template __global__ decltype({name}) {name};" if kernel.template_arguments else ""
    return "\n".join([_header(), kernel_text(kernel), instance])


@cache
def _header() -> str:
    return "\n".join(Path(__file__).with_name(name).read_text("utf-8") for name in _HEADERS)
