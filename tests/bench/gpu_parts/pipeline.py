"""From settings to measured times for many variants: code and features in other processes, timing in this one.

Generating a kernel's code and counting its features take ten times as long as timing it. Where there are cores to spare
other processes do that, some kernels ahead of those that are timed.
"""

from __future__ import annotations

from collections import deque
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from perflex.errors import PerflexError
from perflex.features import SizedKernel
from perflex.timing.launch.backend import backend_of

from .budget import TimeUpError
from .open_once import OpenOnce
from .timing import in_batches
from .workers import code_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor, Future

    from perflex import Device, TimingOptions
    from perflex.machines.resources import Resources
    from perflex.timing.launch.backend import KernelBackend
    from perflex.timing.launch.request import LaunchRequest
    from perflex.timing.results import Timing

    from .budget import Allotted
    from .parts import Setting

__all__ = ["Plan", "Prepared", "Variant", "prepared", "timed_variants"]

# Kernels that are timed together; those of a batch that time is too short for are lost.
BATCH, SMALL_BATCH = 12, 4
_WAIT_S = 0.5


@dataclass(frozen=True)
class Plan:
    """What all variants of a space have in common; goes to other processes.

    Attributes
    ----------
    build
        Makes the kernel from settings; a function of a module.
    sizes
        Value of each size parameter.
    features
        Identifiers to evaluate.
    device
        Where the variants are to run.
    machine
        For features that need one.
    """

    build: Callable[..., Any]
    sizes: Mapping[str, int]
    features: tuple[str, ...]
    device: Any
    machine: str | None = None


@dataclass(frozen=True)
class Variant:
    """Settings and a label.

    Attributes
    ----------
    settings
        Arguments of the plan's function.
    label
        For messages; unique.
    registers
        32-bit registers that a work-item takes, for features of devices that do not tell; None for no limit.
    """

    settings: Mapping[str, Any]
    label: str
    registers: int | None = None


@dataclass(frozen=True)
class Prepared:
    """A variant that can be timed, or why it cannot.

    Attributes
    ----------
    variant
        Which.
    job
        What the device's backend takes; None if it failed.
    features
        Their values; those that the kernel does not have on this machine are missing.
    failure
        In one line; empty if there is none.
    """

    variant: Variant
    job: Any = None
    features: Mapping[str, float] = field(default_factory=dict)
    failure: str = ""


def prepared(plan: Plan, variant: Variant) -> Prepared:
    """Generate a variant's code and evaluate its features."""
    from perflex.timing.launch.request import LaunchRequest, request_for

    try:
        kernel = plan.build(**variant.settings)
        request = request_for(SizedKernel(kernel, plan.sizes, variant.label), plan.device)
        if not isinstance(request, LaunchRequest):  # a fake device takes the kernel itself
            return Prepared(variant, request, _features(plan, kernel, variant.registers, None))
        built = _built_ahead(plan.device, request)
        told = built is not None and built.registers is not None
        return Prepared(variant, request, _features(plan, kernel, None if told else variant.registers, built))
    except PerflexError as error:
        return Prepared(variant, failure=error.message.replace("\n", " "))
    except Exception as error:  # noqa: BLE001 - one variant that loopy cannot make must not cost all others
        return Prepared(variant, failure=f"{type(error).__name__}: {error}".replace("\n", " ")[:300])


@lru_cache(maxsize=1)
def _builder(device: Device) -> KernelBackend:
    return backend_of(device)


def _built_ahead(device: Device, request: LaunchRequest) -> Resources | None:
    """Build for a GPU, and return what that takes; drivers keep it on disk for the process that times."""
    if device.kind != "gpu":
        return None
    try:
        return _builder(device).build(request).resources
    except PerflexError:
        return None  # the process that times is told the same, and says so


def _features(plan: Plan, kernel: Any, registers: int | None, built: Resources | None) -> dict[str, float]:
    if not plan.features:
        return {}
    from perflex import load_machine
    from perflex.features import Target, extract_scop, parse_feature

    scop = extract_scop(kernel)
    machine = None if plan.machine is None else load_machine(plan.machine)
    target = Target(int(getattr(plan.device, "sub_group_size", 32)), machine, registers, built)
    values = {}
    for name in plan.features:
        try:
            values[name] = float(parse_feature(name).value(scop, plan.sizes, target))
        except PerflexError:
            continue  # the cell stays empty: no machine, or the kernel is none that the feature is for
    return values


def timed_variants(
    plan: Plan, variants: Sequence[Variant], setting: Setting, options: TimingOptions, time: Allotted
) -> Iterator[tuple[Prepared, Timing | None, str]]:
    """Yield each variant with its time, or why it has none, in batches, until all are timed.

    Raises
    ------
    TimeUpError
        Not all are timed; complete batches were yielded before.
    """
    done = 0
    workers = code_workers(setting.workers) if setting.workers else nullcontext()
    with workers as pool, OpenOnce(plan.device, options) as device:
        batches = _batches(plan, variants, pool, setting.workers, time)
        try:
            for batch in batches:
                jobs = [one.job for one in batch if not one.failure]
                ready = [one for one in batch if not one.failure]
                yield from ((one, None, one.failure) for one in batch if one.failure)
                for outcome in in_batches(jobs, device, options, time, len(jobs)) if jobs else ():
                    yield ready[outcome.index], outcome.timing, outcome.failure
                done += len(batch)
        except TimeUpError as error:
            msg = f"{done} of {len(variants)} variants are done: its share of {time.seconds:.0f} s is spent"
            raise TimeUpError(msg) from error


def _batches(
    plan: Plan, variants: Sequence[Variant], pool: Executor | None, workers: int, time: Allotted
) -> Iterator[list[Prepared]]:
    for_pool = deque(variants)
    ahead: deque[Future[Prepared]] = deque()
    size = BATCH if workers else SMALL_BATCH
    while for_pool or ahead:
        batch: list[Prepared] = []
        while len(batch) < size and (for_pool or ahead):
            time.check()
            if pool is None:
                batch.append(prepared(plan, for_pool.popleft()))
                continue
            while for_pool and len(ahead) < 3 * max(workers, BATCH):
                ahead.append(pool.submit(prepared, plan, for_pool.popleft()))
            batch.append(_result(ahead.popleft(), time))
        yield batch


def _result(future: Future[Prepared], time: Allotted) -> Prepared:
    while True:
        time.check()
        try:
            return future.result(timeout=_WAIT_S)
        except TimeoutError:
            continue
