"""Commands interrupted and ended at random moments: ``python tests/bench/signals.py [--signals N] [--jobs 2]``.

Each run starts a command with an empty store and empty caches of other packages, sends SIGINT or SIGTERM to its main
process after a random time, and waits until none of the processes that it started is there any more: they are found by
a variable of their environment, whatever session or group they lead. Reported are the time that took, the processes
that had to be killed (after 10 s), and what ``perflex store verify`` says of the store. The exit code is not 0 where a
process was left after 2 s, or a store was damaged.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[2]
MARK = "PERFLEX_SIGNALS_RUN"
WANTED_S = 2.0
PATIENCE_S = 10.0
EARLIEST_S = 0.5
PAUSE_S = 0.01
CALIBRATION = ROOT / "calib_data" / "calibrations" / "matmul_incore_amd_epyc_4cores_pocl.yaml"
SPACE = f"{ROOT}/examples/matmul_space.py"
VOLUME_SIZES = ("nx=640", "ny=512", "nz=512")
# There is no command that tunes; the space lies in a folder that Python does not look into by itself.
TUNE = f"""
import sys
sys.path.insert(0, {str(ROOT / "examples")!r})
from matmul_space import space
from perflex import tune
tune(space, {{"n": 512}}, device=sys.argv[1], budget=20)
"""


def command_lines(device: str, folder: Path) -> dict[str, list[str]]:
    """Return the words of each command, with results in a folder."""
    perflex = [sys.executable, "-m", "perflex"]
    kernel = f"{ROOT}/examples/matmul.py:prefetching"
    return {
        "calibrate": [*perflex, "calibrate", "matmul_sq", "-o", str(folder / "c.yaml"), "-D", device, "--accept-noise"],
        "prune": [*perflex, "prune", str(CALIBRATION), f"{SPACE}:space", "n=512", "--measure", "8", "--device", device],
        "prune-workers": [*perflex, "prune", str(CALIBRATION), f"{SPACE}:space", "n=512", "--workers", "2"],
        "tune": [sys.executable, "-c", TUNE, device],
        "demo": [*perflex, "demo", "--device", device, "--out", str(folder / "demo"), "--accept-noise"],
        "evaluate": [*perflex, "evaluate", "all", "--device", device, "--out", str(folder / "out"), "--accept-noise"],
        "predict": [*perflex, "predict", str(CALIBRATION), kernel, "n=1056"],
        "features": [*perflex, "features", f"{ROOT}/examples/stencil.py:star25"],
        "volumes": [*perflex, "volumes", f"{ROOT}/examples/stencil.py:star25", "--machine", "V100", *VOLUME_SIZES],
    }


@dataclass(frozen=True)
class Run:
    """What came of one signal.

    Attributes
    ----------
    seconds
        From the signal to the end of the last process.
    left
        Command lines of processes that had to be killed.
    verified
        Whether the store is sound.
    """

    command: str
    number: signal.Signals
    moment: float
    seconds: float
    left: tuple[str, ...]
    code: int
    verified: bool


def processes(mark: str) -> dict[int, str]:
    """Return the numbers of a run's processes that have not ended, with their command lines."""
    wanted = f"{MARK}={mark}".encode()
    found = {}
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                # A process that has ended and was not waited for has an empty environment.
                if wanted in (place / "environ").read_bytes().split(b"\0"):
                    found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()[-150:]
    return found


def interrupted(command: str, device: str, number: signal.Signals, moment: float) -> Run | float:
    """Run a command and send it a signal; return how long it ran where it ended before."""
    with tempfile.TemporaryDirectory(prefix="perflex-signals-") as name:
        folder, mark = Path(name), uuid.uuid4().hex
        environment = os.environ | {
            MARK: mark,
            "PERFLEX_STORE": str(folder / "store.sqlite"),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "POCL_CACHE_DIR": str(folder / "pocl"),
        }
        began = time.monotonic()
        process = subprocess.Popen(
            command_lines(device, folder)[command],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=(folder / "errors").open("w"),
            start_new_session=True,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(moment)
            return time.monotonic() - began
        sent = time.monotonic()
        process.send_signal(number)
        seconds, left = _ended(process, mark, sent)
        store = folder / "store.sqlite"
        verified = not store.exists() or _verified(store)
        return Run(command, number, moment, seconds, left, process.wait(), verified)


def _ended(process: subprocess.Popen[bytes], mark: str, sent: float) -> tuple[float, tuple[str, ...]]:
    while running := processes(mark):
        process.poll()  # takes its exit code
        if time.monotonic() - sent > PATIENCE_S:
            for pid in running:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return time.monotonic() - sent, tuple(running.values())
        time.sleep(PAUSE_S)
    return time.monotonic() - sent, ()


def _verified(store: Path) -> bool:
    words = [sys.executable, "-m", "perflex", "store", "verify", "--store", str(store)]
    return subprocess.run(words, capture_output=True, check=False).returncode == 0


def one(place: int, command: str, device: str, seed: int, longest: float) -> Run:
    """Interrupt a command once; one that ends before is run again and interrupted earlier."""
    chance = random.Random(f"{seed} {place}")  # noqa: S311 - no secret
    number = chance.choice((signal.SIGINT, signal.SIGTERM))
    while True:
        moment = chance.uniform(EARLIEST_S, longest)
        result = interrupted(command, device, number, moment)
        if isinstance(result, Run):
            break
        longest = min(longest, result)
    print(
        f"{place:4} {result.command:14} {result.number.name:8} after {result.moment:5.2f} s: gone in "
        f"{result.seconds:6.3f} s, exit code {result.code}{'' if result.verified else ', STORE DAMAGED'}",
        *(f"     left: {words}" for words in result.left),
        sep="\n",
        flush=True,
    )
    return result


def main() -> int:
    """Send the signals and sum up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--signals", type=int, default=20, help="how many (default 20)")
    parser.add_argument("--jobs", type=int, default=1, help="runs side by side (default 1)")
    parser.add_argument("--seed", type=int, default=1, help="of the moments and signals")
    parser.add_argument("--longest", type=float, default=12.0, help="latest moment in s (default 12)")
    parser.add_argument("--device", default="pocl", help="parts of a device's name (default pocl)")
    parser.add_argument("--commands", default="", help="names joined by commas (default: all)")
    given = parser.parse_args()
    # A shell ignores interrupts in what it runs in the background, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    commands = given.commands.split(",") if given.commands else list(command_lines("", Path()))
    with ThreadPoolExecutor(given.jobs) as pool:
        runs = list(
            pool.map(
                lambda place: one(place, commands[place % len(commands)], given.device, given.seed, given.longest),
                range(given.signals),
            )
        )
    seconds = sorted(run.seconds for run in runs)
    late = sum(value > WANTED_S for value in seconds)
    damaged = sum(not run.verified for run in runs)
    for command in commands:
        own = [run.seconds for run in runs if run.command == command]
        if own:
            print(f"{command:14} {len(own):4} signals, median {median(own):.3f} s, longest {max(own):.3f} s")
    print(f"{len(runs)} signals: median {median(seconds):.3f} s, longest {seconds[-1]:.3f} s")
    print(
        f"later than {WANTED_S:g} s: {late}; processes killed: {sum(len(run.left) for run in runs)}; damaged: {damaged}"
    )
    return 1 if late or damaged else 0


if __name__ == "__main__":
    sys.exit(main())
