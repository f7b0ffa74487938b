"""An executor as measuring sees it: how many workers may measure at once, what replaces a broken one, its faults."""

from __future__ import annotations

import time
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

from perflex.errors import warn
from perflex.timing.executors.portions import time_portion
from perflex.workers import explained_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Executor, Future

    from perflex.timing.executors.portions import Portion, PortionResult

_Result = TypeVar("_Result")

_LOOK_S = 1.0
# A worker or the way to it is gone; the work may succeed elsewhere.
LOSSES = (BrokenExecutor, CancelledError)
# What executors raise themselves, or what happens on the way to and from workers.
FAULTS = (PicklingError, RuntimeError, TypeError, AttributeError, ImportError, OSError)


class WorkersDiedError(BrokenExecutor):
    """Workers ended in the middle of this piece of work, `deaths` of them; the executor itself still works."""

    def __init__(self, message: str, deaths: int) -> None:
        super().__init__(message)
        self.deaths = deaths


@runtime_checkable
class MeasuringExecutor(Protocol):
    """An executor that knows how many devices its workers have, and sends measurements to one worker for each."""

    def measuring_slots(self) -> int:
        """Return how many portions can be measured at the same time; 0 while there is no worker."""
        ...

    def submit_measuring(self, function: Callable[[Any], _Result], work: Any) -> Future[_Result]:
        """Have work, such as a portion, done by a worker that measures nothing else meanwhile."""
        ...

    def submit_to_each(self, function: Callable[[Any], _Result], work: Any) -> list[Future[_Result]]:
        """Have the same work done by each worker that may measure; at least by one."""
        ...

    def leave_out(self, worker: str) -> None:
        """Send no more measurements to the worker with an address, as results state it."""
        ...


class Pool:
    """An executor in the course of measuring.

    A pool of processes breaks as a whole when one of them dies, and is then replaced by another with one process: on
    one machine only one measures on a device at any time.

    Parameters
    ----------
    executor
        The user's.
    """

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._replacement: ProcessPoolExecutor | None = None
        # Its workers are on this machine, where one measures at a time.
        local = isinstance(executor, (ProcessPoolExecutor, ThreadPoolExecutor))
        self.is_local = local and not isinstance(executor, MeasuringExecutor)

    @property
    def breaks_as_a_whole(self) -> bool:
        """Whether the loss of a worker ends all work that was sent, so that it does not say whose fault it was."""
        return not isinstance(self._executor, MeasuringExecutor)

    def width(self, most: int) -> int:
        """Return how many portions may be at work, `most` of them where the executor does not tell."""
        if isinstance(self._executor, MeasuringExecutor):
            return self._executor.measuring_slots()
        return 1 if self.is_local else most

    def submit(self, portion: Portion) -> Future[PortionResult]:
        """Send a portion."""
        return self._handed(time_portion, portion)

    def _handed(self, function: Callable[[Any], _Result], work: Any) -> Future[_Result]:
        try:
            return self._send(function, work)
        except BrokenExecutor as error:
            if not isinstance(self._executor, ProcessPoolExecutor):
                raise self.explained(error) from error
        except FAULTS as error:
            raise self.explained(error) from error
        self._replace()
        return self._send(function, work)

    def ask(self, function: Callable[[Any], _Result], work: Any) -> list[_Result]:
        """Return what each worker that may measure makes of some work; where an executor does not tell them, one's."""
        if not isinstance(self._executor, MeasuringExecutor):
            return list(self.results(function, [work]))
        answers, lost = [], []
        try:
            for future in self._executor.submit_to_each(function, work):
                try:
                    answers.append(self._result(future))
                except LOSSES as error:
                    lost.append(error)  # of one worker; others may be there
        except FAULTS as error:
            raise self.explained(error) from error
        if not answers:
            raise self.explained(lost[0]) from lost[0]
        return answers

    def results(self, function: Callable[[Any], _Result], works: Sequence[Any]) -> Iterator[_Result]:
        """Yield what workers make of pieces of work, in their order."""
        try:
            for future in [self._handed(function, work) for work in works]:
                yield self._result(future)
        except (*LOSSES, *FAULTS) as error:
            fault = self.explained(error)
            raise fault from None if fault is error else error

    def _result(self, future: Future[_Result]) -> _Result:
        # Who is asked how many devices there are notices workers that are gone, and gives up what waits for them.
        while not wait([future], _LOOK_S).done:
            self.width(1)
        return future.result()

    def leave_out(self, worker: str, why: str) -> bool:
        """Measure no more in the worker with an address, and return whether that could be done."""
        if not (worker and isinstance(self._executor, MeasuringExecutor)):
            return False
        self._executor.leave_out(worker)
        warn(f"{why}; that worker is left out")
        return True

    def wait(self, futures: Collection[Future[PortionResult]]) -> set[Future[PortionResult]]:
        """Return those that are done, none after a while."""
        if not futures:
            time.sleep(_LOOK_S)
        return wait(futures, _LOOK_S, FIRST_COMPLETED).done

    def explained(self, error: BaseException) -> BaseException:
        """Return what tells the user why the executor failed, or the error itself if it is not to blame."""
        return explained_fault(error, self._executor, "timed", "give a new one, what was timed is kept")

    def close(self) -> None:
        """End what was started here; the user's executor goes on."""
        if self._replacement is not None:
            self._replacement.shutdown(wait=True, cancel_futures=True)

    def _send(self, function: Callable[[Any], _Result], work: Any) -> Future[_Result]:
        if isinstance(self._executor, MeasuringExecutor):
            return self._executor.submit_measuring(function, work)
        return (self._replacement or self._executor).submit(function, work)

    def _replace(self) -> None:
        self.close()
        # What the user gave his pool is kept nowhere else.
        self._replacement = ProcessPoolExecutor(
            1,
            mp_context=getattr(self._executor, "_mp_context", None),
            initializer=getattr(self._executor, "_initializer", None),
            initargs=getattr(self._executor, "_initargs", ()),
        )
