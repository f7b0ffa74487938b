"""Measuring that is cut short goes on where it was; what came to its end is measured anew."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from perflex import Model, RunOptions, TimingOptions, calibrate, gather_feature_values, using_store
from perflex.errors import CalibrationError, MeasurementError, StoreError
from perflex.store import resume
from perflex.store.records import MeasurementKey, Sample
from perflex.store.resume import RecordOnly, RunRecorder, resumable, work_digest
from perflex.store.rows import insert
from perflex.store.store import Store
from perflex.testing import FakeDevice
from support.elsewhere import device_of_workers
from uipick import ALL_GENERATORS, KernelCollection

OUTPUT, MADD = "f_cl_wall_time_fake", "f_op_float32_madd"
OPTIONS = TimingOptions(trials=4, min_trials=4, precision=1e-9)


def made():
    tags = ["flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64"]
    return KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "nelements:32768,65536,98304,131072"])


@pytest.fixture(scope="module")
def kernels():
    return made()


class Stopped(Exception):  # noqa: N818 - not an error of the library
    """Stands for the end of a process."""


def device(seconds=1e-3):
    return FakeDevice(lambda _, sizes: seconds * sizes["nelements"] / 32768, noise=0.01)


def stop_at(step):
    calls = 0

    def progress(_done, _total, _label):
        nonlocal calls
        calls += 1
        if calls == step:
            raise Stopped

    return progress


def samples_in(place):
    count = "SELECT count(*) FROM records WHERE round NOT NULL"
    return Store(place).use(lambda connection: connection.execute(count).fetchone()[0])


def gathered(place, kernels, seconds=1e-3, features=(OUTPUT, MADD), *, pool=None, **run):
    on = device(seconds) if pool is None else device_of_workers(pool, device(seconds))
    with using_store(place):
        return gather_feature_values(features, kernels, device=on, timing=OPTIONS, run=RunOptions(**run))


@pytest.mark.parametrize("step", [13, 17, 24])
def test_only_what_is_missing_is_measured(kernels, tmp_path, step):
    place = tmp_path / "store.sqlite"
    with pytest.raises(Stopped):
        gathered(place, kernels, progress=stop_at(step))
    before = samples_in(place)
    assert 0 < before < 16
    # Another speed shows which samples are from before.
    table = gathered(place, kernels, 1.0)
    assert table.timing.samples_resumed == before
    assert samples_in(place) == 16
    again = gathered(place, kernels)
    assert again.timing.samples_resumed == 0
    assert samples_in(place) == 32
    assert again.column(OUTPUT).max() < 0.1


def test_a_resumed_calibration_equals_an_undisturbed_one_on_the_same_samples(kernels, tmp_path, monkeypatch):
    place = tmp_path / "store.sqlite"
    model = Model(OUTPUT, f"p_madd * {MADD} + p_launch * f_sync_kernel_launch")

    def calibrated(**run):
        with using_store(place):
            found = calibrate(model, kernels, device=device(), timing=OPTIONS, run=RunOptions(**run))
        return dict(found.params)

    for step in (14, 14, 14):
        with pytest.raises(Stopped):
            calibrated(progress=stop_at(step))
    sessions: set[str] = set()

    class Watching(RunRecorder):
        def finish(self):
            sessions.update(self._sessions)
            super().finish()

    monkeypatch.setattr("perflex.store.resume.RunRecorder", Watching)
    resumed = calibrated()
    assert len(sessions) >= 3

    class Stored(RunRecorder):
        add_many = None  # nothing is to be measured

        def __init__(self, store, work):
            super().__init__(store, work)
            self._sessions = set(sessions)

    monkeypatch.setattr("perflex.store.resume.RunRecorder", Stored)
    assert calibrated() == resumed


def owned_by(monkeypatch, host=None, process=None, began=None):
    """Have sessions look like another process's: by default those of the one that started this."""
    here, process = resume._this_host(), os.getppid() if process is None else process
    owner = resume._Owner(host or here, process, resume._began(process) if began is None else began)
    monkeypatch.setattr(resume, "_this_process", lambda: owner)


