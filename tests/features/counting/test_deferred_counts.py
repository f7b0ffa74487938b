"""Counts that are too slow symbolically and are made at given sizes instead."""

from __future__ import annotations

import pickle

import islpy as isl
import numpy as np
import pytest

from perflex.errors import MissingSizeError, UnsupportedKernelError
from perflex.features import QuasiPolynomial
from perflex.features.polynomials import cardinality as _cardinality

TRIANGLE = "[n] -> { [i, j] : 0 <= i < n and 0 <= j <= i }"
EVEN = "[m] -> { [i] : 0 <= i < m and i mod 2 = 0 }"


def points(text: str) -> QuasiPolynomial:
    return QuasiPolynomial.points(isl.Set(text), isl.Set("{ : }").params())


@pytest.fixture
def nothing_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cardinality, "_EXISTENTIAL", -1)


def triangle(n: int) -> int:
    return n * (n + 1) // 2


def test_quick_counts_are_symbolic() -> None:
    assert points(TRIANGLE).deferred == ()
    assert points(TRIANGLE).evaluate({"n": 9}) == triangle(9)


@pytest.mark.usefixtures("nothing_is_quick")
def test_slow_counts_are_made_at_given_sizes() -> None:
    count = points(TRIANGLE)
    assert count.deferred
    assert count.parameters == ("n",)
    assert not count.is_zero
    assert [count.evaluate({"n": n}) for n in (-1, 0, 1, 9, 1000)] == [0, 0, 1, triangle(9), triangle(1000)]
    assert count.evaluate({"n": np.array([[3, 9], [9, 1]])}).tolist() == [[6.0, 45.0], [45.0, 1.0]]
    assert str(count) == "counted at given sizes"
    with pytest.raises(MissingSizeError, match="size parameter n has no value"):
        count.evaluate({})


@pytest.mark.usefixtures("nothing_is_quick")
def test_arithmetic_with_symbolic_counts() -> None:
    slow, other = points(TRIANGLE), points(EVEN)
    quick = QuasiPolynomial.parse("[n] -> { 3 * n }")
    sizes = {"n": 5, "m": 7}
    for value, expected in (
        (slow + quick, 15 + 15),
        (quick + slow, 15 + 15),
        (slow * 4, 60),
        (2 * slow, 30),
        (slow * quick, 15 * 15),
        (quick * slow, 15 * 15),
        (slow * other, 15 * 4),
        ((slow + quick) * (other + quick), (15 + 15) * (4 + 15)),
    ):
        assert value.evaluate(sizes) == expected
    arrays = {"n": np.array([5, 2]), "m": 7}
    assert ((slow + quick) * other).evaluate(arrays).tolist() == [30.0 * 4, 9.0 * 4]
    assert "and more counted at given sizes" in str(slow + quick)


@pytest.mark.usefixtures("nothing_is_quick")
def test_equality_and_pickle() -> None:
    one, two = points(TRIANGLE), points(TRIANGLE)
    assert one == two
    assert hash(one) == hash(two)
    assert pickle.loads(pickle.dumps(one)) == one
    assert one != points(EVEN)
    assert one != one + one


@pytest.mark.usefixtures("nothing_is_quick")
def test_hopeless_counts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_cardinality, "_FEW_CONSTRAINTS", -1)
    monkeypatch.setattr(_cardinality.card_process, "card", lambda *_: None)
    _cardinality.card_at.cache_clear()
    with pytest.raises(UnsupportedKernelError, match=r"too complex to count, even at n=6: \[n\]"):
        points(TRIANGLE).evaluate({"n": 6})


def test_limits_are_lifted_afterwards() -> None:
    with pytest.raises(_cardinality.TooManyOperationsError), _cardinality.limited(1):
        isl.Set(TRIANGLE).union(isl.Set(EVEN)).make_disjoint()
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0
    assert str(isl.Set(TRIANGLE).card())
