"""The implicit Runge-Kutta methods Radau IIA, as collocation methods."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


@lru_cache(maxsize=8)
def radau_iia(stages: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the coefficients of the Radau IIA method with s stages, of order 2 s - 1.

    Its nodes are the zeros of the derivative of order s - 1 of ``x**(s-1) (x-1)**s``; the last is 1, so the weights are
    the last row of the matrix.

    Parameters
    ----------
    stages
        Number of stages s, 1 to 8.

    Returns
    -------
    matrix, nodes
        The matrix a of the Butcher table, shape ``(s, s)``, and the nodes c, shape ``(s,)``, dimensionless.

    Source: Hairer and Wanner, Solving Ordinary Differential Equations II, Section IV.5.
    """
    polynomial = np.polynomial.Polynomial
    x = polynomial([0.0, 1.0])
    # All nodes are real; rounding may leave imaginary parts.
    nodes = np.sort((x ** (stages - 1) * (x - 1) ** stages).deriv(stages - 1).roots().real)
    matrix = np.empty((stages, stages))
    for column, node in enumerate(nodes):
        others = np.delete(nodes, column)
        basis = polynomial.fromroots(others) / np.prod(node - others)
        # Collocation: a[i, j] is the integral of the j-th Lagrange polynomial from 0 to c[i].
        matrix[:, column] = basis.integ()(nodes)
    return matrix, nodes
