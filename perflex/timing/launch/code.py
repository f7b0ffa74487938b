"""Code of kernels for OpenCL and for CUDA, whichever of loopy's targets a kernel was made for."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
from cgen.cuda import CudaConstant
from loopy.kernel.data import AddressSpace
from loopy.target import DummyHostASTBuilder
from loopy.target.cuda import CUDACASTBuilder, CudaTarget
from loopy.target.opencl import get_opencl_callables, opencl_symbol_mangler
from loopy.types import NumpyType

import perflex.isl  # noqa: F401 - mends what loopy misses
from perflex.caches import repair_pytools_cache
from perflex.features.from_source.opencl_as_cuda import CPP_WORDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from perflex.devices.device import Api

repair_pytools_cache()

_LANES = (2, 3, 4, 8, 16)
_C_NAMES: Mapping[str, str] = {
    "int8": "signed char",
    "uint8": "unsigned char",
    "int16": "short",
    "uint16": "unsigned short",
    "int32": "int",
    "uint32": "unsigned int",
    "int64": "long",
    "uint64": "unsigned long",
    "float32": "float",
    "float64": "double",
}
# Longer accesses do not exist: 16 bytes is what one work-item loads at once.
_WIDEST_BYTES = 16
_VECTOR_NAME = re.compile(r"\b([a-z]+[0-9]+)x([0-9]+)\b")

# What sources may use and NVRTC does not know, by name.
_SUPPLEMENTS: Mapping[str, str] = {
    "INFINITY": "#define INFINITY __int_as_float(0x7f800000)",
    "HUGE_VAL": "#define HUGE_VAL __longlong_as_double(0x7ff0000000000000LL)",
    "NAN": "#define NAN __int_as_float(0x7fffffff)",
    "FLT_EPSILON": "#define FLT_EPSILON 1.1920928955078125e-7f",
    "FLT_MAX": "#define FLT_MAX 3.402823466e+38f",
    "FLT_MIN": "#define FLT_MIN 1.175494351e-38f",
    "DBL_EPSILON": "#define DBL_EPSILON 2.220446049250313e-16",
    "DBL_MAX": "#define DBL_MAX 1.7976931348623158e+308",
    "DBL_MIN": "#define DBL_MIN 2.2250738585072014e-308",
    "INT_MAX": "#define INT_MAX 2147483647",
    "INT_MIN": "#define INT_MIN (-2147483647 - 1)",
    "LONG_MAX": "#define LONG_MAX 9223372036854775807L",
    "LONG_MIN": "#define LONG_MIN (-9223372036854775807L - 1)",
    "M_E": "#define M_E 2.718281828459045",
    "M_E_F": "#define M_E_F 2.71828183f",
    "M_PI": "#define M_PI 3.141592653589793",
    "M_PI_F": "#define M_PI_F 3.14159265f",
    "M_PI_2": "#define M_PI_2 1.5707963267948966",
    "M_PI_2_F": "#define M_PI_2_F 1.57079633f",
    "M_PI_4": "#define M_PI_4 0.7853981633974483",
    "M_PI_4_F": "#define M_PI_4_F 0.785398163f",
    "M_SQRT2": "#define M_SQRT2 1.4142135623730951",
    "M_SQRT2_F": "#define M_SQRT2_F 1.41421356f",
    "clamp": "template <class T> inline __device__ T clamp(T x, T low, T high) { return min(max(x, low), high); }",
    "powf32": "inline __device__ float powf32(float x, float y) { return powf(x, y); }",
    "powf64": "inline __device__ double powf64(double x, double y) { return pow(x, y); }",
}
_NAMES = re.compile(r"\b[A-Za-z_][A-Za-z_0-9]*\b")

_WORD = re.compile(rf"\b(?:{'|'.join(sorted(CPP_WORDS))})\b")


_VECTORS = {
    (base, lanes): np.dtype([(f"s{lane:x}", np.dtype(base)) for lane in range(lanes)])
    for base in _C_NAMES
    for lanes in _LANES
}
# loopy keeps generated code on disk; it counts what changes code that is made here.
_VERSION = 1


class CudaDialect(CudaTarget):  # type: ignore[misc]
    """loopy's CUDA target with OpenCL's functions and vectors."""

    hash_fields = (*CudaTarget.hash_fields, "version")
    comparison_fields = (*CudaTarget.comparison_fields, "version")
    version = _VERSION

    def get_device_ast_builder(self) -> _Builder:
        """Return what makes code of kernels."""
        return _Builder(self)

    def get_host_ast_builder(self) -> _Host:
        """Return what stands in for code of the host."""
        return _Host(self)

    def get_dtype_registry(self) -> Any:
        """Return the names of types, those of vectors included."""
        registry = super().get_dtype_registry()
        for (base, lanes), dtype in _VECTORS.items():
            registry.get_or_register_dtype(f"{base}x{lanes}", dtype)
        return registry

    def is_vector_dtype(self, dtype: Any) -> bool:
        """Return whether a type is one of the vectors."""
        return isinstance(dtype, NumpyType) and dtype.numpy_dtype in _VECTORS.values()

    def vector_dtype(self, base: Any, count: int) -> Any:
        """Return the vector of so many elements; LookupError where there is none."""
        return NumpyType(_VECTORS[base.numpy_dtype.name, count])


class _Host(DummyHostASTBuilder):  # type: ignore[misc]
    @property
    def can_implement_conditionals(self) -> bool:
        """True: loopy makes no more than the first device program where the host cannot have conditions."""
        return True

    def emit_if(self, condition_str: str, ast: Any) -> Any:  # noqa: ARG002 - loopy's signature
        """Return what the host does in any case: nothing is written of it."""
        return ast


class _Builder(CUDACASTBuilder):  # type: ignore[misc]
    @property
    def known_callables(self) -> dict[str, Any]:
        """OpenCL's functions; their names in CUDA C++ are the same, and overloaded, too."""
        return {**super().known_callables, **get_opencl_callables()}

    def symbol_manglers(self) -> list[Callable[..., Any]]:
        """Return what knows the types of constants such as ``M_PI``."""
        return [*super().symbol_manglers(), opencl_symbol_mangler]

    def add_vector_access(self, access_expr: Any, index: int) -> Any:
        """Return the expression for an element of a vector."""
        return access_expr.attr(f"s{index:x}")

    def wrap_decl_for_address_space(self, decl: Any, address_space: Any) -> Any:
        """Declare an array in its memory; a pointer to global memory needs no word for it."""
        if address_space == AddressSpace.GLOBAL:
            return decl
        return super().wrap_decl_for_address_space(decl, address_space)

    def wrap_global_constant(self, decl: Any) -> Any:
        """Declare a table that all work-items read."""
        return CudaConstant(decl)

    def get_constant_arg_declarator(self, arg: Any) -> Any:
        """Declare a constant array that a kernel is given: in CUDA, an array like others that is only read."""
        return self.get_array_arg_declarator(arg, is_written=False)


