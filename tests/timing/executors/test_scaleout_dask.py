"""Counting and measuring on a real Dask cluster of processes, which die now and then."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections import Counter
from concurrent.futures import BrokenExecutor, CancelledError
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import distributed
import pytest

from failing_kernels import crashing, good
from perflex import TimingOptions, dask_executor
from perflex.errors import ExecutorError, MissingExtraError, PerflexWarning
from perflex.features import SizedKernel
from perflex.store.records import Sample, SystemActivity
from perflex.store.store import Store
from perflex.testing import FakeDevice
from perflex.timing.executors import dask as cluster_module
from perflex.timing.executors.dask import DEVICE_RESOURCE
from perflex.timing.executors.portions import Item, ItemResult, PortionResult
from perflex.timing.executors.rounds import measure_on
from perflex.timing.key import measurement_key
from perflex.timing.launch.launch_times import LaunchTimes
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from perflex import Device
    from perflex.timing.executors.dask import DaskExecutor
    from perflex.timing.results import Measured

pytestmark = pytest.mark.machine

EXACT = TimingOptions(trials=9, precision=0)


class Law:
    """A cost law that workers know; one kernel waits, so that its worker can be killed meanwhile, or ends it."""

    def __init__(self, folder: Path | None = None, *, slow: int = -1, deadly: int = -1) -> None:
        self.folder = folder
        self.slow = slow
        self.deadly = deadly

    def __call__(self, _: str, sizes: Mapping[str, int]) -> float:
        if self.folder is not None and sizes["n"] in {self.slow, self.deadly}:
            (self.folder / f"worker {os.getpid()}").touch()
            if sizes["n"] == self.deadly:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(1.5)
        return 1e-5 * sizes["n"]


@contextmanager
def a_cluster(**options: Any) -> Iterator[Any]:
    silent = {"dashboard_address": ":0", "silence_logs": 50, "threads_per_worker": 1}
    with distributed.LocalCluster(n_workers=2, processes=True, **silent, **options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def declaring() -> Iterator[Any]:
    with a_cluster(resources={DEVICE_RESOURCE: 1}) as cluster:
        yield cluster


@pytest.fixture
def executor(declaring: Any) -> Iterator[DaskExecutor]:
    with dask_executor(declaring.scheduler_address) as one:
        yield one


def jobs(*sizes: int) -> list[Any]:
    kernel = good()
    return [SizedKernel(kernel, {"n": n}, f"n={n}") for n in sizes]


def sample_rows(store: Store) -> list[tuple[int, str, int]]:
    return store.use(lambda connection: connection.execute("SELECT key, session, round FROM samples").fetchall())


@pytest.mark.slow
def test_as_measured_here(executor: DaskExecutor) -> None:
    assert executor.measuring_slots() == 2
    there = measure_on(executor, jobs(*range(10, 60)), FakeDevice(Law()), EXACT)
    here = measure(jobs(*range(10, 60)), FakeDevice(Law()), EXACT)
    seconds = [[outcome.seconds for outcome in one if isinstance(outcome, Timing)] for one in (here, there)]
    assert seconds[0] == pytest.approx(seconds[1])
    assert len(seconds[0]) == 50


def test_errors_and_keywords_come_back(executor: DaskExecutor) -> None:
    assert executor.submit(sorted, [1, 3, 2], reverse=True).result() == [3, 2, 1]
    with pytest.raises(ZeroDivisionError):
        executor.submit(divmod, 1, 0).result()
    with pytest.raises(TypeError, match="_Unreadable"):  # an answer that cannot be read here
        executor.submit(_unreadable).result(30)


def test_samples_come_back_with_their_marks(executor: DaskExecutor) -> None:
    activity = SystemActivity(0.5, 0.25, switches=3, throttled=True)
    samples = tuple(Sample(1e-3, 1, 1.7e9, "session", n, activity, disturbed=n == 1) for n in range(3))
    result = PortionResult((ItemResult(samples), ItemResult((replace(samples[0], activity=None),))))
    assert executor.submit(_same, result).result() == result
    assert executor.submit(_same, Item(jobs(16)[0], samples)).result().samples == samples
    assert executor.submit(_same, LaunchTimes((1e-3, 2e-3), activity)).result().activity == activity


def _same(sent: Any) -> Any:
    return sent


class _Unreadable(Exception):  # noqa: N818
    def __init__(self, *, word: str) -> None:
        super().__init__(word)


def _unreadable() -> Exception:
    return _Unreadable(word="w")


@pytest.mark.slow
def test_a_real_device(executor: DaskExecutor, default_device: Device) -> None:
    mixed = [*jobs(2**14, 2**16, 2**18), SizedKernel(crashing(), {"n": 64}, "crashing")]
    measured = measure_on(executor, mixed, default_device, EXACT)
    assert all(isinstance(outcome, Timing) and 9 <= len(outcome.samples) <= 18 for outcome in measured[:3])
    assert isinstance(measured[3], MeasurementFailure)
    assert (measured[3].label, measured[3].kind) == ("crashing", "crash")


@pytest.mark.slow
@pytest.mark.parametrize("declared", [True, False])
def test_a_worker_killed_in_the_middle(tmp_path: Path, declared: bool) -> None:
    store = Store(tmp_path / "store.sqlite")
    device = FakeDevice(Law(tmp_path, slow=40), noise=0.1)
    killed: list[int] = []

    def kill() -> None:
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
    check_store(store, jobs(*range(10, 60)), device, measured)
    store.close()


def check_store(store: Store, asked: list[Any], device: Any, measured: Measured) -> None:
    """Nothing is lost, nothing is there twice, and what is there is what was returned."""
    assert all(isinstance(outcome, Timing) for outcome in measured)
    rows = sample_rows(store)
    assert len(rows) == len(set(rows))
    counts = Counter(key for key, _, _ in rows)
    assert len(counts) == len(asked)
    assert min(counts.values()) >= EXACT.trials
    more = sum(count > EXACT.trials for count in counts.values())
    # References of the portions; on real devices also kernels the samples of which others disturbed.
    assert more <= 9 + sum(bool(outcome.disturbed_samples) for outcome in measured.timings)
    for job, outcome in zip(asked, measured, strict=True):
        kept = store.earlier(measurement_key(job, device, EXACT))
        assert tuple(sample.seconds for sample in kept) == getattr(outcome, "samples", ())


@pytest.mark.slow
def test_a_kernel_that_ends_every_worker_is_named(executor: DaskExecutor, tmp_path: Path) -> None:
    with distributed.Client(executor._address, set_as_default=False) as client:
        client.run_on_scheduler(_allow_failures, 0)
        measured = measure_on(executor, jobs(*range(30, 34)), FakeDevice(Law(tmp_path, deadly=31)), EXACT)
        client.run_on_scheduler(_allow_failures, 3)
    assert [type(outcome).__name__ for outcome in measured].count("Timing") == 3
    assert isinstance(measured[1], MeasurementFailure)
    assert (measured[1].label, measured[1].kind) == ("n=31", "crash")
    assert "ended while they timed it alone" in measured[1].reason


def _allow_failures(number: int, dask_scheduler: Any) -> None:
    dask_scheduler.allowed_failures = number


@pytest.mark.slow
def test_a_scheduler_that_is_lost() -> None:
    with (
        distributed.LocalCluster(n_workers=1, processes=True, dashboard_address=":0", silence_logs=60) as cluster,
        dask_executor(cluster.scheduler_address, timeout_s=1) as executor,
    ):
        executor.submit(abs, -1).result()
        waiting = executor.submit(time.sleep, 60)
        cluster.close()
        with pytest.raises(ExecutorError, match=r"the Dask scheduler at tcp://.* does not answer any more"):
            measure_on(executor, jobs(10), FakeDevice(Law()), EXACT)
        with pytest.raises((BrokenExecutor, CancelledError)):
            waiting.result(10)


@pytest.mark.slow
def test_workers_that_do_not_come_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cluster_module, "_PATIENCE_S", 0.5)
    store = Store(tmp_path / "store.sqlite")
    with a_cluster(resources={DEVICE_RESOURCE: 1}) as cluster, dask_executor(cluster.scheduler_address) as executor:
        measure_on(executor, jobs(10, 11), FakeDevice(Law()), EXACT, recorder=store)
        cluster.scale(0)
        with pytest.raises(ExecutorError, match=r"has had no worker that declares perflex_device .*measured is kept"):
            measure_on(executor, jobs(*range(10, 40)), FakeDevice(Law()), EXACT, recorder=store)
    assert len(sample_rows(store)) == 18
    store.close()


def test_no_scheduler_and_no_worker() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
        with pytest.raises(ExecutorError, match=rf"no Dask scheduler answers at {address} .*`dask scheduler`"):
            dask_executor(address, timeout_s=1)
    with pytest.raises(ExecutorError, match="no Dask scheduler answers at nowhere"):
        dask_executor("nowhere://127.0.0.1", timeout_s=1)
    with (
        distributed.LocalCluster(n_workers=0, processes=True, dashboard_address=":0", silence_logs=50) as cluster,
        pytest.raises(ExecutorError, match=r"has no workers; start some: dask worker tcp://"),
    ):
        dask_executor(cluster.scheduler_address, timeout_s=0.5)


@pytest.mark.slow
def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'perflex\[dask\]'"):
        dask_executor("tcp://127.0.0.1:8786")
