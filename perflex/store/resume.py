"""Runs that were cut short go on: what was measured in them counts when the same work is begun again."""

from __future__ import annotations

import hashlib
from contextlib import contextmanager
from typing import TYPE_CHECKING

from perflex.store.rows import WORK_COLUMNS, insert_statement, is_sound_work, require_sound, work_row

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping

    from perflex.store.records import Failure, MeasurementKey, Recorder, Sample
    from perflex.store.samples import MeasurementStore


def work_digest(device: str, labels: Iterable[str]) -> str:
    """Return what names a piece of work: measuring these kernels on this device, in any order."""
    return hashlib.sha256("\n".join([device, *sorted(labels)]).encode()).hexdigest()


def recorder_for(device: str, labels: Iterable[str]) -> RunRecorder | None:
    """Return what keeps the samples of a piece of work, or None where the store is switched off.

    Raises
    ------
    StoreError
        The store cannot be used.
    """
    from perflex.store.samples import MeasurementStore
    from perflex.store.store import current_store

    return None if current_store() is None else RunRecorder(MeasurementStore(), work_digest(device, labels))


@contextmanager
def recording(device: str, labels: Iterable[str], given: Recorder | None = None) -> Iterator[Recorder | None]:
    """Yield what keeps the samples of a piece of work, and say at the end of the block that the work is done.

    Parameters
    ----------
    device, labels
        As for `work_digest`.
    given
        Of a larger piece of work that this is a part of: it is taken as it is, and the work is not done with the block.

    Yields
    ------
    Recorder or None
        None where the store is switched off.

    Raises
    ------
    StoreError
        The store cannot be used.
    """
    own = None if given is not None else recorder_for(device, labels)
    yield given or own
    # Not after an error: a run that was cut short is to go on.
    if own is not None:
        own.finish()


class RecordOnly:
    """Keeps what is measured, and gives nothing back: for what is to be measured anew within a run.

    Parameters
    ----------
    recorder
        Where samples and failures go.
    """

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
    decides: a run is known by the sessions that it consisted of.

    Parameters
    ----------
    store
        Where samples and failures are kept.
    work
        From `work_digest`.

    Raises
    ------
    StoreError
        The store cannot be used; every method raises it, too.
    """

    def __init__(self, store: MeasurementStore, work: str) -> None:
        self._store = store
        self._work = work
        self._sessions = set(store.use(self._unfinished))

    def _unfinished(self, connection: sqlite3.Connection) -> list[str]:
        query = "SELECT work, session, checksum FROM unfinished_work WHERE work = ?"
        rows = connection.execute(query, (self._work,)).fetchall()
        require_sound(rows, is_sound_work)
        return [session for _, session, _ in rows]

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
        self._note_session(sample.session)
        self._store.add(key, sample, label)

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
        if not self._sessions:
            return

        def forget(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM unfinished_work WHERE work = ?", (self._work,))

        self._store.use(forget, writes=True)
        self._sessions.clear()

    def _note_session(self, session: str) -> None:
        if session in self._sessions:
            return

        def add(connection: sqlite3.Connection) -> None:
            connection.execute(insert_statement("unfinished_work", WORK_COLUMNS), work_row(self._work, session))

        # Before the session's first sample, so that a process killed in between loses nothing.
        self._store.use(add, writes=True)
        self._sessions.add(session)
