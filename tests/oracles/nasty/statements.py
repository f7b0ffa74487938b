"""Nasty statements: sums and products in each other, powers, functions, signs, types, literals, conditions."""

import loopy as lp
import numpy as np
from loopy.symbolic import TypeCast
from pymbolic import var

from .collection import ELEMENTS, nasty, pointwise

F4 = "x, y, z: float32[n+4]"
I4 = "p, q: int32[n+4]; out: int32[n]"
D4 = "x, y, z: float64[n+4]"


def differing(why, **rows):
    """Return what the simulator sees otherwise; loads are told in elements of 4 bytes."""
    found = {name.replace("_", " "): pair for name, pair in rows.items()}
    if "global load" in found:
        counted, executed = found["global load"]
        found.setdefault("global load bytes", (4 * counted, 4 * executed))
    return {"why": why, "differs": found}


# Arithmetic.
pointwise("square_of_a_load", "y[i] = x[i]*x[i]\nz[i] = x[i]**2 + y[i]", **differing("squares", global_load=(52, 65)))
pointwise("nested_sums_and_products", "y[i] = (x[i] + 1)*(x[i+1] + 2)*(x[i]*x[i] + 3) + x[i]/(x[i+1] + x[i+2]*x[i])")
pointwise("division_by_constants", "y[i] = x[i]/4 + x[i+1]/3.0\nz[i] = 1/x[i] + (x[i]*x[i+1])/2")
pointwise("multiplied_by_zero_and_one", "y[i] = 1*x[i] + 0\nz[i] = x[i]*1 + 0*1",
    **differing("zeros and ones", add=(13, 0), madd=(0, 26)))  # fmt: skip
pointwise("power_zero_and_one", "y[i] = x[i]**1 + x[i+1]**0")
pointwise("power_three", "y[i] = x[i]**3", **differing("powers", pow=(13, 0), mul=(0, 39)))
pointwise("power_half", "y[i] = x[i]**0.5")
pointwise("power_minus_one", "y[i] = x[i]**(-1)", **differing("powers", pow=(13, 0), div=(0, 13), mul=(0, 13)))
pointwise("power_of_a_sum_squared", "y[i] = (x[i] + x[i+1])**2",
    **differing("squares", add=(13, 26), global_load=(26, 52)))  # fmt: skip
pointwise("power_of_data", "y[i] = x[i]**z[i]\nz[i] = x[i]**2.5")
pointwise("power_of_integer", "y[i] = x[i]**p[i]", f"{F4}; p: int32[n]",
    **differing("powers", pow=(13, 0), mul=(0, 35)))  # fmt: skip
pointwise("power_of_two", "y[i] = 2**x[i]")
pointwise("power_of_double_exponents", "y[i] = x[i]**2.0 + x[i]**3.0 + x[i]**0.5", "x, y: float64[n+4]", why="squares",
    differs={"global load": (39, 52), "global load bytes": (312, 416)})  # fmt: skip
pointwise("functions_of_single_precision",
    "y[i] = exp(x[i]) + sin(x[i+1])*cos(x[i]) + log(x[i])\nz[i] = sqrt(x[i]) + rsqrt(x[i+1]) + tan(x[i])")  # fmt: skip
pointwise("functions_of_double_precision", "y[i] = exp(x[i]) + tanh(x[i+1]) + acos(x[i]) + exp(sin(x[i]))", D4)
pointwise("rounding_functions", "y[i] = floor(x[i]) + fabs(x[i+1]) + ceil(x[i])")
pointwise("functions_of_two", "y[i] = atan2(x[i], x[i+1]) + fmin(x[i], x[i+2]) + fmax(x[i], 0.5)")
pointwise("nan_test", "out[i] = isnan(x[i])", f"{F4}; out: int32[n]")
pointwise("unknown_function", "y[i] = fma(x[i], x[i+1], x[i+2])", refused="fma")
pointwise("unary_minus", "y[i] = -x[i]\nz[i] = -(-x[i])", **differing("signs", mul=(0, 26)))
pointwise("scalar_arguments", "y[i] = alpha*x[i] + beta*z[i]", f"{F4}; alpha: float32; beta: float64")
pointwise("subtraction_of_products",
    "y[i] = x[i] - x[i+1]*x[i+2]\nz[i] = x[i]*x[i+1] - x[i+2]*x[i+3]\nz[i] = z[i] - y[i]",
    **differing("signs", add=(13, 0), madd=(26, 39), mul=(13, 39)))  # fmt: skip
