"""Quasi-affine functions: what constraints, subscripts and the formulas of counts are made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from perflex.errors import UnsupportedKernelError
from perflex.isl import computed_once, isl


class Affine(Struct, frozen=True, array_like=True, dict=True):
    """(constant + sum of coefficient * variable or floor) / denominator.

    Variables are sizes, by name, and dimensions of instances, by number. Floors are functions that are rounded down.
    """

    constant: int
    terms: tuple[tuple[str | int, int], ...] = ()  # variables with their coefficients
    floors: tuple[tuple[Affine, int], ...] = ()
    denominator: int = 1

    @classmethod
    def of(cls, columns: Mapping[Column, int], denominator: int = 1) -> Affine:
        """Return the function with these coefficients, written as all that equal it."""
        terms, floors = [], []
        for column, factor in columns.items():
            if isinstance(column, Affine):
                floors += [(column, factor)] if factor else []
            elif factor and column != "":
                terms.append((column, factor))
        terms.sort(key=lambda term: (isinstance(term[0], str), term[0]))
        if len(floors) > 1:
            floors.sort(key=repr)
        return cls(columns.get("", 0), tuple(terms), tuple(floors), denominator)

    @property
    def columns(self) -> dict[Column, int]:
        """Its coefficients by what they belong to; that of "" is the constant."""
        return {"": self.constant, **dict(self.terms), **dict(self.floors)}

    @computed_once
    def dim_terms(self) -> tuple[tuple[int, int], ...]:
        """Dimensions that are merely added, with their coefficients."""
        return tuple((variable, factor) for variable, factor in self.terms if isinstance(variable, int))

    @computed_once
    def dims(self) -> frozenset[int]:
        """Dimensions it depends on."""
        return frozenset(dim for dim, _ in self.dim_terms).union(*(floor.dims for floor, _ in self.floors))

    @computed_once
    def floor_dims(self) -> frozenset[int]:
        """Dimensions that are not merely added."""
        if self.denominator != 1:
            return self.dims
        return frozenset[int]().union(*(floor.dims for floor, _ in self.floors))

    def coefficient(self, dim: int) -> int:
        """Return the coefficient of a dimension that is merely added."""
        return dict(self.dim_terms).get(dim, 0)

    def __call__(self, values: Mapping[Any, Any]) -> Any:
        """Return the value, rounded down, where variables have these values: numbers, or arrays that broadcast."""
        value: Any = self.constant
        for variable, coefficient in self.terms:
            value = value + coefficient * values[variable]
        for floor, coefficient in self.floors:
            value = value + coefficient * floor(values)
        # // rounds down for negative values, too, as isl's floor does and C's division does not.
        return value // self.denominator if self.denominator != 1 else value

    def at(self, sizes: Mapping[str, int]) -> Affine:
        """Return it as a function of dimensions alone, at given sizes."""
        columns: dict[Column, int] = {"": self.constant}
        for variable, coefficient in self.terms:
            if isinstance(variable, str):
                columns[""] += coefficient * sizes[variable]
            else:
                columns[variable] = coefficient
        for floor, coefficient in self.floors:
            inner = floor.at(sizes)
            # A floor over sizes alone is a number once these are given.
            if inner.dims:
                columns[inner] = columns.get(inner, 0) + coefficient
            else:
                columns[""] += coefficient * inner.constant
        found = Affine.of(columns, self.denominator)
        return found if found.dims else Affine(found.constant // self.denominator)

    def bounds(self, ranges: Sequence[tuple[int, int]]) -> tuple[int, int]:
        """Return limits of its values over dimensions, which floors that cancel may make too wide."""
        low = high = self.constant
        spans = [(ranges[dim], factor) for dim, factor in self.dim_terms]
        spans += [(floor.bounds(ranges), factor) for floor, factor in self.floors]
        for (start, end), coefficient in spans:
            low += coefficient * (start if coefficient > 0 else end)
            high += coefficient * (end if coefficient > 0 else start)
        # Rounding down is monotone: limits of the quotient are the quotients of the limits.
        return low // self.denominator, high // self.denominator

    def bound(self, magnitude: Mapping[Any, float]) -> float:
        """Return an upper bound of its intermediate values, of which the numerator is one, given those of the sizes."""
        value = abs(self.constant) + sum(abs(factor) * magnitude[variable] for variable, factor in self.terms)
        return float(value + sum(abs(factor) * floor.bound(magnitude) for floor, factor in self.floors))


# What a coefficient belongs to: a size, a dimension, or a floor; "" is the constant.
Column = str | int | Affine


def integer(value: Any) -> int:
    """Return an isl.Val that is whole as a number of Python; by its text, for `get_num_si` gives 0 beyond 64 bits."""
    try:
        return int(value.to_python())
    except ValueError:  # Python converts no more digits
        msg = "an extent, stride or count has a number of more than 4300 digits; give smaller ones"
        raise UnsupportedKernelError(msg) from None


def read_affine(aff: Any) -> Affine:
    """Read an ``isl.Aff``."""
    kinds, over = isl.dim_type, aff.get_denominator_val()
    whole = over.is_one()
    columns: dict[Column, int] = {"": integer(aff.get_constant_val() if whole else aff.get_constant_val().mul(over))}
    for kind in (kinds.param, kinds.in_, kinds.div):
        for place in range(aff.dim(kind)):
            value = aff.get_coefficient_val(kind, place)
            if value.is_zero():
                continue
            column: Column = place
            if kind == kinds.param:
                column = aff.get_dim_name(kind, place)
            elif kind == kinds.div:
                column = read_affine(aff.get_div(place))
            columns[column] = columns.get(column, 0) + integer(value if whole else value.mul(over))
    return Affine.of(columns, 1 if whole else integer(over))


def read_constraints(conjunction: Any) -> tuple[tuple[Affine, bool], ...]:
    """Read an ``isl.BasicSet`` without unknown local variables: what is zero (True) or not negative (False)."""
    return tuple((read_affine(one.get_aff()), bool(one.is_equality())) for one in conjunction.get_constraints())


def without_cases(relation: Any) -> list[Affine | None]:
    """Return each index of a single-valued ``isl.Map``; None for those that are given by cases."""
    function = relation.as_pw_multi_aff()
    cases = [function.get_at(axis).get_pieces() for axis in range(function.dim(isl.dim_type.out))]
    return [read_affine(pieces[0][1]) if len(pieces) == 1 else None for pieces in cases]
