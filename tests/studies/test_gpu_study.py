"""The study for GPU machines: its budget, what it keeps when it is cut, and its kernels' results."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import yaml

from bench.gpu_parts import facts, stencil
from bench.gpu_parts.budget import Allotted, Budget, CutShortError, TimeUpError, parse_seconds
from bench.gpu_parts.ending import CUT_STATUS, ends_by_itself
from bench.gpu_parts.evaluations import merged, ranked
from bench.gpu_parts.facts import device_facts
from bench.gpu_parts.keeping import rows_kept, set_earlier_aside
from bench.gpu_parts.launch_cost import launch_cost
from bench.gpu_parts.matmul_kernels import LOCAL_BYTES, SPACE
from bench.gpu_parts.matmul_kernels import build as tiled
from bench.gpu_parts.needs import missing
from bench.gpu_parts.parts import Goal, Part, PartRun, Setting, run_parts
from bench.gpu_parts.pipeline import Plan, Variant, prepared, timed_variants
from bench.gpu_parts.report import report_text
from bench.gpu_parts.stencil_kernels import Shape, shapes, star25
from perflex import TimingOptions
from perflex.analysis.volumes.compare import read_rows
from perflex.errors import MeasurementError
from perflex.studies.evaluation.result import DeviceEvaluation, Point, StudyResult
from perflex.studies.evaluation.studies import STUDIES
from perflex.testing import FakeDevice
from perflex.timing.launch.backend import backend_of
from support.building import built
from support.cuda_for_tests import fake_cupy, fake_gpu  # noqa: F401 - fixtures

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex import Device

BENCH = Path(__file__).resolve().parents[1] / "bench"


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Stopwatch(Clock):
    """Time of which each look takes a second."""

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


@pytest.mark.parametrize(("text", "seconds"), [("8min", 480), ("90", 90), ("90s", 90), ("0.5h", 1800), (" 3 m ", 180)])
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-3s", "8 minutes and more", "inf", "1e9"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_seconds(text)


def test_what_a_part_leaves_over_the_next_ones_have() -> None:
    clock = Clock()
    budget = Budget(110.0, reserve=10.0, clock=clock)
    assert budget.allot([1, 3]).seconds == 25.0
    clock.now += 5.0  # of 25
    assert budget.allot([3]).seconds == 95.0
    clock.now += 200.0
    assert budget.allot([1, 1]).seconds == 0.0
    assert budget.used == 205.0


def test_time_that_is_up_says_so() -> None:
    clock = Clock()
    time_of_part = Allotted(10.0, clock.now + 10.0, clock)
    clock.now += 4.0
    half = time_of_part.part(0.5)
    assert half.seconds == 3.0
    half.check()
    clock.now += 3.0
    with pytest.raises(TimeUpError, match="its share of the budget, 3 s, is spent"):
        half.progress(1, 2, "a kernel")
    assert time_of_part.left == 3.0


def _ends_well(setting: Setting, time: Allotted, run: PartRun) -> None:
    run.goals.append(Goal("a rate", "within 5 %", "+1 %", met=True))
    run.notes.append("all | good")


def _is_late(setting: Setting, time: Allotted, run: PartRun) -> None:
    run.notes.append("two kernels are known")
    msg = "2 of 3 kernels are timed"
    raise TimeUpError(msg)


def _fails(setting: Setting, time: Allotted, run: PartRun) -> None:
    msg = "the device lost a kernel"
    raise MeasurementError(msg)


def _has_a_defect(setting: Setting, time: Allotted, run: PartRun) -> None:
    msg = "two\nlines"
    raise ZeroDivisionError(msg)


def _is_cut(setting: Setting, time: Allotted, run: PartRun) -> None:
    msg = "it was told to end (SIGTERM)"
    raise CutShortError(msg)


def _parts(*works: Any) -> list[Part]:
    return [Part(work.__name__.strip("_"), work.__name__.strip("_"), 1.0, work) for work in works]


def test_parts_that_fail_do_not_keep_others_from_running(tmp_path: Path) -> None:
    told: list[list[str]] = []
    runs = run_parts(
        _parts(_is_late, _fails, _has_a_defect, _ends_well),
        Setting(FakeDevice(lambda *_: 1.0), tmp_path),
        Budget(60.0),
        lambda now: told.append([run.state for run in now]),
    )
    assert [run.state for run in runs] == ["cut", "failed", "failed", "done"]
    assert [run.reason for run in runs[:3]] == [
        "2 of 3 kernels are timed",
        "the device lost a kernel",
        "ZeroDivisionError: two lines",
    ]
    assert "ZeroDivisionError" in (tmp_path / "has_a_defect_error.txt").read_text()
    assert told[0] == ["begun", "not begun", "not begun", "not begun"]
    assert told[-1] == ["cut", "failed", "failed", "done"]
    text = report_text("a GPU", runs, budget_s=60, used_s=1, ended="", folder=tmp_path)
    assert "| is_late | cut |" in text
    assert "two kernels are known" in text
    assert "| a rate | within 5 % | +1 % | yes |" in text
    assert "- `has_a_defect_error.txt`" in text


def test_a_cut_ends_the_run_and_loses_nothing_that_was_told(tmp_path: Path) -> None:
    told: list[Sequence[PartRun]] = []
    with pytest.raises(CutShortError):
        run_parts(
            _parts(_ends_well, _is_cut, _ends_well),
            Setting(FakeDevice(lambda *_: 1.0), tmp_path),
            Budget(60.0),
            told.append,
        )
    assert [run.state for run in told[-1]] == ["done", "cut", "not begun"]
    assert [run.reason for run in told[-1][1:]] == ["it was told to end (SIGTERM)", "the run ended before it"]


def test_a_part_without_time_is_not_begun_in_earnest(tmp_path: Path) -> None:
    clock = Clock()
    budget = Budget(60.0, clock=clock)
    clock.now += 61.0
    (run,) = run_parts(_parts(_ends_well), Setting(None, tmp_path), budget, lambda _: None)
    assert (run.state, run.goals) == ("cut", [])


def test_each_row_is_on_disk_at_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with rows_kept(path, ("name", "seconds", "remark")) as keep:
        keep({"name": "a, b", "seconds": 1.23456789e-5})
        assert read_rows(path) == [{"name": "a, b", "seconds": "1.23457e-05", "remark": ""}]
        keep({"name": "c", "seconds": float("nan"), "remark": "it failed"})
        with pytest.raises(ValueError, match=r"rows\.csv has no column second"):
            keep({"second": 1})
    assert [row["seconds"] for row in read_rows(path)] == ["1.23457e-05", ""]


def test_reports_of_earlier_runs_stay(tmp_path: Path) -> None:
    path = tmp_path / "report.md"
    for text in ("first", "second", "third"):
        set_earlier_aside(path)
        path.write_text(text)
    kept = {name.name: name.read_text() for name in tmp_path.iterdir()}
    assert kept == {"report-1.md": "first", "report-2.md": "second", "report.md": "third"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_cut_the_run(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(CutShortError, match=number.name), ends_by_itself(60.0, 60.0, print):
        signal.raise_signal(number)
    assert signal.getsignal(number) == before


def test_the_end_of_the_budget_cuts_the_run() -> None:
    with pytest.raises(CutShortError, match="the whole budget is spent"), ends_by_itself(0.05, 60.0, print):
        time.sleep(5.0)


HANGS = """
import sys, time
sys.path.insert(0, {bench!r})
from gpu_parts.ending import ends_by_itself
from gpu_parts.budget import CutShortError
with ends_by_itself(0.1, 0.2, lambda reason: print("last words:", reason, flush=True)):
    while True:
        try:
            time.sleep(60)
        except CutShortError:
            pass  # code that reacts to nothing
