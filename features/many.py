"""Counting features of many kernels, here or in an executor's workers."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass, replace
from os import cpu_count
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import ExecutorError, UnsupportedKernelError
from perflex.store.store import current_store, using_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from perflex.features import Amount, Feature
    from perflex.features.sized_kernel import SizedKernel
    from perflex.features.target import Target
    from perflex.machines.resources import Resources
    from perflex.progress import Progress

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# So many portions of work for each core: few enough to be sent quickly, many enough to keep all workers busy.
_PORTIONS = 12
# What executors raise themselves, or what happens on the way to and from workers.
EXECUTOR_FAULTS = (BrokenExecutor, CancelledError, PicklingError, RuntimeError, TypeError, AttributeError)


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

    Raises
    ------
    ExecutorError
        The executor failed.
    PerflexError
        As the features; of the first row that has one.
    """
    built = resources or [None] * len(rows)
    targets = [target if each is None else replace(target, resources=each) for each in built]
    if executor is not None:
        return _in_executor(features, rows, targets, executor, progress)
    counted = []
    for number, row in enumerate(rows):
        if progress is not None:
            progress(number, len(rows), f"counting {row.label}")
        counted.append(_count(features, row.kernel, row.sizes, targets[number]))
    return counted


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
        return CountedRow(refusal=error.message)
    counts_of(scop).keep()
    return CountedRow(values, matched, amounts)


def _count_portion(
    features: Sequence[Feature], portion: Sequence[tuple[Any, Mapping[str, Any], Target]], store: str
) -> list[CountedRow]:
    """Count in a worker, which may be another process."""
    with using_store(store):
        return [_count(features, kernel, sizes, target) for kernel, sizes, target in portion]


def _in_executor(
    features: Sequence[Feature],
    rows: Sequence[SizedKernel],
    targets: Sequence[Target],
    executor: Executor,
    progress: Progress | None,
) -> list[CountedRow]:
    used = current_store()
    shared = getattr(executor, "workers_share_files", True)
    store = str(used.path) if used is not None and shared else "off"
    counted: dict[int, CountedRow] = {}
    pending: list[tuple[list[int], Future[list[CountedRow]]]] = []
    try:
        for numbers in _portions([row.kernel for row in rows]):
            portion = [(rows[number].kernel, dict(rows[number].sizes), targets[number]) for number in numbers]
            pending.append((numbers, executor.submit(_count_portion, features, portion, store)))
        for numbers, future in pending:
            if progress is not None:
                progress(len(counted), len(rows), f"counting {rows[numbers[0]].label}")
            counted.update(zip(numbers, future.result(), strict=True))
    except EXECUTOR_FAULTS as error:
        raise explained_fault(error, executor) from error
    finally:
        for _, future in pending:
            future.cancel()
    return [counted[number] for number in range(len(rows))]


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
    elif any(word in reason.lower() for word in ("pickle", "serializ")):
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


def _portions(kernels: Sequence[Any]) -> Iterator[list[int]]:
    """Divide row numbers into portions; the rows of one kernel stay together, for it is described only once."""
    by_kernel: dict[int, list[int]] = {}
    for number, kernel in enumerate(kernels):
        by_kernel.setdefault(id(kernel), []).append(number)
    groups = list(by_kernel.values())
    for portion in in_portions(groups):
        yield [number for group in portion for number in group]


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
    store = str(used.path) if used is not None and getattr(executor, "workers_share_files", True) else "off"
    done: list[_Result] = []
    pending: list[Future[list[_Result]]] = []
    try:
        pending.extend(executor.submit(work, portion, store) for portion in in_portions(items))
        for future in pending:
            if report is not None:
                report(len(done))
            done += future.result()
    except EXECUTOR_FAULTS as error:
        raise explained_fault(error, executor) from error
    finally:
        for future in pending:
            future.cancel()
    return done


def in_portions(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Divide work into portions for an executor's workers."""
    size = max(1, len(items) // (_PORTIONS * (cpu_count() or 1)))
    for first in range(0, len(items), size):
        yield items[first : first + size]
