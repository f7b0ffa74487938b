"""Sums of quasi-polynomials that come from the store as text."""

from __future__ import annotations

from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.polynomials.record import polynomial_from_record


def test_long_texts_are_parsed_without_the_limit_of_sums() -> None:
    pieces = "; ".join(f"(n + {i} * floor((n + {i})/32)^2) : {10 * i} <= n < {10 * i + 10}" for i in range(150))
    one = QuasiPolynomial.constant(1)

    def kept() -> QuasiPolynomial:
        return polynomial_from_record([f"[n] -> {{ {pieces} }}", ["n"], [], []])

    for total in (kept() + one, one + kept()):
        assert total.evaluate({"n": 1205}) == 1205 + 120 * ((1205 + 120) // 32) ** 2 + 1
