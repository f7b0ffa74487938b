import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import loopy as lp
import numpy as np
import pytest

from failing_kernels import crashing, endless, good, not_compiling
from perflex import TimingOptions
from perflex.child_process import ChildLostError
from perflex.errors import DeviceError, MeasurementError, MissingSizeError
from perflex.features import SizedKernel
from perflex.timing.isolation import worker
from perflex.timing.isolation.backend import IsolatedBackend, WorkerProcess
from perflex.timing.launch.backend import RunLimits
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing
from support.building import built
from support.processes import gone

pytestmark = pytest.mark.machine

LIMITS = RunLimits(launch_s=0.2, build_s=60)
QUICK = TimingOptions(trials=6, limit_s=1)
TESTS = Path(__file__).parents[2]


@pytest.fixture
def backend(default_device):
    opened = IsolatedBackend(default_device, LIMITS)
    yield opened
    opened.close()


def process_of(backend):
    return backend.worker()._process._process


def children():
    return {
        int(pid)
        for path in Path("/proc/self/task").glob("*/children")
        for pid in path.read_text(encoding="ascii").split()
    }


@pytest.mark.slow
def test_three_bad_kernels_among_good_ones_on_every_device(real_devices):
    bad = {"no end": endless(), "crash": crashing(), "no code": not_compiling()}
    for device in real_devices:
        before = children()
        jobs = []
        for index, (label, kernel) in enumerate(bad.items()):
            fine = SizedKernel(good(index + 1, f"good{index}"), {"n": 1 << 16}, f"good{index}")
            jobs += [fine, SizedKernel(kernel, {"n": 4096}, label)]
        jobs.append(SizedKernel(good(9, "last"), {"n": 1 << 16}, "last"))
        outcomes = measure(jobs, device, QUICK)
        failures = {outcome.label: outcome for outcome in outcomes if isinstance(outcome, MeasurementFailure)}
        for label, kind, words in (
            ("no end", "hang", r"no end: does not end; TimingOptions\(limit_s=.* slow \(no end within 4 s\)"),
            ("crash", "crash", r"crash: crashes its process \(SIG"),
            ("no code", "prepare", "no code: .*no_such_function"),
        ):
            assert failures[label].kind == kind
            assert re.match(words, failures[label].reason)
        assert len(failures) == 3
        assert [timing.label for timing in outcomes.timings] == ["good0", "good1", "good2", "last"]
        assert children() == before


@pytest.mark.slow
def test_after_a_crash_the_others_are_built_again_when_needed(backend):
    fine = built(backend, good(), {"n": 1000}, "good")
    fine.run(1)
    first = process_of(backend)
    with pytest.raises(MeasurementError, match=r"^bad: crashes its process \(SIG") as caught:
        built(backend, crashing(), {"n": 4096}, "bad").run(1)
    assert caught.value.kind == "crash"
    assert first.returncode < 0
    assert len(fine.run(2).seconds) == 2
    assert process_of(backend) is not first
    assert gone(first.pid)


def test_a_worker_that_was_killed_while_idle_is_nobodys_fault(backend):
    backend.limits = RunLimits(launch_s=1000, build_s=60)
    fine = built(backend, good(), {"n": 1000}, "good")
    first = process_of(backend)
    first.kill()
    first.wait(5)
    assert fine._limit(1) > 1000
    assert fine.run(1).seconds[0] > 0
    assert process_of(backend) is not first
    # A kernel that ran once hangs by its own time.
    assert fine._limit(1) < 60
    assert fine._limit(1000) > fine._limit(1)


