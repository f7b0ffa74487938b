"""Work in the workers of a user's executor, and what tells the user why the executor failed."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import ExecutorError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from concurrent.futures import Executor, Future

_Result = TypeVar("_Result")

# What executors raise themselves, or what happens on the way to and from workers.
EXECUTOR_FAULTS = (BrokenExecutor, CancelledError, PicklingError, RuntimeError, TypeError, AttributeError, ImportError)
# What is said of things that cannot be sent; "local object" by Python 3.13.
_NOT_SENT = ("pickle", "serializ", "local object")


def made_by(
    executor: Executor, work: Callable[..., _Result], arguments: Iterable[tuple[Any, ...]]
) -> Iterator[_Result]:
    """Yield what an executor's workers return for tuples of arguments, in their order; its faults are explained."""
    pending: list[Future[_Result]] = []
    try:
        pending.extend(executor.submit(work, *one) for one in arguments)
        for future in pending:
            yield future.result()
    except EXECUTOR_FAULTS as error:
        fault = explained_fault(error, executor)
        # An error of the work itself goes on as it is: as its own cause it would be an endless chain.
        if fault is error:
            raise
        raise fault from error
    finally:
        # After a fault, what no worker has begun is not worth doing.
        for future in pending:
            future.cancel()


def explained_fault(
    error: BaseException, executor: Executor, done: str = "counted", fix: str = "give a new one, or count without"
) -> BaseException:
    """Return what tells the user why an executor failed, or the error itself if the executor is not to blame."""
    kind = type(executor).__name__
    reason = f"{type(error).__name__}: {error}".strip(": ")
    # What cannot be sent, and a pool that was shut down, show in the words only: Python raises several types for them.
    if isinstance(error, (BrokenExecutor, CancelledError)):
        msg = f"the {kind} ended before all kernels were {done} ({reason}); {fix}"
    elif isinstance(error, PicklingError) or any(words in reason.lower() for words in _NOT_SENT):
        msg = (
            f"a feature, kernel or device cannot be sent to the workers of the {kind} ({reason}); "
            "define what it is made of in a module, or use a ThreadPoolExecutor"
        )
    elif isinstance(error, ImportError):
        msg = f"the workers of the {kind} lack something ({reason}); install perflex there as it is here"
    elif isinstance(error, RuntimeError) and "shutdown" in reason:
        msg = f"the {kind} takes no more work ({reason}); call inside its with block"
    else:
        return error
    return ExecutorError(msg, executor=kind)
