"""The operating system's counters, made up and real."""

import multiprocessing
import os
import pickle
import threading
import time
from pathlib import Path

import pytest

from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.launch.watch import SystemWatch
from support.timing_samples import SystemActivity

TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A made-up folder like /proc."""

    def __init__(self, folder):
        self.folder = folder

    def stat(self, busy=0, idle=0, steal=0):
        # user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
        self.folder.joinpath("stat").write_text(f"cpu  {busy} 0 0 {idle} {idle} 0 0 {steal} 0 0\ncpu0 1 2 3\nintr 5\n")

    def thread(self, name, waited_ns, ran_ns=12345):
        path = self.folder / f"self/task/{name}/schedstat"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{ran_ns} {waited_ns} 17\n")

    def end(self, name):
        self.folder.joinpath(f"self/task/{name}/schedstat").unlink()
        self.folder.joinpath(f"self/task/{name}").rmdir()


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


@pytest.fixture
def watch(proc):
    made = SystemWatch(proc.folder)
    yield made
    made.close()


def test_counters_before_and_after_give_the_activity(proc, watch):
    # Clocks are asked for by number: that of this thread is there, that of the other is not.
    own, other = threading.get_native_id(), 2
    proc.stat(busy=1000, idle=50, steal=7)
    proc.thread(own, 5_000_000)
    proc.thread(other, 100)
    before = watch.reading()
    proc.stat(busy=1000 + 3 * TICKS, idle=90_000, steal=7 + TICKS // 2)
    proc.thread(own, 6_000_000)
    proc.thread(other, 2_500_100)
    found = watch.activity_since(before)
    # The longest wait of a thread, not their sum.
    assert found.waited_s == pytest.approx(0.0025)
    assert found.stolen_s == pytest.approx(0.5, abs=1 / TICKS)
    assert found.elapsed_s > 0
    # All work of the machine less that of this process.
    assert found.others_s == pytest.approx(3 - found.processor_s)
    assert found.switches >= 0
    assert found.throttled is None


def test_steal_is_that_of_one_processor_of_this_process(proc, watch):
    """A hundredth taken from each of 64 processors lets a kernel on all of them lack a hundredth, not 64 of them."""
    own = sorted(os.sched_getaffinity(0))
    others = [number for number in range(own[-1] + 64) if number not in own]

    def stat(*each):
        ticks = {number: stolen for numbers, stolen in each for number in numbers}
        lines = [f"cpu{number} 1 0 0 1 1 0 0 {ticks[number]} 0 0" for number in sorted(ticks)]
        proc.folder.joinpath("stat").write_text(f"cpu  9 0 0 9 9 0 0 {sum(ticks.values())} 0 0\n" + "\n".join(lines))

    stat((own, 5), (others, 5))
    before = watch.reading()
    stat((own, 7), (others, 6))
    assert watch.activity_since(before).stolen_s == pytest.approx(2 / TICKS)
    # Others may be of another share of the machine.
    stat((own, 7), (others, 100))
    assert watch.activity_since(before).stolen_s == pytest.approx(2 / TICKS)
    # Where none of the numbers is ours, the sum is all that is known.
    stat((others, 5))
    before = watch.reading()
    stat((others, 6))
    assert watch.activity_since(before).stolen_s == pytest.approx(len(others) / TICKS)


def test_threads_come_and_go(proc, watch):
    proc.stat()
    for name in (1, 2):
        proc.thread(name, 9_000_000)
    before = watch.reading()
    proc.end(2)
    proc.thread(3, 4_000_000)
    # That of a new thread since it began.
    assert watch.activity_since(before).waited_s == pytest.approx(0.004)


@pytest.mark.machine
def test_files_of_threads_that_ended_are_closed(proc, watch):
    proc.stat()
    proc.thread(1, 0)
    watch.reading()
    opened = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").is_dir() else 0  # noqa: PTH208
    for name in range(100, 200):
        proc.thread(name, 0)
        watch.reading()
        proc.end(name)
    watch.reading()
    assert len(watch._files) == 2
    if opened:
        assert len(os.listdir("/proc/self/fd")) == opened  # noqa: PTH208
    watch.close()
    assert not watch._files


def test_nothing_reported_is_not_known(proc, watch):
    for prepare in (
        lambda: None,
        # A kernel without the counters has threads, but no such files.
        lambda: (proc.folder / "self/task/7").mkdir(parents=True),
        lambda: (proc.folder / "stat").write_text("cpu 1 2 3\n"),
    ):
        prepare()
        found = watch.activity_since(watch.reading())
        assert (found.processor_s, found.waited_s, found.stolen_s, found.others_s) == (None,) * 4
        assert found.elapsed_s is not None


def test_counters_of_ticks_never_give_less_than_nothing(proc, watch):
    proc.thread(threading.get_native_id(), 0)
    proc.stat(busy=5, steal=5)
    before = watch.reading()
    proc.stat(busy=5, steal=4)
    found = watch.activity_since(before)
    assert (found.others_s, found.stolen_s) == (0.0, 0.0)
    assert found.processor_s >= 0


def burn(processor, seconds):
    os.sched_setaffinity(0, {processor})
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def watched(processor, pipe):
    watch = SystemWatch()
    before = watch.reading()
    burn(processor, 0.5)
    pipe.send(watch.activity_since(before))


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system reports no waiting of threads")
def test_two_processes_on_one_processor_wait_for_each_other():
    context = multiprocessing.get_context("spawn")
    processor = min(os.sched_getaffinity(0))
    other = context.Process(target=burn, args=(processor, 20))
    receiving, sending = context.Pipe(duplex=False)
    other.start()
    measured = context.Process(target=watched, args=(processor, sending))
    measured.start()
    assert receiving.poll(60)
    found = receiving.recv()
    other.terminate()
    for process in (other, measured):
        process.join()
    # Half of the time each, if nobody else is there.
    assert found.waited_s > 0.05
    assert found.processor_s < 0.95 * found.elapsed_s


def test_launch_times_travel_between_processes():
    times = LaunchTimes((1.0, 2.0), SystemActivity(0.1, 0.2, 0.0, None, 0.3, 4))
    copy = pickle.loads(pickle.dumps(times))
    assert copy == times