@pytest.mark.slow
def test_after_a_hang_larger_sizes_are_not_tried(backend):
    kernel = endless()
    with pytest.raises(MeasurementError, match=r"^middle: does not end; .*no end within 3\.2 s"):
        built(backend, kernel, {"n": 4096}, "middle").run(1)
    start = time.monotonic()
    with pytest.raises(MeasurementError, match=r"^large: not tried: middle is the same code") as caught:
        built(backend, kernel, {"n": 8192}, "large")
    assert time.monotonic() - start < 2
    assert caught.value.kind == "hang"
    built(backend, kernel, {"n": 2048}, "small")
    built(backend, good(), {"n": 8192}, "good").run(1)


def test_a_device_that_vanishes_ends_it_with_earlier_samples_kept(default_device, monkeypatch):
    start = WorkerProcess.__init__
    started = []

    def once(self, device):
        if started:
            msg = f"cannot open {device}"
            raise DeviceError(msg, device=device)
        started.append(device)
        start(self, device)

    def end_worker_at_the_third(*_):
        if recorder.add.call_count == 3:
            for pid in children() - before:
                os.kill(pid, signal.SIGKILL)

    recorder = Mock(**{"earlier.return_value": (), "failure.return_value": None})
    recorder.add.side_effect = end_worker_at_the_third
    before = children()
    monkeypatch.setattr(WorkerProcess, "__init__", once)
    jobs = [SizedKernel(good(k, f"good{k}"), {"n": 1000}, f"good{k}") for k in (1, 2, 3)]
    with pytest.raises(DeviceError, match="cannot open"):
        measure(jobs, default_device, QUICK, recorder=recorder)
    assert recorder.add.call_count == 3
    assert children() <= before


def test_errors_of_kernels_arrive_as_they_are(backend):
    with pytest.raises(MissingSizeError, match="parameter n"):
        built(backend, good(), {}, "no size")
    with pytest.raises(MeasurementError, match=r"^no code: does not build on .*no_such_function") as caught:
        built(backend, not_compiling(), {"n": 64}, "no code")
    assert "no_such_function" in str(caught.value.log)
    process = backend.worker()
    assert built(backend, good(), {"n": 64}, "good").run(1).seconds[0] > 0
    assert backend.worker() is process


def test_a_source_that_crashes_the_compiler_is_tried_once(backend, monkeypatch):
    def crash(self, function, *_, **__):
        asked.append(function)
        reason = "SIGABRT; its last output: LLVM ERROR: cannot select"
        raise ChildLostError(reason, kind="crash")

    asked = []
    monkeypatch.setattr(WorkerProcess, "call", crash)
    kernel = good()
    for n in (64, 128, 256):
        with pytest.raises(
            MeasurementError, match=rf"^n={n}: building it crashes the compiler \(SIGABRT; .*LLVM ERROR"
        ):
            built(backend, kernel, {"n": n}, f"n={n}")
    assert asked == [worker.build]


def test_memory_of_the_device_runs_out_for_one_kernel(default_device):
    roomy = replace(default_device, max_allocation_bytes=1 << 62, global_memory_bytes=1 << 62)
    # Every element lies 2**18 bytes after the one before.
    sparse = lp.make_kernel(
        "{[i]: 0<=i<n}",
        "b[i] = 1",
        [lp.GlobalArg("b", np.float32, shape="n", strides=(1 << 16,)), lp.ValueArg("n", np.int64)],
        assumptions="n>=1",
        lang_version=(2018, 2),
        name="sparse",
        index_dtype=np.int64,
    )
    jobs = [SizedKernel(sparse, {"n": n}, f"n={n}") for n in (10, 1 << 29, 20)]
    for options in (QUICK, replace(QUICK, isolate=False)):
        first, large, last = measure(jobs, roomy, options)
        assert isinstance(first, Timing)
        assert isinstance(last, Timing)
        assert isinstance(large, MeasurementFailure)
        assert large.kind == "memory"
        assert "no room for a buffer of 140737488" in large.reason


def test_an_error_of_perflex_is_no_crash_of_a_driver(backend):
    process = backend.worker()
    with pytest.raises(RuntimeError, match=r"(?s)failed, which is an error of perflex:.*worker.*KeyError: 7\n$"):
        process.call(worker.run, 7, 1, False, 0, limit_s=10)
    assert not process.alive
    assert built(backend, good(), {"n": 64}, "good").run(1).seconds[0] > 0


