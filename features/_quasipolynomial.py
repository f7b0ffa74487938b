"""Piecewise quasi-polynomials in the size parameters: exact symbolic counts that evaluate fast."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex._islpy import isl
from perflex.errors import MissingSizeError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from fractions import Fraction

__all__ = ["QuasiPolynomial"]

# A value per size parameter: integers (exact, unbounded) or integer arrays of one common shape.
Sizes = "Mapping[str, int | np.ndarray]"


@dataclass(frozen=True)
class _Affine:
    """floor((constant + sum coefficient*parameter + sum coefficient*floor) / denominator)."""

    constant: int
    parameters: tuple[tuple[str, int], ...]
    floors: tuple[tuple[int, _Affine], ...]
    denominator: int = 1

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        value: Any = self.constant
        for name, coefficient in self.parameters:
            value = value + coefficient * sizes[name]
        for coefficient, floor in self.floors:
            value = value + coefficient * floor(sizes)
        return value // self.denominator if self.denominator != 1 else value


@dataclass(frozen=True)
class _Term:
    coefficient: int
    parameters: tuple[tuple[str, int], ...]
    floors: tuple[tuple[_Affine, int], ...]

    def __call__(self, sizes: Mapping[str, Any]) -> Any:
        value: Any = self.coefficient
        for name, exponent in self.parameters:
            value = value * sizes[name] ** exponent
        for floor, exponent in self.floors:
            value = value * floor(sizes) ** exponent
        return value


@dataclass(frozen=True)
class _Piece:
    """One polynomial with integer coefficients over a common denominator, and where it holds."""

    conditions: tuple[tuple[tuple[_Affine, bool], ...], ...]  # any of (all of (affine, is_equality))
    terms: tuple[_Term, ...]
    denominator: int

    def holds(self, sizes: Mapping[str, Any]) -> Any:
        result: Any = False
        for conjunction in self.conditions:
            inside: Any = True
            for affine, is_equality in conjunction:
                value = affine(sizes)
                inside = inside & ((value == 0) if is_equality else (value >= 0))
            result = result | inside
        return result

    def numerator(self, sizes: Mapping[str, Any]) -> Any:
        value: Any = 0
        for term in self.terms:
            value = value + term(sizes)
        return value


def _affine(aff: Any, *, is_constraint: bool) -> _Affine:
    """Read an isl.Aff (a floor's argument) or an isl.Constraint."""
    kinds = isl.dim_type
    denominator = 1 if is_constraint else aff.get_denominator_val().to_python()

    def whole(value: Any) -> int:
        return int(value.mul(isl.Val(denominator)).to_python())

    parameters = []
    for i in range(aff.space.dim(kinds.param)):
        coefficient = whole(aff.get_coefficient_val(kinds.param, i))
        if coefficient:
            parameters.append((aff.space.get_dim_name(kinds.param, i), coefficient))
    floors = []
    for i in range(aff.dim(kinds.div)):
        coefficient = whole(aff.get_coefficient_val(kinds.div, i))
        if coefficient:
            floors.append((coefficient, _affine(aff.get_div(i), is_constraint=False)))
    return _Affine(whole(aff.get_constant_val()), tuple(parameters), tuple(floors), denominator)


def _conditions(domain: Any) -> tuple[tuple[tuple[_Affine, bool], ...], ...]:
    return tuple(
        tuple(
            (_affine(constraint, is_constraint=True), bool(constraint.is_equality()))
            for constraint in basic_set.get_constraints()
        )
        for basic_set in domain.compute_divs().get_basic_sets()
    )


def _piece(domain: Any, polynomial: Any) -> _Piece:
    kinds = isl.dim_type
    terms: list[Any] = []
    polynomial.foreach_term(terms.append)  # isl prints what a callback raises: only collect in it
    raw: list[tuple[int, int, tuple[tuple[str, int], ...], tuple[tuple[_Affine, int], ...]]] = []
    for term in terms:
        coefficient = term.get_coefficient_val()
        parameters = tuple(
            (polynomial.space.get_dim_name(kinds.param, i), term.get_exp(kinds.param, i))
            for i in range(term.dim(kinds.param))
            if term.get_exp(kinds.param, i)
        )
        floors = tuple(
            (_affine(term.get_div(i), is_constraint=False), term.get_exp(kinds.div, i))
            for i in range(term.dim(kinds.div))
            if term.get_exp(kinds.div, i)
        )
        numerator = int(coefficient.get_num_si())
        raw.append((numerator, int(coefficient.get_den_val().to_python()), parameters, floors))
    denominator = lcm(*(den for _, den, _, _ in raw)) if raw else 1
    whole = tuple(_Term(num * (denominator // den), params, floors) for num, den, params, floors in raw)
    return _Piece(_conditions(domain), whole, denominator)


@dataclass(frozen=True, eq=False)
class QuasiPolynomial:
    """An exact count (or stride) as a function of the size parameters.

    Wraps an ``isl.PwQPolynomial`` without set dimensions. Hashable, picklable, comparable; adds and
    multiplies symbolically; evaluates with exact integer arithmetic.
    """

    isl_object: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, QuasiPolynomial):
            return NotImplemented
        return str(self.isl_object) == str(other.isl_object)

    def __hash__(self) -> int:
        return hash(str(self.isl_object))

    @classmethod
    def constant(cls, value: int) -> QuasiPolynomial:
        """Return the polynomial that is `value` everywhere."""
        return cls(isl.PwQPolynomial(f"{{ {value} }}"))

    @classmethod
    def parse(cls, text: str) -> QuasiPolynomial:
        """Return the polynomial of isl's notation, e.g. ``"[n] -> { 16 * n }"``."""
        return cls(isl.PwQPolynomial(text))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of the size parameters the value may depend on."""
        space = self.isl_object.space
        names = (space.get_dim_name(isl.dim_type.param, i) for i in range(space.dim(isl.dim_type.param)))
        used: set[str] = set()
        for piece in self._pieces:
            for conjunction in piece.conditions:
                for affine, _ in conjunction:
                    used |= _names(affine)
            for term in piece.terms:
                used |= {name for name, _ in term.parameters}
                for floor, _ in term.floors:
                    used |= _names(floor)
        return tuple(name for name in names if name in used)

    @cached_property
    def _pieces(self) -> tuple[_Piece, ...]:
        pieces: list[tuple[Any, Any]] = []
        self.isl_object.foreach_piece(lambda domain, polynomial: pieces.append((domain, polynomial)))
        return tuple(_piece(domain, polynomial) for domain, polynomial in pieces)

    def __add__(self, other: QuasiPolynomial) -> QuasiPolynomial:
        return QuasiPolynomial(self.isl_object.add(other.isl_object))

    def __mul__(self, other: QuasiPolynomial | int) -> QuasiPolynomial:
        if isinstance(other, int):
            return QuasiPolynomial(self.isl_object.scale_val(isl.Val(other)))
        left, right = self.isl_object, other.isl_object
        if not left.get_space().is_equal(right.get_space()):
            # isl aligns the parameters of a sum, but not those of a product.
            names = sorted(_space_names(left) | _space_names(right))
            left, right = _with_parameters(left, names), _with_parameters(right, names)
        return QuasiPolynomial(left.mul(right))

    __rmul__ = __mul__

    @property
    def is_zero(self) -> bool:
        """Whether the value is zero for all sizes."""
        return all(not piece.terms for piece in self._pieces)

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
            return self._evaluate_arrays(used)
        return self._evaluate_scalars({name: int(value) for name, value in used.items()})

    def _evaluate_scalars(self, sizes: Mapping[str, int]) -> int | Fraction:
        from fractions import Fraction

        for piece in self._pieces:
            if piece.holds(sizes):
                value = Fraction(piece.numerator(sizes), piece.denominator)
                return int(value) if value.denominator == 1 else value
        return 0

    def _evaluate_arrays(self, sizes: Mapping[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        arrays = {name: np.asarray(value) for name, value in sizes.items()}
        shape = np.broadcast_shapes(*(array.shape for array in arrays.values()))
        magnitude = {name: np.abs(array).astype(np.float64) for name, array in arrays.items()}
        result = np.zeros(shape)
        for piece in self._pieces:
            # 64-bit integers unless an intermediate could overflow; Python's own integers then.
            kind: Any = np.int64 if _bound(piece, magnitude) < 2.0**62 else object
            exact = {name: array.astype(kind) for name, array in arrays.items()}
            inside = np.broadcast_to(np.asarray(piece.holds(exact), dtype=bool), shape)
            value = np.broadcast_to(np.asarray(piece.numerator(exact)), shape)
            quotient = np.asarray(value / piece.denominator, dtype=np.float64)
            result = np.where(inside, quotient, result)
        return result

    def __str__(self) -> str:
        text = str(self.isl_object)
        body = text.partition("->")[2] if text.startswith("[") else text
        body = body.strip().removeprefix("{").removesuffix("}").strip()
        return body or "0"

    def __repr__(self) -> str:
        return f"QuasiPolynomial({str(self.isl_object)!r})"


def _space_names(isl_object: Any) -> set[str]:
    space = isl_object.get_space()
    return {space.get_dim_name(isl.dim_type.param, i) for i in range(space.dim(isl.dim_type.param))}


def _with_parameters(polynomial: Any, names: Sequence[str]) -> Any:
    body = str(polynomial)
    if body.startswith("["):
        body = body.partition("->")[2]
    return isl.PwQPolynomial(f"[{', '.join(names)}] -> {body}")


def _names(affine: _Affine) -> set[str]:
    names = {name for name, _ in affine.parameters}
    for _, floor in affine.floors:
        names |= _names(floor)
    return names


def _bound(piece: _Piece, magnitude: Mapping[str, Any]) -> float:
    """Return an upper bound of every intermediate value of the piece's polynomial."""

    def of_affine(affine: _Affine) -> float:
        value = float(abs(affine.constant))
        value += sum(abs(c) * float(np.max(magnitude[name], initial=0)) for name, c in affine.parameters)
        value += sum(abs(c) * of_affine(floor) for c, floor in affine.floors)
        return value

    total = 0.0
    for term in piece.terms:
        value = float(abs(term.coefficient))
        for name, exponent in term.parameters:
            value *= max(1.0, float(np.max(magnitude[name], initial=0))) ** exponent
        for floor, exponent in term.floors:
            value *= max(1.0, of_affine(floor)) ** exponent
        total += value
    return total
