"""Runs that were cut short go on: what was measured in them counts when the same work is begun again."""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from perflex.errors import CalibrationError
from perflex.store.rows import checked_rows, insert
from perflex.store.store import current_store

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from perflex.store.records import Failure, MeasurementKey, Recorder, Sample
    from perflex.store.store import Store


class _Owner(NamedTuple):
    """The process that a session is of."""

    host: str
    process: int
    # In the system's ticks; numbers of processes come again.
    began: str

    def is_gone(self) -> bool:
        """Return whether the process has ended; of other hosts that is not known."""
        return self.host == _this_host() and _began(self.process) != self.began


def _this_process() -> _Owner:
    return _Owner(_this_host(), os.getpid(), _began(os.getpid()))


@lru_cache(maxsize=1)
def _this_host() -> str:
    """Return what names the processes that this one can see: hosts may have equal names, and containers one host."""
    words = [socket.gethostname()]
    with suppress(OSError):
        words.append(Path("/etc/machine-id").read_text(encoding="utf-8").strip())
    with suppress(OSError):
        words.append(str(Path("/proc/self/ns/pid").readlink()))
    return " ".join(words)


def _began(process: int) -> str:
    """Return when a process began; empty where the system does not tell, and where the process has ended."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name, in brackets, may have any characters. See proc_pid_stat(5).
    state, *others = text.rpartition(")")[2].split()
    # Nobody has asked yet how these have ended.
    return "" if state in {"Z", "X"} else others[18]


def work_digest(device: str, labels: Iterable[str]) -> str:
    """Return what names a piece of work: measuring these kernels on this device, in any order.

    The device is named as by `perflex.devices.device.identity`.
    """
    return hashlib.sha256("\n".join([device, *sorted(labels)]).encode()).hexdigest()


_NEW_OWNER = """
    ON CONFLICT (work, session) DO UPDATE
    SET host = excluded.host, process = excluded.process, began = excluded.began, checksum = excluded.checksum
"""
_RECORDER: ContextVar[RunRecorder | None] = ContextVar("recorder", default=None)


@contextmanager
def resumable(device: str, labels: Iterable[str]) -> Iterator[Recorder | None]:
    """Yield what keeps the samples of a piece of work, and say at the end of the block that the work is done.

    Within the block of a larger piece of work its recorder is yielded. None is yielded where the store is switched off;
    one that cannot be used is a StoreError.
    """
    store, larger = current_store(), _RECORDER.get()
    if store is None or larger is not None:
        yield larger
        if larger is not None:
            larger.has_measured = True
        return
    own = RunRecorder(store, work_digest(device, labels))
    token = _RECORDER.set(own)
    try:
        yield own
    except CalibrationError:
        if own.has_measured:
            # All was measured, and does not do: going on with it would fail again.
            own.finish()
        raise
    finally:
        _RECORDER.reset(token)
        own.release()
    # Not after other errors: a run that was cut short is to go on.
    own.finish()


def current_recorder() -> Recorder | None:
    """Return what keeps samples in the block around the call; None where nothing is kept."""
    return _RECORDER.get()


class RecordOnly:
    """Keeps what is measured, and gives nothing back: for what is to be measured anew within a run."""

    def __init__(self, recorder: Recorder) -> None:
        self.add, self.fail = recorder.add, recorder.fail

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:  # noqa: ARG002 - protocol
        """Return nothing."""
        return ()

    def failure(self, key: MeasurementKey) -> Failure | None:  # noqa: ARG002 - protocol
        """Return nothing."""
        return None


class RunRecorder:
    """Keeps what is measured, and gives back what runs of the same work measured that did not come to their end.

    Work that was finished is measured anew when it is begun again: who calibrates twice wants to know twice. No clock
    decides: a run is known by the sessions that it consisted of. One of another process is taken up when that is gone,
    on this host; so two runs of the same work at once never share samples. Every method raises StoreError where the
    store cannot be used.
    """

    def __init__(self, store: Store, work: str) -> None:
        self._store = store
        self._work = work
        self._sessions: set[str] = set()
        # Whether a part of the work has come to its end.
        self.has_measured = False
        store.use(self._take_up, writes=True)

    def _take_up(self, connection: sqlite3.Connection) -> None:
        """Make the sessions that nobody works at any more this run's."""
        here = _this_process()
        for _, session, *owner, _ in checked_rows(connection, "unfinished_work", "WHERE work = ?", (self._work,)):
            owned = _Owner._make(owner)
            if session not in _at_work if owned == here else owned.is_gone():
                self._hold(session)
                insert(connection, "unfinished_work", (self._work, session, *here), _NEW_OWNER)

    def _hold(self, session: str) -> None:
        self._sessions.add(session)
        _at_work.add(session)

    def release(self) -> None:
        """Leave the work to the next run of it in this process."""
        _at_work.difference_update(self._sessions)

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
        """Return the samples of a key from unfinished runs of this work."""
        if not self._sessions:
            return ()
        return tuple(sample for sample in self._store.earlier(key) if sample.session in self._sessions)

    def failure(self, key: MeasurementKey) -> Failure | None:
        """Return the newest failure of a key, if it is of an unfinished run of this work."""
        failure = self._store.failure(key) if self._sessions else None
        return failure if failure is not None and failure.session in self._sessions else None

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample."""
        self.add_many([(key, sample)], {key: label})

    def add_many(
        self, samples: Iterable[tuple[MeasurementKey, Sample]], labels: Mapping[MeasurementKey, str] | None = None
    ) -> None:
        """Keep samples in one transaction."""
        listed = list(samples)
        for session in {sample.session for _, sample in listed}:
            self._note_session(session)
        self._store.add_many(listed, labels)

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure."""
        self._note_session(failure.session)
        self._store.fail(key, failure, label)

    def finish(self) -> None:
        """Say that the work is done: its samples stay, and the next run of it measures anew."""
        if self._sessions:
            delete = "DELETE FROM unfinished_work WHERE work = ? AND session = ?"
            # Others' runs of the same work may still be going on.
            rows = [(self._work, session) for session in self._sessions]
            self._store.use(lambda connection: connection.executemany(delete, rows), writes=True)
            self.release()
            self._sessions.clear()

    def _note_session(self, session: str) -> None:
        if session not in self._sessions:
            # Known to the other threads before it is noted, so that none takes it.
            self._hold(session)
            # Before the session's first sample, so that a process killed in between loses nothing.
            row = (self._work, session, *_this_process())
            self._store.use(lambda c: insert(c, "unfinished_work", row), writes=True)


# Sessions of this process whose work goes on.
_at_work: set[str] = set()