def test_what_only_a_first_launch_does_is_no_part_of_a_time(backend):
    fine = built(backend, good(), {"n": 1000}, "good")
    fine.run(1)
    first = process_of(backend)
    first.kill()
    first.wait(5)
    asked = []
    call = WorkerProcess.call

    def recorded(self, function, number, *arguments, limit_s):
        asked.append((function, arguments[0] if function is worker.run else None))
        return call(self, function, number, *arguments, limit_s=limit_s)

    with patch.object(WorkerProcess, "call", recorded):
        assert len(fine.run(3).seconds) == 3
    assert asked == [(worker.build, None), (worker.run, 1), (worker.run, 3)]


def test_a_device_that_is_gone_and_a_worker_that_does_not_start_are_clear_errors(default_device, monkeypatch, tmp_path):
    def fails(device, match):
        before = children()
        with pytest.raises(DeviceError, match=match):
            measure([SizedKernel(good(), {"n": 64}, "good")], device, QUICK)
        assert children() == before

    fails(replace(default_device, name="Gone With The Wind"), "Gone With The Wind")
    program = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(program))
    fails(default_device, r"did not start: .*No such file.*isolate=False")
    program.write_text("#!/bin/sh\necho no module >&2\nexit 3\n", encoding="ascii")
    program.chmod(0o755)
    fails(default_device, r"did not start: exit code 3; its last output: no module; .*isolate=False")


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
print("main runs", flush=True)
import perflex
from failing_kernels import endless, good
from perflex.devices.listing import find_device
from perflex.features.sized_kernel import SizedKernel
from perflex.timing.measuring import TimingOptions, measure

device = find_device()
hanging = "hang" in sys.argv
label = lambda done, total, what: print("at", what, flush=True)
kernel = endless() if hanging else good()
[outcome] = measure([SizedKernel(kernel, {{"n": 4096}}, "k")], device, TimingOptions(trials=5, limit_s=50), label)
print(type(outcome).__name__, getattr(outcome, "reason", ""), flush=True)
"""


def script(tmp_path, *words):
    """A script that a careless user writes: nothing guards its main part."""
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(tests=str(TESTS)), encoding="utf-8")
    (tmp_path / "models.py").write_text("raise SystemExit('the wrong models')\n", encoding="utf-8")
    return [sys.executable, "-W", "error", str(path), *words]


@pytest.mark.slow
def test_a_script_without_guard_runs_once(tmp_path, default_device):
    done = subprocess.run(script(tmp_path), capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines().count("main runs") == 1
    assert done.stdout.splitlines()[-1].startswith("Timing")


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_worker_outlives_its_parent(number, tmp_path, default_device):
    # Without -W error: an interrupt in the middle of anything leaves objects that Python warns of.
    words = [word for word in script(tmp_path, "hang") if word not in {"-W", "error"}]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as parent:
        try:
            for line in parent.stdout or ():
                if line.startswith("at k"):
                    break
            child = _running_worker(parent.pid)
            parent.send_signal(number)
            _, complaint = parent.communicate(timeout=20)
        finally:
            parent.kill()
    assert gone(child)
    assert parent.returncode != 0
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in complaint


def _running_worker(parent):
    """Return the worker's process once it computes: its kernel runs."""
    end = time.monotonic() + 40
    while time.monotonic() < end:
        for path in Path(f"/proc/{parent}/task").glob("*/children"):
            with suppress(OSError):
                for pid in map(int, path.read_text(encoding="ascii").split()):
                    if b"answer_calls" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        ticks = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                        if int(ticks[11]) > 300:  # three seconds of computing, which no start takes
                            return pid
        time.sleep(0.05)
    pytest.fail("the worker never computed")
