"""Triton's own compiler up to TTIR; it needs no GPU."""

from collections.abc import Iterable, Mapping
from typing import Any

from .triton_case import ALIGNED, Case, divisibility, type_of


def source(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], known: Iterable[str] = ()) -> Any:
    """Return what Triton compiles; the arguments that are known to be divisible by 16 are given by name."""
    from triton.compiler import ASTSource

    names = kernel.arg_names
    return ASTSource(
        fn=kernel,
        signature={name: types.get(name, "constexpr") for name in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
        attrs={(names.index(name),): [["tt.divisibility", ALIGNED]] for name in known},
    )


def ttir(case: Case, capability: int) -> str:
    """Return the TTIR of a case for one of NVIDIA's GPUs, specialised as in a launch with its arguments."""
    types = {name: type_of(value) for name, value in case.arguments.items()}
    constants = {name: 1 for name, kind in types.items() if kind == "constexpr"} | dict(case.constexprs)
    known = [name for name, value in case.arguments.items() if divisibility(value)]
    kernel = source(case.kernel, types, constants, known)
    return compiled(kernel, capability, num_warps=case.warps, num_stages=case.stages)


def compiled(kernel: Any, capability: int, **options: Any) -> str:
    """Return the TTIR of a source, without places in the source."""
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import make_backend

    target = GPUTarget("cuda", capability, 32)
    backend = make_backend(target)
    parsed = backend.parse_options(options)
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = kernel.make_ir(
        target, parsed, backend.get_codegen_implementation(parsed), backend.get_module_map(), context
    )
    stages: dict[str, Any] = {}
    backend.add_stages(stages, parsed, kernel.language)
    lowered = stages["ttir"](module, {"target": target, "name": kernel.name} | vars(parsed))
    return str(lowered.str_nodebug())
