"""Nasty types: literals, casts, integers among floats, complex numbers."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import var

from .collection import F4, I4, kernel, nasty, per_element, pointwise

D4 = "x, y, z: float64[n+4]"


@nasty(n=13)
def literals_in_single_precision() -> Any:
    return pointwise("y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2")


@nasty(n=13)
def literals_in_double_precision() -> Any:
    return pointwise("y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2", D4)


@nasty(n=13)
def functions_of_double_precision() -> Any:
    return pointwise("y[i] = exp(x[i]) + tanh(x[i+1]) + acos(x[i]) + exp(sin(x[i]))", D4)


@nasty(n=13)
def absolute_of_integers() -> Any:
    return pointwise("out[i] = abs(p[i])", I4)


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
def integer_scalar_argument() -> Any:
    return pointwise("y[i] = k*x[i] + k*k", f"{F4}; k: int32")


@nasty(n=13)
def integer_division_of_data() -> Any:
    return pointwise("out[i] = p[i]//q[i] + p[i] % q[i]", I4)


@nasty(n=13)
def bits_and_shifts() -> Any:
    return pointwise("out[i] = ((p[i] & q[i]) | (p[i] ^ 3)) + (~q[i]) + (p[i] << 2) + (q[i] >> 1)", I4)


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
def typed_temporaries() -> Any:
    return pointwise("<float32> s = 2 {inames=i}\n<int32> k = 3 {inames=i}\ny[i] = s*x[i] + k*x[i+1]")


@nasty(n=13)
def double_literal_in_single() -> Any:
    x, i = var("x"), var("i")
    made = [lp.Assignment("y[i]", x[i] * np.float64(0.1) + x[i])]
    return per_element(kernel("{[i]: 0<=i<n}", made, F4))


@nasty(n=13)
def true_division_of_integers() -> Any:
    return pointwise("y[i] = p[i]/q[i] + p[i]/2", "p, q: int32[n]; y: float64[n]")


@nasty(n=13)
def integer_times_scalar_in_double() -> Any:
    return pointwise("y[i] = p[i]*0.5 + q[i]*3 + p[i]", "p, q: int32[n]; y: float64[n]")


@nasty(n=13)
def integers_into_floats() -> Any:
    return pointwise("y[i] = p[i]*q[i] + p[i]", "p, q: int32[n]; y: float32[n]")


@nasty(n=13)
def floats_into_integers() -> Any:
    return pointwise("out[i] = x[i]*x[i+1] + 2", f"{F4}; out: int32[n]")


@nasty(n=13)
def single_into_double() -> Any:
    return pointwise("d[i] = x[i]*x[i+1] + x[i+2]*0.1", f"{F4}; d: float64[n]")


@nasty(n=13)
def double_into_single() -> Any:
    return pointwise("x[i] = d[i]*0.1 + d[i]*x[i] + 1", f"{F4}; d: float64[n]")


@nasty(n=13)
def functions_of_mixed_types() -> Any:
    text = "y[i] = exp(d[i]) + sqrt(x[i])*d[i]\nz[i] = fmax(x[i], d[i]) + atan2(x[i], d[i])"
    return pointwise(text, f"{F4}; d: float64[n]")


@nasty(n=13)
def functions_of_integers() -> Any:
    return pointwise("y[i] = sqrt(p[i]) + exp(i)", f"{F4}; p: int32[n]")


@nasty(n=13)
def unsigned_arithmetic() -> Any:
    return pointwise("u[i] = (u[i] << 2) + (u[i] >> 3)\nu[i] = u[i] % 5 + u[i]//3", "u: uint32[n]")


@nasty(n=13)
def inexact_numbers() -> Any:
    return pointwise("y[i] = 0.2*x[i] + x[i+1]/0.3\nz[i] = fmax(x[i], 0.2)*0.7 + exp(0.1*x[i+1])")


@nasty(n=13)
def inexact_numbers_compared() -> Any:
    return pointwise(
        "y[i] = x[i]*0.3 if x[i]*0.7 > 0.2 else x[i+1] + 0.1\nz[i] = (x[i] if p[i]*0.1 < 3 else 0.2)*x[i]",
        f"{F4}; p: int32[n]",
    )


@nasty(n=13)
def inexact_numbers_among_integers() -> Any:
    return pointwise("y[i] = 0.2*p[i] + p[i]*x[i] + q[i]/3 + 0.7*i", f"{F4}; p: int32[n]; q: int64[n]")


@nasty(n=13)
def inexact_numbers_in_mixed_precision() -> Any:
    return pointwise("d[i] = 0.2*x[i] + d[i]*0.1\ny[i] = 0.2*d[i] + x[i]*0.1 + 1e-3", f"{F4}; d: float64[n]")


@nasty(n=13)
def inexact_numbers_in_a_reduction() -> Any:
    t = kernel("{[i,k]: 0<=i<n and 0<=k<5}", "y[i] = 0.3*sum(k, 0.2*x[i+k] + 0.1) + 0.7", "x, y: float32[n+8]")
    return per_element(t)
