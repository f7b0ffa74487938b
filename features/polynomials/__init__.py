"""Numbers of points of parametric sets, as piecewise quasi-polynomials in the size parameters."""