@pytest.mark.parametrize(
    ("owner", "taken"),
    [
        ({}, False),
        ({"host": "another"}, False),
        ({"host": "another", "began": "1"}, False),
        # The number came again.
        ({"began": "1"}, True),
        # Larger than any.
        ({"process": 2**30, "began": "1"}, True),
    ],
)
def test_only_runs_of_processes_that_are_gone_are_taken_up(kernels, tmp_path, monkeypatch, owner, taken):
    place = tmp_path / "store.sqlite"
    with monkeypatch.context() as elsewhere:
        owned_by(elsewhere, **owner)
        with pytest.raises(Stopped):
            gathered(place, kernels, progress=stop_at(18))
    before = samples_in(place)
    # As of an equal device that is half as fast.
    table = gathered(place, kernels, 2e-3)
    assert table.timing.samples_resumed == (before if taken else 0)
    if not taken:
        assert table.column(OUTPUT) == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3], rel=0.05)
        # The other one goes on where it was, though this one has come to its end.
        Store(place).use(set_owner_gone, writes=True)
        assert gathered(place, kernels).timing.samples_resumed == before


def set_owner_gone(connection):
    for work, session, *_ in connection.execute("SELECT * FROM unfinished_work").fetchall():
        insert(connection, "unfinished_work", (work, session, resume._this_host(), 2**30, "1"), resume._NEW_OWNER)


SCRIPT = """
import sys
from perflex import RunOptions, gather_feature_values, using_store
from test_resume import MADD, OPTIONS, OUTPUT, device, made

def progress(done, total, label):
    global steps
    steps += 1
    if steps == 18:
        print("in the middle", flush=True)
        sys.stdin.readline()

steps = 0
with using_store(sys.argv[1]):
    run = RunOptions(progress=progress)
    table = gather_feature_values((OUTPUT, MADD), made(), device=device(), timing=OPTIONS, run=run)
print(table.timing.samples_resumed, *table.column(OUTPUT), flush=True)
"""


@pytest.mark.machine
def test_two_processes_at_once_on_equal_devices_share_no_samples(kernels, tmp_path):
    """Each calls its device number 0; this one's is half as fast."""
    place, folder = tmp_path / "store.sqlite", Path(__file__).parent
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{folder.parent}"}
    words = [sys.executable, "-c", SCRIPT, str(place)]
    for ending in ("goes on", "is killed"):
        with subprocess.Popen(words, env=environment, **pipes) as other:
            assert other.stdout.readline() == "in the middle\n"
            begun = samples_in(place)
            table = gathered(place, kernels, 2e-3)
            assert table.timing.samples_resumed == 0
            assert table.column(OUTPUT) == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3], rel=0.05)
            if ending == "goes on":
                resumed, *seconds = map(float, other.communicate("go on\n")[0].split())
                assert (resumed, seconds) == (0, pytest.approx([1e-3, 2e-3, 3e-3, 4e-3], rel=0.05))
            else:
                other.kill()
    assert gathered(place, kernels).timing.samples_resumed == begun - 32


def test_two_runs_of_one_process_at_once_share_nothing(kernels, tmp_path):
    place = tmp_path / "store.sqlite"
    inner = []

    def progress(done, _total, _label):
        if done == 6 and not inner:
            inner.append(None)
            with ThreadPoolExecutor(1) as other:
                inner[0] = other.submit(gathered, place, kernels, 2e-3).result()

    outer = gathered(place, kernels, progress=progress)
    assert outer.column(OUTPUT) == pytest.approx([1e-3, 2e-3, 3e-3, 4e-3], rel=0.05)
    assert inner[0].column(OUTPUT) == pytest.approx([2e-3, 4e-3, 6e-3, 8e-3], rel=0.05)
    assert (inner[0].timing.samples_resumed, samples_in(place)) == (0, 32)


def test_a_run_begun_while_another_notes_its_session_does_not_take_it(tmp_path, monkeypatch):
    store, others, use = Store(tmp_path / "store.sqlite"), [], Store.use
    first = RunRecorder(store, "work")

    def then_another_begins(self, work, *, writes=False):
        found = use(self, work, writes=writes)
        with monkeypatch.context() as within:
            within.setattr(Store, "use", use)
            others.append(RunRecorder(store, "work"))
        return found

    monkeypatch.setattr(Store, "use", then_another_begins)
    key = MeasurementKey("digest", (("n", 512),), "device", "driver", "conditions")
    first.add(key, Sample(1e-3, 1, 1.7e9, "session", 0))
    assert len(others) == 2
    assert first.earlier(key) == (Sample(1e-3, 1, 1.7e9, "session", 0),)
    assert not any(other.earlier(key) for other in list(others))


