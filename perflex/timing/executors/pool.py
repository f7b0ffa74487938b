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
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from perflex.timing.executors.portions import time_portion
from perflex.workers import explained_fault

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from concurrent.futures import Executor, Future

    from perflex.timing.executors.portions import Portion, PortionResult

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

    def submit_measuring(self, function: Callable[[Portion], PortionResult], portion: Portion) -> Future[PortionResult]:
        """Have a portion measured by a worker that measures nothing else meanwhile."""
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
        self._one_at_a_time = isinstance(executor, (ProcessPoolExecutor, ThreadPoolExecutor))

    @property
    def breaks_as_a_whole(self) -> bool:
        """Whether the loss of a worker ends all work that was sent, so that it does not say whose fault it was."""
        return not isinstance(self._executor, MeasuringExecutor)

    def width(self, most: int) -> int:
        """Return how many portions may be at work, `most` of them where the executor does not tell."""
        if isinstance(self._executor, MeasuringExecutor):
            return self._executor.measuring_slots()
        return 1 if self._one_at_a_time else most

    def submit(self, portion: Portion) -> Future[PortionResult]:
        """Send a portion."""
        try:
            return self._send(portion)
        except BrokenExecutor as error:
            if not isinstance(self._executor, ProcessPoolExecutor):
                raise self.explained(error) from error
        except FAULTS as error:
            raise self.explained(error) from error
        self._replace()
        return self._send(portion)

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

    def _send(self, portion: Portion) -> Future[PortionResult]:
        if isinstance(self._executor, MeasuringExecutor):
            return self._executor.submit_measuring(time_portion, portion)
        return (self._replacement or self._executor).submit(time_portion, portion)

    def _replace(self) -> None:
        self.close()
        # What the user gave his pool is kept nowhere else.
        self._replacement = ProcessPoolExecutor(
            1,
            mp_context=getattr(self._executor, "_mp_context", None),
            initializer=getattr(self._executor, "_initializer", None),
            initargs=getattr(self._executor, "_initargs", ()),
        )
