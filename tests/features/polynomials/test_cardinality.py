"""Numbers of points: factors, the worker process and its limit, against enumeration."""

from __future__ import annotations

import os
from itertools import product
from multiprocessing import get_context

import islpy as isl
import pytest

from perflex.errors import UnsupportedKernelError
from perflex.features import QuasiPolynomial
from perflex.features.polynomials import cardinality as _cardinality
from perflex.features.polynomials.card_process import CardProcess, card_process
from perflex.features.polynomials.cardinality import TooManyOperationsError, card, card_at

EVERYWHERE = isl.Set("[n, m] -> { : n >= 1 and m >= 1 }").params()
BOX = "0 <= a < n and 0 <= b < m and 0 <= c < 5"
TILES = "0 <= a < 4 and 0 <= b and 4*b + a < n and 0 <= c < 3 and 0 <= d and 3*d + c < m"
TRIANGLES = "0 <= a < 2 and 0 <= 2*b + a < n and 0 <= c < 4 and 0 <= 4*d + c <= 2*b + a and a + 2*b <= e < m + 4*d + c"
SETS = {
    "box": ("a, b, c", BOX),
    "tiles": ("a, b, c, d", TILES),
    "triangle beside a line": ("a, b, c", "0 <= a <= b < n and 0 <= c < m"),
    "coupled by a local variable": ("a, b, c", "0 <= a, b < n and (a + b) mod 3 = 0 and 0 <= c < m"),
    "coupled in a chain": ("a, b, c", "0 <= a < n and a <= b < n and b <= c < m"),
    "slow": ("a, b, c, d, e", TRIANGLES),
    "one empty factor": ("a, b", "0 <= a < n and 3 <= b < m and b < 3"),
}


def points(names: str, condition: str) -> isl.Set:
    return isl.Set(f"[n, m] -> {{ [{names}] : {condition} }}")


def enumerated(domain: isl.Set, n: int, m: int) -> int:
    fixed = domain.fix_val(isl.dim_type.param, 0, isl.Val(n)).fix_val(isl.dim_type.param, 1, isl.Val(m))
    found: list[isl.Point] = []
    fixed.foreach_point(found.append)
    return len(found)


@pytest.mark.parametrize("name", SETS)
def test_symbolic_counts_are_what_enumeration_finds(name):
    domain = points(*SETS[name])
    counted = QuasiPolynomial(card(domain, EVERYWHERE))
    for n, m in product((1, 2, 5, 8), (1, 3, 7)):
        expected = enumerated(domain, n, m)
        assert counted.evaluate({"n": n, "m": m}) == expected
        assert card_at(domain, (("n", n), ("m", m))) == expected


@pytest.mark.parametrize(("name", "groups"), [("box", 3), ("tiles", 2), ("coupled in a chain", 1), ("slow", 1)])
def test_dimensions_that_share_no_constraint_are_told_apart(name, groups):
    (piece,) = points(*SETS[name]).get_basic_sets()
    found = _cardinality._connected(piece)
    assert len(found) == groups
    assert set().union(*(group for group, _ in found)) == set(range(piece.dim(isl.dim_type.set)))


def test_slow_dimensions_are_counted_apart():
    domain = points("a, b, c, d, e, f, g", f"{TRIANGLES} and 0 <= f < n and f <= g < m")
    factors = _cardinality._factors(domain)
    assert sorted(factor.dim(isl.dim_type.set) for factor, _ in factors) == [2, 5]
    counted = QuasiPolynomial(card(domain, EVERYWHERE))
    assert counted.evaluate({"n": 6, "m": 7}) == enumerated(domain, 6, 7)


def test_simple_sets_need_no_worker(monkeypatch):
    monkeypatch.setattr(card_process, "card", lambda *_: pytest.fail("a worker was asked"))
    for name in ("box", "tiles", "triangle beside a line"):
        domain = points(*SETS[name])
        counted = QuasiPolynomial(card(domain, EVERYWHERE))
        assert counted.evaluate({"n": 6, "m": 4}) == enumerated(domain, 6, 4)


def test_a_count_that_takes_too_long_ends_the_worker_and_not_this_process():
    worker = CardProcess()
    slow = str(points(*SETS["slow"]))
    assert worker.card(slow, str(EVERYWHERE), 0.001) is None
    answer = worker.card(slow, str(EVERYWHERE), 30)
    assert QuasiPolynomial(isl.PwQPolynomial(answer)) == QuasiPolynomial(card(points(*SETS["slow"]), EVERYWHERE))
    worker.close()
    assert worker.card("[n] -> { [i] : 0 <= i < n }", "[n] -> { : n > 0 }", 30) == "[n] -> { n }"
    worker.close()


def test_what_the_worker_cannot_read_is_no_count():
    worker = CardProcess()
    assert worker.card("no set", "{ : }", 10) is None
    worker.close()


def test_slow_counts_are_put_off_and_exact_at_given_sizes(monkeypatch):
    monkeypatch.setattr(_cardinality, "_SYMBOLIC_S", 0.001)
    domain = points(*SETS["slow"])
    with pytest.raises(TooManyOperationsError):
        card(domain, EVERYWHERE)
    counted = QuasiPolynomial.points(domain, EVERYWHERE)
    assert counted.deferred
    assert counted.evaluate({"n": 9, "m": 6}) == enumerated(domain, 9, 6)


def test_sets_too_complex_even_at_given_sizes_are_refused(monkeypatch):
    monkeypatch.setattr(_cardinality, "_FEW_CONSTRAINTS", -1)
    monkeypatch.setattr(card_process, "card", lambda *_: None)
    with pytest.raises(UnsupportedKernelError, match=r"too complex to count, even at n=50, m=60: .*simplify"):
        card_at(points(*SETS["slow"]), (("n", 50), ("m", 60)))


def _in_a_fork(queue):
    queue.put((os.getpid(), card_process.card("{ [i, j] : 0 <= i <= j < 9 }", "{ : }", 30)))


def test_a_fork_has_a_worker_of_its_own():
    if "fork" not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip("this system does not fork")
    assert card_process.card("{ [i] : 0 <= i < 9 }", "{ : }", 30) == "{ 9 }"
    context = get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_fork, args=(queue,))
    child.start()
    pid, answer = queue.get(timeout=60)
    child.join()
    assert (pid != os.getpid(), answer) == (True, "{ 45 }")
    assert card_process.card("{ [i] : 0 <= i < 8 }", "{ : }", 30) == "{ 8 }"