"""


def test_what_does_not_react_is_ended() -> None:
    script = HANGS.format(bench=str(BENCH))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode == CUT_STATUS
    assert done.stdout == "last words: the whole budget is spent\n"


def _not_three(number: int) -> int:
    if number == 3:
        msg = "three cannot be made"
        raise MeasurementError(msg)
    return number


def _law(label: str, sizes: Mapping[str, int]) -> float:
    if label == "v5":
        msg = "v5: does not build"
        raise MeasurementError(msg)
    return 1e-3 * (1 + int(label[1:]))


def _numbered(count: int) -> list[Variant]:
    return [Variant({"number": number}, f"v{number}") for number in range(count)]


def test_variants_are_timed_and_failures_have_their_cause(tmp_path: Path) -> None:
    device = FakeDevice(_law)
    plan = Plan(_not_three, {"n": 1}, (), device)
    setting = Setting(device, tmp_path)
    found = list(timed_variants(plan, _numbered(9), setting, TimingOptions(), Allotted(60.0, time.monotonic() + 60.0)))
    assert sorted(one.variant.settings["number"] for one, _, _ in found) == list(range(9))
    times = {one.variant.label: timing.seconds for one, timing, _ in found if timing is not None}
    assert times == {f"v{n}": pytest.approx(1e-3 * (1 + n)) for n in (0, 1, 2, 4, 6, 7, 8)}
    failures = {one.variant.label: failure for one, timing, failure in found if timing is None}
    assert failures == {"v3": "three cannot be made", "v5": "v5: does not build"}


def test_time_that_is_up_keeps_the_variants_that_were_timed(tmp_path: Path) -> None:
    device = FakeDevice(lambda *_: 1e-3)
    plan = Plan(_not_three, {"n": 1}, (), device)
    options, setting = TimingOptions(trials=5), Setting(device, tmp_path)
    outcomes = timed_variants(plan, _numbered(50), setting, options, Allotted(200.0, 300.0, Stopwatch()))
    found: list[str] = []
    with pytest.raises(TimeUpError, match=r"of 50 variants are done: its share of 200 s is spent"):
        found.extend(one.variant.label for one, timing, _ in outcomes if timing is not None or one.failure)
    assert 4 <= len(found) < 50
    assert found == list(dict.fromkeys(found))


def test_shapes_are_those_of_equation_6() -> None:
    found = shapes()
    assert len(set(found)) == len(found) == 3 * 56
    assert all(shape.x * shape.y * shape.z == 1024 and shape.z <= 64 for shape in found)
    assert {shape.folding for shape in found} == {"none", "2y", "2z"}


@pytest.fixture
def few_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [Shape(32, 4, 8), Shape(16, 2, 32, "2z"), Shape(2, 32, 16)]
    monkeypatch.setattr(stencil, "shapes", lambda: wanted)


def test_the_predicted_best_shape_is_set_against_the_measured_best(tmp_path: Path, few_shapes: None) -> None:
    ceilings = "quantity,source,rate,remark\ncopy,kernel,3e12,\ncopy,kernel,9e12,not beyond caches\ncopy,driver,5e12,\n"
    (tmp_path / "ceilings.csv").write_text(ceilings)
    times = {"32 x 4 x 8": 2e-3, "16 x 2 x 32, 2z": 2.04e-3, "2 x 32 x 16": 9e-3}
    device = FakeDevice(lambda label, _: times[label])
    run = PartRun("stencil", "Stencil")
    rates = stencil.measured_rates(Setting(device, tmp_path, "V100"))
    assert rates is not None
    assert rates.dram == 3e12
    assert rates.sources == "DRAM measured, L2 of the machine file, L1 of the machine file"
    time_of_part = Allotted(60.0, time.monotonic() + 60.0)
    stencil.stencil_shapes(Setting(device, tmp_path, "V100"), time_of_part, run)
    rows = read_rows(tmp_path / "stencil_shapes.csv")
    assert len(rows) == 3
    assert all(float(row["f_vol_dram_load"]) > 0 and float(row["predicted_s"]) > 0 for row in rows)
    by_time = {float(row["seconds"]): row for row in rows}
    assert by_time[9e-3]["block_x"] == "2"
    assert by_time[2.04e-3]["folding"] == "2z"
    (goal,) = run.goals
    chosen = min(rows, key=lambda row: float(row["predicted_s"]))
    assert goal.met
    assert goal.reached == f"{100 * (float(chosen['seconds']) / 2e-3 - 1):+.1f} %"


def test_another_machines_volumes_are_no_goal(tmp_path: Path, few_shapes: None) -> None:
    device = FakeDevice(lambda *_: 1e-3)
    run = PartRun("stencil", "Stencil")
    setting = Setting(device, tmp_path, "V100", own_machine=False)
    stencil.stencil_shapes(setting, Allotted(60.0, time.monotonic() + 60.0), run)
    assert run.goals == []
    assert "means nothing here" in run.notes[-1]


def _point(variant: str, measured: float, predicted: float) -> Point:
    return Point(variant, 64, measured, 0.01, {"linear": predicted})


def _result(name: str, points: tuple[Point, ...]) -> StudyResult:
    return StudyResult(STUDIES[name], None, "linear", {}, points)  # type: ignore[arg-type]


def test_pairs_count_where_times_differ_by_more_than_is_asked() -> None:
    result = _result("dg", (_point("a", 1.0, 1.2), _point("b", 1.06, 1.1), _point("c", 2.0, 1.9), _point("d", 1.01, 9)))
    assert ranked(result, 0.05) == (4, 2)  # a c and b c right; a b and c d wrong
    assert ranked(result, 0.5) == (3, 2)


def test_studies_that_were_evaluated_one_by_one_are_put_together() -> None:
    first = DeviceEvaluation("a GPU", (_result("dg", ()),), (("k", "why"),), 0.01)
    second = DeviceEvaluation("a GPU", (_result("fdiff", ()),), (("k", "why"), ("l", "why")), -0.03)
    both = merged([first, second])
    assert [result.study.name for result in both.studies] == ["dg", "fdiff"]
    assert both.skipped == (("k", "why"), ("l", "why"))
    assert both.drift == -0.03


def test_facts_of_a_device(tmp_path: Path, default_device: Device) -> None:
    run = PartRun("device", "Device")
    device_facts(Setting(default_device, tmp_path), Allotted(60.0, time.monotonic() + 60.0), run)
    content = yaml.safe_load((tmp_path / "device.yaml").read_text())
    assert content["device"]["name"] == default_device.name
    assert content["device"]["max_work_item_sizes"] == list(default_device.max_work_item_sizes)
    assert content["output_feature"].startswith("f_")
    assert content["found_by"] in run.notes[0]


def test_packages_that_are_missing_show_before_anything_is_run() -> None:
    assert missing() == []
    assert missing(("math", "no_such_package_at_all")) == ["No module named 'no_such_package_at_all'"]


SMI = """#!/bin/sh
echo "$1" >> "$(dirname "$0")/asked"
case "$1" in *{unknown}*) echo "Field is not a valid field to query."; exit 2;; esac
echo "$1" | sed 's/.*=//; s/,/ of 1, /g; s/$/ of 1/'
"""


@pytest.mark.parametrize(("unknown", "calls"), [("none such", 1), ("pstate", 1 + len(facts._SMI_FIELDS))])
def test_nvidias_tool_is_asked_once_where_that_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unknown: str, calls: int
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(SMI.replace("{unknown}", unknown.replace(" ", "_")))
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    found = facts._nvidia_smi()
    assert isinstance(found, dict)
    assert found == {field: f"{field} of 1" for field in facts._SMI_FIELDS if field != unknown}
    assert len((tmp_path / "asked").read_text().splitlines()) == calls


def test_launches_that_were_timed_are_told_when_time_is_up(tmp_path: Path) -> None:
    run = PartRun("launch", "Launch")
    times = Allotted(3.0, 105.0, Stopwatch())
    with pytest.raises(TimeUpError):
        launch_cost(Setting(FakeDevice(lambda *_: 1e-6), tmp_path), times, run)
    assert 0 < len(read_rows(tmp_path / "launch.csv")) < 10
    assert "takes 1.00 us alone" in run.notes[0]


@pytest.mark.parametrize("folding", ["none", "2y", "2z"])
def test_stencils_of_all_foldings_are_right(default_device: Device, folding: str) -> None:
    nx, ny, nz = 19, 14, 10  # none a multiple of the work-group's extents
    backend = backend_of(default_device)
    try:
        runnable = built(backend, star25(Shape(8, 4, 2, folding)), {"nx": nx, "ny": ny, "nz": nz}, "star25")
        runnable.run(1)
        u, v = (runnable.read(name).reshape(nz + 8, ny + 8, nx + 8) for name in "uv")  # type: ignore[attr-defined]
    finally:
        backend.close()
    inner = slice(4, -4)
    expected = 0.5 * u[inner, inner, inner]
    for distance, weight in enumerate((0.0625, 0.03125, 0.015625, 0.0078125), start=1):
        for axis in range(3):
            for sign in (-1, 1):
                expected += weight * np.roll(u, sign * distance, axis)[inner, inner, inner]
    assert np.ptp(expected) > 0
    np.testing.assert_allclose(v[inner, inner, inner], expected, rtol=1e-12)


def _small_stencil(**settings: Any) -> Any:
    return star25(Shape(**settings))


def test_registers_of_built_kernels_stand_beside_their_volumes(fake_gpu: Device) -> None:  # noqa: F811
    features = ("f_registers", "f_occupancy", "f_vol_dram_load", "f_no_such_thing")
    sizes = {"nx": 16, "ny": 8, "nz": 4}
    plan = Plan(_small_stencil, sizes, features, fake_gpu, "H100-SXM")
    shape = {"x": 8, "y": 4, "z": 2, "folding": "none"}
    found = prepared(plan, Variant(shape, "built", registers=200))
    assert not found.failure
    assert found.features.keys() == set(features[:3])
    ready = built(backend_of(fake_gpu), _small_stencil(**shape), sizes, "built")
    assert found.features["f_registers"] == ready.resources.registers != 200
    unknown = prepared(Plan(_small_stencil, sizes, features, FakeDevice(_law), "H100-SXM"), Variant(shape, "v1", 200))
    assert unknown.features["f_registers"] == 200


def test_the_space_of_matrix_multiplications_is_large_and_fits() -> None:
    found = list(SPACE)
    assert len({tuple(one.items()) for one in found}) == len(found) >= 300
    for one in found:
        held = 4 * one["k_tile"] * (one["rows"] * one["lsize_1"] + one["columns"] * one["lsize_0"])
        assert held <= LOCAL_BYTES
        assert 32 <= one["lsize_0"] * one["lsize_1"] <= 1024


def test_tiled_matrix_multiplications_are_right(default_device: Device) -> None:
    n = 64
    settings = {"lsize_0": 8, "lsize_1": 4, "rows": 2, "columns": 4, "k_tile": 16}
    backend = backend_of(default_device)
    try:
        runnable = built(backend, tiled(**settings), {"n": n}, "tiled")
        runnable.run(1)
        a, b, c = (runnable.read(name).reshape(n, n) for name in "abc")  # type: ignore[attr-defined]
    finally:
        backend.close()
    assert np.ptp(c) > 0
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
