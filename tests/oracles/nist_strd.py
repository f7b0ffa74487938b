"""NIST's Statistical Reference Datasets for nonlinear regression: 27 problems with certified solutions.

The files in ``tests/fit/nist_strd`` are NIST's own, unchanged: National Institute of Standards and Technology,
Statistical Reference Datasets, Nonlinear Regression (https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml); works
of the U.S. government, in the public domain. Each holds its data, its two starting points and its certified
parameters, standard deviations and residual sum of squares, in 11 digits, computed by NIST with 128-bit numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import mpmath
import numpy as np

FOLDER = Path(__file__).parents[1] / "fit" / "nist_strd"
# Certified values have 11 digits: more cannot be confirmed.
MOST_DIGITS = 11.0

# A model takes the module of its functions (numpy or mpmath), the predictors and the parameters.
Formula = Callable[..., Any]


def _enso(m: Any, x: Any, *b: Any) -> Any:
    def wave(period: Any, cosine: Any, sine: Any) -> Any:
        return cosine * m.cos(2 * m.pi * x / period) + sine * m.sin(2 * m.pi * x / period)

    return b[0] + wave(12, b[1], b[2]) + wave(b[3], b[4], b[5]) + wave(b[6], b[7], b[8])


def _roszman(m: Any, x: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    arctan = m.arctan if m is np else m.atan
    return a - b * x - arctan(c / (x - d)) / m.pi


def _gauss(m: Any, x: Any, *b: Any) -> Any:
    bells = b[2] * m.exp(-((x - b[3]) ** 2) / b[4] ** 2) + b[5] * m.exp(-((x - b[6]) ** 2) / b[7] ** 2)
    return b[0] * m.exp(-b[1] * x) + bells


def _lanczos(m: Any, x: Any, *b: Any) -> Any:
    return b[0] * m.exp(-b[1] * x) + b[2] * m.exp(-b[3] * x) + b[4] * m.exp(-b[5] * x)


def _cubics(_: Any, x: Any, *b: Any) -> Any:
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


_GAUSS = "p_1*exp(-p_2*f_x1) + p_3*exp(-(f_x1-p_4)**2/p_5**2) + p_6*exp(-(f_x1-p_7)**2/p_8**2)"
_LANCZOS = "p_1*exp(-p_2*f_x1) + p_3*exp(-p_4*f_x1) + p_5*exp(-p_6*f_x1)"
_CUBICS = "(p_1 + p_2*f_x1 + p_3*f_x1**2 + p_4*f_x1**3) / (1 + p_5*f_x1 + p_6*f_x1**2 + p_7*f_x1**3)"
_CHWIRUT = ("exp(-p_1*f_x1) / (p_2 + p_3*f_x1)", lambda m, x, a, b, c: m.exp(-a * x) / (b + c * x))

# Name, the model as a model string (empty where its functions have no place in one), and as a formula.
_MODELS: dict[str, tuple[str, Formula]] = {
    "Misra1a": ("p_1*(1 - exp(-p_2*f_x1))", lambda m, x, a, b: a * (1 - m.exp(-b * x))),
    "Chwirut2": _CHWIRUT,
    "Chwirut1": _CHWIRUT,
    "Lanczos3": (_LANCZOS, _lanczos),
    "Gauss1": (_GAUSS, _gauss),
    "Gauss2": (_GAUSS, _gauss),
    "DanWood": ("p_1*f_x1**p_2", lambda _, x, a, b: a * x**b),
    "Misra1b": ("p_1*(1 - (1 + p_2*f_x1/2)**-2)", lambda _, x, a, b: a * (1 - (1 + b * x / 2) ** -2)),
    "Kirby2": (
        "(p_1 + p_2*f_x1 + p_3*f_x1**2) / (1 + p_4*f_x1 + p_5*f_x1**2)",
        lambda _, x, *b: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    ),
    "Hahn1": (_CUBICS, _cubics),
    "Nelson": ("p_1 - p_2*f_x1*exp(-p_3*f_x2)", lambda m, x, z, a, b, c: a - b * x * m.exp(-c * z)),
    "MGH17": (
        "p_1 + p_2*exp(-f_x1*p_4) + p_3*exp(-f_x1*p_5)",
        lambda m, x, *b: b[0] + b[1] * m.exp(-x * b[3]) + b[2] * m.exp(-x * b[4]),
    ),
    "Lanczos1": (_LANCZOS, _lanczos),
    "Lanczos2": (_LANCZOS, _lanczos),
    "Gauss3": (_GAUSS, _gauss),
    "Misra1c": ("p_1*(1 - (1 + 2*p_2*f_x1)**-0.5)", lambda m, x, a, b: a * (1 - 1 / m.sqrt(1 + 2 * b * x))),
    "Misra1d": ("p_1*p_2*f_x1/(1 + p_2*f_x1)", lambda _, x, a, b: a * b * x / (1 + b * x)),
    "Roszman1": ("", _roszman),
    "ENSO": ("", _enso),
    "MGH09": (
        "p_1*(f_x1**2 + f_x1*p_2) / (f_x1**2 + f_x1*p_3 + p_4)",
        lambda _, x, a, b, c, d: a * (x**2 + x * b) / (x**2 + x * c + d),
    ),
    "Thurber": (_CUBICS, _cubics),
    "BoxBOD": ("p_1*(1 - exp(-p_2*f_x1))", lambda m, x, a, b: a * (1 - m.exp(-b * x))),
    "Rat42": ("p_1/(1 + exp(p_2 - p_3*f_x1))", lambda m, x, a, b, c: a / (1 + m.exp(b - c * x))),
    "MGH10": ("p_1*exp(p_2/(f_x1 + p_3))", lambda m, x, a, b, c: a * m.exp(b / (x + c))),
    "Eckerle4": (
        "(p_1/p_2)*exp(-0.5*((f_x1 - p_3)/p_2)**2)",
        lambda m, x, a, b, c: a / b * m.exp(-(((x - c) / b) ** 2) / 2),
    ),
    "Rat43": (
        "p_1/((1 + exp(p_2 - p_3*f_x1))**(1/p_4))",
        lambda m, x, a, b, c, d: a / (1 + m.exp(b - c * x)) ** (1 / d),
    ),
    "Bennett5": ("p_1*(p_2 + f_x1)**(-1/p_3)", lambda _, x, a, b, c: a * (b + x) ** (-1 / c)),
}
NAMES = tuple(_MODELS)


@dataclass(frozen=True)
class Certified:
    """A problem with NIST's solution.

    ``predictors`` and ``response`` are the file's decimals as texts; ``starts`` are start 1 (far) and start 2 (near).
    """

    name: str
    difficulty: str
    expression: str
    formula: Formula
    response: tuple[str, ...]
    predictors: tuple[tuple[str, ...], ...]
    starts: tuple[tuple[float, ...], tuple[float, ...]]
    values: tuple[float, ...]
    deviations: tuple[float, ...]
    squares: float

    @property
    def y(self) -> np.ndarray:
        """The response, shape (m,); Nelson's model is one of its logarithm."""
        values = np.array([float(text) for text in self.response])
        return np.log(values) if self.name == "Nelson" else values

    @property
    def x(self) -> tuple[np.ndarray, ...]:
        """The predictors, shape (m,) each."""
        return tuple(np.array([float(text) for text in column]) for column in self.predictors)

    def named(self, values: tuple[float, ...]) -> dict[str, float]:
        """Return parameter values under their names in the model string."""
        return {f"p_{i + 1}": value for i, value in enumerate(values)}

    def residual(self, at: np.ndarray) -> np.ndarray:
        """Return the residual of the formula, shape (m,)."""
        with np.errstate(all="ignore"):
            return np.asarray(self.formula(np, *self.x, *at), dtype=np.float64) - self.y

    def exact_residual(self, at: np.ndarray) -> np.ndarray:
        """Return the residual of the file's decimals, rounded only at its end, shape (m,)."""
        with mpmath.workdps(40):
            point = [mpmath.mpf(float(value)) for value in at]
            return np.array([float(-difference) for difference in _differences(self, point)])

    def jacobian(self, at: np.ndarray) -> np.ndarray:
        """Return its derivatives to full precision, shape (m, n), by complex steps."""
        columns = []
        for index in range(len(at)):
            moved = np.array(at, dtype=np.complex128)
            moved[index] += 1e-100j
            with np.errstate(all="ignore"):
                columns.append(np.imag(self.formula(np, *self.x, *moved)) / 1e-100)
        return np.column_stack(columns)


