"""Work in an executor's workers: results in order, faults explained, and nothing begun after the first."""

from __future__ import annotations

import time
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future, ThreadPoolExecutor
from pickle import PicklingError
from threading import Event
from typing import TYPE_CHECKING

import pytest

from perflex.errors import ExecutorError, MissingSizeError
from perflex.features import many
from perflex.features.many import explained_fault, in_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class FakeExecutor(Executor):
    """Does the first `does` portions when they are handed in, leaves the others waiting, and takes `takes` at most."""

    def __init__(self, does: int = 1000, takes: int = 1000) -> None:
        self.does, self.takes = does, takes
        self.futures: list[Future] = []

    def submit(self, function: Callable, /, *arguments: object, **options: object) -> Future:
        if len(self.futures) == self.takes:
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)
        future: Future = Future()
        self.futures.append(future)
        if len(self.futures) <= self.does:
            try:
                future.set_result(function(*arguments, **options))
            except Exception as error:  # noqa: BLE001
                future.set_exception(error)
        return future


def squares(portion: Sequence[int], store: str) -> list[int]:
    return [item**2 for item in portion]


@pytest.fixture
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Portions as on a machine with one core: a twelfth of the items each, rounded down."""
    monkeypatch.setattr(many, "cpu_count", lambda: 1)


@pytest.mark.parametrize("count", [0, 1, 11, 25, 1000])
def test_results_keep_the_order_of_items(count: int) -> None:
    assert in_workers(FakeExecutor(), squares, range(count)) == [item**2 for item in range(count)]


def test_results_keep_the_order_where_later_ones_are_done_first() -> None:
    ended: list[int] = []
    others = Event()

    def slow_first(portion: Sequence[int], store: str) -> list[int]:
        assert 0 not in portion or others.wait(5)
        ended.extend(portion)
        if 7 in portion:
            others.set()
        return list(portion)

    with ThreadPoolExecutor(2) as pool:
        assert in_workers(pool, slow_first, range(8)) == list(range(8))
    assert ended == [*range(1, 8), 0]


def test_work_is_told_of_in_portions(one_core: None) -> None:
    told: list[int] = []
    pool = FakeExecutor()
    in_workers(pool, squares, range(25), told.append)
    assert told == list(range(0, 25, 2))
    assert len(pool.futures) == 13
    assert [len(future.result()) for future in pool.futures] == [2] * 12 + [1]


def test_the_first_error_cancels_what_is_pending(one_core: None) -> None:
    def fails_at_three(portion: Sequence[int], store: str) -> list[int]:
        if 3 in portion:
            msg = "no size; give one"
            raise MissingSizeError(msg)
        return list(portion)

    told: list[int] = []
    pool = FakeExecutor(does=5)
    with pytest.raises(MissingSizeError, match="no size; give one"):
        in_workers(pool, fails_at_three, range(10), told.append)
    assert told == [0, 1, 2, 3]
    assert [future.cancelled() for future in pool.futures] == [False] * 5 + [True] * 5


def test_threads_begin_nothing_after_the_first_error() -> None:
    begun: list[int] = []

    def fails(portion: Sequence[int], store: str) -> list[int]:
        begun.extend(portion)
        time.sleep(0.05)
        msg = "a fault of the user's"
        raise TypeError(msg)

    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match=r"^a fault of the user's$"):
        in_workers(pool, fails, range(100))
    assert len(begun) < 50


def test_a_pool_that_takes_no_more_is_named_and_what_it_took_cancelled() -> None:
    pool = FakeExecutor(does=1, takes=3)
    with pytest.raises(ExecutorError, match=r"^the FakeExecutor takes no more work .*; call inside its with") as caught:
        in_workers(pool, squares, range(6))
    assert caught.value.executor == "FakeExecutor"
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert [future.cancelled() for future in pool.futures] == [False, True, True]


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (BrokenExecutor("a worker died"), r"ended before all kernels were counted \(BrokenExecutor: a worker died\)"),
        (CancelledError(), r"ended before all kernels were counted \(CancelledError\); give a new one"),
        (PicklingError("cannot pickle it"), r"cannot be sent to the workers of the FakeExecutor \(PicklingError: "),
        (AttributeError("Can't pickle local object"), "cannot be sent .*or use a ThreadPoolExecutor"),
        (TypeError("could not serialize object"), r"cannot be sent .*TypeError: could not serialize"),
    ],
)
def test_faults_of_executors_are_explained(error: Exception, words: str) -> None:
    def fails(portion: Sequence[int], store: str) -> list[int]:
        raise error

    with pytest.raises(ExecutorError, match=words) as caught:
        in_workers(FakeExecutor(), fails, [1])
    assert caught.value.__cause__ is error


def test_explanations_say_what_was_done_and_what_to_do() -> None:
    found = explained_fault(BrokenExecutor(), FakeExecutor(), "timed", "start again")
    assert str(found) == "the FakeExecutor ended before all kernels were timed (BrokenExecutor); start again"
    missing = explained_fault(ModuleNotFoundError("No module named 'perflex'"), FakeExecutor())
    assert isinstance(missing, ExecutorError)
    assert "lack something (ModuleNotFoundError: No module named 'perflex'); install perflex there" in str(missing)
    for error in (RuntimeError("of the work's own"), TypeError("wrong"), ValueError("shutdown")):
        assert explained_fault(error, FakeExecutor()) is error


def _fails(_portion: object, _store: str) -> list[int]:
    msg = "of the work itself"
    raise TypeError(msg)


def test_an_error_of_the_work_is_not_its_own_cause() -> None:
    with ThreadPoolExecutor(1) as pool, pytest.raises(TypeError, match="of the work itself") as caught:
        in_workers(pool, _fails, [1, 2])
    assert caught.value.__cause__ is None
