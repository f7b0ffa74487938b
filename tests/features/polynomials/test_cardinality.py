"""Numbers of points: factors, the worker process and its limits, against enumeration."""

import json
import os
import pickle
import re
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import islpy as isl
import numpy as np
import pytest

import perflex
from oracles.points import rows_of
from perflex.errors import UnsupportedKernelError
from perflex.features import QuasiPolynomial
from perflex.features.polynomials import cardinality as _cardinality
from perflex.features.polynomials.cardinality import (
    CardProcess,
    TooManyOperationsError,
    card,
    card_at,
    card_process,
    limited,
)
from perflex.features.polynomials.quasipolynomial import polynomial_from_record, polynomial_record

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


def points(names, condition):
    return isl.Set(f"[n, m] -> {{ [{names}] : {condition} }}")


@pytest.mark.parametrize("name", SETS)
def test_symbolic_counts_are_what_enumeration_finds(name):
    domain = points(*SETS[name])
    counted = QuasiPolynomial(card(domain, EVERYWHERE))
    for n, m in product((1, 2, 5, 8), (1, 3, 7)):
        expected = len(rows_of(domain, {"n": n, "m": m}))
        assert counted.evaluate({"n": n, "m": m}) == expected
        assert card_at(domain, (("n", n), ("m", m))) == expected


# Of the catalog's kernels, what takes most operations: a tenth of a second to a third of processor time.
HEAVIEST = (
    "16i1 < n and 16i2 <= 19 + 19n - 16i0 - 288i1 and ((exists (e0: -15 + n <= 16i0 < n and i1 >= 0 and 16i2 <= 307 + "
    "n - 16i0 and e0 >= 0 and 9e0 >= -8 + 8i2 and 18e0 <= 13 - n + 16i0 + 16i2)) or (i0 >= 0 and 16i1 >= -15 + n and "
    "11 + 9n - 144i1 <= 8i2 <= 17 + 9n - 144i1))"
)
# barvinok runs for minutes on each, and asks isl for next to nothing.
ENDLESS = (
    (
        "(i3 + i4) mod 2 = 0 and 0 <= i0 <= 7 and i1 >= 0 and 2i1 <= k + i0 and 0 <= i2 <= 3 and "
        "i2 <= i3 <= n - i1 + 4i2 and 0 <= i4 <= n + 2i1 - i3 and 14i4 <= m - i3"
    ),
    (
        "i0 >= 0 and 32i0 < k and i1 >= i0 and 2i1 <= m + 3i0 and 0 <= i2 <= 4 and 0 <= i3 <= k - i1 - i2 and "
        "i4 >= 0 and 16i4 <= m + 15i3 and i5 >= 0 and 2i5 <= n - i1 + 16i3"
    ),
)


def test_what_the_catalog_needs_is_symbolic():
    domain = isl.Set(f"[n] -> {{ [i0, i1, i2] : {HEAVIEST} }}")
    counted = QuasiPolynomial(card(domain, isl.Set("[n] -> { : n > 0 }").params()))
    for n in (1, 15, 16, 33, 50):
        assert counted.evaluate({"n": n}) == len(rows_of(domain, {"n": n}))


@pytest.mark.parametrize("condition", ENDLESS)
def test_endless_counts_are_seen_by_their_structure(condition):
    names = sorted(set(re.findall(r"i\d", condition)))
    domain = isl.Set(f"[n, m, k] -> {{ [{', '.join(names)}] : {condition} }}")
    everywhere = isl.Set("[n, m, k] -> { : n > 0 and m > 0 and k > 0 }").params()
    with pytest.raises(TooManyOperationsError):
        card(domain, everywhere)
    sizes = {"n": 5, "m": 4, "k": 6}
    assert QuasiPolynomial.points(domain, everywhere).evaluate(sizes) == len(rows_of(domain, sizes))


def test_the_limit_is_told_from_errors_of_texts_that_it_ends():
    with pytest.raises(TooManyOperationsError), limited(9):
        isl.Set("[n] -> { [i] : 0 <= i < n }")
    with pytest.raises(isl.Error, match="syntax error"), limited(1000):
        isl.Set("[n] -> { [i] : 0 <= }")


def test_operations_decide_whatever_was_counted_before():
    """The least number of operations that suffices is the same in each worker, with any history: no time is in it."""
    text, found = str(points(*SETS["slow"])), []
    for before in ([], ["box", "tiles"]):
        worker = CardProcess()
        for name in before:
            worker.card(str(points(*SETS[name])), str(EVERYWHERE), 10**6)
        low, high = 7000, 8000
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if worker.card(text, str(EVERYWHERE), middle) else (middle, high)
        found.append(high)
        worker.close()
    assert found[0] == found[1] > 1000


def test_a_count_of_too_many_operations_is_none_and_the_worker_goes_on():
    worker = CardProcess()
    slow, whole = str(points(*SETS["slow"])), QuasiPolynomial(card(points(*SETS["slow"]), EVERYWHERE))
    # Wherever it is ended, by an error, a crash or with a wrong count: never a number.
    for operations in (1, 100, 1000, 2000, 3000, 4000, 5000, 6000):
        assert worker.card(slow, str(EVERYWHERE), operations) is None
    assert QuasiPolynomial(isl.PwQPolynomial(worker.card(slow, str(EVERYWHERE), 200_000))) == whole
    worker.close()
    assert worker.card("[n] -> { [i] : 0 <= i < n }", "[n] -> { : n > 0 }", 10_000) == "[n] -> { n }"
    worker.close()