def cuda_name(name: str) -> str:
    """Return what a name of a kernel or variable is in CUDA C++: another one where it is a word of C++."""
    return f"{name}_" if name in CPP_WORDS else name


def with_supplements(source: str) -> str:
    """Return generated C as CUDA C++: with definitions of what it uses and CUDA lacks at its head."""
    source = _WORD.sub(lambda found: cuda_name(found[0]), source)
    names = set(_NAMES.findall(source))
    parts = [definition for name, definition in _SUPPLEMENTS.items() if name in names]
    vectors = sorted({(base, int(lanes)) for base, lanes in _VECTOR_NAME.findall(source)} & set(_VECTORS))
    parts += [_definition(base, lanes) for base, lanes in vectors]
    return "\n".join([*parts, source])


def _definition(base: str, lanes: int) -> str:
    """Return a vector: as aligned as an access can use, made of one element or all, with arithmetic by element."""
    name, element = f"{base}x{lanes}", _C_NAMES[base]
    fields = [f"s{lane:x}" for lane in range(lanes)]
    size = np.dtype(base).itemsize * (4 if lanes == 3 else lanes)
    lines = [
        f"struct __align__({min(size, _WIDEST_BYTES)}) {name}",
        "{",
        f"  {element} {', '.join(fields)};",
        f"  {name}() = default;",
        f"  __device__ {name}({element} x) : {_joined(fields, '{0}(x)')} {{}}",
        f"  __device__ {name}({_joined(fields, element + ' {0}_')}) : {_joined(fields, '{0}({0}_)')} {{}}",
        "};",
    ]
    for sign in "+-*/":
        result = _joined(fields, f"a.{{0}} {sign} b.{{0}}")
        lines.append(f"inline __device__ {name} operator{sign}({name} a, {name} b) {{ return {name}({result}); }}")
    lines.append(f"inline __device__ {name} operator-({name} a) {{ return {name}({_joined(fields, '-a.{0}')}); }}")
    product = _joined(fields, "a.{0} * b.{0}", " + ")
    lines.append(f"inline __device__ {element} dot({name} a, {name} b) {{ return {product}; }}")
    return "\n".join(lines)


def _joined(fields: Iterable[str], pattern: str, by: str = ", ") -> str:
    return by.join(pattern.format(field) for field in fields)


# NVRTC has these built in, and no files of these names.
_STANDARD_HEADERS = re.compile(r"^[ \t]*#include <(?:math|stdbool|stdint)\.h>[ \t]*\n", re.MULTILINE)


def retargeted(kernel: lp.TranslationUnit, api: Api) -> lp.TranslationUnit:
    """Return a kernel for the target of an interface."""
    target = lp.PyOpenCLTarget() if api == "opencl" else CudaDialect()
    foreign = not isinstance(kernel.target, type(target))
    unit = kernel.copy(target=target)
    return unit.copy(callables_table=_own_callables(unit, target)) if foreign else unit


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
    return source if api == "opencl" else with_supplements(_STANDARD_HEADERS.sub("", source))


# Of OpenCL's compiler, with what they are for NVRTC; what lets a compiler do what NVRTC does by itself is nothing.
_NVRTC: Mapping[str, tuple[str, ...]] = {
    "-cl-fast-relaxed-math": ("-use_fast_math",),
    "-cl-unsafe-math-optimizations": ("-prec-div=false", "-prec-sqrt=false"),
    "-cl-denorms-are-zero": ("-ftz=true",),
    "-cl-mad-enable": (),
    "-cl-finite-math-only": (),
    "-cl-no-signed-zeros": (),
    "-cl-strict-aliasing": (),
}


def compiler_options(unit: lp.TranslationUnit, api: Api) -> tuple[str, ...]:
    """Return a kernel's own options of the compiler, loopy's ``build_options``, for an interface.

    A ValueError for what NVRTC has no option for.
    """
    given = [one for text in unit.default_entrypoint.options.build_options for one in str(text).split()]
    if api == "opencl":
        return tuple(given)
    if unknown := [one for one in given if one not in _NVRTC and not one.startswith(("-D", "-I", "-cl-std="))]:
        msg = f"NVRTC has no option for {unknown[0]}, one of the kernel's build_options; leave it out"
        raise ValueError(msg)
    return tuple(mine for one in given for mine in _NVRTC.get(one, () if one.startswith("-cl-std=") else (one,)))
