"""Mutated inputs of every kind that perflex reads: ``python tests/bench/fuzz.py [--cases N] [--seed TEXT]``.

Each case makes one valid input wrong (its bytes, lines, tree or words), reads it, and does with it what users do:
predict with a calibration, count a kernel's features, rank a space. Good outcomes are success and an error of perflex.
All else is shown with the number of a case, which ``--case N`` runs alone, with its traceback:

* an escape: another exception, or a number that is not finite where a prediction or an interval was asked for;
* a hang: a case that takes more than 30 s of processor time, or waits for 60 s;
* a lack of memory: a case that needs more than 6 GB of addresses, beside what the program has;
* execution: a process that an input started, or a file that it made.

The cases of a seed are always the same. ``--first`` goes on with a later one, ``--kind`` takes one kind of input.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from contextlib import chdir, redirect_stderr, redirect_stdout
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from fuzz_parts.kinds import KINDS
from fuzz_parts.mutations import mutated

from perflex.errors import PerflexError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from multiprocessing.connection import Connection

    from fuzz_parts.kinds import Kind

# Of processor time; and of time on the clock, for what waits for something. The machine may be doing other work.
# The slowest that is none makes 1,463 kernels of a model that names no generator, in 11 s.
HANG_S, WAITS_S, MOST_BYTES = 30, 60, 6 * 10**9
STARTS = {"os.system", "subprocess.Popen", "os.exec", "os.posix_spawn", "os.spawn"}
FORKING = get_context("fork")
# What forked processes have from their parent: kinds, and with them their valid inputs, which take long to make.
_KINDS: list[Kind] = []


def input_of(number: int, seed: str) -> tuple[Kind, bytes, object]:
    """Return the kind of a case, its input, and what else is needed to read it."""
    chance = random.Random(f"{seed}:{number}")  # noqa: S311 - not for secrets
    (kind,) = chance.choices(_KINDS, [kind.share for kind in _KINDS])
    content, form, rest = chance.choice(kind.valid())
    return kind, mutated(content, form, chance), rest


def run_case(number: int, seed: str, *, show: bool = False) -> str:
    """Run one case in this process and return what was bad about it; empty where it ended well."""
    kind, content, rest = input_of(number, seed)
    started: list[str] = []

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        # The project's own child, which counts points.
        if event in STARTS and "answer_calls" not in str(arguments[1:2]):
            started.append(f"{event} {arguments[:2]}")

    sys.addaudithook(watch)
    try:
        kind.use(content, rest)
        what = ""
    except PerflexError:
        what = ""
    except BaseException as error:  # noqa: BLE001 - exactly what is looked for
        if show:
            traceback.print_exc()
        frames = traceback.extract_tb(error.__traceback__)
        last = [each for each in frames if "bench" not in each.filename and ".venv" not in each.filename] or frames
        what = f"{type(error).__name__} at {Path(last[-1].filename).name}:{last[-1].name}: {str(error)[:100]!r}"
    return f"execution: {started}" if started or Path("PWNED").exists() else what


def _child(number: int, seed: str, folder: str, there: Connection) -> None:
    os.chdir(folder)
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CPU, (HANG_S, HANG_S + 1))
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = MOST_BYTES + pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    # What compiled code and interpreters write of their own accord is no outcome.
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        there.send(run_case(number, seed))


def outcome(number: int, seed: str) -> str:
    """Run one case in a process of its own, which a hang or a crash does not take along."""
    with tempfile.TemporaryDirectory() as folder:
        here, there = FORKING.Pipe(duplex=False)
        process = FORKING.Process(target=_child, args=(number, seed, folder, there))
        process.start()
        there.close()
        process.join(WAITS_S)
        if process.is_alive():
            process.kill()
            process.join()
            return "hang"
        if process.exitcode:
            return "hang" if process.exitcode == -signal.SIGXCPU else f"the process died ({process.exitcode})"
        return str(here.recv())


def prepare(kinds: Sequence[Kind]) -> None:
    """Read every valid input: modules are loaded and inputs made before processes are forked, and all are valid."""
    from perflex.devices import listing

    # Commands find no device: what they do with one is not for here.
    setattr(listing, "_listed", lambda: ((), ()))  # noqa: B010 - of a module, which a type checker knows
    os.environ["PERFLEX_STORE"] = "off"
    _KINDS[:] = kinds
    with tempfile.TemporaryDirectory() as folder, chdir(folder), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in kinds:
            for content, _, rest in kind.valid():
                kind.use(content, rest)


def run(numbers: range, seed: str, kinds: Sequence[Kind] = KINDS, processes: int = 2) -> Iterator[tuple[int, str]]:
    """Run cases, and yield the number of each with what was bad about it."""
    prepare(kinds)
    with ProcessPoolExecutor(processes, mp_context=FORKING) as pool:
        yield from zip(numbers, pool.map(partial(outcome, seed=seed), numbers), strict=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", default="record")
    parser.add_argument("--kind", action="append", choices=[kind.name for kind in KINDS])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--case", type=int, help="run this case alone, with its traceback")
    given = parser.parse_args()
    kinds = [kind for kind in KINDS if given.kind is None or kind.name in given.kind]
    if given.case is not None:
        prepare(kinds)
        os.chdir(tempfile.mkdtemp())
        print(run_case(given.case, given.seed, show=True) or "ended well")
        return 0
    begun = time.monotonic()
    bad: dict[tuple[str, str], list[int]] = defaultdict(list)
    for number, what in run(range(given.first, given.first + given.cases), given.seed, kinds, given.processes):
        if what:
            bad[input_of(number, given.seed)[0].name, what].append(number)
    for (kind, what), found in sorted(bad.items(), key=lambda each: -len(each[1])):
        print(f"{len(found):6} {kind}: {what} (case {found[0]})")
    seconds, count = time.monotonic() - begun, sum(map(len, bad.values()))
    print(f"seed {given.seed!r} from {given.first}: {given.cases} cases, {count} ended badly, {seconds:.0f} s")
    return int(count > 0)


if __name__ == "__main__":
    sys.exit(main())
