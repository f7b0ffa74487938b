"""Code of kernels for AMD's GPUs: compiled by LLVM's clang for an architecture, without such a device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.compiled.amd import AmdCode, AmdCompiled, AmdFacts, amd_compiler, compile_amd
from perflex.compiled.program import CompiledProgram
from perflex.errors import MeasurementError
from perflex.timing.launch.cuda_code import why_not
from perflex.timing.launch.kept_code import key_of
from perflex.timing.launch.request import size_launch
from perflex.timing.launch.source_plan import compile_plan_of

if TYPE_CHECKING:
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.launch.request import LaunchRequest


@dataclass(frozen=True)
class AmdCompilation:
    """A kernel to be compiled, with what clang is given and the key under which what comes of it is kept."""

    request: LaunchRequest
    arguments: tuple[str, str, str, tuple[str, ...]]
    key: str
    make, made = staticmethod(compile_amd), AmdCompiled

    def code(self, compiled: AmdCompiled) -> tuple[CompiledProgram, ...]:
        """Return the code of its device programs; a MeasurementError where it does not compile."""
        architecture = self.arguments[2]
        if not compiled.kernels:
            raise why_not(self.request.label, architecture, compiled.log)
        found = []
        for program in self.request.programs:
            gpu = AmdCode(architecture, self._facts(program.name, compiled), program.groups, program.work_group)
            found.append(CompiledProgram(program.name, "hip", (), self.request.arguments_of(program), gpu))
        return tuple(found)

    def _facts(self, name: str, compiled: AmdCompiled) -> AmdFacts:
        """Return what is said of a kernel; of C++, whose compiler gives other names, the one kernel of the text."""
        found = [one for one in compiled.kernels if one.name == name] or list(compiled.kernels)
        if len(found) != 1:
            named = ", ".join(one.name for one in found)
            msg = f'{self.request.label}: its code has several kernels, {named}; write {name!r} extern "C"'
            raise MeasurementError(msg, kernel=self.request.label)
        return found[0]


def amd_compilation(job: SizedKernel, architecture: str) -> AmdCompilation:
    """Return what compiling a kernel takes; errors as `compile_plan_of`."""
    plan, language = compile_plan_of(job, "clang")
    arguments = plan.source, language, architecture, plan.options
    key = key_of(*arguments, amd_compiler(architecture).version)
    return AmdCompilation(size_launch(plan, job.sizes, job.label), arguments, key)