pointwise("private_scalars", "<> s = x[i]*x[i+1]\n<> t = s*s + s\ny[i] = t/s + x[i]*t")
pointwise("no_arithmetic_at_all", "y[i] = 0\nz[i] = n")
pointwise("sum_in_products_in_sums", "y[i] = (x[i] + (x[i+1] + x[i+2]*x[i+3])*x[i])*x[i] + (x[i]+1)*(x[i+1]+2)")
pointwise("maximum_with_an_integer_in_a_sum", "y[i] = fmax(x[i]*x[i+1], 2) + 2*x[i+2] + x[i+3]")

# Types.
pointwise("literals_in_single_precision", "y[i] = x[i]*0.1 + 1e-3\nz[i] = 3*x[i] + 2")
pointwise("mixed_precision", "y[i] = x[i]*d[i] + x[i+1]*x[i+2]\nd[i] = x[i]*x[i+1] + d[i]", f"{F4}; d: float64[n]")
pointwise("mixed_integers_and_floats", "y[i] = p[i]*x[i] + p[i]\nz[i] = (p[i] + 1)*x[i]", f"{F4}; p: int32[n]")
pointwise("wide_integers", "a[i] = a[i]*b[i] + 7\nb[i] = a[i] + 1", "a: int64[n]; b: uint32[n]")
x, d, p, i = map(var, "xdpi")
CASTS = {"y[i]": TypeCast(np.float32, p[i]) * x[i], "d[i]": TypeCast(np.float64, x[i]) + d[i],
    "q[i]": TypeCast(np.int32, x[i + 1])}  # fmt: skip
pointwise("casts", [lp.Assignment(*line) for line in CASTS.items()], f"{F4}; p, q: int32[n]; d: float64[n]")
pointwise("loop_variable_as_value", "y[i] = i*2.0\nz[i] = x[i]*i + n")
pointwise("integer_division_of_data", "out[i] = p[i]//q[i] + p[i] % q[i]", I4)
pointwise("true_division_of_integers", "y[i] = p[i]/q[i] + p[i]/2", "p, q: int32[n]; y: float64[n]")
pointwise("bits_and_shifts", "out[i] = ((p[i] & q[i]) | (p[i] ^ 3)) + (~q[i]) + (p[i] << 2) + (q[i] >> 1)", I4)
pointwise("unsigned_arithmetic", "u[i] = (u[i] << 2) + (u[i] >> 3)\nu[i] = u[i] % 5 + u[i]//3", "u: uint32[n]")
pointwise("typed_temporaries", "<float32> s = 2 {inames=i}\n<int32> k = 3 {inames=i}\ny[i] = s*x[i] + k*x[i+1]")
pointwise("double_into_single", "x[i] = d[i]*0.1 + d[i]*x[i] + 1", f"{F4}; d: float64[n]")
pointwise("functions_of_mixed_types", "y[i] = exp(d[i]) + sqrt(x[i])*d[i]\nz[i] = fmax(x[i], d[i]) + atan2(x[i], d[i])",
    f"{F4}; d: float64[n]")  # fmt: skip
pointwise("functions_of_integers", "y[i] = sqrt(p[i]) + exp(i)", f"{F4}; p: int32[n]")
pointwise("inexact_numbers", "y[i] = 0.2*x[i] + x[i+1]/0.3\nz[i] = fmax(x[i], 0.2)*0.7 + exp(0.1*x[i+1])")
pointwise("inexact_numbers_compared",
    "y[i] = x[i]*0.3 if x[i]*0.7 > 0.2 else x[i+1] + 0.1\nz[i] = (x[i] if p[i]*0.1 < 3 else 0.2)*x[i]",
    f"{F4}; p: int32[n]")  # fmt: skip
pointwise("inexact_numbers_among_integers", "y[i] = 0.2*p[i] + p[i]*x[i] + q[i]/3 + 0.7*i",
    f"{F4}; p: int32[n]; q: int64[n]")  # fmt: skip
pointwise("inexact_numbers_in_mixed_precision", "d[i] = 0.2*x[i] + d[i]*0.1\ny[i] = 0.2*d[i] + x[i]*0.1 + 1e-3",
    f"{F4}; d: float64[n]")  # fmt: skip
nasty("inexact_numbers_in_a_reduction", "{[i,k]: 0<=i<n and 0<=k<5}", "y[i] = 0.3*sum(k, 0.2*x[i+k] + 0.1) + 0.7",
    "x, y: float32[n+8]", ELEMENTS)  # fmt: skip