@pytest.mark.parametrize(
    ("error", "measured", "kept"),
    [(CalibrationError(""), True, 0), (CalibrationError("before measuring"), False, 1), (KeyboardInterrupt(), True, 1)],
)
def test_times_that_do_not_do_are_measured_anew(tmp_path, error, measured, kept):
    key = MeasurementKey("digest", (("n", 512),), "device", "driver", "conditions")
    with using_store(tmp_path / "store.sqlite"):
        with suppress(type(error)), resumable("device", ["model"]) as recorder:
            recorder.add(key, Sample(1e-3, 1, 1.7e9, "session", 0))
            if measured:
                with resumable("device", ["kernel"]):
                    pass
            raise error
        with resumable("device", ["model"]) as again:
            assert len(again.earlier(key)) == kept


def test_runs_of_other_work_are_not_taken(kernels, tmp_path):
    place = tmp_path / "store.sqlite"
    with pytest.raises(Stopped):
        gathered(place, kernels, progress=stop_at(18))
    assert gathered(place, kernels[:2]).timing.samples_resumed == 0


def test_a_failure_of_a_finished_run_is_tried_again(kernels, tmp_path):
    def broken(label, sizes):
        if sizes["nelements"] == 65536:
            msg = f"{label}: the driver crashed"
            raise MeasurementError(msg, kind="crash")
        return 1e-3

    with using_store(tmp_path / "store.sqlite"), pytest.warns(UserWarning, match="the driver crashed"):
        table = gather_feature_values([OUTPUT], kernels, device=FakeDevice(broken), timing=OPTIONS)
    assert len(table) == 3
    assert len(gathered(tmp_path / "store.sqlite", kernels, features=(OUTPUT,))) == 4


def test_what_only_records_gives_nothing_back(tmp_path):
    store = Store(tmp_path / "store.sqlite")
    recorder = RecordOnly(store)
    key = MeasurementKey("k", (("n", 1),), "device", "driver")
    sample = Sample(1e-3, 1, 0.0, "session", 0)
    recorder.add(key, sample, "label")
    assert recorder.earlier(key) == ()
    assert store.earlier(key) == (sample,)


def test_budgets_keep_their_samples(kernels, tmp_path):
    with using_store(tmp_path / "store.sqlite"):
        calibrate(Model(OUTPUT, f"p_madd * {MADD}"), kernels, device=device(), timing=OPTIONS, budget_s=0.2)
    assert samples_in(tmp_path / "store.sqlite") >= 4


def test_the_order_of_kernels_does_not_matter_to_what_the_work_is():
    assert work_digest("d", ["a", "b"]) == work_digest("d", ["b", "a"]) != work_digest("e", ["a", "b"])


def test_without_a_store_nothing_is_kept(kernels):
    with using_store("off"), resumable("device", ["a"]) as recorder:
        assert recorder is None
    assert gathered("off", kernels).timing.samples_resumed == 0


def test_a_store_that_cannot_be_written_is_an_error_at_once(kernels, tmp_path):
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        gathered(tmp_path / "file" / "store.sqlite", kernels)


def test_kernels_are_timed_in_an_executor_and_kept(kernels, tmp_path):
    place = tmp_path / "store.sqlite"
    with ThreadPoolExecutor(2) as pool:
        table = gathered(place, kernels, pool=pool)
    here = gathered("off", kernels)
    assert table.kernels == here.kernels
    assert table.column(OUTPUT) == pytest.approx(here.column(OUTPUT), rel=0.05)
    assert samples_in(place) >= 16


def test_a_budget_decides_while_it_measures_here(kernels):
    model = Model(OUTPUT, f"p_madd * {MADD}")
    with ThreadPoolExecutor(1) as pool, pytest.raises(CalibrationError, match="leave out budget_s, or measure here"):
        calibrate(model, kernels, device=device_of_workers(pool, device()), budget_s=1.0)
