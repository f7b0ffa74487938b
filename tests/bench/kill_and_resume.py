"""Calibrations killed at random moments and begun again: ``python tests/bench/kill_and_resume.py [KILLS] [SECONDS]``.

Each child calibrates a shipped model of DG differentiation on the default device and is killed (SIGKILL) after a
random time; then another one begins, which goes on where it was. After the last kill one comes to its end. Checked are:

* every sample that a child said it had kept is in the store, with the value it said: 0 lost;
* no sample is there twice;
* the parameters in the last child's calibration equal, bit for bit, those of a run that is not disturbed and gets the
  same samples.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

MODEL = "dg_incore"
TRIALS = 40


def child(place: str, out: str, sessions: str) -> None:
    """Calibrate, and say of each sample that it was kept, after it was; at the end, of which sessions the run was."""
    from perflex.store.resume import RunRecorder
    from perflex.store.samples import MeasurementStore

    add, finish = MeasurementStore.add, RunRecorder.finish

    def add_and_say(self, key, sample, label=""):
        add(self, key, sample, label)
        os.write(1, f"{json.dumps([label, sample.session, sample.round, sample.seconds])}\n".encode())

    def say_and_finish(self):
        Path(sessions).write_text(json.dumps(sorted(self._sessions)), encoding="utf-8")
        finish(self)

    MeasurementStore.add = add_and_say  # type: ignore[method-assign]
    RunRecorder.finish = say_and_finish  # type: ignore[method-assign]
    _calibrated(store=place).save(Path(out))


def _calibrated(**how):
    from perflex import TimingOptions, calibrate, find_device
    from perflex.devices.wall_time import wall_time_identifier
    from perflex.models import load_model
    from perflex.models.kernel_sets import measurement_kernels

    warnings.simplefilter("ignore")
    device = find_device(None)
    description = load_model(MODEL)
    return calibrate(
        description.model(wall_time_identifier(device)),
        measurement_kernels(description),
        device=device,
        timing=TimingOptions(trials=TRIALS, min_trials=40, budget_s=2.0, precision=1e-6),
        **how,
    )


class Stored:
    """Gives back the samples of some sessions, and refuses new ones: a run in which nothing is measured."""

    def __init__(self, place: str, sessions: set[str]) -> None:
        from perflex.store.samples import MeasurementStore

        self.store, self.sessions = MeasurementStore(place), sessions

    def earlier(self, key):
        """Return the samples of a key in those sessions."""
        return tuple(sample for sample in self.store.earlier(key) if sample.session in self.sessions)

    def failure(self, key):
        """Return nothing."""

    def add(self, _key, _sample, label=""):
        """Refuse."""
        msg = f"{label} was measured again"
        raise RuntimeError(msg)

    fail = add


def main(kills: int, longest: float) -> int:
    """Kill children, let the last one finish, and compare."""
    chance = random.Random(1)  # noqa: S311 - no secret
    said: dict[tuple[str, str, int], float] = {}
    with tempfile.TemporaryDirectory() as folder:
        place, out, sessions = (str(Path(folder, name)) for name in ("store.sqlite", "calibration.yaml", "sessions"))
        finished = killed = 0
        runs: list[int] = []
        started = time.perf_counter()
        while killed < kills or not runs or runs[-1] < 0:
            last = killed >= kills
            lines, ended = _run([place, out, sessions], None if last else chance.uniform(0.5, longest))
            for label, session, number, seconds in lines:
                said[label, session, number] = seconds
            killed += not ended
            finished += ended
            runs.append(len(lines) if ended else -1)
        print(f"{killed} kills, {finished} runs came to their end, {time.perf_counter() - started:.0f} s", flush=True)
        return _compare(place, out, sessions, said)


def _run(files: list[str], seconds: float | None) -> tuple[list[list], bool]:
    """Run a child, for so long; return what it said and whether it came to its end."""
    process = subprocess.Popen(
        [sys.executable, __file__, "child", *files], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        text, _ = process.communicate()
    # A line that was cut off was not said.
    lines = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
    if process.returncode not in {0, -signal.SIGKILL}:
        msg = f"a child ended with {process.returncode}"
        raise RuntimeError(msg)
    return lines, process.returncode == 0


def _compare(place: str, out: str, sessions: str, said: dict[tuple[str, str, int], float]) -> int:
    from perflex import Calibration

    rows = sqlite3.connect(place).execute(
        "SELECT label, session, round, seconds FROM samples JOIN measurement_keys ON key = measurement_keys.number"
    )
    stored: dict[tuple[str, str, int], float] = {}
    twice = 0
    for label, session, number, seconds in rows:
        twice += (label, session, number) in stored
        stored[label, session, number] = seconds
    lost = sum(stored.get(key) != seconds for key, seconds in said.items())
    print(f"{len(said)} samples said to be kept, {lost} lost; {len(stored)} in the store, {twice} twice", flush=True)
    run = set(json.loads(Path(sessions).read_text(encoding="utf-8")))
    print(f"the last calibration consists of {len(run)} sessions", flush=True)
    undisturbed = _calibrated(recorder=Stored(place, run))
    same = dict(undisturbed.params) == dict(Calibration.load(Path(out)).params)
    print(f"parameters equal those of an undisturbed run with the same samples: {same}", flush=True)
    return 0 if lost == 0 and twice == 0 and same else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        child(*sys.argv[2:])
    else:
        numbers = [float(word) for word in sys.argv[1:]]
        sys.exit(main(int(numbers[0]) if numbers else 100, numbers[1] if len(numbers) > 1 else 6.0))
