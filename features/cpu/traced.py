"""Values of a kernel's sizes, loop extents and blocks: plain numbers, arrays, or polynomials that know their value.

Conditions are computed once with plain numbers or arrays, for speed, and once with polynomials, for people: a
comparison is decided by the value, so the polynomial is the one that holds around the sizes given.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import reduce
from math import gcd, lcm
from typing import Any

import numpy as np

from perflex.features.cpu.nests import LANE, Loop, Nest, StreamGroup
from perflex.features.cpu.polynomial import Polynomial, floor_text
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial


class Traced:
    """A polynomial over named sizes, its value at the sizes that were given, and these (`known`)."""

    __slots__ = ("known", "polynomial", "value")

    def __init__(self, polynomial: Polynomial, value: float, known: Mapping[str, float] | None = None) -> None:
        self.polynomial = polynomial
        self.value = value
        self.known = known or {}

    @classmethod
    def symbol(cls, name: str, value: float, power: int = 1) -> Traced:
        """Return a power of a size."""
        return cls(Polynomial.power(name, power), value**power, {name: value})

    @classmethod
    def of(cls, number: Any) -> Traced:
        """Return a traced number as it is, and a plain one as a constant."""
        return number if isinstance(number, Traced) else cls(Polynomial.constant(number), float(number))

    def __add__(self, other: Any) -> Traced:
        more = self.of(other)
        return Traced(self.polynomial + more.polynomial, self.value + more.value, {**self.known, **more.known})

    __radd__ = __add__

    def __neg__(self) -> Traced:
        return self * -1

    def __sub__(self, other: Any) -> Traced:
        return self + self.of(other) * -1

    def __rsub__(self, other: Any) -> Traced:
        return self.of(other) - self

    def __mul__(self, other: Any) -> Traced:
        more = self.of(other)
        return Traced(self.polynomial * more.polynomial, self.value * more.value, {**self.known, **more.known})

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Traced:
        return self * (1 / Fraction(other))

    def __ge__(self, other: Any) -> bool:
        return self.value >= self.of(other).value

    def __gt__(self, other: Any) -> bool:
        return self.value > self.of(other).value

    def __le__(self, other: Any) -> bool:
        return self.value <= self.of(other).value

    def __lt__(self, other: Any) -> bool:
        return self.value < self.of(other).value

    def __str__(self) -> str:
        return str(self.polynomial)


def select(condition: Any, yes: Any, no: Any) -> Any:
    """Return `yes` where the condition holds, else `no`; element by element for arrays."""
    return np.where(condition, yes, no) if isinstance(condition, np.ndarray) else (yes if condition else no)


def plain(value: Any) -> Any:
    """Return an array as it is, and a single number as a float."""
    return value if np.ndim(value) else float(value)


def as_number(number: Any) -> Any:
    """Return the value of a traced number, and others as they are."""
    return number.value if isinstance(number, Traced) else number


def is_multiple(number: Any, of: int) -> Any:
    """Return whether a number is a multiple, for traced ones at the sizes given."""
    return as_number(number) % of == 0


def common_divisor(one: Any, other: Any) -> Any:
    """Return the greatest common divisor of two whole numbers, for traced ones at the sizes given."""
    plain = [round(number.value) if isinstance(number, Traced) else number for number in (one, other)]
    if any(isinstance(number, np.ndarray) for number in plain):
        return np.gcd(*(np.asarray(number).astype(np.int64) for number in plain))
    return gcd(*(round(number) for number in plain))


def smaller(one: Any, two: Any) -> Any:
    """Return the smaller of two numbers, element by element for arrays."""
    return select(one <= two, one, two)


def larger(one: Any, two: Any) -> Any:
    """Return the larger of two numbers, element by element for arrays."""
    return select(one >= two, one, two)


def at_least(number: Any, least: float) -> Any:
    """Return the number, or the least value it can have."""
    return select(number >= least, number, least)


def trace(polynomial: QuasiPolynomial, sizes: Mapping[str, Any]) -> Traced:
    """Return a size of the kernel as a traced number: the piece that holds at the sizes given."""
    # Comparisons of traced numbers are decided by their values, so one piece is enough: the one at these sizes.
    piece = next((piece for piece in polynomial.pieces if piece.holds(sizes)), None)
    if piece is None:
        return Traced.of(0)
    known: dict[str, float] = {}
    for term in piece.terms:
        for base, _ in term.powers:
            known |= {base: sizes[base]} if isinstance(base, str) else {floor_text(base): base(sizes)}
    return Traced(Polynomial.of_piece(piece), float(polynomial.evaluate(sizes)), known)


def inequality(needed: Traced, available: int, *, strict: bool) -> str:
    """Return ``needed <= available`` in bytes as text, with the common factor taken out.

    >>> n = Traced.symbol("N", 100)
    >>> inequality(48 * n - 32, 32768, strict=False)
    '3*N <= 2050'
    """
    terms = needed.polynomial.terms
    left = Polynomial({monomial: factor for monomial, factor in terms.items() if monomial})
    right = Fraction(available) - terms.get((), Fraction(0))
    coefficients = [*left.terms.values(), right]
    scale = Fraction(lcm(*(factor.denominator for factor in coefficients)))
    # Whole numbers without a common factor read best; `or 1` is for an inequality of zeros.
    scale /= Fraction(reduce(gcd, (int(factor * scale) for factor in coefficients), 0) or 1)
    return f"{left * Polynomial.constant(scale)} {'<' if strict else '<='} {int(right * scale)}"


class NestValues:
    """Evaluates what descriptions say at sizes and block sizes (by loop): numbers, or arrays of one shape.

    If `traced`, values are polynomials of sizes and block sizes. Extents are those of a core's part where work is dealt
    to `cores` (all of which have some), on average.
    """

    def __init__(
        self, sizes: Mapping[str, Any], blocks: Mapping[str, Any], *, traced: bool = False, cores: Any = 1
    ) -> None:
        self.cores = cores
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
                self._known[key] = plain(polynomial.evaluate(self._sizes))
        return self._known[key]

    def begins(self, group: StreamGroup) -> Any:
        """Return what `StreamGroup.begins` says; None where it depends on iterations that are not given."""
        begins = group.begins
        if begins is None or isinstance(begins, int):
            return begins
        return self.size(begins) if all(name in self._sizes for name in begins.parameters) else None

    def length(self, loop: Loop) -> Any:
        """Return the iterations of a loop, or of all its blocks: at given iterations of others, else the largest."""
        varying = loop.varying
        if varying is None or any(name not in self._sizes for name in varying.parameters):
            return self.size(loop.extent)
        return self.size(varying)

    def scales(self, nest: Nest) -> dict[str, Any]:
        """Return the block size of each loop that is blocked, by its base; the whole loop's extent if it has none."""
        return {loop.base: self._block(loop) for loop in nest.loops if loop.part == "outer"}

    def _block(self, loop: Loop) -> Any:
        given = self._blocks.get(loop.base)
        value = loop.block if given is None else given
        if value is None:
            return self.length(loop)
        return Traced.symbol(loop.base, float(value)) if self._traced else plain(value)

    def of_parts(self, number: Any) -> NestValues:
        """Return the values for the parts of so many cores, side by side, as one."""
        return NestValues(self._sizes, self._blocks, traced=self._traced, cores=self.cores / number)

    def extents(self, nest: Nest) -> tuple[Any, ...]:
        """Return the iterations of each loop."""
        extents = list(self.whole_extents(nest))
        if np.any(self.cores != 1):
            # What cores leave of an outer loop, an iteration for each, is dealt along the next one.
            before: Any = 1.0
            for place in nest.dealt_loops:
                dealt = before * extents[place]
                own = select(before < self.cores, at_least(dealt / self.cores, 1.0), extents[place])
                before, extents[place] = dealt, own
        return tuple(extents)

    def whole_extents(self, nest: Nest) -> tuple[Any, ...]:
        """Return the iterations of each loop, on all cores together."""
        scales = self.scales(nest)
        return tuple(self._extent(nest, loop, scales) for loop in nest.loops)

    def _extent(self, nest: Nest, loop: Loop, scales: Mapping[str, Any]) -> Any:
        if loop.fold > 1:
            return at_least(self.length(loop) / loop.fold, 1)
        if loop.part == "whole":
            return at_least(self.length(loop), 1)
        block = scales[loop.base]
        if loop.part == "inner":
            if loop.base not in self._blocks and not self._traced:
                return at_least(self.length(loop), 1)
            lane = next((self.size(other.extent) for other in nest.loops if other.name == LANE), 1)
            lanes = lane.value if isinstance(lane, Traced) else lane
            # Lanes are a loop of their own inside, so that this one counts vectors.
            inner = block / lanes if loop.base == "lid0" else block
            return inner if loop.block is not None else smaller(inner, at_least(self.length(loop), 1))
        # A last block that is not full counts for its part.
        total = self.length(loop)
        if self._traced:
            return at_least(total * Traced.symbol(loop.base, block.value, -1), 1.0)
        return at_least(total / block, 1.0)
