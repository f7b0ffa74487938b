"""Measuring that is cut short goes on where it was; what came to its end is measured anew."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perflex import Model, TimingOptions, calibrate, gather_feature_values
from perflex.errors import CalibrationError, MeasurementError, StoreError
from perflex.store.records import MeasurementKey, Sample
from perflex.store.resume import RecordOnly, RunRecorder, recorder_for, work_digest
from perflex.store.samples import MeasurementStore
from perflex.testing import FakeDevice
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from pathlib import Path

OUTPUT, MADD = "f_cl_wall_time_fake", "f_op_float32_madd"
OPTIONS = TimingOptions(trials=4, min_trials=4, precision=1e-9)


@pytest.fixture(scope="module")
def kernels() -> list:
    tags = ["flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64"]
    return KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "nelements:32768,65536,98304,131072"])


class Stopped(Exception):  # noqa: N818 - not an error of the library
    """Stands for the end of a process."""


def device(seconds: float = 1e-3) -> FakeDevice:
    return FakeDevice(lambda _, sizes: seconds * sizes["nelements"] / 32768, noise=0.01)


def stop_at(step: int):
    calls = 0

    def progress(_done: int, _total: int, _label: str) -> None:
        nonlocal calls
        calls += 1
        if calls == step:
            raise Stopped

    return progress


def samples_in(place: Path) -> int:
    count = "SELECT count(*) FROM samples"
    return MeasurementStore(place).use(lambda connection: connection.execute(count).fetchone()[0])


@pytest.mark.parametrize("step", [13, 17, 20, 24])
def test_only_what_is_missing_is_measured(kernels: list, tmp_path: Path, step: int) -> None:
    place = tmp_path / "store.sqlite"
    how = {"timing": OPTIONS, "store": place}
    with pytest.raises(Stopped):
        gather_feature_values([OUTPUT, MADD], kernels, device=device(), **how, progress=stop_at(step))
    before = samples_in(place)
    assert 0 < before < 16
    # Another speed shows which samples are from before.
    table = gather_feature_values([OUTPUT, MADD], kernels, device=device(1.0), **how)
    assert table.timing.samples_resumed == before
    assert samples_in(place) <= 16 + 4  # references may take part in more rounds
    finished = samples_in(place)
    again = gather_feature_values([OUTPUT, MADD], kernels, device=device(), **how)
    assert again.timing.samples_resumed == 0
    assert samples_in(place) == finished + 16
    assert again.column(OUTPUT).max() < 0.1


def test_a_resumed_calibration_equals_an_undisturbed_one_on_the_same_samples(kernels: list, tmp_path: Path) -> None:
    place = tmp_path / "store.sqlite"
    model = Model(OUTPUT, f"p_madd * {MADD} + p_launch * f_sync_kernel_launch")
    for step in (14, 14, 14):
        with pytest.raises(Stopped):
            calibrate(model, kernels, device=device(), timing=OPTIONS, store=place, progress=stop_at(step))
    sessions: set[str] = set()

    class Watching(RunRecorder):
        def finish(self) -> None:
            sessions.update(self._sessions)
            super().finish()

    work = work_digest(str(device()), [kernel.name for kernel in kernels])
    recorder = Watching(MeasurementStore(place), work)
    resumed = calibrate(model, kernels, device=device(), timing=OPTIONS, recorder=recorder)
    recorder.finish()
    assert len(sessions) >= 3

    class Stored:
        def earlier(self, key: MeasurementKey) -> tuple[Sample, ...]:
            return tuple(s for s in MeasurementStore(place).earlier(key) if s.session in sessions)

        def failure(self, _key: MeasurementKey) -> None:
            return None

        def add(self, _key: MeasurementKey, _sample: Sample, label: str = "") -> None:
            raise AssertionError(label)

        fail = add

    undisturbed = calibrate(model, kernels, device=device(), timing=OPTIONS, recorder=Stored())
    assert dict(undisturbed.params) == dict(resumed.params)


def test_runs_of_other_work_are_not_taken(kernels: list, tmp_path: Path) -> None:
    place = tmp_path / "store.sqlite"
    how = {"timing": OPTIONS, "store": place}
    with pytest.raises(Stopped):
        gather_feature_values([OUTPUT], kernels, device=device(), **how, progress=stop_at(18))
    table = gather_feature_values([OUTPUT], kernels[:2], device=device(), **how)
    assert table.timing.samples_resumed == 0


def test_a_failure_of_a_finished_run_is_tried_again(kernels: list, tmp_path: Path) -> None:
    place = tmp_path / "store.sqlite"

    def broken(label: str, sizes: dict[str, int]) -> float:
        if sizes["nelements"] == 65536:
            msg = f"{label}: the driver crashed"
            raise MeasurementError(msg, kind="crash")
        return 1e-3

    how = {"timing": OPTIONS, "store": place}
    with pytest.warns(UserWarning, match="the driver crashed"):
        table = gather_feature_values([OUTPUT], kernels, device=FakeDevice(broken), **how)
    assert len(table) == 3
    assert len(gather_feature_values([OUTPUT], kernels, device=device(), **how)) == 4


def test_what_only_records_gives_nothing_back(tmp_path: Path) -> None:
    store = MeasurementStore(tmp_path / "store.sqlite")
    recorder = RecordOnly(store)
    key = MeasurementKey("k", (("n", 1),), "device", "driver")
    sample = Sample(1e-3, 1, 0.0, "session", 0)
    recorder.add(key, sample, "label")
    assert recorder.earlier(key) == ()
    assert store.earlier(key) == (sample,)


def test_budgets_keep_their_samples(kernels: list, tmp_path: Path) -> None:
    place = tmp_path / "store.sqlite"
    model = Model(OUTPUT, f"p_madd * {MADD}")
    calibrate(model, kernels, device=device(), timing=OPTIONS, store=place, budget_s=0.2)
    assert samples_in(place) >= 4


def test_the_order_of_kernels_does_not_matter_to_what_the_work_is() -> None:
    assert work_digest("d", ["a", "b"]) == work_digest("d", ["b", "a"]) != work_digest("e", ["a", "b"])


def test_without_a_store_nothing_is_kept(kernels: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLEX_STORE", "off")
    assert recorder_for("device", ["a"]) is None
    assert gather_feature_values([OUTPUT], kernels, device=device(), timing=OPTIONS).timing.samples_resumed == 0


def test_a_store_that_cannot_be_written_is_an_error_at_once(kernels: list, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder", encoding="utf-8")
    with pytest.raises(StoreError, match=r"store\.sqlite"):
        gather_feature_values([OUTPUT], kernels, device=device(), store=tmp_path / "file" / "store.sqlite")


def test_kernels_are_timed_in_an_executor_and_kept(kernels: list, tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    place = tmp_path / "store.sqlite"
    with ThreadPoolExecutor(2) as pool:
        table = gather_feature_values(
            [OUTPUT, MADD], kernels, device=device(), timing=OPTIONS, store=place, measure_executor=pool
        )
    here = gather_feature_values([OUTPUT, MADD], kernels, device=device(), timing=OPTIONS, store="off")
    assert table.kernels == here.kernels
    assert table.column(OUTPUT) == pytest.approx(here.column(OUTPUT), rel=0.05)
    assert samples_in(place) >= 16


def test_a_budget_decides_while_it_measures_here(kernels: list) -> None:
    from concurrent.futures import ThreadPoolExecutor

    model = Model(OUTPUT, f"p_madd * {MADD}")
    with ThreadPoolExecutor(1) as pool, pytest.raises(CalibrationError, match="leave out budget_s or measure_executor"):
        calibrate(model, kernels, device=device(), budget_s=1.0, measure_executor=pool)
