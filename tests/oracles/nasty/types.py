"""Nasty types: literals, casts, integers among floats, complex numbers."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import var

from .collection import F4, I4, kernel, nasty, per_element, pointwise, pointwise_kernel

D4 = "x, y, z: float64[n+4]"


pointwise_kernel("literals_in_single_precision", "y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2")
pointwise_kernel("functions_of_double_precision", "y[i] = exp(x[i]) + tanh(x[i+1]) + acos(x[i]) + exp(sin(x[i]))", D4)
pointwise_kernel(
    "mixed_precision", "y[i] = x[i]*d[i] + x[i+1]*x[i+2]\nd[i] = x[i]*x[i+1] + d[i]", f"{F4}; d: float64[n]"
)
pointwise_kernel("mixed_integers_and_floats", "y[i] = p[i]*x[i] + p[i]\nz[i] = (p[i] + 1)*x[i]", f"{F4}; p: int32[n]")
pointwise_kernel("wide_integers", "a[i] = a[i]*b[i] + 7\nb[i] = a[i] + 1", "a: int64[n]; b: uint32[n]")


@nasty(n=13)
def casts() -> Any:
    x, d, p, i = var("x"), var("d"), var("p"), var("i")
    made = [
        lp.Assignment("y[i]", TypeCast(np.float32, p[i]) * x[i], id="s0"),
        lp.Assignment("d[i]", TypeCast(np.float64, x[i]) + d[i], id="s1", depends_on=frozenset({"s0"})),
        lp.Assignment("q[i]", TypeCast(np.int32, x[i + 1]), id="s2", depends_on=frozenset({"s1"})),
    ]
    return per_element(kernel("{[i]: 0<=i<n}", made, f"{F4}; p, q: int32[n]; d: float64[n]"))


pointwise_kernel("loop_variable_as_value", "y[i] = i*2.0\nz[i] = x[i]*i + n")
pointwise_kernel("integer_division_of_data", "out[i] = p[i]//q[i] + p[i] % q[i]", I4)
pointwise_kernel("bits_and_shifts", "out[i] = ((p[i] & q[i]) | (p[i] ^ 3)) + (~q[i]) + (p[i] << 2) + (q[i] >> 1)", I4)
pointwise_kernel("complex_single", "c[i] = c[i]*d[i]\nd[i] = c[i] + d[i]", "c, d: complex64[n]")
pointwise_kernel(
    "complex_double_and_reals",
    "c[i] = c[i]*x[i] + d[i]",
    "c, d: complex128[n]; x: float64[n]",
    differs={"madd": (26, 0)},
    why="complex",
)
pointwise_kernel(
    "complex_parts",
    "x[i] = real(c[i]) + imag(c[i])\nd[i] = conj(c[i])\ny[i] = abs(d[i])",
    "c, d: complex64[n]; x, y: float32[n]",
    differs={"complex abs": (13, 0), "hypot": (0, 13), "complex conj": (13, 0)},
    why="complex",
)
pointwise_kernel(
    "complex_division",
    "c[i] = c[i]/d[i]",
    "c, d: complex64[n]",
    differs={"complex div": (13, 0), "div": (0, 39), "mul": (0, 13), "madd": (0, 39), "abs": (0, 26), "cmp": (0, 13)},
    why="complex",
)
pointwise_kernel(
    "complex_literal",
    "c[i] = c[i]*2.0j + 1",
    "c: complex64[n]",
    differs={"mul": (26, 52), "madd": (26, 52), "global load": (0, 52), "global load bytes": (0, 208)},
    why="complex",
)
pointwise_kernel("typed_temporaries", "<float32> s = 2 {inames=i}\n<int32> k = 3 {inames=i}\ny[i] = s*x[i] + k*x[i+1]")


pointwise_kernel("true_division_of_integers", "y[i] = p[i]/q[i] + p[i]/2", "p, q: int32[n]; y: float64[n]")
pointwise_kernel("double_into_single", "x[i] = d[i]*0.1 + d[i]*x[i] + 1", f"{F4}; d: float64[n]")


@nasty(n=13)
def functions_of_mixed_types() -> Any:
    text = "y[i] = exp(d[i]) + sqrt(x[i])*d[i]\nz[i] = fmax(x[i], d[i]) + atan2(x[i], d[i])"
    return pointwise(text, f"{F4}; d: float64[n]")


pointwise_kernel("functions_of_integers", "y[i] = sqrt(p[i]) + exp(i)", f"{F4}; p: int32[n]")
pointwise_kernel("unsigned_arithmetic", "u[i] = (u[i] << 2) + (u[i] >> 3)\nu[i] = u[i] % 5 + u[i]//3", "u: uint32[n]")
pointwise_kernel("inexact_numbers", "y[i] = 0.2*x[i] + x[i+1]/0.3\nz[i] = fmax(x[i], 0.2)*0.7 + exp(0.1*x[i+1])")
pointwise_kernel(
    "inexact_numbers_compared",
    "y[i] = x[i]*0.3 if x[i]*0.7 > 0.2 else x[i+1] + 0.1\nz[i] = (x[i] if p[i]*0.1 < 3 else 0.2)*x[i]",
    f"{F4}; p: int32[n]",
)
pointwise_kernel(
    "inexact_numbers_among_integers", "y[i] = 0.2*p[i] + p[i]*x[i] + q[i]/3 + 0.7*i", f"{F4}; p: int32[n]; q: int64[n]"
)
pointwise_kernel(
    "inexact_numbers_in_mixed_precision",
    "d[i] = 0.2*x[i] + d[i]*0.1\ny[i] = 0.2*d[i] + x[i]*0.1 + 1e-3",
    f"{F4}; d: float64[n]",
)


@nasty(n=13)
def inexact_numbers_in_a_reduction() -> Any:
    t = kernel("{[i,k]: 0<=i<n and 0<=k<5}", "y[i] = 0.3*sum(k, 0.2*x[i+k] + 0.1) + 0.7", "x, y: float32[n+8]")
    return per_element(t)
