"""Types of counted operations are those of the generated code, as Oclgrind's compiler takes them."""

import warnings
from collections import Counter

import loopy as lp
import numpy as np
import pytest
from pymbolic import var

from oracles import oclgrind
from oracles.generated_types import as_arithmetic, typed_operations
from perflex.errors import UnsupportedKernelError
from perflex.features import extract_scop
from support.written_kernels import written
from uipick import ALL_GENERATORS

DATA = "x, y, z: float32[n+4]; d, e: float64[n+4]; p: int32[n+4]; q: int64[n+4]; u: uint32[n+4]; b: uint8[n+4]"
SCALARS = "; alpha: float32; beta: float64"
# No subtractions: to LLVM a sign is a multiplication.
TEXTS = [
    "y[i] = 0.2*x[i]", "y[i] = 0.2*x[i] + 0.3*z[i]", "e[i] = 0.2*x[i] + d[i]*0.1", "y[i] = 0.2*d[i] + x[i]*0.1",
    "y[i] = x[i]/3 + 0.1/x[i]", "y[i] = 0.2*p[i] + p[i]*x[i]", "y[i] = q[i]*x[i] + 0.1*q[i]",
    "y[i] = p[i] + 2 + u[i]*3", "e[i] = p[i]/3 + p[i]/q[i]", "y[i] = 0.2*i + x[i]*i",
    "y[i] = x[i]*0.1 if x[i]*0.5 > 0.2 else z[i]*1.1",
    "y[i] = x[i]*z[i] if d[i] > 0.2 and x[i] < p[i] else x[i] + 0.7", "y[i] = x[i] if p[i]*0.1 < 3 else z[i]",
    "if p[i] > 2 and 0.1*x[i] < d[i]\n y[i] = x[i]*0.3\nend", "y[i] = exp(0.2) + sin(x[i] + 0.1) + cos(0.5*x[i])",
    "y[i] = sqrt(p[i] + 0.3) + exp(0.25*i)", "y[i] = fmax(x[i], 0.2) + fmin(0.3*x[i], 0.5)",
    "e[i] = fmax(x[i], 0.25)*0.1 + fmax(x[i], d[i])", "y[i] = (0.2*x[i])**3 + (0.25*x[i])**3",
    "y[i] = 0.2*x[i]**2 + x[i]**2.0", "e[i] = x[i]**0.3 + x[i]**0.5 + d[i]**3", "<> t = 0.2*x[i]\ny[i] = t*0.1 + 0.3",
    "<float32> t = 0.2*x[i]\ny[i] = t*0.1 + 0.3", "y[i] = 1.0/3*x[i] + 0.1*0.3*x[i]", "p[i] = x[i]*2 + 3",
    "y[i] = alpha*x[i] + beta*0.1",
]  # fmt: skip


def pointwise(text, data=DATA + SCALARS):
    return written("{[i]: 0<=i<n}", text, data, "i/8: g.0, l.0", seq_dependencies=True)


def operations(kernel):
    """Each floating-point operation of each statement once, as it stands in the code."""
    found = Counter()
    for statement in extract_scop(kernel).statements:
        for operation in statement.operations:
            if operation.dtype.startswith("float"):
                found[operation.kind, operation.dtype] += operation.count
    return found


def compiled(kernels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loopy's advice is for those who mean to keep the kernel
        return oclgrind.compiled([lp.generate_code_v2(kernel).device_code() for kernel in kernels])


def typed(make, value):
    """A product with a number that has a type, and one with the same number without."""
    x, i = var("x"), var("i")
    lines = [lp.Assignment("y[i]", x[i] * make(value) + x[i + 1] * value)]
    return written("{[i]: 0<=i<n}", lines, DATA, "i/8: g.0, l.0")


NUMBERS = [
    (make, value)
    for make in (np.float32, np.float64, np.int8, np.uint16, np.int32, np.uint32, np.int64)
    for value in (2, -3, 0.25, -0.2)
    if np.dtype(make).kind == "f" or (value == int(value) and (value > 0 or np.dtype(make).kind == "i"))
]


@pytest.mark.slow
@oclgrind.needs_oclgrind
def test_types_are_those_of_the_compiled_code():
    """Of texts, and of numbers with types, which keep them."""
    kernels = [*map(pointwise, TEXTS), *(typed(*number) for number in NUMBERS)]
    for name, kernel, code in zip([*TEXTS, *NUMBERS], kernels, compiled(kernels), strict=True):
        assert operations(kernel) == typed_operations(code), name


def inexact(expr):
    """An expression with other numbers in place of its floating-point ones, none exact in single precision."""
    from loopy.symbolic import IdentityMapper

    class Mapper(IdentityMapper):
        def map_constant(self, expr):
            if isinstance(expr, (float, np.floating)) and abs(expr) not in {0.0, 1.0}:
                return type(expr)(float(expr) * 1.1)
            return expr

    return Mapper()(expr)


@pytest.mark.slow
@oclgrind.needs_oclgrind
def test_types_of_the_catalog_are_those_of_the_compiled_code():
    """The first variant of each generator, with its numbers and with inexact ones instead."""
    names, kernels = [], []
    for generator in ALL_GENERATORS:
        arguments = next(a for a in generator.combinations({}) if generator.violated(a) is None)
        unit = generator.generate(arguments).kernel
        entry = unit.default_entrypoint
        changed = [insn.with_transformed_expressions(inexact) for insn in entry.instructions]
        names += [generator.name, f"{generator.name} with inexact numbers"]
        kernels += [unit, unit.with_kernel(entry.copy(instructions=changed))]
    for name, kernel, code in zip(names, kernels, compiled(kernels), strict=True):
        assert as_arithmetic(operations(kernel)) == as_arithmetic(typed_operations(code)), name


def test_code_that_loopy_cannot_write_is_refused():
    kernel = pointwise("y[i] = x[i]", "x, y: float64[n]")
    entry = kernel.default_entrypoint
    (insn,) = entry.instructions
    wide = insn.copy(expression=insn.expression * np.longdouble(0.2))
    with pytest.raises(UnsupportedKernelError, match=r"loopy cannot generate code for .*np.float32"):
        extract_scop(kernel.with_kernel(entry.copy(instructions=[wide])))


def test_arrays_without_element_types_are_refused_with_the_remedy():
    kernel = lp.make_kernel("{[i]: 0 <= i < n}", "y[i] = 2*x[i]", lang_version=(2018, 2))
    with pytest.raises(UnsupportedKernelError, match=r"\(x\); .*lp\.add_dtypes"):
        extract_scop(kernel)