pointwise("complex_single", "c[i] = c[i]*d[i]\nd[i] = c[i] + d[i]", "c, d: complex64[n]")
pointwise("complex_double_and_reals", "c[i] = c[i]*x[i] + d[i]", "c, d: complex128[n]; x: float64[n]",
    **differing("complex", madd=(26, 0)))  # fmt: skip
pointwise("complex_parts", "x[i] = real(c[i]) + imag(c[i])\nd[i] = conj(c[i])\ny[i] = abs(d[i])",
    "c, d: complex64[n]; x, y: float32[n]",
    **differing("complex", complex_abs=(13, 0), hypot=(0, 13), complex_conj=(13, 0)))  # fmt: skip
DIVISION = {"complex_div": (13, 0), "div": (0, 39), "mul": (0, 13), "madd": (0, 39), "abs": (0, 26), "cmp": (0, 13)}
pointwise("complex_division", "c[i] = c[i]/d[i]", "c, d: complex64[n]", **differing("complex", **DIVISION))
pointwise("complex_literal", "c[i] = c[i]*2.0j + 1", "c: complex64[n]",
    **differing("complex", mul=(26, 52), madd=(26, 52), global_load=(0, 52)))  # fmt: skip

# Conditions: each branch counts where its condition holds.
pointwise("short_circuit_or", "out[i] = x[i] < 0.4 or x[i+2] > 0.3 or x[i+3] > 0.2", f"{F4}; out: int32[n]")
pointwise("short_circuit_affine", "out[i] = i > 3 and x[i+3] > 0.3", f"{F4}; out: int32[n]")
pointwise("negated_condition", "out[i] = not (x[i] < 0.4 and not (x[i+1] < 0.3))", f"{F4}; out: int32[n]")
pointwise("ternary_nested",
    "y[i] = (x[i+1] if x[i+2] > 0.2 else x[i+3]*2) if x[i] > 0.3 else (x[i+2] if i > 3 else 0.5)")  # fmt: skip
pointwise("ternary_affine", "y[i] = x[i+1]*x[i] if i < 5 else x[i+2] + 1")
pointwise("if_else",
    "if i % 3 == 1\n y[i] = x[i]*x[i]\nelse\n if i > 5\n  y[i] = x[i] + x[i+1]\n end\n z[i] = x[i+2]\nend")  # fmt: skip
nasty("predicates_over_loops", "{[i,j]: 0<=i<n and 0<=j<6}",
    "if j < i and i + j < n\n a[i,j] = x[i]*x[j] + a[i,j]\nend", "x: float32[n+6]; a: float32[n,6]",
    ELEMENTS)  # fmt: skip
pointwise("nested_ifs",
    "if x[i] > 0.2\n if z[i] > 0.2\n  y[i] = x[i]/x[i+1]\n else\n  y[i] = 0\n end\n z[i] = 2*x[i]\nend")  # fmt: skip
pointwise("scalar_argument_decides", "if alpha > 0.25\n y[i] = x[i]*alpha\nend\nz[i] = x[i]", f"{F4}; alpha: float32")
pointwise("size_decides", "if n > 20\n y[i] = x[i]*x[i]\nend\nz[i] = x[i]")
pointwise("boolean_arrays", "f[i] = x[i] > 0.25 {id=a}\ny[i] = x[i]*x[i] if f[i] else 0.0 {dep=a}", f"{F4}; f: int8[n]")
pointwise("conditions_joined",
    "if i > 3 and (i < 9 or i % 2 == 0)\n y[i] = x[i]*x[i]\nelse\n y[i] = x[i] + 1\nend\n"
    "if not (i == 5)\n z[i] = x[i]/2\nend\nif i != 7\n z[i] = z[i] + y[i]*x[i]\nend")  # fmt: skip
INNER = "x[i]*x[i+1] if i > 7 else x[i] + x[i+1]/x[i+2]"
pointwise("ternaries_nested", f"y[i] = (x[i] if i < 2 else ({INNER})) + (x[i] if i//3 == 2 else 1)")
pointwise("mixed_conditions", "y[i] = x[i]*x[i+1] if i < 7 and x[i] > 0.3 else x[i]/x[i+1]")
nasty("guarded_reduction", "{[i,j]: 0<=i<n and 0<=j<7}",
    "if i > 4\n y[i] = sum(j, x[i+j]*x[j] if j < 3 else x[j])\nend", "x, y: float32[n + 16]", ELEMENTS)  # fmt: skip
nasty("guarded_loop_nest", "{[i,j]: 0<=i<n and 0<=j<7}",
    "for i\n if i > 4\n  for j\n   a[i,j] = x[i]*x[j]\n  end\n end\nend",
    "x: float32[n + 16]; a: float32[n,7]")  # fmt: skip
