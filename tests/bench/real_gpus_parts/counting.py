"""Features of rows, counted by several processes and kept in a file; what is refused or takes too long is listed."""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from perflex import PerflexWarning
from perflex.features import Target, extract_scop, parse_feature
from perflex.studies.baselines import distinct_bytes_of, work_of

from .later import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from multiprocessing.connection import Connection

    from perflex import Machine

    from .row import MeasuredRow

# Rows that a worker gets at once: those of one program, so that it describes a kernel once.
_PORTION = 48
# What a feature of a launch that finds its data in L2 is called where nothing of it is there.
_COLD = {"f_peak_dram": "f_peak_dram_cold"}
# What this file and its neighbours do with counts does not change them.
_NO_COUNTS = {
    "counting.py", "experiments.py", "later.py", "methods.py", "reading.py", "running.py", "scoring.py", "table.py",
    "tables.py",
}  # fmt: skip
# Files that begin otherwise are shared by all readers.
_READERS = ("nvbench", "gpuperf", "sgemm", "neusight", "hub", "simulated")


@dataclass(frozen=True)
class Counting:
    """How features are counted.

    Attributes
    ----------
    features
        Identifiers.
    machines
        By the name that rows give them.
    cache
        File that keeps counts from one run to the next; None for none.
    workers
        Processes that count.
    limit_s
        Seconds after which a row is given up.
    progress
        Called with (done, total, label) as work proceeds.
    """

    features: tuple[str, ...]
    machines: Mapping[str, Machine]
    cache: Path | None = None
    workers: int = 2
    limit_s: float = 60.0
    progress: Callable[[int, int, str], None] | None = None


@dataclass(frozen=True)
class Counted:
    """What was counted of rows, in their order.

    Attributes
    ----------
    values
        Values of the features; None for a row that was refused.
    work
        Of each launch of the row: operations, distinct bytes, how often launched; None where it was refused.
    refused, work_refused
        Reasons by row number.
    """

    values: list[tuple[float, ...] | None]
    work: list[tuple[tuple[float, float, int], ...] | None]
    refused: dict[int, str] = field(default_factory=dict)
    work_refused: dict[int, str] = field(default_factory=dict)


_Entry = dict[str, Any]


@dataclass(frozen=True)
class _Task:
    """A row by its number, and which of its features to count on its machine; the work, the same on all, if none."""

    number: int
    features: tuple[str, ...] = ()


def count(rows: Sequence[MeasuredRow], how: Counting) -> Counted:
    """Count the features of each row on its machine, and its operations and bytes.

    Several launches of a row are added up.
    """
    known = _kept(how.cache)
    keys = [(_key(row, how), _key(row, None)) for row in rows]
    missing: dict[str, _Task] = {}
    for number, (on_machine, anywhere) in enumerate(keys):
        entry = known.get(on_machine, {})
        lacking = tuple(name for name in how.features if name not in entry.get("values", {}))
        if lacking and "refused" not in entry:
            missing[on_machine] = _Task(number, lacking)
        # The same work is counted once for all GPUs.
        if anywhere not in known:
            missing.setdefault(anywhere, _Task(number))
    portions = _portions(rows, list(missing.values()))
    with _Keeper(how.cache) as keeper:
        for done, (task, entry) in enumerate(_in_workers(rows, how, portions), start=1):
            key = keys[task.number][0 if task.features else 1]
            _join(known, key, entry)
            keeper.add(key, entry)
            if how.progress is not None:
                how.progress(done, len(missing), rows[task.number].label)
    found = Counted([], [])
    for number, (on_machine, anywhere) in enumerate(keys):
        entry, work = known[on_machine], known[anywhere]
        refused = "refused" in entry
        found.values.append(None if refused else tuple(entry["values"][name] for name in how.features))
        found.work.append(tuple((one[0], one[1], one[2]) for one in work["work"]) if "work" in work else None)
        if refused:
            found.refused[number] = entry["refused"]
        if "refused" in work:
            found.work_refused[number] = work["refused"]
    return found


def _join(known: dict[str, _Entry], key: str, entry: _Entry) -> None:
    """Add to what is known of a row: features that were counted by different runs come together."""
    before = known.get(key, {})
    known[key] = {**before, **entry}
    if "values" in before and "values" in entry:
        known[key]["values"] = {**before["values"], **entry["values"]}


def _key(row: MeasuredRow, how: Counting | None) -> str:
    """Return what a row's counts depend on: with `how` its features, else its work."""
    parts: list[object] = [_sources(row.data.partition("_")[0]), row.data, row.label]
    if how is not None:
        facts = repr(how.machines[row.machine])
        parts += [facts, row.sub_group_size, row.registers, row.warm, row.host_code]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:24]


