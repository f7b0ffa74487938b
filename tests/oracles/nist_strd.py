"""NIST's Statistical Reference Datasets for nonlinear regression: 27 problems with certified solutions.

The files in ``tests/fit/nist_strd`` are NIST's own, unchanged: National Institute of Standards and Technology,
Statistical Reference Datasets, Nonlinear Regression (https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml); works
of the U.S. government, in the public domain. Each holds its data, its two starting points and its certified
parameters, standard deviations and residual sum of squares, in 11 digits, computed by NIST with 128-bit numbers.
"""

import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import mpmath
import numpy as np

FOLDER = Path(__file__).parents[1] / "fit" / "nist_strd"
# Certified values have 11 digits: more cannot be confirmed.
MOST_DIGITS = 11.0

_GAUSS = "p_1*exp(-p_2*f_x1) + p_3*exp(-(f_x1-p_4)**2/p_5**2) + p_6*exp(-(f_x1-p_7)**2/p_8**2)"
_LANCZOS = "p_1*exp(-p_2*f_x1) + p_3*exp(-p_4*f_x1) + p_5*exp(-p_6*f_x1)"
_CUBICS = "(p_1 + p_2*f_x1 + p_3*f_x1**2 + p_4*f_x1**3) / (1 + p_5*f_x1 + p_6*f_x1**2 + p_7*f_x1**3)"
_CHWIRUT = "exp(-p_1*f_x1) / (p_2 + p_3*f_x1)"
# Model strings, which are Python, too; but for the functions of two of them, which have no place in a model string.
_MODELS = {
    "Misra1a": "p_1*(1 - exp(-p_2*f_x1))", "Chwirut2": _CHWIRUT, "Chwirut1": _CHWIRUT, "Lanczos3": _LANCZOS,
    "Gauss1": _GAUSS, "Gauss2": _GAUSS, "DanWood": "p_1*f_x1**p_2", "Misra1b": "p_1*(1 - (1 + p_2*f_x1/2)**-2)",
    "Kirby2": "(p_1 + p_2*f_x1 + p_3*f_x1**2) / (1 + p_4*f_x1 + p_5*f_x1**2)", "Hahn1": _CUBICS,
    "Nelson": "p_1 - p_2*f_x1*exp(-p_3*f_x2)", "MGH17": "p_1 + p_2*exp(-f_x1*p_4) + p_3*exp(-f_x1*p_5)",
    "Lanczos1": _LANCZOS, "Lanczos2": _LANCZOS, "Gauss3": _GAUSS, "Misra1c": "p_1*(1 - (1 + 2*p_2*f_x1)**-0.5)",
    "Misra1d": "p_1*p_2*f_x1/(1 + p_2*f_x1)", "Roszman1": "p_1 - p_2*f_x1 - arctan(p_3/(f_x1 - p_4))/pi",
    "ENSO": "p_1 + p_2*cos(2*pi*f_x1/12) + p_3*sin(2*pi*f_x1/12) + p_5*cos(2*pi*f_x1/p_4) + p_6*sin(2*pi*f_x1/p_4)"
    " + p_8*cos(2*pi*f_x1/p_7) + p_9*sin(2*pi*f_x1/p_7)",
    "MGH09": "p_1*(f_x1**2 + f_x1*p_2) / (f_x1**2 + f_x1*p_3 + p_4)", "Thurber": _CUBICS,
    "BoxBOD": "p_1*(1 - exp(-p_2*f_x1))", "Rat42": "p_1/(1 + exp(p_2 - p_3*f_x1))",
    "MGH10": "p_1*exp(p_2/(f_x1 + p_3))", "Eckerle4": "(p_1/p_2)*exp(-0.5*((f_x1 - p_3)/p_2)**2)",
    "Rat43": "p_1/((1 + exp(p_2 - p_3*f_x1))**(1/p_4))", "Bennett5": "p_1*(p_2 + f_x1)**(-1/p_3)",
}  # fmt: skip
NAMES = tuple(_MODELS)


@cache
def _compiled(text):
    return compile(text, "model", "eval")


@dataclass(frozen=True)
class Certified:
    """A problem with NIST's solution.

    ``predictors`` and ``response`` are the file's decimals as texts; ``starts`` are start 1 (far) and start 2 (near).
    """

    name: str
    difficulty: str
    expression: str
    text: str
    response: tuple[str, ...]
    predictors: tuple[tuple[str, ...], ...]
    starts: tuple[tuple[float, ...], tuple[float, ...]]
    values: tuple[float, ...]
    deviations: tuple[float, ...]
    squares: float

    def formula(self, module, *values):
        """Return the model's value, by numpy or mpmath, from the predictors and the parameters."""
        names = [f"f_x{i + 1}" for i in range(len(self.predictors))] + [f"p_{i + 1}" for i in range(len(self.values))]
        known = {name: getattr(module, name) for name in ("exp", "sin", "cos", "pi")}
        known["arctan"] = np.arctan if module is np else mpmath.atan
        return eval(_compiled(self.text), {"__builtins__": {}}, {**known, **dict(zip(names, values, strict=True))})

    @property
    def y(self):
        """The response, shape (m,); Nelson's model is one of its logarithm."""
        values = np.array([float(text) for text in self.response])
        return np.log(values) if self.name == "Nelson" else values

    @property
    def x(self):
        """The predictors, shape (m,) each."""
        return tuple(np.array([float(text) for text in column]) for column in self.predictors)

    def named(self, values):
        """Return parameter values under their names in the model string."""
        return {f"p_{i + 1}": value for i, value in enumerate(values)}

    def residual(self, at):
        """Return the residual of the formula, shape (m,)."""
        with np.errstate(all="ignore"):
            return np.asarray(self.formula(np, *self.x, *at), dtype=np.float64) - self.y

    def exact_residual(self, at):
        """Return the residual of the file's decimals, rounded only at its end, shape (m,)."""
        with mpmath.workdps(40):
            point = [mpmath.mpf(float(value)) for value in at]
            return np.array([float(-difference) for difference in _differences(self, point)])

    def jacobian(self, at):
        """Return its derivatives to full precision, shape (m, n), by complex steps."""
        columns = []
        for index in range(len(at)):
            moved = np.array(at, dtype=np.complex128)
            moved[index] += 1e-100j
            with np.errstate(all="ignore"):
                columns.append(np.imag(self.formula(np, *self.x, *moved)) / 1e-100)
        return np.column_stack(columns)


@cache
def load(name):
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
    text = _MODELS[name]
    expression = "" if "pi" in text else text
    return Certified(
        name, level[1].lower(), expression, text, columns[0], tuple(columns[1:]), (first, second), values,
        deviations, float(squares[1]),
    )  # fmt: skip


def _points(problem):
    """Return predictors and response of each row in the digits that mpmath works with."""
    response = [mpmath.mpf(text) for text in problem.response]
    response = [mpmath.log(value) for value in response] if problem.name == "Nelson" else response
    predictors = zip(*([mpmath.mpf(text) for text in column] for column in problem.predictors), strict=True)
    return list(zip(predictors, response, strict=True))


def _differences(problem, at):
    return [y - problem.formula(mpmath, *x, *at) for x, y in _points(problem)]


def digits(found, certified):
    """Return the digits in which all numbers agree: the least -log10 of the relative difference, at most 11."""
    error = np.max(np.abs(np.asarray(found) / np.asarray(certified) - 1))
    if not np.isfinite(error):
        return 0.0
    return MOST_DIGITS if error == 0 else float(np.clip(-math.log10(error), 0.0, MOST_DIGITS))