@cache
def load(name: str) -> Certified:
    """Read a problem from NIST's file."""
    text = (FOLDER / f"{name}.dat").read_text(encoding="ascii")
    level = re.search(r"(Lower|Average|Higher) Level of Difficulty", text)
    squares = re.search(r"Residual Sum of Squares:\s+(\S+)", text)
    assert level, name
    assert squares, name
    rows = [line.split()[2:] for line in text.splitlines() if re.match(r"\s+b\d+ =", line)]
    first, second, values, deviations = (tuple(float(row[i]) for row in rows) for i in range(4))
    data = text[text.rindex("Data:") :].splitlines()[1:]
    columns = list(zip(*(line.split() for line in data if line.strip()), strict=True))
    expression, formula = _MODELS[name]
    return Certified(
        name,
        level[1].lower(),
        expression,
        formula,
        columns[0],
        tuple(columns[1:]),
        (first, second),
        values,
        deviations,
        float(squares[1]),
    )


def _points(problem: Certified) -> list[tuple[tuple[Any, ...], Any]]:
    """Return predictors and response of each row in the digits that mpmath works with."""
    response = [mpmath.mpf(text) for text in problem.response]
    response = [mpmath.log(value) for value in response] if problem.name == "Nelson" else response
    predictors = zip(*([mpmath.mpf(text) for text in column] for column in problem.predictors), strict=True)
    return list(zip(predictors, response, strict=True))


