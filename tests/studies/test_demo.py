"""The demo: sizes, ranks, files, and a whole run on a fake device."""

from __future__ import annotations

import csv
import json
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from perflex import Calibration
from perflex.__main__ import main
from perflex.errors import CalibrationError, FileFormatError, MeasurementError, PerflexWarning
from perflex.features.values import kernel_feature_values
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.studies.demo import DemoRow, _pairs, _rows, run_demo, write_demo
from perflex.timing.fake import FakeDevice
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from pathlib import Path

SIZES = (288, 416, 544, 672, 800, 928)
COLUMNS = ["size", "variant", "predicted_s", "measured_s", "relative_error", "predicted_rank", "measured_rank"]


def test_ranks_and_pairs() -> None:
    predicted = {(64, "prefetch"): 1.0, (64, "no_prefetch"): 2.0, (96, "prefetch"): 4.0, (96, "no_prefetch"): 3.0}
    measured = {(64, "prefetch"): 1.1, (64, "no_prefetch"): 1.6, (96, "prefetch"): 3.0, (96, "no_prefetch"): 3.9}
    rows = _rows(predicted, measured)
    assert [(row.predicted_rank, row.measured_rank) for row in rows] == [(1, 1), (2, 2), (2, 1), (1, 2)]
    assert rows[0].relative_error == pytest.approx(1 / 1.1 - 1)
    assert _pairs(rows) == (2, 1)
    close = dict.fromkeys(predicted, 1.0) | {(96, "prefetch"): 1.05}
    assert _pairs(_rows(predicted, close)) == (0, 0)


def true_device(description_scale: float) -> FakeDevice:
    """Return a device on which the shipped model holds with costs of our own."""
    description = load_model("matmul_sq")
    model = description.model()
    costs = {name: 1e-10 * (3 + number) for number, name in enumerate(model.params())}
    costs |= {"p_launch": 5e-6, "p_group": 2e-8, "p_barrier": 3e-9, "p_hidden": 0.7}
    known = {}

    def law(label: str, sizes: dict[str, int]) -> float:
        kernel = known.get(label)
        return model.evaluate(costs, kernel_feature_values(model.input_features(), kernel, sizes, 16))

    collection = KernelCollection(ALL_GENERATORS)
    pilot = ["flops_madd_pattern", "dtype:float32", "groups_fit:True", "m:64"]
    kernels = measurement_kernels(description, description_scale)
    kernels += collection.generate_kernels([*pilot, "nelements:32768,1048576"])
    kernels += collection.generate_kernels(["matmul_sq", "dtype:float32", "groups_fit:True", "n:96,160"])
    known.update({kernel.name: kernel.kernel for kernel in kernels})
    return FakeDevice(law, sub_group_size=16, name="fake device", platform="fake platform")


@pytest.fixture(scope="module")
def result(monkeypatch_module: pytest.MonkeyPatch) -> object:
    monkeypatch_module.setattr("perflex.studies.demo.wall_time_identifier", lambda _: "f_cl_wall_time_fake")
    monkeypatch_module.setattr("perflex.studies.demo.multiply_add_rate", lambda _: 0.1 * 1.7e11)
    return run_demo(true_device(0.1), sizes=(96, 160))


@pytest.fixture(scope="module")
def monkeypatch_module() -> object:
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_where_the_model_is_true_the_demo_finds_it(result: object) -> None:
    assert result.geomean_error["prefetch"] < 0.01
    assert result.geomean_error["no_prefetch"] < 0.01
    assert {kernel.partition("(")[0] for kernel in result.calibration.fit.kernels}.isdisjoint({"matmul_sq"})
    assert [(row.size, row.variant) for row in result.rows] == [
        (96, "prefetch"), (96, "no_prefetch"), (160, "prefetch"), (160, "no_prefetch"),
    ]  # fmt: skip
    assert result.pairs_ranked_right == result.pairs
    assert result.drift == pytest.approx(0.0, abs=1e-6)


def test_files_that_scripts_read(result: object, tmp_path: Path) -> None:
    paths = write_demo(result, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(paths)
    with paths["table.csv"].open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == COLUMNS == list(DemoRow.__dataclass_fields__)
    assert [float(row["predicted_s"]) for row in rows] == [row.predicted_s for row in result.rows]
    summary = json.loads(paths["summary.json"].read_text())
    assert {"device", "geomean_error", "pairs", "pairs_ranked_right", "seconds"} <= set(summary)
    assert summary["geomean_error"] == result.geomean_error
    calibration = Calibration.load(paths["calibration.yaml"])
    assert dict(calibration.params) == dict(result.calibration.params)
    from matplotlib.image import imread

    picture = imread(paths["matmul.png"])
    assert picture.shape[1] >= 800
    assert picture.std() > 0.05


def test_unwritable_folder(result: object, tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="cannot write the demo's results"):
        write_demo(result, tmp_path / "not there")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--sizes", "100"], "cannot read sizes '100'; give positive multiples of 16"),
        (["--sizes", "a,b"], "cannot read sizes 'a,b'"),
        (["--sizes", "0"], "cannot read sizes '0'"),
        (["--device", "no_such_device"], "no_such_device"),
    ],
)
def test_bad_options_are_one_line_and_exit_code_2(
    words: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path / "out"), *words]) == 2
    error = capfd.readouterr().err.strip()
    assert error.startswith("perflex: error: ")
    assert message in error
    assert "\n" not in error


