"""Counting features of many kernels, here or in an executor's workers."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import cpu_count
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import ExecutorError, UnsupportedKernelError
from perflex.store.store import current_store, using_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from perflex.compiled.program import CompiledProgram
    from perflex.features import Amount, Feature
    from perflex.features.sized_kernel import SizedKernel
    from perflex.features.target import Target
    from perflex.machines.resources import Resources
    from perflex.progress import Progress

    # A kernel, the value of each size, and what it runs on.
    _Task = tuple[Any, Mapping[str, Any], Target]

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# So many portions of work for each core: few enough to be sent quickly, many enough to keep all workers busy.
_PORTIONS = 12
# What executors raise themselves, or what happens on the way to and from workers.
EXECUTOR_FAULTS = (BrokenExecutor, CancelledError, PicklingError, RuntimeError, TypeError, AttributeError, ImportError)


@dataclass(frozen=True)
class CountedRow:
    """What was counted of one kernel at its sizes.

    Attributes
    ----------
    values
        Of each feature.
    matched
        Whether the kernel has anything that the feature counts.
    amounts
        What one unit of each feature amounts to, None where that is not one number.
    refusal
        Why the kernel cannot be counted; the other fields are empty then.
    """

    values: tuple[float, ...] = ()
    matched: tuple[bool, ...] = ()
    amounts: tuple[Amount | None, ...] = ()
    refusal: str | None = None


def count_rows(
    features: Sequence[Feature],
    rows: Sequence[SizedKernel],
    target: Target,
    executor: Executor | None = None,
    progress: Progress | None = None,
    resources: Sequence[Resources | None] | None = None,
    code: Sequence[tuple[CompiledProgram, ...] | None] | None = None,
    host_code: Sequence[bool] | None = None,
) -> list[CountedRow]:
    """Count features of kernels.

    Parameters
    ----------
    features
        What to count.
    rows
        The kernels (or Scops) with their sizes.
    target
        What they run on.
    executor
        Where to count; here if there is none.
    progress
        Called with (done, total, what) as work proceeds.
    resources
        What each kernel takes as it was built, for features that depend on that.
    code
        Machine code of each kernel, likewise.
    host_code
        Whether each row's time includes host code; by default none does.

    Raises
    ------
    ExecutorError
        The executor failed.
    PerflexError
        As the features; of the first row that has one.
    """
    nothing = [None] * len(rows)
    known = zip(resources or nothing, code or nothing, host_code or [False] * len(rows), strict=True)
    tasks = [
        (row.kernel, dict(row.sizes), replace(target, resources=taken, code=programs, host_code=hosted))
        for row, (taken, programs, hosted) in zip(rows, known, strict=True)
    ]
    if executor is None:
        counted = []
        for number, row in enumerate(rows):
            if progress is not None:
                progress(number, len(rows), f"counting {row.label}")
            counted.append(_count(features, *tasks[number]))
        return counted
    # The rows of one kernel go to one worker, which then describes the kernel only once.
    by_kernel: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        # By identity: comparing loopy kernels by value is slow.
        by_kernel.setdefault(id(row.kernel), []).append(number)
    groups = list(by_kernel.values())

    def report(done: int) -> None:
        if progress is not None:
            progress(sum(map(len, groups[:done])), len(rows), f"counting {rows[groups[done][0]].label}")

    items = [[tasks[number] for number in group] for group in groups]
    found = in_workers(executor, partial(_count_kernels, features), items, report)
    by_number = dict(zip(chain(*groups), chain(*found), strict=True))
    return [by_number[number] for number in range(len(rows))]


def _count(features: Sequence[Feature], kernel: Any, sizes: Mapping[str, Any], target: Target) -> CountedRow:
    from perflex.features import counts_of, extract_scop

    try:
        scop = extract_scop(kernel)
        checked = scop.checked(sizes)
        values = tuple([float(feature.value(scop, checked, target)) for feature in features])
        matched = tuple([feature.matches(scop, checked) for feature in features])
        amounts = tuple(
            [
                feature.amount(scop, checked, target) if has else None
                for feature, has in zip(features, matched, strict=True)
            ]
        )
    except UnsupportedKernelError as error:
        # A kernel that cannot be described is its row's affair; any other error ends the count.
        return CountedRow(refusal=error.message)
    counts_of(scop).keep()
    return CountedRow(values, matched, amounts)


def _count_kernels(features: Sequence[Feature], kernels: Sequence[list[_Task]], store: str) -> list[list[CountedRow]]:
    """Count in a worker, which may be another process; of each kernel all its rows."""
    with using_store(store):
        return [[_count(features, *task) for task in tasks] for tasks in kernels]


def explained_fault(
    error: BaseException, executor: Executor, done: str = "counted", fix: str = "give a new one, or count without"
) -> BaseException:
    """Return what tells the user why an executor failed, or the error itself if the executor is not to blame.

    Parameters
    ----------
    error
        What was raised.
    executor
        Where.
    done
        What was to be done with the kernels.
    fix
        What to do where it ended too early.
    """
    kind = type(executor).__name__
    reason = f"{type(error).__name__}: {error}".strip(": ")
    # What cannot be sent, and a pool that was shut down, show in the words only: Python raises several types for them.
    if isinstance(error, (BrokenExecutor, CancelledError)):
        msg = f"the {kind} ended before all kernels were {done} ({reason}); {fix}"
    elif isinstance(error, PicklingError) or any(word in reason.lower() for word in ("pickle", "serializ")):
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


def in_workers(
    executor: Executor,
    work: Callable[[Sequence[_Item], str], list[_Result]],
    items: Sequence[_Item],
    report: Callable[[int], None] | None = None,
) -> list[_Result]:
    """Return what an executor's workers make of items, in their order.

    Parameters
    ----------
    executor
        Whose workers.
    work
        Called there with some of the items and the place of the store that is in use here, which no other thread or
        process knows of. Returns a result for each item.
    items
        What to work on.
    report
        Called with the number of items done as work proceeds.

    Raises
    ------
    ExecutorError
        The executor failed.
    """
    used = current_store()
    # Workers on other machines cannot reach the file of the store that is in use here.
    store = str(used.path) if used is not None and getattr(executor, "workers_share_files", True) else "off"
    done: list[_Result] = []
    pending: list[Future[list[_Result]]] = []
    size = max(1, len(items) // (_PORTIONS * (cpu_count() or 1)))
    portions = [items[first : first + size] for first in range(0, len(items), size)]
    try:
        pending.extend(executor.submit(work, portion, store) for portion in portions)
        for future in pending:
            if report is not None:
                report(len(done))
            done += future.result()
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
    return done
