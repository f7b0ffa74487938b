"""Values of counted features, for one kernel or many; of many here or in an executor's workers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from os import cpu_count
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from perflex.devices.device import is_pocl
from perflex.errors import UnsupportedKernelError
from perflex.features.sized_kernel import SizedKernel
from perflex.features.target import Target, resolve_target
from perflex.machines.machine import Machine
from perflex.machines.residency import Resources
from perflex.store.store import current_store, using_store
from perflex.workers import made_by

if TYPE_CHECKING:
    from perflex.compiled.program import CompiledProgram
    from perflex.features import Amount, Feature
    from perflex.progress import Progress

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

# So many portions of work for each core: few enough to be sent quickly, many enough to keep all workers busy.
_PORTIONS = 12


def kernel_feature_values(
    features: Iterable[str],
    kernel: Any,
    sizes: Mapping[str, Any],
    sub_group_size: int | None = None,
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
        Work-items per sub-group; by default the machine's, else 32.
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
    from perflex.features import extract_scop, parse_feature
    from perflex.features.counting.scop_counts import keep_counts_of

    scop = extract_scop(kernel, sizes)
    checked = scop.checked(sizes)
    values = {name: parse_feature(name).value(scop, checked, target) for name in features}
    keep_counts_of(scop)
    return values


def target_of(
    features: Iterable[str],
    sub_group_size: int | None = None,
    machine: str | Path | Machine | None = None,
    *,
    otherwise: str | Machine = "",
    platform: str = "",
) -> Target:
    """Return the target on a platform, as `resolve_target`.

    A machine called `otherwise` is looked up only if a feature needs one.
    """
    from perflex.features import parse_feature

    if otherwise and not any(parse_feature(name).family.needs == "machine" for name in features):
        otherwise = ""
    return replace(resolve_target(sub_group_size, machine, otherwise=otherwise), lock_step=not is_pocl(platform))


@dataclass(frozen=True)
class CountedRow:
    """What was counted of one kernel at its sizes."""

    values: tuple[float, ...] = ()  # Of each feature
    matched: tuple[bool, ...] = ()  # Whether the kernel has anything that the feature counts
    # What one unit of each feature amounts to, None where that is not one number.
    amounts: tuple[Amount | None, ...] = ()
    refusal: str | None = None  # Why it cannot be counted


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
    known = zip(rows, resources or nothing, code or nothing, strict=True)
    tasks = [(row.kernel, dict(row.sizes), replace(target, resources=taken, code=read)) for row, taken, read in known]
    # The rows of one kernel go to one worker, which then describes the kernel only once. By identity: comparing loopy
    # kernels by value is slow.
    by_kernel: dict[int, list[int]] = {}
    for number, row in enumerate(rows):
        by_kernel.setdefault(number if executor is None else id(row.kernel), []).append(number)
    groups = list(by_kernel.values())

    def tell(done: int) -> None:
        if progress is not None:
            progress(sum(map(len, groups[:done])), len(rows), f"counting {rows[groups[done][0]].label}")

    items = [[tasks[number] for number in group] for group in groups]
    if executor is None:
        found = []
        for done, (task,) in enumerate(items):
            tell(done)
            found.append([_count(features, *task)])
    else:
        found = in_workers(executor, partial(_count_kernels, features), items, tell)
    by_number = dict(zip(chain(*groups), chain(*found), strict=True))
    return [by_number[number] for number in range(len(rows))]


def _count_kernels(features: Sequence[Feature], kernels: Sequence[list[Any]], store: str) -> list[list[CountedRow]]:
    """Count in a worker, which may be another process; of each kernel all its rows."""
    with using_store(store):
        return [[_count(features, *task) for task in tasks] for tasks in kernels]


def _count(features: Sequence[Feature], kernel: Any, sizes: Mapping[str, Any], target: Target) -> CountedRow:
    from perflex.features import extract_scop
    from perflex.features.counting.scop_counts import keep_counts_of

    try:
        scop = extract_scop(kernel, sizes)
        checked = scop.checked(sizes)
        values = tuple([float(feature.value(scop, checked, target)) for feature in features])
        matched = tuple([feature.matches(scop, checked) for feature in features])
        there = zip(features, matched, strict=True)
        amounts = tuple([feature.amount(scop, checked, target) if has else None for feature, has in there])
    except UnsupportedKernelError as error:
        # A kernel that cannot be described is its row's affair; any other error ends the count.
        return CountedRow(refusal=error.message)
    keep_counts_of(scop)
    return CountedRow(values, matched, amounts)


def in_workers(
    executor: Executor,
    work: Callable[[Sequence[_Item], str], list[_Result]],
    items: Sequence[_Item],
    tell: Callable[[int], None],
) -> list[_Result]:
    """Return what an executor's workers make of items, in their order; `tell` is told how many are done."""
    used = current_store()
    # Workers on other machines cannot reach the file of the store that is in use here.
    store = str(used.path) if used is not None and getattr(executor, "workers_share_files", True) else "off"
    size = max(1, len(items) // (_PORTIONS * (cpu_count() or 1)))
    portions = [(items[first : first + size], store) for first in range(0, len(items), size)]
    done: list[_Result] = []
    tell(0)
    for found in made_by(executor, work, portions):
        done += found
        if len(done) < len(items):
            tell(len(done))
    return done
