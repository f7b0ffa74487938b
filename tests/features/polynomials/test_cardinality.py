"""Numbers of points: factors, the worker process and its limit, against enumeration."""

from __future__ import annotations

import os
from itertools import product
from multiprocessing import get_context

import islpy as isl
import pytest

from perflex.features import QuasiPolynomial
from perflex.features.polynomials import cardinality as _cardinality
from perflex.features.polynomials.cardinality import CardProcess, TooManyOperationsError, card, card_at, card_process

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


@pytest.mark.machine
def test_a_count_that_takes_too_long_ends_the_worker_and_not_this_process():
    worker = CardProcess()
    slow = str(points(*SETS["slow"]))
    assert worker.card(slow, str(EVERYWHERE), 0.001) is None
    answer = worker.card(slow, str(EVERYWHERE), 30)
    assert QuasiPolynomial(isl.PwQPolynomial(answer)) == QuasiPolynomial(card(points(*SETS["slow"]), EVERYWHERE))
    worker.close()
    assert worker.card("[n] -> { [i] : 0 <= i < n }", "[n] -> { : n > 0 }", 30) == "[n] -> { n }"
    worker.close()


def test_slow_counts_are_put_off_and_exact_at_given_sizes(monkeypatch):
    ask = card_process.card
    symbolic_s = _cardinality._SYMBOLIC_S
    monkeypatch.setattr(card_process, "card", lambda *asked: None if asked[2] == symbolic_s else ask(*asked))
    domain = points(*SETS["slow"])
    with pytest.raises(TooManyOperationsError):
        card(domain, EVERYWHERE)
    counted = QuasiPolynomial.points(domain, EVERYWHERE)
    assert counted.deferred
    assert counted.evaluate({"n": 9, "m": 6}) == enumerated(domain, 9, 6)


def _in_a_fork(queue):
    queue.put((os.getpid(), card_process.card("{ [i, j] : 0 <= i <= j < 9 }", "{ : }", 30)))


@pytest.mark.machine
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
