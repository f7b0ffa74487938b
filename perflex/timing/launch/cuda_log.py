"""What NVIDIA's compiler says of a source: registers and spills of each kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.machines.resources import resources_in_log

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.machines.resources import Resources

__all__ = ["compiled_resources"]

# What CuPy adds to the options it is given, and what changes code among it.
_ADDED = ("-ftz=true",)


def compiled_resources(
    cupy: Any, source: str, options: Sequence[str], compute_capability: str
) -> Mapping[str, Resources]:
    """Return what a source's kernels take, by name, from compiling it once more.

    CuPy keeps binaries on disk, without what the compiler said of them, and the driver does not tell spills.

    Parameters
    ----------
    cupy
        The package.
    source
        CUDA C++.
    options
        As the source was built with, ``--ptxas-options=-v`` among them.
    compute_capability
        Of the device: ``"9.0"``.

    Returns
    -------
    Mapping
        Empty where the compiler does not make machine code for this device.
    """
    nvrtc = cupy.cuda.nvrtc
    words = (*options, *_ADDED, f"-arch=sm_{compute_capability.replace('.', '')}")
    program = nvrtc.createProgram(source, "kernel.cu", (), ())
    try:
        nvrtc.compileProgram(program, words)
        log = nvrtc.getProgramLog(program)
    except RuntimeError:
        return {}
    finally:
        nvrtc.destroyProgram(program)
    return resources_in_log(log)
