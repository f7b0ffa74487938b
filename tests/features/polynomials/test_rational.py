"""Quotients of polynomials as text."""

from __future__ import annotations

from fractions import Fraction
from types import SimpleNamespace

import islpy as isl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracles.compare import in_python
from perflex.features import QuasiPolynomial
from perflex.features import Ratio as RatioOfCounts
from perflex.features.counting.ratio import quotient_text
from perflex.features.polynomials.pieces import Polynomial

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
