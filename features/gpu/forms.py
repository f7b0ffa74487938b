"""Quasi-affine functions of instances, with numbers for sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from perflex.features.polynomials.computed_once import computed_once

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Form:
    """A quasi-affine function of instances: ``(constant + sum of coefficient * dimension or floor) / denominator``.

    Attributes
    ----------
    constant, denominator
        As above; the division leaves no rest.
    terms
        (dimension, coefficient).
    floors
        (function, coefficient): the function is rounded down.
    """

    constant: int
    terms: tuple[tuple[int, int], ...]
    floors: tuple[tuple[Form, int], ...] = ()
    denominator: int = 1

    @computed_once
    def dims(self) -> frozenset[int]:
        """Dimensions it depends on."""
        return frozenset(dim for dim, _ in self.terms).union(*(form.dims for form, _ in self.floors))

    @computed_once
    def floor_dims(self) -> frozenset[int]:
        """Dimensions that are not merely added."""
        if self.denominator != 1:
            return self.dims
        return frozenset[int]().union(*(form.dims for form, _ in self.floors))

    def coefficient(self, dim: int) -> int:
        """Return the coefficient of a dimension that is merely added."""
        return dict(self.terms).get(dim, 0)

    def bounds(self, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return limits of its values, which floors that cancel may make too wide."""
        low = high = self.constant
        spans = [(ranges[dim], coefficient) for dim, coefficient in self.terms]
        spans += [(form.bounds(ranges), coefficient) for form, coefficient in self.floors]
        for (start, end), coefficient in spans:
            low += coefficient * (start if coefficient > 0 else end)
            high += coefficient * (end if coefficient > 0 else start)
        # Rounding down is monotone: limits of the quotient are the quotients of the limits.
        return low // self.denominator, high // self.denominator

    def values(self, points: Mapping[int, np.ndarray]) -> np.ndarray:
        """Return its values at points given by arrays for each dimension, which broadcast."""
        total: np.ndarray = np.asarray(self.constant, dtype=np.int64)
        for dim, coefficient in self.terms:
            total = total + coefficient * points[dim]
        for form, coefficient in self.floors:
            total = total + coefficient * form.values(points)
        return total if self.denominator == 1 else total // self.denominator
