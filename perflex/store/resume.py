"""Runs that were cut short go on: what was measured in them counts when the same work is begun again."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from perflex.store.records import checked_rows, insert
from perflex.store.store import current_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from perflex.store.records import Failure, MeasurementKey, Recorder, Sample
    from perflex.store.store import Store


def work_digest(device: str, labels: Iterable[str]) -> str:
    """Return what names a piece of work: measuring these kernels on this device, in any order."""
    return hashlib.sha256("\n".join([device, *sorted(labels)]).encode()).hexdigest()


_RECORDER: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


@contextmanager
def recording(device: str, labels: Iterable[str]) -> Iterator[Recorder | None]:
    """Yield what keeps the samples of a piece of work, and say at the end of the block that the work is done.

    Within the block of a larger piece of work its recorder is yielded. None is yielded where the store is switched off;
    one that cannot be used is a StoreError.
    """
    store, larger = current_store(), _RECORDER.get()
    if store is None or larger is not None:
        yield larger
        return
    own = RunRecorder(store, work_digest(device, labels))
    token = _RECORDER.set(own)
    try:
        yield own
    finally:
        _RECORDER.reset(token)
    # Not after an error: a run that was cut short is to go on.
    own.finish()


def current_recorder() -> Recorder | None:
    """Return what keeps samples in the block around the call; None where nothing is kept."""
    return _RECORDER.get()


class RecordOnly:
    """Keeps what is measured, and gives nothing back: for what is to be measured anew within a run."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:  # noqa: ARG002 - protocol
        """Return nothing."""
        return ()

    def failure(self, key: MeasurementKey) -> Failure | None:  # noqa: ARG002 - protocol
        """Return nothing."""
        return None

    def add(self, key: MeasurementKey, sample: Sample, label: str = "") -> None:
        """Keep a sample."""
        self._recorder.add(key, sample, label)

    def fail(self, key: MeasurementKey, failure: Failure, label: str = "") -> None:
        """Keep a failure."""
        self._recorder.fail(key, failure, label)


class RunRecorder:
    """Keeps what is measured, and gives back what runs of the same work measured that did not come to their end.

    Work that was finished is measured anew when it is begun again: who calibrates twice wants to know twice. No clock
    decides: a run is known by the sessions that it consisted of. Every method raises StoreError where the store cannot
    be used.
    """

    def __init__(self, store: Store, work: str) -> None:
        self._store = store
        self._work = work
        rows = store.use(lambda connection: checked_rows(connection, "unfinished_work", "WHERE work = ?", (work,)))
        self._sessions = {session for _, session, _ in rows}

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
            delete = "DELETE FROM unfinished_work WHERE work = ?"
            self._store.use(lambda connection: connection.execute(delete, (self._work,)), writes=True)
            self._sessions.clear()

    def _note_session(self, session: str) -> None:
        if session not in self._sessions:
            # Before the session's first sample, so that a process killed in between loses nothing.
            self._store.use(lambda c: insert(c, "unfinished_work", (self._work, session)), writes=True)
            self._sessions.add(session)