@pytest.mark.machine
def test_the_net_ends_a_count_with_an_error(monkeypatch):
    names = sorted(set(re.findall(r"i\d", ENDLESS[0])))
    endless = f"[n, m, k] -> {{ [{', '.join(names)}] : {ENDLESS[0]} }}"
    monkeypatch.setattr(_cardinality, "_NET_S", 0.2)
    with pytest.raises(UnsupportedKernelError, match=r"not counted, it took 0.2 s of processor time; fix some sizes"):
        card_process.card(endless, "[n, m, k] -> { : n > 0 and m > 0 and k > 0 }", 10**9)
    assert card_process.card("{ [i, j] : 0 <= i <= j < 9 }", "{ : }", 10**6) == "{ 45 }"


def test_the_worker_imports_what_its_parent_imports(monkeypatch, tmp_path):
    """Packages in a folder of PYTHONPATH, as on clusters and with pip's --target."""
    (tmp_path / "islpy.py").write_text("raise SystemExit('islpy of this folder')", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    worker = CardProcess()
    with pytest.raises(UnsupportedKernelError, match="islpy of this folder"):
        worker.card("{ [i] : 0 <= i < 9 }", "{ : }", 10**6)
    worker.close()


def test_without_a_worker_there_is_an_error(monkeypatch):
    def none():
        msg = "no more processes"
        raise OSError(msg)

    worker = CardProcess()
    monkeypatch.setattr(worker, "_running", none)
    with pytest.raises(UnsupportedKernelError, match="was lost: no more processes"):
        worker.card("{ [i] : 0 <= i < 9 }", "{ : }", 10**6)


def test_all_counts_go_through_one_door():
    top = Path(perflex.__file__).parents[1]
    files = [path for folder in ("perflex", "features", "uipick", "models") for path in (top / folder).rglob("*.py")]
    assert len(files) > 200
    counting = {path.name for path in files if ".card()" in path.read_text(encoding="utf-8")}
    assert counting == {"cardinality.py", "card_worker.py"}


def test_slow_counts_are_put_off_and_exact_at_given_sizes(monkeypatch):
    ask, symbolic = card_process.card, _cardinality._SYMBOLIC_OPERATIONS
    monkeypatch.setattr(card_process, "card", lambda *asked: None if asked[2] == symbolic else ask(*asked))
    domain = points(*SETS["slow"])
    with pytest.raises(TooManyOperationsError):
        card(domain, EVERYWHERE)
    counted = QuasiPolynomial.points(domain, EVERYWHERE)
    assert counted.deferred
    found = len(rows_of(domain, {"n": 9, "m": 6}))
    assert counted.evaluate({"n": 9, "m": 6}) == found
    more = counted + QuasiPolynomial.parse("[n] -> { n }")
    assert (more * more).evaluate({"n": 9, "m": 6}) == (found + 9) ** 2


def test_a_formula_is_sought_for_many_sizes_only(monkeypatch):
    ask, asked = card_process.card, []
    monkeypatch.setattr(card_process, "card", lambda *given: asked.append(given[2]) or ask(*given))
    # No other test has sought its formula.
    domain = points("a, b, c, d, e", f"{TRIANGLES} and c >= 1")
    counted = QuasiPolynomial.points(domain, EVERYWHERE) * 3 + QuasiPolynomial.parse("[n] -> { n }")
    squared = pickle.loads(pickle.dumps(counted * counted))
    expected = {(n, m): 3 * len(rows_of(domain, {"n": n, "m": m})) + n for n, m in product(range(1, 8), range(1, 7))}
    for n, m in list(expected)[:4]:
        assert counted.evaluate({"n": n, "m": m}) == expected[n, m]
        assert squared.evaluate({"n": n, "m": m}) == expected[n, m] ** 2
    assert _cardinality._SYMBOLIC_OPERATIONS not in asked
    n, m = np.array(list(expected)).T
    assert counted.evaluate({"n": n, "m": m}).tolist() == list(expected.values())
    assert asked.count(_cardinality._SYMBOLIC_OPERATIONS) == 1
    assert not counted.deferred
    assert str(counted) != "counted at given sizes"
    assert QuasiPolynomial(counted.isl_object).evaluate({"n": 7, "m": 6}) == expected[7, 6]
    restored = polynomial_from_record(json.loads(json.dumps(polynomial_record(counted))))
    assert restored == counted
    assert restored.evaluate({"n": 7, "m": 6}) == expected[7, 6]


def _in_a_fork(queue):
    queue.put((os.getpid(), card_process.card("{ [i, j] : 0 <= i <= j < 9 }", "{ : }", 10**6)))


@pytest.mark.machine
def test_a_fork_has_a_worker_of_its_own():
    if "fork" not in __import__("multiprocessing").get_all_start_methods():
        pytest.skip("this system does not fork")
    assert card_process.card("{ [i] : 0 <= i < 9 }", "{ : }", 10**6) == "{ 9 }"
    context = get_context("fork")
    queue = context.Queue()
    child = context.Process(target=_in_a_fork, args=(queue,))
    child.start()
    pid, answer = queue.get(timeout=60)
    child.join()
    assert (pid != os.getpid(), answer) == (True, "{ 45 }")
    assert card_process.card("{ [i] : 0 <= i < 8 }", "{ : }", 10**6) == "{ 8 }"
