"""Counting and measuring on a real Dask cluster of processes, which die now and then."""

import os
import signal
import socket
import sys
import threading
import time
import zlib
from collections import Counter
from concurrent.futures import BrokenExecutor, CancelledError
from functools import partial

import pytest

from failing_kernels import good
from perflex import TimingOptions, dask_executor, tune
from perflex.errors import ExecutorError, MissingExtraError, PerflexWarning
from perflex.store.store import Store
from perflex.testing import FakeDevice
from perflex.timing.executors import dask as cluster_module
from perflex.timing.executors.dask import DEVICE_RESOURCE
from perflex.timing.executors.workers import Answer
from perflex.timing.key import measurement_key
from support.elsewhere import device_of_workers, measure, measure_on
from support.scripted_device import jobs as jobs_of
from support.spaces_for_tests import small_space

pytestmark = pytest.mark.machine

EXACT = TimingOptions(trials=9, precision=0)
jobs = partial(jobs_of, kernel=good())


class Law:
    """A cost law that workers know; one kernel waits, so that its worker can be killed meanwhile, or ends it."""

    def __init__(self, folder=None, *, slow=-1, deadly=-1):
        self.folder = folder
        self.slow = slow
        self.deadly = deadly

    def __call__(self, _, sizes):
        if self.folder is not None and sizes["n"] in {self.slow, self.deadly}:
            (self.folder / f"worker {os.getpid()}").touch()
            if sizes["n"] == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1.5)
        return 1e-5 * sizes["n"]


def a_cluster(workers=2, **options):
    import distributed

    silent = {"dashboard_address": ":0", "silence_logs": 60, "threads_per_worker": 1}
    return distributed.LocalCluster(n_workers=workers, processes=True, **silent, **options)


@pytest.fixture(scope="module")
def declaring():
    with a_cluster(resources={DEVICE_RESOURCE: 1}) as cluster:
        yield cluster


@pytest.fixture
def executor(declaring):
    with dask_executor(declaring.scheduler_address) as one:
        yield one


class Seconds:
    """A cost law of variants that workers know."""

    def __call__(self, label, _):
        return 1e-4 * (1 + zlib.crc32(label.encode()) % 100)


def distributed_client(cluster):
    import distributed

    return distributed.Client(cluster, set_as_default=False)


def sample_rows(store):
    query = "SELECT key, session, round FROM records WHERE round NOT NULL"
    return store.use(lambda connection: connection.execute(query).fetchall())


def test_errors_and_keywords_come_back(executor):
    assert executor.submit(sorted, [1, 3, 2], reverse=True).result() == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result()
    with pytest.raises(TypeError, match="_Unreadable"):  # an answer that cannot be read here
        executor.submit(_unreadable).result(30)


def _nothing(_):
    return Answer(None)


def test_a_worker_that_is_left_out_measures_no_more(declaring):
    with dask_executor(declaring.scheduler_address) as executor:
        first, second = {future.result(60).worker for future in executor.submit_to_each(_nothing, None)}
        executor.leave_out(first)
        assert executor.measuring_slots() == 1
        done = [executor.submit_measuring(_nothing, None) for _ in range(6)]
        assert {future.result(60).worker for future in done} == {second}
        executor.leave_out(second)
        assert executor.measuring_slots() == 0


class _Unreadable(Exception):  # noqa: N818
    def __init__(self, *, word):
        super().__init__(word)


def _unreadable():
    return _Unreadable(word="w")


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_worker_killed_in_the_middle(tmp_path, declared):
    store = Store(tmp_path / "store.sqlite")
    device = FakeDevice(Law(tmp_path, slow=40), noise=0.1)
    killed = []

    def kill():
        while not (marks := list(tmp_path.glob("worker *"))):
            time.sleep(0.02)
        killed.append(int(marks[0].name.split()[1]))
        os.kill(killed[0], signal.SIGKILL)

    options = {"resources": {DEVICE_RESOURCE: 1}} if declared else {}
    with a_cluster(**options) as cluster, dask_executor(cluster.scheduler_address) as executor:
        if not declared:
            with pytest.warns(PerflexWarning, match=r"one worker of each host measures at a time; start one per dev"):
                assert executor.measuring_slots() == 1
        killer = threading.Thread(target=kill)
        killer.start()
        measured = measure_on(executor, jobs(*range(10, 60)), device, EXACT, recorder=store)
        killer.join()
    assert killed
    assert len(list(tmp_path.glob("worker *"))) == 2  # begun in one, done in another
    # Nothing is lost, nothing is there twice, and what is there is what was returned.
    assert len(measured.timings) == 50
    rows = sample_rows(store)
    assert len(rows) == len(set(rows)) == sum(len(timing.samples) for timing in measured.timings)
    counts = Counter(key for key, _, _ in rows)
    assert (len(counts), set(counts.values())) == (50, {EXACT.trials})
    for job, timing in zip(jobs(*range(10, 60)), measured.timings, strict=True):
        kept = store.earlier(measurement_key(job, device, EXACT))
        assert tuple(sample.seconds for sample in kept) == timing.samples
    store.close()


