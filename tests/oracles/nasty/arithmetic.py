"""Nasty arithmetic: sums and products in each other, powers, functions, numbers, signs."""

from __future__ import annotations

from .collection import F4, pointwise_kernel

pointwise_kernel(
    "square_of_a_load",
    "y[i] = x[i]*x[i]\nz[i] = x[i]**2 + y[i]",
    differs={"global load": (52, 65), "global load bytes": (208, 260)},
    why="squares",
)
pointwise_kernel(
    "nested_sums_and_products", "y[i] = (x[i] + 1)*(x[i+1] + 2)*(x[i]*x[i] + 3) + x[i]/(x[i+1] + x[i+2]*x[i])"
)
pointwise_kernel("division_by_constants", "y[i] = x[i]/4 + x[i+1]/3.0\nz[i] = 1/x[i] + (x[i]*x[i+1])/2")
pointwise_kernel(
    "multiplied_by_zero_and_one",
    "y[i] = 1*x[i] + 0\nz[i] = x[i]*1 + 0*1",
    differs={"add": (13, 0), "madd": (0, 26)},
    why="zeros and ones",
)
pointwise_kernel("power_zero_and_one", "y[i] = x[i]**1 + x[i+1]**0")
pointwise_kernel("power_three", "y[i] = x[i]**3", differs={"pow": (13, 0), "mul": (0, 39)}, why="powers")
pointwise_kernel("power_half", "y[i] = x[i]**0.5")
pointwise_kernel(
    "power_minus_one", "y[i] = x[i]**(-1)", differs={"pow": (13, 0), "div": (0, 13), "mul": (0, 13)}, why="powers"
)
pointwise_kernel(
    "power_of_a_sum_squared",
    "y[i] = (x[i] + x[i+1])**2",
    differs={"add": (13, 26), "global load": (26, 52), "global load bytes": (104, 208)},
    why="squares",
)
pointwise_kernel("power_of_data", "y[i] = x[i]**z[i]\nz[i] = x[i]**2.5")
pointwise_kernel(
    "power_of_integer",
    "y[i] = x[i]**p[i]",
    f"{F4}; p: int32[n]",
    differs={"pow": (13, 0), "mul": (0, 35)},
    why="powers",
)
pointwise_kernel("power_of_two", "y[i] = 2**x[i]")
pointwise_kernel(
    "functions_of_single_precision",
    "y[i] = exp(x[i]) + sin(x[i+1])*cos(x[i]) + log(x[i])\nz[i] = sqrt(x[i]) + rsqrt(x[i+1]) + tan(x[i])",
)
pointwise_kernel("rounding_functions", "y[i] = floor(x[i]) + fabs(x[i+1]) + ceil(x[i])")
pointwise_kernel("functions_of_two", "y[i] = atan2(x[i], x[i+1]) + fmin(x[i], x[i+2]) + fmax(x[i], 0.5)")
pointwise_kernel("nan_test", "out[i] = isnan(x[i])", f"{F4}; out: int32[n]")
pointwise_kernel("unary_minus", "y[i] = -x[i]\nz[i] = -(-x[i])", differs={"mul": (0, 26)}, why="signs")
pointwise_kernel("scalar_arguments", "y[i] = alpha*x[i] + beta*z[i]", f"{F4}; alpha: float32; beta: float64")
pointwise_kernel(
    "subtraction_of_products",
    "y[i] = x[i] - x[i+1]*x[i+2]\nz[i] = x[i]*x[i+1] - x[i+2]*x[i+3]\nz[i] = z[i] - y[i]",
    differs={"add": (13, 0), "madd": (26, 39), "mul": (13, 39)},
    why="signs",
)
pointwise_kernel("private_scalars", "<> s = x[i]*x[i+1]\n<> t = s*s + s\ny[i] = t/s + x[i]*t")
pointwise_kernel("no_arithmetic_at_all", "y[i] = 0\nz[i] = n")
pointwise_kernel("unknown_function", "y[i] = fma(x[i], x[i+1], x[i+2])", refused="fma")
pointwise_kernel("sum_in_products_in_sums", "y[i] = (x[i] + (x[i+1] + x[i+2]*x[i+3])*x[i])*x[i] + (x[i]+1)*(x[i+1]+2)")
pointwise_kernel(
    "power_of_double_exponents",
    "y[i] = x[i]**2.0 + x[i]**3.0 + x[i]**0.5",
    "x, y: float64[n+4]",
    differs={"global load": (39, 52), "global load bytes": (312, 416)},
    why="squares",
)
pointwise_kernel("maximum_with_an_integer_in_a_sum", "y[i] = fmax(x[i]*x[i+1], 2) + 2*x[i+2] + x[i+3]")
