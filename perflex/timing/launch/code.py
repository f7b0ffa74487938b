"""Code of kernels for OpenCL and for CUDA, whichever of loopy's targets a kernel was made for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import loopy as lp

import perflex.isl  # noqa: F401 - mends what loopy misses

if TYPE_CHECKING:
    from perflex.devices.device import Api

# NVRTC has these built in, and no files of these names.
_STANDARD_HEADERS = re.compile(r"^[ \t]*#include <(?:math|stdbool|stdint)\.h>[ \t]*\n", re.MULTILINE)


def retargeted(kernel: lp.TranslationUnit, api: Api) -> lp.TranslationUnit:
    """Return a kernel for the target of an interface.

    Raises
    ------
    LoopyError
        The kernel was preprocessed for another target.
    """
    target = _target(api)
    foreign = not isinstance(kernel.target, type(target))
    unit = kernel.copy(target=target)
    return unit.copy(callables_table=_own_callables(unit, target)) if foreign else unit


def _target(api: Api) -> Any:
    if api == "opencl":
        return lp.PyOpenCLTarget()
    from perflex.timing.launch.cuda_dialect import CudaDialect

    return CudaDialect()


def _own_callables(unit: lp.TranslationUnit, target: Any) -> Any:
    """Return the callables of a kernel with those that another target brought replaced by the target's own."""
    known = target.get_device_ast_builder().known_callables
    table = unit.callables_table
    for key, entry in table.items():
        name = getattr(entry, "name", "")
        if type(entry).__module__.startswith("loopy.target.") and name in known:
            table = table.set(key, known[name])
    return table


def device_code(unit: lp.TranslationUnit, api: Api) -> str:
    """Return the code of a linearized kernel's device programs, with all that it needs."""
    source: str = lp.generate_code_v2(unit).device_code()
    if api == "opencl":
        return source
    from perflex.timing.launch.cuda_dialect import with_supplements

    return with_supplements(_STANDARD_HEADERS.sub("", source))


def program_name(name: str, api: Api) -> str:
    """Return what a device program is called in the code."""
    if api == "opencl":
        return name
    from perflex.timing.launch.cuda_dialect import cuda_name

    return cuda_name(name)
