"""Values of a kernel's sizes, loop extents and block sizes: plain numbers, arrays, or traced polynomials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.traced import Traced, at_least, smaller, trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.cpu.nests import Loop, Nest
    from perflex.features.polynomials.quasipolynomial import QuasiPolynomial


class NestValues:
    """Evaluates what descriptions say at given sizes.

    Parameters
    ----------
    sizes
        Value of each size, or arrays of one shape.
    blocks
        Block sizes by name of the loop, likewise.
    traced
        Whether to return polynomials of sizes and block sizes.
    """

    def __init__(self, sizes: Mapping[str, Any], blocks: Mapping[str, Any], *, traced: bool = False) -> None:
        self._sizes = sizes
        self._blocks = blocks
        self._traced = traced
        self._known: dict[str, Any] = {}

    def size(self, polynomial: QuasiPolynomial) -> Any:
        """Return the value of a polynomial in the sizes."""
        # `read_nests` had texts printed under isl's lock, so that this look-up needs none.
        key = polynomial.text
        if key not in self._known:
            if self._traced:
                self._known[key] = trace(polynomial, self._sizes)
            else:
                value = polynomial.evaluate(self._sizes)
                self._known[key] = value if isinstance(value, np.ndarray) else float(value)
        return self._known[key]

    def length(self, loop: Loop) -> Any:
        """Return the iterations of a loop, or of all its blocks: at given iterations of others, else the largest."""
        varying = loop.varying
        if varying is None or any(name not in self._sizes for name in varying.parameters):
            return self.size(loop.extent)
        return self.size(varying)

    def block(self, loop: Loop) -> Any:
        """Return the block size of a loop that is blocked, whole loops' extent if it has none."""
        given = self._blocks.get(loop.base)
        value = loop.block if given is None else given
        if value is None:
            return self.length(loop)
        if self._traced:
            return Traced.symbol(loop.base, float(value))
        return value if isinstance(value, np.ndarray) else float(value)

    def scale(self, base: str | None) -> Any:
        """Return what the steps of a loop over blocks are multiplied by."""
        return 1 if base is None else self._scales[base]

    def extents(self, nest: Nest) -> tuple[Any, ...]:
        """Return the iterations of each loop."""
        # `scale` reads these: a nest's extents have to be asked for before its steps.
        self._scales = {loop.base: self.block(loop) for loop in nest.loops if loop.part == "outer"}
        return tuple(self._extent(nest, loop) for loop in nest.loops)

    def _extent(self, nest: Nest, loop: Loop) -> Any:
        given = self._blocks.get(loop.base)
        if loop.fold > 1:
            return at_least(self.length(loop) / loop.fold, 1)
        if loop.part == "whole":
            return at_least(self.length(loop), 1)
        block = self._scales[loop.base]
        if loop.part == "inner":
            if given is None and not self._traced:
                return at_least(self.length(loop), 1)
            lane = next((self.size(other.extent) for other in nest.loops if other.name == "lane"), 1)
            lanes = lane.value if isinstance(lane, Traced) else lane
            # Lanes are a loop of their own inside, so that this one counts vectors.
            inner = block / lanes if loop.base == "lid0" else block
            return inner if loop.block is not None else smaller(inner, at_least(self.length(loop), 1))
        # A last block that is not full counts for its part.
        total = self.length(loop)
        if self._traced:
            return at_least(total * Traced.symbol(loop.base, block.value, -1), 1.0)
        return at_least(total / block, 1.0)
