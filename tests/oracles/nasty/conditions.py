"""Nasty conditions: on data, on loop variables, on sizes; nested, combined, in expressions and around statements."""

from __future__ import annotations

from typing import Any

from .collection import F4, kernel, nasty, per_element, pointwise, pointwise_kernel

XY = "x, y: float32[n + 16]"


pointwise_kernel("short_circuit_or", "out[i] = x[i] < 0.4 or x[i+2] > 0.3 or x[i+3] > 0.2", f"{F4}; out: int32[n]")


@nasty(n=13)
def short_circuit_affine() -> Any:
    return pointwise("out[i] = i > 3 and x[i+3] > 0.3", f"{F4}; out: int32[n]")


pointwise_kernel("negated_condition", "out[i] = not (x[i] < 0.4 and not (x[i+1] < 0.3))", f"{F4}; out: int32[n]")
pointwise_kernel(
    "ternary_nested", "y[i] = (x[i+1] if x[i+2] > 0.2 else x[i+3]*2) if x[i] > 0.3 else (x[i+2] if i > 3 else 0.5)"
)


@nasty(n=13)
def ternary_affine() -> Any:
    return pointwise("y[i] = x[i+1]*x[i] if i < 5 else x[i+2] + 1")


@nasty(n=13)
def ternary_affine_by_domain() -> Any:
    return ternary_affine()


@nasty(n=13)
def if_else_by_domain() -> Any:
    t = kernel(
        "{[i]: 0<=i<n}",
        "if i % 3 == 1\n y[i] = x[i]*x[i]\nelse\n if i > 5\n  y[i] = x[i] + x[i+1]\n end\n z[i] = x[i+2]\nend",
        F4,
        seq_dependencies=True,
    )
    return per_element(t)


@nasty(n=13)
def short_circuit_by_domain() -> Any:
    return short_circuit_affine()


@nasty(n=13)
def predicates_by_domain_over_loops() -> Any:
    t = kernel(
        "{[i,j]: 0<=i<n and 0<=j<6}",
        "if j < i and i + j < n\n a[i,j] = x[i]*x[j] + a[i,j]\nend",
        "x: float32[n+6]; a: float32[n,6]",
    )
    return per_element(t)


pointwise_kernel(
    "nested_ifs", "if x[i] > 0.2\n if z[i] > 0.2\n  y[i] = x[i]/x[i+1]\n else\n  y[i] = 0\n end\n z[i] = 2*x[i]\nend"
)
pointwise_kernel(
    "scalar_argument_decides", "if alpha > 0.25\n y[i] = x[i]*alpha\nend\nz[i] = x[i]", f"{F4}; alpha: float32"
)


@nasty(n=13)
def size_decides() -> Any:
    return pointwise("if n > 20\n y[i] = x[i]*x[i]\nend\nz[i] = x[i]")


@nasty(n=13)
def size_decides_by_domain() -> Any:
    return size_decides()


pointwise_kernel(
    "boolean_arrays", "f[i] = x[i] > 0.25 {id=a}\ny[i] = x[i]*x[i] if f[i] else 0.0 {dep=a}", f"{F4}; f: int8[n]"
)


@nasty(n=13)
def conditions_joined_by_domain() -> Any:
    text = """
    if i > 3 and (i < 9 or i % 2 == 0)
        y[i] = x[i]*x[i]
    else
        y[i] = x[i] + 1
    end
    if not (i == 5)
        z[i] = x[i]/2
    end
    if i != 7
        z[i] = z[i] + y[i]*x[i]
    end
    """
    return pointwise(text)


@nasty(n=13)
def ternaries_nested_by_domain() -> Any:
    inner = "x[i]*x[i+1] if i > 7 else x[i] + x[i+1]/x[i+2]"
    return pointwise(f"y[i] = (x[i] if i < 2 else ({inner})) + (x[i] if i//3 == 2 else 1)")


@nasty(n=13)
def mixed_conditions_by_domain() -> Any:
    return pointwise("y[i] = x[i]*x[i+1] if i < 7 and x[i] > 0.3 else x[i]/x[i+1]")


@nasty(n=13)
def guarded_reduction_by_domain() -> Any:
    t = kernel("{[i,j]: 0<=i<n and 0<=j<7}", "if i > 4\n y[i] = sum(j, x[i+j]*x[j] if j < 3 else x[j])\nend", XY)
    return per_element(t)


@nasty(n=13)
def guarded_loop_nest() -> Any:
    text = """
    for i
        if i > 4
            for j
                a[i,j] = x[i]*x[j]
            end
        end
    end
    """
    return kernel("{[i,j]: 0<=i<n and 0<=j<7}", text, f"{XY}; a: float32[n,7]")
