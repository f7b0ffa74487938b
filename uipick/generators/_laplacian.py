"""The Laplacian by central differences, as the text of an instruction."""

from __future__ import annotations

import numpy as np

# Central differences for the second derivative of order 2 radius: centre, one step away, two, ...
# Source: Fornberg, Mathematics of Computation 51 (1988), Table 1.
_SECOND_DERIVATIVE = {
    1: (-2.0, 1.0),
    2: (-5 / 2, 4 / 3, -1 / 12),
    3: (-49 / 18, 3 / 2, -3 / 20, 1 / 90),
    4: (-205 / 72, 8 / 5, -1 / 5, 8 / 315, -1 / 560),
}
LAPLACIAN_RADII = tuple(_SECOND_DERIVATIVE)


def laplacian(terms: list[list[str]], radius: int, dtype: str, factor: float) -> str:
    """Return a factor times the Laplacian of order 2 radius in three dimensions.

    Parameters
    ----------
    terms
        Terms that stand for the neighbours, grouped by distance; the first group is the centre alone.
    radius
        Grid steps that the differences reach, one of `LAPLACIAN_RADII`.
    dtype
        Element type.
    factor
        Folded into the coefficients; in units of one over the squared grid spacing.
    """
    centre, *others = _SECOND_DERIVATIVE[radius]
    # Rounded to the element type, or loopy would take the whole sum for double precision.
    # 3: the centre belongs to the second derivatives along all three axes.
    weights = [float(np.dtype(dtype).type(factor * weight)) for weight in (3 * centre, *others)]
    sums = [f"({' + '.join(group)})" for group in terms]
    # A factor of 1 would be computed, but is no work to speak of.
    return " + ".join(
        total if weight == 1 else f"({weight!r})*{total}" for weight, total in zip(weights, sums, strict=True)
    )