@pytest.fixture
def demo_run(result: object, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, object]]:
    """The command meets a demo that was run before; its options are kept."""
    calls: list[dict[str, object]] = []

    def run(device: object, **options: object) -> object:
        calls.append({"device": device, **options})
        warnings.warn("p_add is not determined", PerflexWarning, stacklevel=1)
        return result

    monkeypatch.setattr("perflex.studies.demo.run_demo", run)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda spec: f"device {spec}")
    return calls


def test_the_command_prints_what_was_found(
    demo_run: list[dict[str, object]], result: object, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "some" / "where"
    words = ["--out", str(out), "--device", "mine", "--sizes", "96,160,96", "--trials", "3"]
    assert main(["demo", *words]) == 0
    printed, remarks = capfd.readouterr()
    (call,) = demo_run
    assert call["device"] == "device mine"
    assert call["sizes"] == (96, 160)
    assert (call["timing"].trials, call["timing"].min_trials) == (3, 3)
    for row in result.rows:
        (line,) = [line for line in printed.splitlines() if f" {row.size} " in line and f" {row.variant} " in line]
        assert f"{1e3 * row.predicted_s:.3f} ms" in line
        assert f"{1e3 * row.measured_s:.3f} ms" in line
        assert f"{100 * row.relative_error:+.1f} %" in line
    assert "geometric mean of relative error: prefetch " in printed
    assert f"ranked right: {result.pairs_ranked_right} of {result.pairs} sizes" in printed
    assert "none of them a matrix multiplication" in printed
    assert re.search(r"^drift [+-]0\.0 %: change of measurement kernels", printed, re.MULTILINE)
    assert "odd multiples" not in printed
    assert printed.splitlines()[-4:] == [str(path) for path in write_order(out)]
    assert remarks == "device: device mine\nwarning: p_add is not determined\n"


def write_order(folder: Path) -> list[Path]:
    names = ("table.csv", "matmul.png", "calibration.yaml", "summary.json")
    assert sorted(names) == sorted(path.name for path in folder.iterdir())
    return [folder / name for name in names]


def test_quiet_prints_the_paths_alone(
    demo_run: list[dict[str, object]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path), "--quiet"]) == 0
    printed, remarks = capfd.readouterr()
    assert printed.splitlines() == [str(path) for path in write_order(tmp_path)]
    assert remarks == ""
    assert demo_run[0]["sizes"] == ()


def test_sizes_that_the_demo_chose_are_explained(
    demo_run: list[dict[str, object]], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "sizes are odd multiples of 32" in capfd.readouterr().out
    assert demo_run


def test_a_target_that_does_not_run_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    device = true_device(0.1)

    def law(label: str, sizes: dict[str, int]) -> float:
        if label.startswith("matmul_sq("):
            msg = f"{label}: out of resources"
            raise MeasurementError(msg, kernel=label)
        return device.law(label, sizes)

    monkeypatch.setattr("perflex.studies.demo.wall_time_identifier", lambda _: "f_cl_wall_time_fake")
    monkeypatch.setattr("perflex.studies.demo.multiply_add_rate", lambda _: 0.1 * 1.7e11)
    with pytest.raises(MeasurementError, match=r"matmul_sq\(.*out of resources"):
        run_demo(replace(device, law=law), sizes=(96,))


def test_a_machine_that_becomes_slower_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = true_device(0.1)
    slower = []

    def law(label: str, sizes: dict[str, int]) -> float:
        if label.startswith("matmul_sq("):
            slower.append(label)
        return device.law(label, sizes) * (1.25 if slower else 1.0)

    monkeypatch.setattr("perflex.studies.demo.wall_time_identifier", lambda _: "f_cl_wall_time_fake")
    monkeypatch.setattr("perflex.studies.demo.multiply_add_rate", lambda _: 0.1 * 1.7e11)
    result = run_demo(replace(device, law=law), sizes=(96,))
    assert result.drift == pytest.approx(0.25, abs=1e-6)
    assert [row.relative_error for row in result.rows] == pytest.approx([-0.2, -0.2], abs=0.01)
    assert result.summary()["drift"] == result.drift


def test_matrix_multiplications_may_not_calibrate_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(["matmul_sq", "dtype:float32", "n:64"])
    monkeypatch.setattr("perflex.studies.demo.measurement_kernels", lambda *_: kernels)
    monkeypatch.setattr("perflex.studies.demo.multiply_add_rate", lambda _: 1e11)
    with pytest.raises(CalibrationError, match="must not be calibrated with the matrix multiplications"):
        run_demo(FakeDevice(lambda *_: pytest.fail("measured")), sizes=(96,))


def test_a_file_in_the_way_of_the_folder(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").write_text("in the way")
    assert main(["demo", "--out", str(tmp_path / "out")]) == 2
    assert "cannot write to" in capfd.readouterr().err
