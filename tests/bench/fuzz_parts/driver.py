"""Running mutated inputs in processes of their own, which hangs and crashes do not take along."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from . import inputs
from .command_lines import COMMAND_LINE, no_devices
from .readers import KINDS, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

ALL_KINDS = (*KINDS, COMMAND_LINE)
# Of processor time; and of time on the clock, for what waits for something. The machine may be doing other work.
# The slowest that is none makes 1,463 kernels of a model that names no generator, in 11 s.
HANG_S = 30.0
_WAITS_S = 60.0
# A loop in compiled code does not see the alarm: then the process is killed.
_DEAF_S = 90.0
_STARTS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn"}


class HangError(BaseException):
    """A case takes too long; nothing catches it."""


@dataclass(frozen=True)
class Bad:
    """A case that ended badly: a hang, an execution, or an exception with the last line that it came through."""

    number: int
    kind: str
    what: str


def kind_of(number: int, seed: str, kinds: Sequence[Kind]) -> tuple[Kind, random.Random]:
    """Return the kind of a case, and the source of its chances."""
    source = random.Random(f"{seed}:{number}")  # noqa: S311 - not for secrets
    (kind,) = source.choices(kinds, [kind.share for kind in kinds])
    return kind, source


def run_case(number: int, seed: str, kinds: Sequence[Kind], started: list[str], *, show: bool = False) -> str:
    """Run one case and return what was bad about it, and show where; empty where it ended well."""
    from perflex.errors import PerflexError

    kind, source = kind_of(number, seed, kinds)
    made = kind.make(source)
    started.clear()
    signal.setitimer(signal.ITIMER_REAL, _WAITS_S)
    signal.setitimer(signal.ITIMER_PROF, HANG_S)
    what = ""
    try:
        kind.use(made)
    except PerflexError:
        pass
    except HangError:
        what = "hang"
    except BaseException as error:  # noqa: BLE001 - exactly what is looked for
        what = _described(error)
        if show:
            traceback.print_exc()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
    if started or Path("PWNED").exists():
        Path("PWNED").unlink(missing_ok=True)
        what = f"execution: {started}"
    return what


def _described(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "bench" not in frame.filename and ".venv" not in frame.filename]
    last = inside[-1] if inside else frames[-1]
    return f"{type(error).__name__} at {Path(last.filename).name}:{last.name}: {str(error)[:100]!r}"


def prepare() -> list[str]:
    """Make this process fit for cases; return the list of what inputs started."""
    warnings.simplefilter("ignore")
    no_devices()
    started: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        # The project's own child, which counts points.
        if event in _STARTS and "card_worker.py" not in str(arguments[1:2]):
            started.append(f"{event} {arguments[:2]}")

    sys.addaudithook(watch)

    def stop(*_: object) -> None:
        raise HangError

    signal.signal(signal.SIGALRM, stop)
    signal.signal(signal.SIGPROF, stop)
    return started


def _work(numbers: range, seed: str, kinds: Sequence[Kind], pipe: Connection) -> None:
    """Run cases in a process of its own, and say of each that it begins and how it ended."""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        os.environ["PERFLEX_STORE"] = str(Path(folder, "counts.sqlite"))
        started = prepare()
        # What compiled code and interpreters write of their own accord is no outcome.
        with (
            Path(os.devnull).open("w", encoding="utf-8") as nowhere,
            redirect_stdout(nowhere),
            redirect_stderr(nowhere),
        ):
            for number in numbers:
                pipe.send((number, None))
                pipe.send((number, run_case(number, seed, kinds, started)))
        os.chdir("/")


def run(numbers: range, seed: str, kinds: Sequence[Kind] = ALL_KINDS, *, processes: int = 1) -> Iterator[Bad | None]:
    """Run cases in processes of their own, which hangs and crashes do not take along; yield how each ended."""
    parts = [range(numbers.start + n, numbers.stop, processes) for n in range(processes)]
    # Made before the processes are, which all have them then.
    for valid in (inputs.scops, inputs.machines, inputs.calibrations, inputs.caches, inputs.store):
        valid()
    context = get_context("fork")
    running = [_Worker(context, part, seed, kinds) for part in parts]
    while running:
        for worker in list(running):
            yield from worker.news()
            if worker.done:
                running.remove(worker)
        time.sleep(0.01)


class _Worker:
    """A process that runs cases, and its successors where it dies."""

    def __init__(self, context, numbers: range, seed: str, kinds: Sequence[Kind]) -> None:
        self._context, self._numbers, self._seed, self._kinds = context, numbers, seed, kinds
        self.done = False
        self._begin(numbers)

    def _begin(self, numbers: range) -> None:
        self._pipe, there = self._context.Pipe(duplex=False)
        self._process = self._context.Process(target=_work, args=(numbers, self._seed, self._kinds, there), daemon=True)
        self._process.start()
        there.close()
        self._case, self._since = numbers.start, time.monotonic()

    def news(self) -> Iterator[Bad | None]:
        """Yield the outcomes since the last call."""
        try:
            while self._pipe.poll():
                number, outcome = self._pipe.recv()
                self._case, self._since = number, time.monotonic()
                if outcome is not None:
                    yield self._bad(outcome) if outcome else None
        except EOFError:
            self._process.join()
            if self._process.exitcode == 0:
                self.done = True
            else:
                yield from self._replace(f"the process died ({self._process.exitcode})")
            return
        if time.monotonic() - self._since > _DEAF_S:
            self._process.kill()
            self._process.join()
            yield from self._replace("hang in compiled code")

    def _bad(self, what: str) -> Bad:
        return Bad(self._case, kind_of(self._case, self._seed, self._kinds)[0].name, what)

    def _replace(self, what: str) -> Iterator[Bad]:
        yield self._bad(what)
        left = range(self._case + self._numbers.step, self._numbers.stop, self._numbers.step)
        if left:
            self._begin(left)
        else:
            self.done = True
