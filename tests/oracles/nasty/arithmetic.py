"""Nasty arithmetic: sums and products in each other, powers, functions, numbers, signs."""

from __future__ import annotations

from typing import Any

from .collection import F4, nasty, pointwise


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


@nasty(n=13, differs={"mul": (0, 26)}, why="signs")
def unary_minus() -> Any:
    return pointwise("y[i] = -x[i]\nz[i] = -(-x[i])")


@nasty(n=13)
def scalar_arguments() -> Any:
    return pointwise("y[i] = alpha*x[i] + beta*z[i]", f"{F4}; alpha: float32; beta: float64")


@nasty(n=13, differs={"add": (13, 0), "madd": (26, 39), "mul": (13, 39)}, why="signs")
def subtraction_of_products() -> Any:
    return pointwise("y[i] = x[i] - x[i+1]*x[i+2]\nz[i] = x[i]*x[i+1] - x[i+2]*x[i+3]\nz[i] = z[i] - y[i]")


@nasty(n=13)
def private_scalars() -> Any:
    return pointwise("<> s = x[i]*x[i+1]\n<> t = s*s + s\ny[i] = t/s + x[i]*t")


@nasty(n=13, differs={"mul": (13, 26)}, why="signs")
def in_place_updates() -> Any:
    return pointwise("y[i] = y[i] + x[i]\ny[i] = y[i]*y[i]\ny[i] = -y[i]\ny[i] = y[i]*x[i] + y[i]")


@nasty(n=13)
def no_arithmetic_at_all() -> Any:
    return pointwise("y[i] = 0\nz[i] = n")


@nasty(n=13, refused="fma")
def unknown_function() -> Any:
    return pointwise("y[i] = fma(x[i], x[i+1], x[i+2])")


@nasty(n=13)
def sums_of_squares() -> Any:
    return pointwise("y[i] = x[i]*x[i] + z[i]*z[i] + x[i+1]*z[i]\nz[i] = 2*(x[i]+y[i])*3")


@nasty(n=13)
def quotients_in_a_row() -> Any:
    return pointwise("y[i] = x[i]/x[i+1]/x[i+2] + x[i]/(x[i+1]*x[i+2])")


@nasty(n=13)
def numbers_in_the_middle() -> Any:
    return pointwise("y[i] = x[i]*2*x[i+1] + 3 + x[i+2] + 4\nz[i] = x[i]*(2*3) + 1.0/3*x[i]")


@nasty(n=13)
def power_of_power() -> Any:
    return pointwise("y[i] = (x[i]*x[i])*(x[i]*x[i])*x[i] + x[i]*(x[i+1]*x[i+2] + x[i+3])")


@nasty(n=13)
def sum_in_products_in_sums() -> Any:
    return pointwise("y[i] = (x[i] + (x[i+1] + x[i+2]*x[i+3])*x[i])*x[i] + (x[i]+1)*(x[i+1]+2)")


@nasty(n=13)
def functions_of_constants() -> Any:
    return pointwise("y[i] = x[i]*exp(1.0) + sqrt(2.0)")


@nasty(n=13, differs={"global load": (39, 52), "global load bytes": (312, 416)}, why="squares")
def power_of_double_exponents() -> Any:
    return pointwise("y[i] = x[i]**2.0 + x[i]**3.0 + x[i]**0.5", "x, y: float64[n+4]")


@nasty(n=13)
def absolute_value() -> Any:
    return pointwise("y[i] = abs(x[i]) + abs(x[i+1] + 1)")


@nasty(n=13)
def maximum_with_an_integer_in_a_sum() -> Any:
    return pointwise("y[i] = fmax(x[i]*x[i+1], 2) + 2*x[i+2] + x[i+3]")


@nasty(n=13)
def maximum_with_a_number_in_a_sum() -> Any:
    return pointwise("y[i] = fmax(x[i]*x[i+1], 2.5) + 2*x[i+2] + x[i+3]")
