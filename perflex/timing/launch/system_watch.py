"""What the operating system reports of launches on the host's own processors.

Who shares the processors with a kernel is seen in the time that the process's threads waited for one (`schedstat`) and
in the processor time they got; a hypervisor's share in `/proc/stat`.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from perflex.store.records import SystemActivity

if TYPE_CHECKING:
    from collections.abc import Mapping

_ENOUGH_BYTES = 512
# Columns of the first line of /proc/stat (proc(5)), in clock ticks.
_BUSY_COLUMNS = (1, 2, 3, 6, 7)
_STEAL_COLUMN = 8
_MACHINE = "stat"


@dataclass(frozen=True)
class _Reading:
    """The state of the counters at one moment, times in seconds; None where the system does not report."""

    clock: float
    processor: float
    switches: int
    waits: Mapping[str, float] | None
    busy: float | None
    stolen: float | None


@dataclass
class SystemWatch:
    """Reads the operating system's counters of this process and of the machine.

    Files stay open between readings: opening takes longer than reading, and both are time between launches.

    Attributes
    ----------
    proc
        The folder that Linux reports in; elsewhere it is not there, and only little is known.
    """

    proc: Path = Path("/proc")
    _files: dict[str, int] = field(default_factory=dict)

    def reading(self) -> _Reading:
        """Return the state of all counters now."""
        busy, stolen = self._machine()
        waits = self._waits()
        # Last, and first of all at the end: what reading takes is not part of the time between two readings.
        return _Reading(
            processor=time.process_time(),
            switches=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            waits=waits,
            busy=busy,
            stolen=stolen,
            clock=time.perf_counter(),
        )

    def activity_since(self, before: _Reading) -> SystemActivity:
        """Return what went on since a reading."""
        clock, processor = time.perf_counter(), time.process_time()
        now = self.reading()
        waited = None
        if before.waits is not None and now.waits is not None:
            # A thread that was not there before has waited for as long as it says.
            waited = max((wait - before.waits.get(name, 0.0) for name, wait in now.waits.items()), default=0.0)
        used = processor - before.processor
        stolen = None if now.stolen is None or before.stolen is None else max(0.0, now.stolen - before.stolen)
        others = None
        if now.busy is not None and before.busy is not None:
            # The machine's counters go on by ticks, this process's do not: the difference may fall below zero.
            others = max(0.0, now.busy - before.busy - used)
        return SystemActivity(
            elapsed_s=clock - before.clock,
            processor_s=used,
            waited_s=waited,
            stolen_s=stolen,
            others_s=others,
            switches=now.switches - before.switches,
        )

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()

    def _waits(self) -> dict[str, float] | None:
        """Return by thread how long it has waited for a processor since it began, in seconds."""
        try:
            # Not pathlib's iterdir, which takes three times as long.
            threads = os.listdir(self.proc / "self/task")  # noqa: PTH208
        except OSError:
            return None
        found = {}
        names = {thread: f"self/task/{thread}/schedstat" for thread in threads}
        # Nobody asks for threads that have ended: their files would stay open.
        for name in self._files.keys() - names.values() - {_MACHINE}:
            os.close(self._files.pop(name))
        for thread, name in names.items():
            # Time on a processor and time waiting, in ns, and the number of turns.
            words = self._read(name).split()
            if len(words) == 3:
                found[thread] = int(words[1]) * 1e-9
        # Kernels without the counters have no such files.
        return found or None

    def _machine(self) -> tuple[float | None, float | None]:
        """Return the time that all processors have worked, and that was stolen from them, in seconds."""
        words = self._read(_MACHINE).split(b"\n", 1)[0].split()
        if len(words) <= _STEAL_COLUMN or words[0] != b"cpu":
            return None, None
        tick = os.sysconf("SC_CLK_TCK")
        return sum(int(words[column]) for column in _BUSY_COLUMNS) / tick, int(words[_STEAL_COLUMN]) / tick

    def _read(self, name: str) -> bytes:
        """Return the beginning of a file; nothing where it is not there any more."""
        try:
            if name not in self._files:
                self._files[name] = os.open(self.proc / name, os.O_RDONLY | os.O_CLOEXEC)
            return os.pread(self._files[name], _ENOUGH_BYTES, 0)
        except OSError:
            # The thread has ended.
            if name in self._files:
                os.close(self._files.pop(name))
            return b""
