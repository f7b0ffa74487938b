"""Sizes of unions, intersections and differences of products of integer sets, without listing their points.

Along each axis, integers that belong to the same of all sets involved are one atom with a weight; a set of products
then is a small array of truth values over atoms.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features.gpu.intervals import Intervals


class Atoms:
    """A common decomposition of several unions of products.

    Parameters
    ----------
    unions
        For each union its products, each a tuple of one set for each axis; all have equally many axes.
    """

    def __init__(self, unions: Sequence[Sequence[tuple[Intervals, ...]]]) -> None:
        products = [product for union in unions for product in union]
        axes = len(products[0])
        members: list[np.ndarray] = []
        weights: list[np.ndarray] = []
        for axis in range(axes):
            matrix, weight = _atoms([product[axis] for product in products])
            members.append(matrix)
            weights.append(weight)
        self._weights = weights
        self.masks: list[np.ndarray] = []
        first = 0
        for union in unions:
            self.masks.append(_mask([matrix[first : first + len(union)] for matrix in members]))
            first += len(union)

    def size(self, mask: np.ndarray) -> int:
        """Return the number of points of a set."""
        # Contracted axis by axis, the weights' outer product is never formed; float64 is exact up to 2**53 points.
        total = mask.reshape(tuple(len(weight) for weight in self._weights)).astype(np.float64)
        for weight in reversed(self._weights):
            total = total @ weight
        return int(total)


def _atoms(sets: Sequence[Intervals]) -> tuple[np.ndarray, np.ndarray]:
    """Return which sets (rows) the atoms (columns) belong to, and how many integers each atom has."""
    distinct: dict[int, int] = {}
    # Equal axes of accesses are one object (`Toucher._fill`), so identity finds repeated sets without comparing them.
    rows = [distinct.setdefault(id(item), len(distinct)) for item in sets]
    unique = {id(item): item for item in sets}
    different = [unique[key] for key in distinct]
    edges = np.unique(np.concatenate([item.starts for item in different] + [item.ends + 1 for item in different]))
    matrix = np.zeros((len(different), len(edges)), dtype=np.int8)
    for number, item in enumerate(different):
        if len(item.starts) == 1:
            first, last = np.searchsorted(edges, (item.starts[0], item.ends[0] + 1))
            matrix[number, first:last] = 1
        elif len(item.starts):
            change = np.zeros(len(edges), dtype=np.int8)
            change[np.searchsorted(edges, item.starts)] = 1
            change[np.searchsorted(edges, item.ends + 1)] -= 1
            matrix[number] = np.cumsum(change, dtype=np.int8)
    matrix = matrix[:, :-1]
    lengths: np.ndarray = np.diff(edges).astype(np.float64)
    # Regular patterns have many intervals but few kinds: those in the same sets become one atom. Looking for them
    # pays only where there are many more intervals than sets.
    if matrix.shape[1] > 4 * len(different) + 8:
        packed = np.packbits(matrix.astype(bool), axis=0)
        words = np.ascontiguousarray(packed.T).view(np.dtype((np.void, packed.shape[0]))).ravel()
        _, first_of, kind = np.unique(words, return_index=True, return_inverse=True)
        lengths = np.bincount(kind.ravel(), weights=lengths)
        matrix = matrix[:, first_of]
    # numpy hands products of float matrices to BLAS, those of integers not (`_mask`).
    return matrix[rows].astype(np.float32), lengths


def _mask(members: list[np.ndarray]) -> np.ndarray:
    """Return which combinations of atoms (flattened) any product contains, given its atoms on each axis."""
    # An empty union (a wave has no set before it) still needs a mask over the common atoms.
    if not len(members[0]):
        return np.zeros(prod(matrix.shape[1] for matrix in members), dtype=bool)
    left = np.ones((len(members[0]), 1), dtype=np.float32)
    for matrix in members[:-1]:
        left = (left[:, :, None] * matrix[:, None, :]).reshape(len(matrix), -1)
    # The product of matrices counts, for each combination of atoms, the products that contain it.
    mask: np.ndarray = (left.T @ members[-1]).ravel() > 0.5
    return mask
