"""Stands in for CuPy and a CUDA driver: CUDA C++ is compiled by g++, and work-items run one after another on the CPU.

Offers what perflex uses of CuPy and nothing else, with CuPy's names and error messages. FAKE_CUDA_... variables set
what the driver says of itself (so that child processes see the same); kernels with certain names fail as on a GPU. With
FAKE_CUDA_IDLE=1 nothing is executed: the whole study for GPU machines can be rehearsed in its real sizes.
"""

import types

from cupy import _compiler, _driver

__version__ = "14.0.0"

RawModule = _compiler.RawModule
_core = types.SimpleNamespace(core=types.SimpleNamespace(assemble_cupy_compiler_options=_compiler.assemble_options))
cuda = types.SimpleNamespace(
    Event=_driver.Event,
    Stream=_driver.Stream,
    alloc_pinned_memory=_driver.alloc_pinned_memory,
    compiler=types.SimpleNamespace(CompileException=_compiler.CompileException),
    driver=types.SimpleNamespace(get_build_version=_driver.build_version),
    get_elapsed_time=_driver.get_elapsed_time,
    nvrtc=types.SimpleNamespace(
        getVersion=_compiler.get_version,
        getSupportedArchs=_compiler.supported_archs,
        createProgram=_compiler.create_program,
        addNameExpression=_compiler.add_name_expression,
        compileProgram=_compiler.compile_program,
        getProgramLog=_compiler.program_log,
        getCUBIN=_compiler.cubin,
        getLoweredName=_compiler.lowered_name,
        destroyProgram=_compiler.destroy_program,
    ),
    runtime=_driver.Runtime(),
)
