"""Nasty arithmetic: types, casts, powers, functions, conditions, and what looks like arithmetic and is none."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import var

from .collection import kernel, nasty, per_element

F4 = "x, y, z: float32[n+4]"
D4 = "x, y, z: float64[n+4]"
I4 = "p, q: int32[n+4]; out: int32[n]"


def pointwise(text: str, data: str = F4, **options: Any) -> lp.TranslationUnit:
    """One work-item per element of 13, in work-groups of 8."""
    return per_element(kernel("{[i]: 0<=i<n}", text, data, seq_dependencies=True, **options))


@nasty(n=13, differs={"global load": (52, 65), "global load bytes": (208, 260)}, why="squares")
def square_of_a_load() -> Any:
    return pointwise("y[i] = x[i]*x[i]\nz[i] = x[i]**2 + y[i]")


@nasty(n=13)
def chain_of_products() -> Any:
    return pointwise("y[i] = x[i]*x[i+1]*x[i+2] + x[i+3]\nz[i] = x[i+3] + x[i]*(x[i+1]*x[i+2])")


@nasty(n=13)
def two_products_summed() -> Any:
    return pointwise("y[i] = x[i]*x[i+1] + x[i+2]*x[i+3]")


@nasty(n=13)
def nested_sums_and_products() -> Any:
    return pointwise("y[i] = (x[i] + 1)*(x[i+1] + 2)*(x[i]*x[i] + 3) + x[i]/(x[i+1] + x[i+2]*x[i])")


@nasty(n=13)
def sum_of_sums() -> Any:
    return pointwise("y[i] = (x[i] + x[i+1]) + (x[i+2] + (x[i+3] + x[i]))")


@nasty(n=13)
def division_by_constants() -> Any:
    return pointwise("y[i] = x[i]/4 + x[i+1]/3.0\nz[i] = 1/x[i] + (x[i]*x[i+1])/2")


@nasty(n=13)
def constants_fold() -> Any:
    return pointwise("y[i] = 2*3*x[i] + (4 - 1)\nz[i] = 0.5*0.25*x[i]*2 + 1 + 2")


@nasty(n=13, differs={"add": (13, 0), "madd": (0, 26)}, why="zeros and ones")
def multiplied_by_zero_and_one() -> Any:
    return pointwise("y[i] = 1*x[i] + 0\nz[i] = x[i]*1 + 0*1")


@nasty(n=13)
def literals_in_single_precision() -> Any:
    return pointwise("y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2")


@nasty(n=13)
def literals_in_double_precision() -> Any:
    return pointwise("y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2", D4)


@nasty(n=13)
def power_zero_and_one() -> Any:
    return pointwise("y[i] = x[i]**1 + x[i+1]**0")


@nasty(n=13, differs={"pow": (13, 0), "mul": (0, 39)}, why="powers")
def power_three() -> Any:
    return pointwise("y[i] = x[i]**3")


@nasty(n=13, differs={"pow": (13, 0), "mul": (0, 39)}, why="powers")
def power_four_in_a_sum() -> Any:
    return pointwise("y[i] = x[i]**4 + x[i+1]")


@nasty(n=13)
def power_half() -> Any:
    return pointwise("y[i] = x[i]**0.5")


@nasty(n=13, differs={"pow": (13, 0), "div": (0, 13), "mul": (0, 13)}, why="powers")
def power_minus_one() -> Any:
    return pointwise("y[i] = x[i]**(-1)")


@nasty(n=13, differs={"pow": (13, 0), "div": (0, 13), "mul": (0, 26)}, why="powers")
def power_minus_two() -> Any:
    return pointwise("y[i] = x[i]**(-2)")


@nasty(n=13, differs={"add": (13, 26), "global load": (26, 52), "global load bytes": (104, 208)}, why="squares")
def power_of_a_sum_squared() -> Any:
    return pointwise("y[i] = (x[i] + x[i+1])**2")


@nasty(n=13)
def power_of_data() -> Any:
    return pointwise("y[i] = x[i]**z[i]\nz[i] = x[i]**2.5")


@nasty(n=13, differs={"pow": (13, 0), "mul": (0, 35)}, why="powers")
def power_of_integer() -> Any:
    return pointwise("y[i] = x[i]**p[i]", f"{F4}; p: int32[n]")


@nasty(n=13)
def power_of_two() -> Any:
    return pointwise("y[i] = 2**x[i]")


@nasty(n=13)
def functions_of_single_precision() -> Any:
    return pointwise(
        "y[i] = exp(x[i]) + sin(x[i+1])*cos(x[i]) + log(x[i])\nz[i] = sqrt(x[i]) + rsqrt(x[i+1]) + tan(x[i])"
    )


@nasty(n=13)
def functions_of_double_precision() -> Any:
    return pointwise("y[i] = exp(x[i]) + tanh(x[i+1]) + acos(x[i]) + exp(sin(x[i]))", D4)


@nasty(n=13)
def rounding_functions() -> Any:
    return pointwise("y[i] = floor(x[i]) + fabs(x[i+1]) + ceil(x[i])")


@nasty(n=13)
def functions_of_two() -> Any:
    return pointwise("y[i] = atan2(x[i], x[i+1]) + fmin(x[i], x[i+2]) + fmax(x[i], 0.5)")


@nasty(n=13)
def nan_test() -> Any:
    return pointwise("out[i] = isnan(x[i])", f"{F4}; out: int32[n]")


@nasty(n=13)
def minimum_of_three() -> Any:
    return pointwise("y[i] = fmin(fmin(x[i], x[i+1]), x[i+2]) + fmax(x[i], fmax(x[i+1], 1.0))")


@nasty(n=13)
def minimum_with_an_integer() -> Any:
    return pointwise("y[i] = fmin(x[i], 2)*fmax(1, x[i+2])")


@nasty(n=13)
def absolute_of_integers() -> Any:
    return pointwise("out[i] = abs(p[i])", I4)


@nasty(n=13, differs={"mul": (0, 26)}, why="signs")
def unary_minus() -> Any:
    return pointwise("y[i] = -x[i]\nz[i] = -(-x[i])")


@nasty(n=13)
def mixed_precision() -> Any:
    return pointwise("y[i] = x[i]*d[i] + x[i+1]*x[i+2]\nd[i] = x[i]*x[i+1] + d[i]", f"{F4}; d: float64[n]")


@nasty(n=13)
def mixed_integers_and_floats() -> Any:
    return pointwise("y[i] = p[i]*x[i] + p[i]\nz[i] = (p[i] + 1)*x[i]", f"{F4}; p: int32[n]")


@nasty(n=13)
def small_integers() -> Any:
    return pointwise("a[i] = a[i] + b[i]\nb[i] = b[i]*2", "a: uint8[n]; b: int16[n]")


@nasty(n=13)
def wide_integers() -> Any:
    return pointwise("a[i] = a[i]*b[i] + 7\nb[i] = a[i] + 1", "a: int64[n]; b: uint32[n]")


@nasty(n=13)
def casts() -> Any:
    x, d, p, i = var("x"), var("d"), var("p"), var("i")
    made = [
        lp.Assignment("y[i]", TypeCast(np.float32, p[i]) * x[i], id="s0"),
        lp.Assignment("d[i]", TypeCast(np.float64, x[i]) + d[i], id="s1", depends_on=frozenset({"s0"})),
        lp.Assignment("q[i]", TypeCast(np.int32, x[i + 1]), id="s2", depends_on=frozenset({"s1"})),
    ]
    return per_element(kernel("{[i]: 0<=i<n}", made, f"{F4}; p, q: int32[n]; d: float64[n]"))


@nasty(n=13)
def loop_variable_as_value() -> Any:
    return pointwise("y[i] = i*2.0\nz[i] = x[i]*i + n")


@nasty(n=13)
def loop_variable_in_single_precision() -> Any:
    return pointwise("y[i] = i*x[i] + i\nz[i] = sin(i*0.5)")


@nasty(n=13)
def scalar_arguments() -> Any:
    return pointwise("y[i] = alpha*x[i] + beta*z[i]", f"{F4}; alpha: float32; beta: float64")


@nasty(n=13)
def integer_scalar_argument() -> Any:
    return pointwise("y[i] = k*x[i] + k*k", f"{F4}; k: int32")


@nasty(n=13)
def integer_division_of_data() -> Any:
    return pointwise("out[i] = p[i]//q[i] + p[i] % q[i]", I4)


@nasty(n=13)
def bits_and_shifts() -> Any:
    return pointwise("out[i] = ((p[i] & q[i]) | (p[i] ^ 3)) + (~q[i]) + (p[i] << 2) + (q[i] >> 1)", I4)


@nasty(n=13)
def comparison_stored() -> Any:
    return pointwise("out[i] = x[i] < x[i+1]", f"{F4}; out: int32[n]")


@nasty(n=13)
def comparisons_combined() -> Any:
    return pointwise("out[i] = x[i] < x[i+1] and x[i+2] > 0.3", f"{F4}; out: int32[n]")


@nasty(n=13)
def short_circuit_or() -> Any:
    return pointwise("out[i] = x[i] < 0.4 or x[i+2] > 0.3 or x[i+3] > 0.2", f"{F4}; out: int32[n]")


@nasty(n=13)
def short_circuit_affine() -> Any:
    return pointwise("out[i] = i > 3 and x[i+3] > 0.3", f"{F4}; out: int32[n]")


@nasty(n=13)
def negated_condition() -> Any:
    return pointwise("out[i] = not (x[i] < 0.4 and not (x[i+1] < 0.3))", f"{F4}; out: int32[n]")


@nasty(n=13)
def ternary_on_data() -> Any:
    return pointwise("y[i] = x[i+1]*x[i] if x[i] > 0.3 else x[i+2] + 1")


@nasty(n=13)
def ternary_nested() -> Any:
    return pointwise("y[i] = (x[i+1] if x[i+2] > 0.2 else x[i+3]*2) if x[i] > 0.3 else (x[i+2] if i > 3 else 0.5)")


@nasty(n=13)
def ternary_affine() -> Any:
    return pointwise("y[i] = x[i+1]*x[i] if i < 5 else x[i+2] + 1")


@nasty(n=13)
def ternary_affine_by_domain() -> Any:
    from perflex.features import annotate

    return annotate(ternary_affine(), branches="domain")


@nasty(n=13)
def if_else_by_domain() -> Any:
    from perflex.features import annotate

    t = kernel(
        "{[i]: 0<=i<n}",
        "if i % 3 == 1\n y[i] = x[i]*x[i]\nelse\n if i > 5\n  y[i] = x[i] + x[i+1]\n end\n z[i] = x[i+2]\nend",
        F4,
        seq_dependencies=True,
    )
    return annotate(per_element(t), branches="domain")


@nasty(n=13)
def short_circuit_by_domain() -> Any:
    from perflex.features import annotate

    return annotate(short_circuit_affine(), branches="domain")


@nasty(n=13)
def predicates_by_domain_over_loops() -> Any:
    from perflex.features import annotate

    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<6}",
        "if j < i and i + j < n\n a[i,j] = x[i]*x[j] + a[i,j]\nend",
        "x: float32[n+6]; a: float32[n,6]",
    )
    return annotate(per_element(t), branches="domain")


@nasty(n=13)
def if_else() -> Any:
    return pointwise("if x[i] > 0.3\n y[i] = x[i]*x[i]\nelse\n z[i] = x[i] + x[i+1]\nend")


@nasty(n=13)
def nested_ifs() -> Any:
    return pointwise(
        "if x[i] > 0.2\n if z[i] > 0.2\n  y[i] = x[i]/x[i+1]\n else\n  y[i] = 0\n end\n z[i] = 2*x[i]\nend"
    )


@nasty(n=13)
def scalar_argument_decides() -> Any:
    return pointwise("if alpha > 0.25\n y[i] = x[i]*alpha\nend\nz[i] = x[i]", f"{F4}; alpha: float32")


@nasty(n=13)
def size_decides() -> Any:
    return pointwise("if n > 20\n y[i] = x[i]*x[i]\nend\nz[i] = x[i]")


@nasty(n=13)
def size_decides_by_domain() -> Any:
    from perflex.features import annotate

    return annotate(size_decides(), branches="domain")


@nasty(n=13)
def boolean_arrays() -> Any:
    return pointwise("f[i] = x[i] > 0.25 {id=a}\ny[i] = x[i]*x[i] if f[i] else 0.0 {dep=a}", f"{F4}; f: int8[n]")


@nasty(n=13)
def private_scalars() -> Any:
    return pointwise("<> s = x[i]*x[i+1]\n<> t = s*s + s\ny[i] = t/s + x[i]*t")


@nasty(n=13, differs={"mul": (13, 26)}, why="signs")
def in_place_updates() -> Any:
    return pointwise("y[i] = y[i] + x[i]\ny[i] = y[i]*y[i]\ny[i] = -y[i]\ny[i] = y[i]*x[i] + y[i]")


@nasty(n=13)
def complex_single() -> Any:
    return pointwise("c[i] = c[i]*d[i]\nd[i] = c[i] + d[i]", "c, d: complex64[n]")


@nasty(n=13, differs={"madd": (26, 0)}, why="complex")
def complex_double_and_reals() -> Any:
    return pointwise("c[i] = c[i]*x[i] + d[i]", "c, d: complex128[n]; x: float64[n]")


@nasty(n=13, differs={"complex abs": (13, 0), "hypot": (0, 13), "complex conj": (13, 0)}, why="complex")
def complex_parts() -> Any:
    return pointwise(
        "x[i] = real(c[i]) + imag(c[i])\nd[i] = conj(c[i])\ny[i] = abs(d[i])", "c, d: complex64[n]; x, y: float32[n]"
    )


@nasty(
    n=13,
    differs={"complex div": (13, 0), "div": (0, 39), "mul": (0, 13), "madd": (0, 39), "abs": (0, 26), "cmp": (0, 13)},
    why="complex",
)
def complex_division() -> Any:
    return pointwise("c[i] = c[i]/d[i]", "c, d: complex64[n]")


@nasty(
    n=13,
    differs={"mul": (26, 52), "madd": (26, 52), "global load": (0, 52), "global load bytes": (0, 208)},
    why="complex",
)
def complex_literal() -> Any:
    return pointwise("c[i] = c[i]*2.0j + 1", "c: complex64[n]")


@nasty(n=13)
def no_arithmetic_at_all() -> Any:
    return pointwise("y[i] = 0\nz[i] = n")


@nasty(n=13)
def typed_temporaries() -> Any:
    return pointwise("<float32> s = 2 {inames=i}\n<int32> k = 3 {inames=i}\ny[i] = s*x[i] + k*x[i+1]")


@nasty(n=13, differs={"add": (13, 0), "madd": (26, 39), "mul": (13, 39)}, why="signs")
def subtraction_of_products() -> Any:
    return pointwise("y[i] = x[i] - x[i+1]*x[i+2]\nz[i] = x[i]*x[i+1] - x[i+2]*x[i+3]\nz[i] = z[i] - y[i]")


@nasty(n=13, refused="fma")
def unknown_function() -> Any:
    return pointwise("y[i] = fma(x[i], x[i+1], x[i+2])")
