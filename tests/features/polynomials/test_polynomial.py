"""Polynomials as formulas: arithmetic against Python's own, and how they read."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from perflex.features import QuasiPolynomial
from perflex.features.polynomials.polynomial import Polynomial

fractions = st.fractions(min_value=-9, max_value=9, max_denominator=6)
monomials = st.dictionaries(st.sampled_from(["n", "m"]), st.integers(1, 3), max_size=2).map(
    lambda powers: tuple(sorted(powers.items()))
)
polynomials = st.dictionaries(monomials, fractions, max_size=4).map(Polynomial)


@given(polynomials, polynomials, fractions, fractions)
def test_sums_and_products_have_the_values_of_their_parts(
    one: Polynomial, two: Polynomial, n: Fraction, m: Fraction
) -> None:
    values = {"n": n, "m": m}
    assert (one + two).at(values) == one.at(values) + two.at(values)
    assert (one * two).at(values) == one.at(values) * two.at(values)
    assert hash(one + two) == hash(two + one)
    assert one * two == two * one
    assert one + one * Polynomial.constant(-1) == Polynomial({})


def test_how_they_read() -> None:
    n, m = Polynomial.power("n"), Polynomial.power("m")
    assert str(n * n * Polynomial.constant(2) + m + n * Polynomial.constant(-2)) == "2*n^2 + m - 2*n"
    assert str(Polynomial.constant(Fraction(-1, 2)) * n) == "-1/2*n"
    assert str(n * Polynomial.power("n", -1)) == "1"
    assert str(Polynomial({})) == "0"
    assert (n * n + m).symbols == ("n", "m")


def test_floors_become_names() -> None:
    pieces = QuasiPolynomial.parse("[n] -> { n*floor((15 + n)/16) + floor(floor(n/2)/3) }").pieces
    found = [Polynomial.of_piece(piece) for piece in pieces]
    assert [str(polynomial) for polynomial in found] == ["floor((n + 15)/16)*n + floor(n/6)"]
