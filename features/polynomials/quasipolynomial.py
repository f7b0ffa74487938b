"""Piecewise quasi-polynomials in the size parameters: exact symbolic counts that evaluate fast."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from math import lcm, prod
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import astuple

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features.polynomials.affine import Affine, integer, read_affine, read_constraints
from perflex.features.polynomials.cardinality import SUM_LIMIT, TooManyOperationsError, at_once, card, card_at, limited
from perflex.isl import ISL_LOCK, SetText, computed_once, isl, parsed


class Term(Struct, frozen=True, array_like=True):
    """A product of an integer, powers of size parameters, and powers of floors."""

    coefficient: int
    powers: tuple[tuple[str | Affine, int], ...]  # names or floors, and their exponents

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        """Return the value at given sizes: numbers, or arrays of one shape."""
        value: Any = self.coefficient
        for base, exponent in self.powers:
            factor = sizes[base] if isinstance(base, str) else base(sizes)
            # Several times as fast as ** on arrays for the small exponents there are.
            for _ in range(exponent):
                value = value * factor
        return value

    def bound(self, magnitude: Mapping[str, float]) -> float:
        """Return an upper bound of its intermediate values."""
        value = float(abs(self.coefficient))
        for base, exponent in self.powers:
            factor = magnitude[base] if isinstance(base, str) else base.bound(magnitude)
            # At least 1: a small factor must not hide how large the product of the others becomes.
            value *= max(1.0, factor) ** exponent
        return value


class Piece(Struct, frozen=True, array_like=True):
    """One polynomial with integer coefficients over a common denominator, and where it holds."""

    # Conjunctions of which one must hold, of (left-hand side, whether it must be 0 rather than at least 0).
    conditions: tuple[tuple[tuple[Affine, bool], ...], ...]
    terms: tuple[Term, ...]  # their sum is the polynomial's numerator
    denominator: int

    def holds(self, sizes: Mapping[str, Any]) -> Any:
        """Return whether the piece is the one for given sizes, element by element for arrays."""
        result: Any = False
        for conjunction in self.conditions:
            inside: Any = True
            for affine, is_equality in conjunction:
                value = affine(sizes)
                inside = inside & ((value == 0) if is_equality else (value >= 0))
            result = result | inside
        return result

    def numerator(self, sizes: Mapping[str, Any]) -> Any:
        """Return the sum of the terms at given sizes, which is `denominator` times the value."""
        return sum(term(sizes) for term in self.terms)

    def bound(self, magnitude: Mapping[str, float]) -> float:
        """Return an upper bound of every intermediate value of the polynomial, given those of the sizes."""
        return sum(term.bound(magnitude) for term in self.terms)


def _read_piece(domain: Any, polynomial: Any) -> Piece:
    """Take apart one piece of an ``isl.PwQPolynomial``: the ``isl.Set`` it holds on, and the ``isl.QPolynomial``."""
    if polynomial.is_nan() or polynomial.is_infty() or polynomial.is_neginfty():
        msg = f"an extent, stride or count is not finite where {domain}; write it without a division by zero"
        raise UnsupportedKernelError(msg)
    kinds = isl.dim_type
    terms: list[Any] = []
    polynomial.foreach_term(terms.append)  # isl prints what a callback raises: only collect in it
    coefficients = [term.get_coefficient_val() for term in terms]
    # Integers over one denominator: values are exact, and summing them needs no fractions.
    common = lcm(*(integer(value.get_den_val()) for value in coefficients))
    whole = []
    for term, value in zip(terms, coefficients, strict=True):
        powers = [
            (polynomial.space.get_dim_name(kind, i) if kind == kinds.param else read_affine(term.get_div(i)), exponent)
            for kind in (kinds.param, kinds.div)
            for i in range(term.dim(kind))
            if (exponent := term.get_exp(kind, i))
        ]
        whole.append(Term(integer(value.mul(isl.Val(str(common)))), tuple(powers)))
    # Without compute_divs, existential variables may lack the floor that defines them.
    conditions = tuple(map(read_constraints, domain.compute_divs().get_basic_sets()))
    return Piece(conditions, tuple(whole), common)


# Of so many tuples of sizes, the points of a set are counted one after another before a formula is sought.
_FEW_SIZES = 32


class Untried(Struct, frozen=True, array_like=True, dict=True):
    """A set whose points isl may be able to count for all sizes, which takes longer than at a few."""

    points: SetText
    assumptions: SetText
    simplified: SetText  # The same set, for all sizes
    parsed = property(lambda self: self.points.parsed)

    def at(self, sizes: Mapping[str, Any]) -> Any:
        """Return the number of points at given sizes, numbers or arrays."""
        names = self.parsed.get_var_names(isl.dim_type.param)
        columns = np.broadcast_arrays(*(np.asarray(sizes[name]) for name in names))
        asked: set[tuple[int, ...]] = self.__dict__.setdefault("asked", set())
        if len(asked) <= _FEW_SIZES:
            asked.update(zip(*(column.ravel().tolist() for column in columns), strict=True))
        return _points_at(self.parsed, sizes) if len(asked) <= _FEW_SIZES else self.formula.evaluate(sizes)

    @property
    def formula(self) -> QuasiPolynomial:
        """The number of points, for all sizes if that takes not too long."""
        return _formula(self)


@lru_cache(maxsize=4096)
def _formula(of: Untried) -> QuasiPolynomial:
    try:
        with ISL_LOCK:
            return QuasiPolynomial(card(of.simplified.parsed, of.assumptions.parsed.params()))
    except TooManyOperationsError:
        return QuasiPolynomial("{ 0 }", ((QuasiPolynomial.constant(1), (of.points,)),))


# A polynomial and sets.
_Product = tuple["QuasiPolynomial", tuple[SetText | Untried, ...]]


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
        self._products = deferred
        if any(isinstance(one, Untried) for _, sets in deferred for one in sets):
            self.__dict__["counted"] = QuasiPolynomial(isl_object)
        else:
            self.__dict__["text" if isinstance(isl_object, str) else "isl_object"] = isl_object

    def __reduce__(self) -> tuple[Any, ...]:
        return QuasiPolynomial, (self._counted.text, self._products)

    @property
    def _counted(self) -> QuasiPolynomial:
        """What is symbolic before sets are tried; itself, where none is untried."""
        counted: QuasiPolynomial = self.__dict__.get("counted", self)
        return counted

    @property
    def parts(self) -> tuple[QuasiPolynomial, tuple[_Product, ...]]:
        """What is symbolic before sets are tried, and what is added to it."""
        return self._counted, self._products

    @computed_once
    def _tried(self) -> QuasiPolynomial:
        """The same, of which no set is untried."""
        total = self._counted
        for factor, sets in self._products:
            tried = (one for one in sets if isinstance(one, Untried))
            others = tuple(one for one in sets if not isinstance(one, Untried))
            rest = QuasiPolynomial("{ 0 }", ((factor, others),)) if others else factor
            total = total + prod((one.formula for one in tried), start=rest)
        return total

    @property
    def deferred(self) -> tuple[_Product, ...]:
        """What is added to the symbolic part."""
        return self._tried.deferred if "counted" in self.__dict__ else self._products

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuasiPolynomial):
            return NotImplemented
        # By text, which needs no parsing: equal texts are equal counts, while unequal ones need not differ.
        return self.text == other.text and self.deferred == other.deferred

    def __hash__(self) -> int:
        return hash((self.text, self.deferred))

    @classmethod
    def points(cls, domain: Any, assumptions: Any, simplified: Any = None) -> QuasiPolynomial:
        """Return the number of points of an isl set, for sizes that fulfil the assumptions.

        What is not quickly counted for all sizes is so when a formula is asked for, or many sizes; then the set may be
        simplified.
        """
        simple = domain if simplified is None else simplified
        try:
            if (found := at_once(simple, assumptions)) is not None:
                return cls(found)
            there = domain.intersect_params(assumptions)
            one = Untried(SetText(there), SetText(assumptions), SetText(simple))
            return cls("{ 0 }", ((cls.constant(1), (one,)),))
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
        return self._tried.text if "counted" in self.__dict__ else str(self.isl_object)

    @computed_once
    def isl_object(self) -> Any:
        """The symbolic part, an ``isl.PwQPolynomial``."""
        return self._tried.isl_object if "counted" in self.__dict__ else parsed(isl.PwQPolynomial, self.text)

    @computed_once
    def parameters(self) -> tuple[str, ...]:
        """Names of the size parameters the value may depend on."""
        names = self._counted.isl_object.drop_unused_params().space.get_var_names(isl.dim_type.param)
        for factor, domains in self._products:
            names += factor.parameters
            names += [name for one in domains for name in one.parsed.get_var_names(isl.dim_type.param)]
        return tuple(dict.fromkeys(names))

    @computed_once
    def pieces(self) -> tuple[Piece, ...]:
        """The symbolic part taken apart, for evaluation."""
        if "piece_records" in self.__dict__:
            return msgspec.convert(self.__dict__["piece_records"], tuple[Piece, ...])
        with ISL_LOCK:
            return tuple(_read_piece(domain, polynomial) for domain, polynomial in self.isl_object.get_pieces())

    def __add__(self, other: QuasiPolynomial) -> QuasiPolynomial:
        (one, mine), (two, theirs) = self.parts, other.parts
        deferred = mine + theirs
        # What is still text is parsed here: within the limit, isl may end in the middle of it with a syntax error.
        left, right = one.isl_object, two.isl_object
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
            scaled = self._counted.isl_object.scale_val(isl.Val(str(other)))
            return QuasiPolynomial(scaled, tuple((factor * other, sets) for factor, sets in self._products))
        (one, mine), (two, theirs) = self.parts, other.parts
        left, right = one.isl_object, two.isl_object
        if not left.get_space().is_equal(right.get_space()):
            # isl aligns the parameters of a sum, but not those of a product.
            both = [each.get_space().get_var_names(isl.dim_type.param) for each in (left, right)]
            names = ", ".join(sorted({*both[0], *both[1]}))
            texts = one.text, two.text
            bodies = [text.partition("->")[2] if text.startswith("[") else text for text in texts]
            left, right = (isl.PwQPolynomial(f"[{names}] -> {body}") for body in bodies)
        deferred = [(factor * QuasiPolynomial(right), sets) for factor, sets in mine]
        deferred += [(factor * QuasiPolynomial(left), sets) for factor, sets in theirs]
        deferred += [(first * second, sets + more) for first, sets in mine for second, more in theirs]
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
        missing = [name for name in self.parameters if name not in sizes]
        if missing:
            msg = f"size parameter {', '.join(missing)} has no value; pass it, e.g. {{{missing[0]!r}: 1024}}"
            raise MissingSizeError(msg, parameters=tuple(missing))
        used = {name: sizes[name] for name in self.parameters}
        if any(isinstance(value, np.ndarray) for value in used.values()):
            return self._evaluate_arrays(used) + self._deferred_at(used)
        # numpy's integers overflow at 64 bits, Python's do not.
        whole = {name: int(value) for name, value in used.items()}
        # isl's pieces are disjoint, and where none holds the value is 0.
        piece = next((one for one in self._counted.pieces if one.holds(whole)), None)
        symbolic = 0 if piece is None else Fraction(piece.numerator(whole), piece.denominator)
        total = symbolic + self._deferred_at(whole)
        return int(total) if total == int(total) else total

    def _deferred_at(self, sizes: Mapping[str, Any]) -> Any:
        total: Any = 0
        for factor, domains in self._products:
            value: Any = factor.evaluate(sizes)
            for domain in domains:
                points = domain.at(sizes) if isinstance(domain, Untried) else _points_at(domain.parsed, sizes)
                value = value * points
            total = total + value
        return total

    def _evaluate_arrays(self, sizes: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        arrays = {name: np.asarray(value) for name, value in sizes.items()}
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
        magnitude = {name: float(np.max(np.abs(array), initial=0)) for name, array in arrays.items()}
        result = np.zeros(shape)
        for piece in self._counted.pieces:
            bound = piece.bound(magnitude)
            # Floating point counts exactly up to 2**53; beyond, 64-bit integers; beyond, Python's own.
            kind: Any = np.float64 if bound < 2.0**53 else np.int64 if bound < 2.0**62 else object
            exact = {name: array.astype(kind) for name, array in arrays.items()}
            inside = piece.holds(exact)
            quotient = np.asarray(piece.numerator(exact) / piece.denominator, dtype=np.float64)
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


def _points_at(domain: Any, sizes: Mapping[str, Any]) -> Any:
    """Return the number of points of a set at given sizes, numbers or arrays."""
    names = domain.get_var_names(isl.dim_type.param)
    arrays = np.broadcast_arrays(*(np.asarray(sizes[name]) for name in names))
    if not arrays or not arrays[0].shape:
        return card_at(domain, tuple((name, int(sizes[name])) for name in names))
    # A set may take seconds to count: each tuple of sizes only once.
    distinct, place = np.unique([array.ravel() for array in arrays], axis=1, return_inverse=True)
    values = [float(card_at(domain, tuple(zip(names, map(int, row), strict=True)))) for row in distinct.T]
    # Some versions of numpy 2 return this inverse with an extra axis.
    return np.array(values)[place.ravel()].reshape(arrays[0].shape)


def polynomial_record(polynomial: QuasiPolynomial) -> list[Any]:
    """Return a quasi-polynomial as a list of texts, numbers and lists; `polynomial_from_record` restores it."""
    counted, products = polynomial.parts
    pieces = [msgspec.to_builtins(piece) for piece in counted.pieces]
    deferred = [[polynomial_record(factor), list(map(_set_record, sets))] for factor, sets in products]
    return [counted.text, list(polynomial.parameters), pieces, deferred]


def polynomial_from_record(record: list[Any]) -> QuasiPolynomial:
    """Return the quasi-polynomial of a record."""
    text, names, pieces, deferred = record
    products = tuple((polynomial_from_record(factor), tuple(map(_set_of, sets))) for factor, sets in deferred)
    made = QuasiPolynomial(text, products)
    vars(made)["parameters"] = tuple(names)
    vars(made.parts[0])["piece_records"] = pieces
    return made


def _set_record(one: SetText | Untried) -> str | list[str]:
    return list(map(str, astuple(one))) if isinstance(one, Untried) else str(one)


def _set_of(record: str | list[str]) -> SetText | Untried:
    return SetText(record) if isinstance(record, str) else Untried(*map(SetText, record))