def _differences(problem: Certified, at: list[Any]) -> list[Any]:
    return [y - problem.formula(mpmath, *x, *at) for x, y in _points(problem)]


def high_precision(problem: Certified) -> tuple[list[float], list[float], float]:
    """Return parameters, standard deviations and sum of squares by Gauss-Newton in 50 digits."""
    with mpmath.workdps(50):
        points = _points(problem)
        at = [mpmath.mpf(value) for value in problem.values]
        tiny = mpmath.mpf(10) ** -20
        for _ in range(4):
            residual = mpmath.matrix(_differences(problem, at))
            jacobian = mpmath.matrix(len(points), len(at))
            for column in range(len(at)):
                moved = [*at[:column], mpmath.mpc(at[column], tiny), *at[column + 1 :]]
                for row, (x, _y) in enumerate(points):
                    jacobian[row, column] = mpmath.im(problem.formula(mpmath, *x, *moved)) / tiny
            normal = jacobian.T * jacobian
            step = mpmath.lu_solve(normal, jacobian.T * residual)
            at = [value + change for value, change in zip(at, step, strict=True)]
        squares = sum(difference**2 for difference in _differences(problem, at))
        inverse = normal**-1
        freedom = len(points) - len(at)
        deviations = [mpmath.sqrt(inverse[i, i] * squares / freedom) for i in range(len(at))]
        return [float(v) for v in at], [float(v) for v in deviations], float(squares)


def digits(found: Any, certified: Any) -> float:
    """Return the digits in which all numbers agree: the least -log10 of the relative difference, at most 11."""
    error = np.max(np.abs(np.asarray(found) / np.asarray(certified) - 1))
    if not np.isfinite(error):
        return 0.0
    return MOST_DIGITS if error == 0 else float(np.clip(-math.log10(error), 0.0, MOST_DIGITS))
