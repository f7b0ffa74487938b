"""An executor as measuring sees it: how many workers may measure at once, what they are asked, and its faults."""

from __future__ import annotations

import socket
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from dataclasses import dataclass
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from perflex.errors import ExecutorError, PerflexError, warn
from perflex.version import __version__
from perflex.workers import explained_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from concurrent.futures import Executor, Future

_LOOK_S = 1.0
# A worker or the way to it is gone; the work may succeed elsewhere.
LOSSES = (BrokenExecutor, CancelledError)
# What executors raise themselves, or what happens on the way to and from workers.
FAULTS = (PicklingError, RuntimeError, TypeError, AttributeError, ImportError, OSError)


@dataclass(frozen=True)
class Work:
    """What a worker is to do: call a function that is known there by its name; `version` is the sender's perflex."""

    function: Callable[[Any], Any]
    argument: Any
    version: str = __version__


@dataclass(frozen=True)
class Answer:
    """What came of it, or why nothing did; `worker` is its address where the executor knows one."""

    value: Any
    error: PerflexError | None = None
    host: str = ""
    worker: str = ""


def done(work: Work) -> Answer:
    """Do work in a worker. Errors are returned: what they were raised from may not be known where they go."""
    host = socket.gethostname()
    try:
        if work.version != __version__:
            msg = (
                f"the worker on {host} has perflex {__version__}, the client {work.version}; "
                "install the same version on both"
            )
            raise ExecutorError(msg)
        return Answer(work.function(work.argument), host=host)
    except PerflexError as error:
        return Answer(None, error.alone(), host)


@runtime_checkable
class MeasuringExecutor(Protocol):
    """An executor that knows how many devices its workers have, and sends measurements to one worker for each."""

    def measuring_slots(self) -> int:
        """Return how much can be measured at the same time; 0 while there is no worker."""
        ...

    def submit_measuring(self, function: Callable[[Work], Answer], work: Work) -> Future[Answer]:
        """Have work done by a worker that measures nothing else meanwhile."""
        ...

    def submit_to_each(self, function: Callable[[Work], Answer], work: Work) -> list[Future[Answer]]:
        """Have the same work done by each worker that may measure; at least by one."""
        ...

    def leave_out(self, worker: str) -> None:
        """Send no more measurements to the worker with an address, as answers state it."""
        ...


class Workers:
    """The workers of a user's executor, in the course of measuring."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        # They are on this machine, where one measures at a time.
        local = isinstance(executor, (ProcessPoolExecutor, ThreadPoolExecutor))
        self.are_local = local and not isinstance(executor, MeasuringExecutor)

    def slots(self) -> int:
        """Return how much can be measured at once, as far as the executor tells; one that does notices lost workers."""
        return self._executor.measuring_slots() if isinstance(self._executor, MeasuringExecutor) else 1

    def submit(self, function: Callable[[Any], Any], argument: object) -> Future[Answer]:
        """Have a function called by a worker that measures nothing else meanwhile."""
        work = Work(function, argument)
        try:
            if isinstance(self._executor, MeasuringExecutor):
                return self._executor.submit_measuring(done, work)
            return self._executor.submit(done, work)
        except (BrokenExecutor, *FAULTS) as error:
            raise self.explained(error) from error

    def ask(self, function: Callable[[Any], Any], argument: object) -> list[Answer]:
        """Return what each worker that may measure answers; where an executor does not tell them, one's answer."""
        if not isinstance(self._executor, MeasuringExecutor):
            return list(self.answers(function, [argument]))
        answers, lost = [], []
        try:
            for future in self._executor.submit_to_each(done, Work(function, argument)):
                try:
                    answers.append(self._answer(future))
                except LOSSES as error:
                    lost.append(error)  # of one worker; others may be there
        except FAULTS as error:
            raise self.explained(error) from error
        if not answers:
            raise self.explained(lost[0]) from lost[0]
        return answers

    def answers(self, function: Callable[[Any], Any], arguments: Sequence[object]) -> Iterator[Answer]:
        """Yield what workers make of arguments, in their order."""
        try:
            for future in [self.submit(function, argument) for argument in arguments]:
                yield self._answer(future)
        except (*LOSSES, *FAULTS) as error:
            fault = self.explained(error)
            raise fault from None if fault is error else error

    def _answer(self, future: Future[Answer]) -> Answer:
        while not self.completed([future]):
            pass
        return future.result()

    def completed(self, futures: Collection[Future[Answer]]) -> set[Future[Answer]]:
        """Return those that are done, none after a while."""
        found = wait(futures, _LOOK_S, FIRST_COMPLETED).done
        if not found:
            # Who is asked notices workers that are gone, and gives up what waits for them.
            self.slots()
        return found

    def leave_out(self, worker: str, why: str) -> bool:
        """Measure no more in the worker with an address, and return whether that could be done."""
        if not (worker and isinstance(self._executor, MeasuringExecutor)):
            return False
        self._executor.leave_out(worker)
        warn(f"{why}; that worker is left out")
        return True

    def explained(self, error: BaseException) -> BaseException:
        """Return what tells the user why the executor failed, or the error itself if it is not to blame."""
        return explained_fault(error, self._executor, "timed", "give a new one, what was timed is kept")