class OneGpu:
    """The GPU that a worker sees, as with one task per GPU; a launch sleeps, so that four of them need no processor."""

    name, platform, vendor, driver, kind = "card", "a platform", "v", "1", "gpu"
    sub_group_size, api = 32, "opencl"
    timer_resolution_s = 1e-9

    def __init__(self, *, shared=False):
        self.shared = shared

    @property
    def pci_address(self):
        return "0000:17:00.0" if self.shared else f"0000:{os.getpid()}"

    device = property(lambda self: self)

    def backend(self):
        return self

    def build(self, _):
        return self

    def close(self):
        pass

    def run(self, launches):
        time.sleep(0.025 * launches)
        return (0.025,) * launches


@pytest.mark.slow
def test_four_workers_with_a_gpu_each_take_a_quarter_of_the_time():
    options = TimingOptions(trials=2, min_trials=2, warmups=0)
    seconds = {}
    with a_cluster(4, resources={DEVICE_RESOURCE: 1}) as cluster, dask_executor(cluster) as executor:
        for shared in (True, False):
            device = device_of_workers(executor, OneGpu(shared=shared))
            measure(jobs(*range(10, 18)), device, options)  # modules are imported
            begun = time.perf_counter()
            assert len(measure(jobs(*range(10, 42)), device, options).timings) == 32
            seconds[shared] = time.perf_counter() - begun
    told = f"each with a GPU {seconds[False]:.2f} s, all with one GPU {seconds[True]:.2f} s"
    assert seconds[True] > 3.2, told
    assert seconds[False] < 0.4 * seconds[True], told


@pytest.mark.slow
def test_variants_are_tuned_by_a_cluster(declaring):
    device = FakeDevice(Seconds())
    with distributed_client(declaring) as client, dask_executor(client) as executor:
        there = tune(small_space(), {"n": 1024}, device=device_of_workers(executor, device))
        assert client.status == "running"
    here = tune(small_space(), {"n": 1024}, device=device)
    assert (there.best.name, there.device) == (here.best.name, here.device)


@pytest.mark.slow
def test_a_scheduler_that_is_lost():
    with a_cluster(workers=1) as cluster, dask_executor(cluster.scheduler_address, timeout_s=1) as executor:
        executor.submit(abs, -1).result()
        waiting = executor.submit(time.sleep, 60)
        cluster.close()
        with pytest.raises(ExecutorError, match=r"the Dask scheduler at tcp://.* does not answer any more"):
            measure_on(executor, jobs(10), FakeDevice(Law()), EXACT)
        with pytest.raises((BrokenExecutor, CancelledError)):
            waiting.result(10)


@pytest.mark.slow
def test_workers_that_do_not_come_back(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster_module, "_PATIENCE_S", 0.5)
    store = Store(tmp_path / "store.sqlite")
    with a_cluster(resources={DEVICE_RESOURCE: 1}) as cluster, dask_executor(cluster.scheduler_address) as executor:
        measure_on(executor, jobs(10, 11), FakeDevice(Law()), EXACT, recorder=store)
        cluster.scale(0)
        with pytest.raises(ExecutorError, match=r"has had no worker that declares perflex_device .*measured is kept"):
            measure_on(executor, jobs(*range(10, 40)), FakeDevice(Law()), EXACT, recorder=store)
    assert len(sample_rows(store)) == 18
    store.close()


def test_no_scheduler_and_no_worker():
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ExecutorError, match=rf"no Dask scheduler answers at {address} .*`dask scheduler`"):
            dask_executor(address, timeout_s=1)
    with pytest.raises(ExecutorError, match="no Dask scheduler answers at nowhere"):
        dask_executor("nowhere://127.0.0.1", timeout_s=1)
    with (
        a_cluster(workers=0) as cluster,
        pytest.raises(ExecutorError, match=r"has no workers; start some: dask worker tcp://"),
    ):
        dask_executor(cluster.scheduler_address, timeout_s=0.5)


@pytest.mark.slow
def test_without_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'perflex\[dask\]'"):
        dask_executor("tcp://127.0.0.1:8786")