@cache
def _sources(reader: str) -> str:
    """Return a digest of all code that the counts of a reader's rows depend on."""
    digest = hashlib.sha256()
    roots = [Path(str(files("perflex.features"))), Path(str(files("perflex"))) / "machines"]
    parts = [
        path
        for path in Path(__file__).parent.glob("*.py")
        if path.name not in _NO_COUNTS and (path.name.startswith(reader) or not path.name.startswith(_READERS))
    ]
    for path in sorted([*(one for root in roots for one in root.rglob("*.py")), *parts]):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _kept(path: Path | None) -> dict[str, _Entry]:
    if path is None or not path.is_file():
        return {}
    known: dict[str, _Entry] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            key, entry = json.loads(line)
        except ValueError:  # the last line of a run that was ended while it wrote
            continue
        _join(known, key, entry)
    return known


class _Keeper:
    """Appends counts to the cache."""

    def __init__(self, path: Path | None) -> None:
        self._stream = None if path is None else path.open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._stream is not None:
            self._stream.close()

    def add(self, key: str, entry: _Entry) -> None:
        # What took too long may be quick with another limit.
        if self._stream is not None and not entry.get("late"):
            self._stream.write(json.dumps([key, entry]) + "\n")
            self._stream.flush()


def _portions(rows: Sequence[MeasuredRow], tasks: Sequence[_Task]) -> list[list[_Task]]:
    groups: dict[tuple[str, str], list[_Task]] = {}
    for task in tasks:
        groups.setdefault((rows[task.number].data, rows[task.number].program), []).append(task)
    for group in groups.values():
        # Rows of one label follow one another, whatever their GPU: what is symbolic is counted once.
        group.sort(key=lambda task: (rows[task.number].label, task.number))
    return [group[i : i + _PORTION] for group in groups.values() for i in range(0, len(group), _PORTION)]


@dataclass
class _Worker:
    """A process that counts, and what it still has to do; the first task is under way."""

    process: Any
    pipe: Connection
    tasks: list[_Task] = field(default_factory=list)
    since: float = math.inf

    def give(self, tasks: list[_Task]) -> None:
        self.tasks, self.since = list(tasks), time.monotonic()
        self.pipe.send(self.tasks)

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.pipe.close()


def _in_workers(
    rows: Sequence[MeasuredRow], how: Counting, portions: list[list[_Task]]
) -> Iterator[tuple[_Task, _Entry]]:
    """Yield each task with its result; a worker that takes too long, or dies, is replaced."""
    waiting = list(reversed(portions))
    workers = [_start(rows, how) for _ in range(min(how.workers, len(waiting)))]
    try:
        while waiting or any(worker.tasks for worker in workers):
            for worker in workers:
                if not worker.tasks and waiting:
                    worker.give(waiting.pop())
            ready = wait([worker.pipe for worker in workers if worker.tasks], timeout=1.0)
            for place, worker in enumerate(workers):
                late = bool(worker.tasks) and time.monotonic() - worker.since > how.limit_s
                if worker.pipe not in ready and not late:
                    continue
                try:
                    entry = _late(how) if worker.pipe not in ready else worker.pipe.recv()
                except EOFError:
                    entry = {"refused": "the process that counted it ended", "late": True}
                task = worker.tasks.pop(0)
                worker.since = time.monotonic()
                if entry.get("late"):
                    worker.end()
                    if worker.tasks:
                        waiting.append(worker.tasks)
                    workers[place] = _start(rows, how)
                yield task, entry
    finally:
        for worker in workers:
            worker.end()


def _late(how: Counting) -> _Entry:
    return {"refused": f"took longer than {how.limit_s:g} s", "late": True}


def _start(rows: Sequence[MeasuredRow], how: Counting) -> _Worker:
    # Forked, workers have the kernels: nothing is sent but numbers of rows.
    context = get_context("fork")
    here, there = context.Pipe()
    process = context.Process(target=_work, args=(rows, how, there), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here)


def _work(rows: Sequence[MeasuredRow], how: Counting, pipe: Connection) -> None:
    while True:
        try:
            tasks = pipe.recv()
        except EOFError:
            return
        for task in tasks:
            row = rows[task.number]
            try:
                entry = _features_of(row, how, task.features) if task.features else _work_of(row)
            except Exception as error:  # noqa: BLE001 - a defect costs its row, and is listed; it ends no run
                entry = _refusal(error)
            pipe.send(entry)


def _features_of(row: MeasuredRow, how: Counting, features: Sequence[str]) -> _Entry:
    target = Target(row.sub_group_size, how.machines[row.machine], row.registers, host_code=row.host_code)
    values = dict.fromkeys(features, 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        for kernel, sizes, times in row.launches:
            scop = extract_scop(made(kernel))
            checked = scop.checked(sizes)
            for feature in features:
                name = feature if row.warm else _COLD.get(feature, feature)
                values[feature] += times * float(parse_feature(name).value(scop, checked, target))
    wrong = [name for name, value in values.items() if not math.isfinite(value)]
    return {"refused": f"{wrong[0]} is not finite"} if wrong else {"values": values}


def _work_of(row: MeasuredRow) -> _Entry:
    work = [
        (work_of(kernel, sizes).operations, distinct_bytes_of(kernel, sizes), times)
        for kernel, sizes, times in ((made(one), sizes, times) for one, sizes, times in row.launches)
    ]
    return {"work": work}


def _refusal(error: Exception) -> _Entry:
    return {"refused": f"{type(error).__name__}: {error}".splitlines()[0]}
