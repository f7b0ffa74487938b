"""Numbers of points as quasi-polynomials."""

import itertools
import pickle

import islpy as isl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex.errors import UnsupportedKernelError
from perflex.features import QuasiPolynomial

SETS = {
    "[i,j] : 0 <= i < n and 0 <= j < m": lambda n, m: max(n, 0) * max(m, 0),
    "[i,j] : 0 <= i < n and 0 <= 3j <= i and j mod 2 = 0 and i + j <= 2m": lambda n, m: sum(
        1 for i in range(n) for j in range(0, i + 1, 2) if 3 * j <= i and i + j <= 2 * m
    ),
    # The paper's example (Section 5): points of {p <= i < n, p <= j < i + 1}.
    "[i,j] : m <= i < n and m <= j < i + 1": lambda n, m: sum(len(range(m, i + 1)) for i in range(m, n)),
    "[i] : exists k : 0 <= k < n and 0 <= i < 20 and i = (k * 7) mod 20 and m >= 0": lambda n, m: (
        len({(k * 7) % 20 for k in range(n)}) if m >= 0 else 0
    ),
}


@pytest.mark.parametrize("text", SETS)
def test_numbers_and_arrays_of_sizes_are_what_enumeration_finds(text):
    count, ranges = QuasiPolynomial(isl.Set(f"[n,m] -> {{ {text} }}").card()), (range(-2, 26), range(-2, 11))
    for n, m in itertools.product(*ranges):
        value = count.evaluate({"n": n, "m": m})
        assert value == SETS[text](n, m), (n, m)
        assert isinstance(value, int)
    n, m = np.meshgrid(*ranges, indexing="ij")
    assert count.evaluate({"n": n, "m": m}).tolist() == [[SETS[text](a, b) for b in ranges[1]] for a in ranges[0]]


def test_large_sizes_stay_exact():
    cube = QuasiPolynomial.parse("[n] -> { 1/6 * n^3 + 1/2 * n^2 + 1/3 * n }")
    n = 3_000_000
    exact = n * (n + 1) * (n + 2) // 6
    assert cube.evaluate({"n": n}) == exact > 2**61
    # Beyond 64-bit intermediates the array path must not wrap around.
    assert cube.evaluate({"n": np.array([n, 2])}).tolist() == [float(exact), 4.0]


@pytest.mark.parametrize("trips", [10**6, 10**7, 3 * 10**8, 10**30])
def test_numbers_beyond_64_bits_stay_exact(trips):
    cube = isl.Set(f"[n] -> {{ [i, j, k, l] : 0 <= i, j, k < {trips} and 0 <= l < n }}")
    count = QuasiPolynomial.points(cube, isl.Set("[n] -> { : }").params())
    assert count.evaluate({"n": 3}) == 3 * trips**3
    assert count.evaluate({"n": np.array([0, 3])}).tolist() == [0.0, float(3 * trips**3)]
    tenth = QuasiPolynomial.parse(f"[n] -> {{ 1/10 * {trips}*{trips}*{trips} * n }}")
    assert tenth.evaluate({"n": 30}) == 3 * trips**3
    far = QuasiPolynomial.parse(f"[n] -> {{ n : n >= {trips * trips} }}")
    assert far.evaluate({"n": trips * trips - 1}) == 0
    assert far.evaluate({"n": trips * trips}) == trips * trips


def test_numbers_of_more_digits_than_python_reads_are_refused():
    power = QuasiPolynomial.parse("{ " + "*".join(["999999999999999"] * 300) + " }")
    with pytest.raises(UnsupportedKernelError, match="a number of more than 4300 digits; give smaller ones"):
        power.evaluate({})


def test_arithmetic_aligns_parameters():
    n, m = QuasiPolynomial.parse("[n] -> { n }"), QuasiPolynomial.parse("[m] -> { m }")
    seven = QuasiPolynomial.constant(7)
    assert [one.evaluate({"n": 3, "m": 5}) for one in (n * m, n + m, 3 * n, seven)] == [15, 8, 9, 7]
    assert (n * QuasiPolynomial.constant(0)).is_zero


def test_sums_of_long_texts_that_were_not_parsed_yet():
    # More pieces than isl may work on for a sum: parsing them is no part of it.
    pieces = "; ".join(f"({k} * n + floor((n + {k})/{k + 2})) : {10 * k} <= n < {10 * k + 10}" for k in range(400))
    text = f"[n] -> {{ {pieces} }}"
    total = QuasiPolynomial.constant(0) + QuasiPolynomial(text)
    for n in (0, 1234, 3999):
        assert total.evaluate({"n": n}) == n // 10 * n + (n + n // 10) // (n // 10 + 2)


def test_equality_hash_pickle_and_text():
    one, two = QuasiPolynomial.parse("[n] -> { 16 * n }"), QuasiPolynomial.parse("[n] -> { 16 * n }")
    assert (one, hash(one)) == (two, hash(two))
    assert pickle.loads(pickle.dumps(one)) == one
    assert QuasiPolynomial.parse("[n] -> { 15 * n }") != one != "16 * n"
    assert str(one) == "16 * n" in repr(one)


@settings(max_examples=60, deadline=None)
@given(
    a=st.integers(1, 5), b=st.integers(-6, 6), c=st.integers(1, 6), offset=st.integers(-4, 4), step=st.integers(1, 4)
)
def test_random_sets_against_enumeration(a, b, c, offset, step):
    text = f"[n] -> {{ [i, j] : 0 <= i < n and 0 <= {c}*j and {c}*j <= {a}*i + {b} and (i + {offset}) mod {step} = 0 }}"
    count = QuasiPolynomial(isl.Set(text).card())
    for n in range(14):
        points = sum(1 for i in range(n) for j in range(90) if c * j <= a * i + b and (i + offset) % step == 0)
        assert count.evaluate({"n": n}) == points


@pytest.mark.parametrize(
    "text", ["[n] -> { [i] : 0 <= i }", "[n] -> { [i, j] : 0 <= i < n and j >= i }", "{ [i] : i < 3 }"]
)
def test_a_set_without_end_is_refused(text):
    with pytest.raises(UnsupportedKernelError, match=r"has no end.*give every loop a lower"):
        QuasiPolynomial.points(isl.Set(text), isl.Set("[n] -> { : }"))
