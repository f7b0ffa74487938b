"""Piecewise quasi-polynomials in the size parameters: exact symbolic counts that evaluate fast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np

from perflex.errors import MissingSizeError
from perflex.features.polynomials.cardinality import SUM_LIMIT, TooManyOperationsError, card, card_at, limited
from perflex.features.polynomials.pieces import Piece, read_piece
from perflex.isl import ISL_LOCK, SetText, computed_once, isl, parsed

# A polynomial and sets.
_Product = tuple["QuasiPolynomial", tuple[SetText, ...]]


class QuasiPolynomial:
    """An exact count (or stride) as a function of the size parameters.

    Wraps an ``isl.PwQPolynomial`` without set dimensions. Hashable, picklable, comparable; adds and
    multiplies symbolically; evaluates with exact integer arithmetic.

    Parameters
    ----------
    isl_object
        The symbolic part, or how isl prints it: then it is only parsed if isl has to work with it.
    deferred
        What is added to it: products of a polynomial and the numbers of points of some sets, which are
        counted when sizes are given because doing so symbolically takes too long. A polynomial without sets is
        one that takes too long to add.
    """

    def __init__(self, isl_object: Any, deferred: tuple[_Product, ...] = ()) -> None:
        self.__dict__["text" if isinstance(isl_object, str) else "isl_object"] = isl_object
        self.deferred = deferred

    def __reduce__(self) -> tuple[Any, ...]:
        return QuasiPolynomial, (self.text, self.deferred)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuasiPolynomial):
            return NotImplemented
        # By text, which needs no parsing: equal texts are equal counts, while unequal ones need not differ.
        return self.text == other.text and self.deferred == other.deferred

    def __hash__(self) -> int:
        return hash((self.text, self.deferred))

    @classmethod
    def points(cls, domain: Any, assumptions: Any) -> QuasiPolynomial:
        """Return the number of points of an isl set, for sizes that fulfil the assumptions."""
        try:
            return cls(card(domain, assumptions))
        except TooManyOperationsError:
            return cls.points_at_sizes(domain, assumptions)

    @classmethod
    def points_at_sizes(cls, domain: Any, assumptions: Any) -> QuasiPolynomial:
        """Return the number of points of an isl set, to be counted when sizes are given."""
        return cls("{ 0 }", ((cls.constant(1), (SetText(domain.intersect_params(assumptions)),)),))

    @classmethod
    def constant(cls, value: int) -> QuasiPolynomial:
        """Return the polynomial that is `value` everywhere."""
        return cls(f"{{ {value} }}")

    @classmethod
    def total(cls, parts: Iterable[QuasiPolynomial]) -> QuasiPolynomial:
        """Return the sum of quasi-polynomials; 0 of none."""
        return sum(parts, start=cls.constant(0))

    @classmethod
    def parse(cls, text: str) -> QuasiPolynomial:
        """Return the polynomial of isl's notation, e.g. ``"[n] -> { 16 * n }"``."""
        return cls(isl.PwQPolynomial(text))

    @computed_once
    def text(self) -> str:
        """The symbolic part in isl's notation."""
        return str(self.isl_object)

    @computed_once
    def isl_object(self) -> Any:
        """The symbolic part, an ``isl.PwQPolynomial``."""
        return parsed(isl.PwQPolynomial, self.text)

    @computed_once
    def parameters(self) -> tuple[str, ...]:
        """Names of the size parameters the value may depend on."""
        space = self.isl_object.space
        declared = [space.get_dim_name(isl.dim_type.param, i) for i in range(space.dim(isl.dim_type.param))]
        deferred: list[str] = []
        for factor, domains in self.deferred:
            deferred += factor.parameters
            deferred += [name for one in domains for name in one.parsed.get_var_names(isl.dim_type.param)]
        used = set(deferred).union(*(piece.names() for piece in self.pieces))
        return tuple(name for name in dict.fromkeys((*declared, *deferred)) if name in used)

    @computed_once
    def pieces(self) -> tuple[Piece, ...]:
        """The symbolic part taken apart, for evaluation."""
        if "piece_records" in self.__dict__:
            return msgspec.convert(self.__dict__["piece_records"], tuple[Piece, ...])
        pieces: list[tuple[Any, Any]] = []
        with ISL_LOCK:
            self.isl_object.foreach_piece(lambda domain, polynomial: pieces.append((domain, polynomial)))
            return tuple(read_piece(domain, polynomial) for domain, polynomial in pieces)

    def __add__(self, other: QuasiPolynomial) -> QuasiPolynomial:
        deferred = self.deferred + other.deferred
        # What is still text is parsed here: within the limit, isl may end in the middle of it with a syntax error.
        left, right = self.isl_object, other.isl_object
        try:
            with limited(SUM_LIMIT):
                return QuasiPolynomial(left.add(right), deferred)
        except TooManyOperationsError:
            # Hundreds of pieces on each side; their values add up as well.
            return QuasiPolynomial(left, (*deferred, (QuasiPolynomial(right), ())))

    def __mul__(self, other: QuasiPolynomial | int | Fraction) -> QuasiPolynomial:
        if not isinstance(other, QuasiPolynomial):
            if other == 1:
                return self
            # isl.Val takes fractions as text only.
            scaled = self.isl_object.scale_val(isl.Val(str(other)))
            return QuasiPolynomial(scaled, tuple((factor * other, sets) for factor, sets in self.deferred))
        left, right = self.isl_object, other.isl_object
        if not left.get_space().is_equal(right.get_space()):
            # isl aligns the parameters of a sum, but not those of a product.
            both = [one.get_space().get_var_names(isl.dim_type.param) for one in (left, right)]
            names = ", ".join(sorted({*both[0], *both[1]}))
            bodies = [one.text.partition("->")[2] if one.text.startswith("[") else one.text for one in (self, other)]
            left, right = (isl.PwQPolynomial(f"[{names}] -> {body}") for body in bodies)
        deferred = [(factor * QuasiPolynomial(other.isl_object), sets) for factor, sets in self.deferred]
        deferred += [(factor * QuasiPolynomial(self.isl_object), sets) for factor, sets in other.deferred]
        deferred += [(one * two, sets + more) for one, sets in self.deferred for two, more in other.deferred]
        return QuasiPolynomial(left.mul(right), tuple(deferred))

    __rmul__ = __mul__

    @property
    def is_zero(self) -> bool:
        """Whether the value is zero for all sizes."""
        # isl may keep pieces on which the polynomial is 0.
        return not self.deferred and all(not piece.terms for piece in self.pieces)

    def evaluate(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes.

        Parameters
        ----------
        sizes
            An integer per size parameter, or integer arrays of one shape; extra names are ignored.

        Returns
        -------
        int, Fraction or numpy.ndarray
            Exact for integers; float64 of the arrays' shape for arrays, computed in integers and exact
            as long as the result is below 2**53.

        Raises
        ------
        MissingSizeError
            A parameter has no value.
        """
        if not self.parameters and not self.deferred:
            return self._evaluate_scalars({})
        missing = [name for name in self.parameters if name not in sizes]
        if missing:
            msg = f"size parameter {', '.join(missing)} has no value; pass it, e.g. {{{missing[0]!r}: 1024}}"
            raise MissingSizeError(msg, parameters=tuple(missing))
        used = {name: sizes[name] for name in self.parameters}
        if any(isinstance(value, np.ndarray) for value in used.values()):
            return self._evaluate_arrays(used) + self._deferred_arrays(used)
        # numpy's integers overflow at 64 bits, Python's do not.
        whole = {name: int(value) for name, value in used.items()}
        return self._evaluate_scalars(whole) + self._deferred_scalars(whole)

    def _deferred_scalars(self, sizes: Mapping[str, int]) -> int:
        total: Any = 0
        for factor, domains in self.deferred:
            value: Any = factor.evaluate(sizes)
            for domain in (text.parsed for text in domains):
                names = domain.get_var_names(isl.dim_type.param)
                value = value * card_at(domain, tuple((name, sizes[name]) for name in names))
            total = total + value
        return int(total) if total == int(total) else total

    def _deferred_arrays(self, sizes: Mapping[str, Any]) -> Any:
        total: Any = 0.0
        for factor in (factor for factor, domains in self.deferred if not domains):
            total = total + factor.evaluate(sizes)
        # Sets are counted for one tuple of sizes at a time, polynomials for whole arrays.
        counted = QuasiPolynomial("{ 0 }", tuple(part for part in self.deferred if part[1]))
        return total + counted._counted_arrays(sizes) if counted.deferred else total

    def _counted_arrays(self, sizes: Mapping[str, Any]) -> Any:
        names = list(sizes)
        arrays = np.broadcast_arrays(*(np.asarray(sizes[name]) for name in names))
        flat = np.stack([array.ravel() for array in arrays], axis=1)
        # A set may take seconds to count: each tuple of sizes only once.
        distinct, place = np.unique(flat, axis=0, return_inverse=True)
        values = [float(self._deferred_scalars(dict(zip(names, map(int, row), strict=True)))) for row in distinct]
        # Some versions of numpy 2 return this inverse with an extra axis.
        return np.array(values)[place.ravel()].reshape(arrays[0].shape)

    def _evaluate_scalars(self, sizes: Mapping[str, int]) -> int | Fraction:
        # isl's pieces are disjoint, and where none holds the value is 0.
        for piece in self.pieces:
            if piece.holds(sizes):
                whole, rest = divmod(piece.numerator(sizes), piece.denominator)
                return int(whole) if not rest else whole + Fraction(rest, piece.denominator)
        return 0

    def _evaluate_arrays(self, sizes: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        arrays = {name: np.asarray(value) for name, value in sizes.items()}
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
        magnitude = {name: float(np.max(np.abs(array), initial=0)) for name, array in arrays.items()}
        result = np.zeros(shape)
        for piece in self.pieces:
            bound = piece.bound(magnitude)
            # Floating point counts exactly up to 2**53; beyond, 64-bit integers; beyond, Python's own.
            kind: Any = np.float64 if bound < 2.0**53 else np.int64 if bound < 2.0**62 else object
            exact = {name: array.astype(kind) for name, array in arrays.items()}
            inside = piece.holds(exact)
            quotient = np.asarray(piece.numerator(exact) / piece.denominator, dtype=np.float64)
            # A conjunction without constraints: `holds` then returns the plain True that it began with.
            if inside is True:
                return np.array(np.broadcast_to(quotient, shape))
            result = np.where(np.asarray(inside, dtype=bool), quotient, result)
        return result

    def __str__(self) -> str:
        text = self.text
        body = text.partition("->")[2] if text.startswith("[") else text
        body = body.strip().removeprefix("{").removesuffix("}").strip()
        if self.deferred:
            return "counted at given sizes" if body in {"", "0"} else f"{body}, and more counted at given sizes"
        return body or "0"

    def __repr__(self) -> str:
        more = "".join(f" + {factor!r} * points of {sets}" for factor, sets in self.deferred)
        return f"QuasiPolynomial({self.text!r}{more})"


def polynomial_record(polynomial: QuasiPolynomial) -> list[Any]:
    """Return a quasi-polynomial as a list of texts, numbers and lists; `polynomial_from_record` restores it."""
    pieces = [msgspec.to_builtins(piece) for piece in polynomial.pieces]
    deferred = [[polynomial_record(factor), list(map(str, sets))] for factor, sets in polynomial.deferred]
    return [polynomial.text, list(polynomial.parameters), pieces, deferred]


def polynomial_from_record(record: list[Any]) -> QuasiPolynomial:
    """Return the quasi-polynomial of a record."""
    text, names, pieces, deferred = record
    made = QuasiPolynomial(
        text, tuple((polynomial_from_record(factor), tuple(map(SetText, sets))) for factor, sets in deferred)
    )
    vars(made).update(parameters=tuple(names), piece_records=pieces)
    return made
