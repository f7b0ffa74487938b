"""Values of counted features, for one kernel or many; of many here or in an executor's workers."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor, CancelledError
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import cpu_count
from pickle import PicklingError
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.errors import ExecutorError, UnsupportedKernelError
from perflex.features.target import DEFAULT_SUB_GROUP_SIZE, Target, resolve_target
from perflex.store.store import current_store, using_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Executor, Future
    from pathlib import Path

    from perflex.compiled.program import CompiledProgram
    from perflex.features import Amount, Feature
    from perflex.features.sized_kernel import SizedKernel
    from perflex.features.target import Target
    from perflex.machines.machine import Machine
    from perflex.machines.residency import Resources
    from perflex.progress import Progress

    _Task = tuple[Any, Mapping[str, Any], Target]


def kernel_of(kernel: Any) -> Any:
    """Return the loopy kernel (or Scop) of a measurement kernel, or the argument itself."""
    return getattr(kernel, "kernel", kernel)


def with_own_sizes(kernel: Any, sizes: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return a measurement kernel's kernel, and its own sizes where none are given; others as they are."""
    # A measurement kernel; uipick is not imported to find that out.
    if hasattr(kernel, "generator"):
        return kernel.kernel, {**kernel.sizes, **sizes}
    return kernel, sizes


def kernel_feature_values(
    features: Iterable[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE,
    *,
    machine: str | Path | Machine | None = None,
) -> dict[str, Any]:
    """Return the values of counted features for one kernel.

    Parameters
    ----------
    features
        Identifiers of counted features (not wall times).
    kernel
        A loopy translation unit, a measurement kernel, or a Scop.
    sizes
        An integer per size parameter, or integer arrays of one shape.
    sub_group_size
        Work-items per sub-group.
    machine
        For features that need one: a machine, its name, or its file; by default that of `using_machine`.

    Returns
    -------
    dict
        A number per feature, or an array where sizes are arrays; zero where the kernel has nothing of it.

    Raises
    ------
    UnknownFeatureError
        An identifier names no feature.
    MissingSizeError
        A size parameter has no value, or the kernel is not valid for it.
    UnsupportedKernelError
        The kernel cannot be described exactly.
    MachineError
        A feature needs a machine and there is none, or it lacks a fact.
    """
    names = list(features)
    return feature_values(names, kernel, sizes, target_of(names, sub_group_size, machine))


def feature_values(features: Iterable[str], kernel: Any, sizes: Mapping[str, Any], target: Target) -> dict[str, Any]:
    """Return the values of counted features for one kernel on a target; see `kernel_feature_values`."""
    from perflex.features.counting.scop_counts import counts_of
    from perflex.features.families.registry import parse_feature
    from perflex.features.from_loopy.extract import extract_scop

    scop = extract_scop(kernel, sizes)
    checked = scop.checked(sizes)
    values = {name: parse_feature(name).value(scop, checked, target) for name in features}
    counts_of(scop).keep()
    return values


def target_of(
    features: Iterable[str],
    sub_group_size: int = DEFAULT_SUB_GROUP_SIZE,
    machine: str | Path | Machine | None = None,
    *,
    otherwise: str | Machine = "",
) -> Target:
    """Return the target, as `resolve_target`; a machine called `otherwise` is looked up only if a feature needs one."""
    from perflex.features.families.machine import needs_machine
    from perflex.features.families.registry import parse_feature

    if otherwise and not any(needs_machine(parse_feature(name)) for name in features):
        otherwise = ""
    return resolve_target(sub_group_size, machine, otherwise=otherwise)


_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# So many portions of work for each core: few enough to be sent quickly, many enough to keep all workers busy.
_PORTIONS = 12
# What executors raise themselves, or what happens on the way to and from workers.
EXECUTOR_FAULTS = (BrokenExecutor, CancelledError, PicklingError, RuntimeError, TypeError, AttributeError, ImportError)
# What is said of things that cannot be sent; "local object" by Python 3.13.
_NOT_SENT = ("pickle", "serializ", "local object")


@dataclass(frozen=True)
class CountedRow:
    """What was counted of one kernel at its sizes."""

    values: tuple[float, ...] = ()  # Of each feature
    matched: tuple[bool, ...] = ()  # Whether the kernel has anything that the feature counts
    # What one unit of each feature amounts to, None where that is not one number.
    amounts: tuple[Amount | None, ...] = ()
    refusal: str | None = None  # Why the kernel cannot be counted; the other fields are empty then


def count_rows(
    features: Sequence[Feature],
    rows: Sequence[SizedKernel],
    target: Target,
    executor: Executor | None = None,
    progress: Progress | None = None,
    resources: Sequence[Resources | None] | None = None,
    code: Sequence[tuple[CompiledProgram, ...] | None] | None = None,
) -> list[CountedRow]:
    """Count features of kernels."""
    nothing = [None] * len(rows)
    known = zip(resources or nothing, code or nothing, strict=True)
    tasks = [
        (row.kernel, dict(row.sizes), replace(target, resources=taken, code=programs))
        for row, (taken, programs) in zip(rows, known, strict=True)
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
        scop = extract_scop(kernel, sizes)
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


def in_workers(
    executor: Executor,
    work: Callable[[Sequence[_Item], str], list[_Result]],
    items: Sequence[_Item],
    report: Callable[[int], None] | None = None,
) -> list[_Result]:
    """Return what an executor's workers make of items, in their order."""
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
