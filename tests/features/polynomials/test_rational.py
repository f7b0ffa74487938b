"""Quotients of polynomials as text."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace

import islpy as isl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.compare import in_python
from perflex.features import QuasiPolynomial
from perflex.features import Ratio as RatioOfCounts
from perflex.features.counting.rational import quotient_text
from perflex.features.polynomials.polynomial import Polynomial

EVERYWHERE = isl.Set("{ : }").params()
SIZES = {"n": 37, "m": 11}


def ratio_of(above: QuasiPolynomial, below: QuasiPolynomial, sizes: isl.Set) -> RatioOfCounts:
    return RatioOfCounts(above, below, SimpleNamespace(assumptions=sizes))


def poly(text: str) -> QuasiPolynomial:
    return QuasiPolynomial.parse(f"[n, m] -> {{ {text} }}")


@pytest.mark.parametrize(
    ("above", "below", "text"),
    [
        ("1/16*n^3", "n^2", "n/16"),
        ("7*n^3 - 42*n^2 + 84*n - 56", "n^3 - 12*n + 16", "(7*n - 14)/(n + 4)"),
        ("n", "n", "1"),
        ("3*n*m", "2*n", "3*m/2"),
        ("n^2 - m^2", "n + m", "-m + n"),
        ("n^2 - m^2", "m - n", "-m - n"),
        ("n", "n*m", "1/m"),
        ("n", "2*n*m", "1/(2*m)"),
        ("n*m + m", "n + 1", "m"),
        ("n + 1", "n*m + m", "(n + 1)/(m*n + m)"),
        ("n*floor((n + 15)/16)", "n", "floor((n + 15)/16)"),
        ("n + 3", "16", "(n + 3)/16"),
        ("0", "n", "0"),
    ],
)
def test_short_texts(above: str, below: str, text: str) -> None:
    found = str(ratio_of(poly(above), poly(below), EVERYWHERE))
    value = poly(above).evaluate(SIZES) / poly(below).evaluate(SIZES)
    assert in_python(found, SIZES) == pytest.approx(float(value))
    assert found == text


def test_cases_conditions_and_what_stands_for_a_formula() -> None:
    sizes = isl.Set("[n] -> { : n >= 1 }").params()
    ratio = ratio_of(QuasiPolynomial.parse("[n] -> { 1 : n = 1; 2*n : n >= 2 }"), QuasiPolynomial.constant(1), sizes)
    assert str(ratio) == "1 : n = 1; 2*n : n >= 2"
    same = ratio_of(
        QuasiPolynomial.parse("[n] -> { 2 : n = 1; 2*n : n >= 2 }"), QuasiPolynomial.parse("[n] -> { n }"), sizes
    )
    assert str(same) == "2"
    many = " ; ".join(f"{k * k} : n = {k}" for k in range(1, 6))
    assert (
        str(ratio_of(QuasiPolynomial.parse(f"[n] -> {{ {many} }}"), QuasiPolynomial.constant(1), sizes))
        == "differs by case"
    )
    slow = QuasiPolynomial.points_at_sizes(isl.Set("[n] -> { [i] : 0 <= i < n }"), sizes)
    assert str(ratio_of(slow, slow, sizes)) == "counted at given sizes"
    assert ratio_of(slow, slow, sizes).evaluate({"n": 5}) == 1.0
    values = ratio_of(poly("n"), poly("m"), EVERYWHERE).evaluate({"n": np.array([4, 5]), "m": np.array([2, 0])})
    assert values[0] == 2.0
    assert math.isnan(values[1])


def test_large_integers_divide_exactly() -> None:
    n = 3 * 2**60 + 1
    assert ratio_of(poly("n^3"), poly("n^2"), EVERYWHERE).evaluate({"n": n}) == float(n)


monomials = st.tuples(st.integers(0, 3), st.integers(0, 2))
polynomials = st.dictionaries(monomials, st.fractions(-20, 20, max_denominator=8).filter(bool), min_size=1, max_size=4)


def named(coefficients: dict[tuple[int, int], Fraction]) -> Polynomial:
    return Polynomial(
        {
            tuple((name, power) for name, power in (("m", m), ("n", n)) if power): coefficient
            for (n, m), coefficient in coefficients.items()
        }
    )


def at(coefficients: dict[tuple[int, int], Fraction], n: int, m: int) -> Fraction:
    return sum((c * n**i * m**j for (i, j), c in coefficients.items()), Fraction(0))


@given(polynomials, polynomials, polynomials)
def test_the_text_is_the_quotient(
    one: dict[tuple[int, int], Fraction], two: dict[tuple[int, int], Fraction], common: dict[tuple[int, int], Fraction]
) -> None:
    def times(
        a: dict[tuple[int, int], Fraction], b: dict[tuple[int, int], Fraction]
    ) -> dict[tuple[int, int], Fraction]:
        product: dict[tuple[int, int], Fraction] = {}
        for (i, j), c in a.items():
            for (k, m), d in b.items():
                product[i + k, j + m] = product.get((i + k, j + m), Fraction(0)) + c * d
        return {powers: c for powers, c in product.items() if c}

    above, below = times(one, common), times(two, common)
    text = quotient_text(named(above), named(below))
    for n, m in ((7, 3), (101, 13)):
        if at(below, n, m):
            expected = at(one, n, m) / at(two, n, m)
            assert in_python(text, {"n": n, "m": m}) == pytest.approx(float(expected), rel=1e-9, abs=1e-9)
    whole = quotient_text(named(times(one, two)), named(two))
    assert whole == quotient_text(named(one), Polynomial.constant(1))
