"""The demo: sizes, ranks, files, and a whole run on a fake device."""

import csv
import json
import math
import re
import warnings
from dataclasses import replace
from functools import cache

import pytest

from perflex import Calibration
from perflex.__main__ import main
from perflex.calibration.ready import REFERENCE_RATE, multiply_add_rate
from perflex.errors import CalibrationError, MeasurementError, PerflexWarning
from perflex.models import SizeRule, load_model, measurement_kernels
from perflex.studies.demo import DemoRow, demo_rows, demo_study, demo_summary, run_demo, write_demo
from perflex.studies.evaluation.baselines import copy_kernel
from perflex.testing import FakeDevice
from uipick import ALL_GENERATORS, KernelCollection

SIZES = (288, 416, 544, 672, 800, 928)
RULE = SizeRule(power=3, step=32, least=3)
WRITTEN = ("table.csv", "matmul.png", "calibration.yaml", "summary.json")
COLUMNS = ["size", "variant", "predicted_s", "measured_s", "relative_error", "predicted_rank", "measured_rank"]


@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0, 60.0])
def test_sizes_of_the_demo_suit_the_device_unless_they_are_given(scale):
    assert demo_study().sizes_for(scale) == RULE.sizes(SIZES, scale)
    assert demo_study((512, 256)).sizes_for(scale) == (512, 256)
    assert demo_study().trial_sizes_for(scale) == ()
    # Half of the smallest size, a multiple of 16.
    smallest = min(RULE.sizes(SIZES, scale))
    assert demo_study().small_size_for(scale) == 16 * (smallest // 32) < smallest
    assert demo_study((512, 256)).small_size_for(scale) == 128
    assert demo_study((16, 32)).small_size_for(scale) is None


@cache
def true_device(description_scale):
    """Return a device on which the shipped model holds with costs of our own."""
    description = load_model("matmul_sq")
    model = description.model()
    costs = {name: 1e-10 * (3 + number) for number, name in enumerate(model.params())}
    costs |= {"p_launch": 5e-6, "p_group": 2e-8, "p_barrier": 3e-9, "p_hidden": 0.7}
    known = {}

    @cache
    def seconds(label, sizes):
        return model.eval_with_kernel(costs, known.get(label), dict(sizes), sub_group_size=16)

    def law(label, sizes):
        return seconds(label, tuple(sorted(sizes.items())))

    collection = KernelCollection(ALL_GENERATORS)
    pilot = ["flops_madd_pattern", "dtype:float32", "groups_fit:True", "m:64"]
    kernels = measurement_kernels(description, description_scale)
    kernels += collection.generate_kernels([*pilot, "nelements:32768,1048576"])
    kernels += collection.generate_kernels(["matmul_sq", "dtype:float32", "groups_fit:True", "n:48,96,160"])
    kernels.append(copy_kernel())
    known.update({kernel.name: kernel.kernel for kernel in kernels})
    return FakeDevice(law, sub_group_size=16, name="fake device", platform="fake platform")


@pytest.fixture(scope="module")
def result(monkeypatch_module):
    set_scale(monkeypatch_module)
    return run_demo(true_device(0.1), sizes=(96, 160))


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def set_scale(monkeypatch):
    monkeypatch.setattr("perflex.studies.evaluation.run.multiply_add_rate", lambda *_: 0.1 * REFERENCE_RATE)


def failing(device, why, fails, **kind):
    """Return a device that does not run some kernels."""

    def law(label, sizes):
        if fails(label, sizes):
            msg = f"{label}: {why}"
            raise MeasurementError(msg, kernel=label, **kind)
        return device.law(label, sizes)

    return replace(device, law=law)


def test_where_the_model_is_true_the_demo_finds_it(result):
    summary = demo_summary(result)
    assert max(summary["geomean_error"][name] for name in ("prefetch", "no_prefetch")) < 0.01
    (study,) = result.studies
    assert not [kernel for kernel in study.calibrations["matmul_sq"].fit.kernels if kernel.startswith("matmul_sq(")]
    found = [(row.size, row.variant) for row in demo_rows(study)]
    assert found == [(size, name) for size in (96, 160) for name in ("prefetch", "no_prefetch")]
    assert summary["pairs_ranked_right"] == summary["pairs"]
    assert result.drift == pytest.approx(0.0, abs=1e-6)


def test_files_that_scripts_read(result, tmp_path):
    paths = write_demo(result, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    with (tmp_path / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == COLUMNS == list(DemoRow.__dataclass_fields__)
    expected = [row.predicted_s for row in demo_rows(result.studies[0])]
    assert [float(row["predicted_s"]) for row in rows] == expected
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert list(summary) == [
        "device", "geomean_error", "pairs", "pairs_ranked_right", "accuracy", "knowledge", "best_baseline",
        "beats_baselines", "seconds", "drift", "noise_floor", "sizes", "sub_group_size", "measurement_kernels",
    ]  # fmt: skip
    assert summary == demo_summary(result)
    calibration = Calibration.load(tmp_path / "calibration.yaml")
    assert dict(calibration.params) == dict(result.studies[0].calibrations["matmul_sq"].params)
    from matplotlib.image import imread

    picture = imread(tmp_path / "matmul.png")
    assert picture.shape[1] >= 800
    assert picture.std() > 0.05


@pytest.fixture
def demo_run(result, monkeypatch):
    """The command meets a demo that was run before; its options are kept."""
    calls = []

    def run(device, **options):
        calls.append({"device": device, **options})
        warnings.warn("p_add is not determined", PerflexWarning, stacklevel=1)
        return result

    monkeypatch.setattr("perflex.studies.demo.run_demo", run)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda spec: f"device {spec}")
    return calls


def test_the_command_prints_what_was_found(demo_run, result, tmp_path, capfd):
    out = tmp_path / "some" / "where"
    words = ["--out", str(out), "--device", "mine", "--sizes", "96,160,96", "--trials", "3"]
    assert main(["demo", *words]) == 0
    printed, remarks = capfd.readouterr()
    (call,) = demo_run
    assert call["device"] == "device mine"
    assert call["sizes"] == (96, 160)
    assert (call["timing"].trials, call["timing"].min_trials) == (3, 3)
    for row in demo_rows(result.studies[0]):
        (line,) = [line for line in printed.splitlines() if f" {row.size} " in line and f" {row.variant} " in line]
        assert f" {100 * row.relative_error:+.1f} " in line
    assert "geometric mean of relative error: prefetch " in printed
    accuracy = result.studies[0].accuracy("matmul_sq")
    right = accuracy.pairs_right * accuracy.pairs if accuracy.pairs else 0
    for name in ("matmul_sq", "roofline", "scaled by work-items", "scaled by operations"):
        (line,) = [line for line in printed.splitlines() if line.startswith(f"  {name}  ")]
        assert f" {100 * result.studies[0].accuracy(name).rms:.1f} " in line
    assert result.studies[0].judgement in printed.splitlines()
    assert f"ranked correctly: {right:g} of {accuracy.pairs} sizes at which the variants differ by over 7 %" in printed
    assert "variants without their arithmetic" in printed
    # What was known of a variant is said in one way: in the table, and below it.
    assert printed.count("parts of it, timed") == 1
    assert "microbenchmarks, and parts of the variants, timed (" in printed
    assert not {"nothing", "reduced kernels", "short launch"} & set(re.split(r"\s{2,}|\n", printed))
    assert re.search(r"^drift [+-]0\.0 %: change of measurement kernels", printed, re.MULTILINE)
    assert "odd multiples" not in printed
    assert printed.splitlines()[-4:] == [str(out / name) for name in WRITTEN]
    assert remarks == "device: device mine\nwarning: p_add is not determined\n"


def test_quiet_prints_the_paths_alone(demo_run, tmp_path, capfd):
    assert main(["demo", "--out", str(tmp_path), "--quiet"]) == 0
    printed, remarks = capfd.readouterr()
    assert (printed.splitlines(), remarks) == ([str(tmp_path / name) for name in WRITTEN], "")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(WRITTEN)
    assert demo_run[0]["sizes"] == ()
    # Sizes that the demo chose are explained.
    assert main(["demo", "--out", str(tmp_path)]) == 0
    assert "sizes are odd multiples of 32" in capfd.readouterr().out


def test_a_target_that_does_not_run_is_an_error(monkeypatch):
    set_scale(monkeypatch)
    device = failing(true_device(0.1), "out of resources", lambda label, _: label.startswith("matmul_sq("))
    with pytest.raises(MeasurementError, match=r"matmul_sq\(.*out of resources"):
        run_demo(device, sizes=(96,))


@pytest.mark.parametrize("bad", ["n=96)", "prefetch=True, lsize_0=16, lsize_1=16, groups_fit=True"])
def test_targets_that_do_not_run_are_left_out_with_a_line_each(bad, monkeypatch, tmp_path, capfd):
    def fails(label, sizes):
        return label.startswith("matmul_sq(") and bad in label and sizes["n"] in {96, 160}

    device = failing(true_device(0.1), "does not end", fails, kind="hang")
    set_scale(monkeypatch)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _: device)
    assert main(["demo", "--out", str(tmp_path), "--sizes", "96,160", "--trials", "2"]) == 0
    printed, remarks = capfd.readouterr()
    lines = [line for line in remarks.splitlines() if line.startswith("warning: matmul_sq(")]
    assert len(lines) == 2
    assert all(line.endswith(") is left out: does not end") and bad in line for line in lines)
    assert "no baseline" not in printed
    with (tmp_path / "table.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert len(rows) == 2
    assert all(abs(float(row["relative_error"])) < 0.01 for row in rows)


def test_kernels_that_do_not_run_are_left_out_with_a_line_each(monkeypatch, tmp_path, capfd):
    # The kernel that tells the device's speed, and one that the model is fitted to.
    bad = {"flops_madd_pattern": "m=64)", "lmem_madd": "m=32)"}

    def fails(label, _):
        return label.endswith(bad.get(label.partition("(")[0], "nothing"))

    device = failing(true_device(1.0), "needs a work-group of 256 work-items, it allows 128", fails)
    # Other tests set the speed.
    monkeypatch.setattr("perflex.studies.evaluation.run.multiply_add_rate", multiply_add_rate)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _: device)
    assert main(["demo", "--out", str(tmp_path), "--sizes", "96,160", "--trials", "2"]) == 0
    printed, remarks = capfd.readouterr()
    assert "geometric mean of relative error: prefetch 0.0 %" in printed
    left_out = [line for line in remarks.splitlines() if "it allows 128" in line]
    assert re.search(r"flops_madd_pattern.* speed is not known, .* sizes", left_out[0])
    assert left_out[1:]
    assert all(re.match(r"warning: lmem_madd\(.* is left out: needs a work-group", line) for line in left_out[1:])


def test_advice_on_an_unusable_model_names_no_option_that_the_demo_lacks(monkeypatch):
    set_scale(monkeypatch)
    monkeypatch.setattr("perflex.calibration.calibration.Calibration.predict", lambda *_: math.nan)
    with pytest.raises(CalibrationError, match=r"cannot be used: it predicts nan s for matmul_sq\([^;]*$"):
        run_demo(true_device(0.1), sizes=(96,))


def test_a_baseline_that_has_nothing_to_scale_is_named(monkeypatch, tmp_path, capfd):
    device = failing(true_device(0.1), "out of memory", lambda label, _: label == copy_kernel().name)
    set_scale(monkeypatch)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _: device)
    assert main(["demo", "--out", str(tmp_path), "--device", "fake", "--sizes", "96"]) == 0
    printed = capfd.readouterr().out
    assert "  roofline " not in printed
    (line,) = [line for line in printed.splitlines() if line.startswith(f"no baseline from {copy_kernel().name}: ")]
    assert line.endswith("out of memory")


def test_a_machine_that_becomes_slower_is_noticed(monkeypatch):
    device = true_device(0.1)
    slower = []

    def law(label, sizes):
        if label.startswith("matmul_sq("):
            slower.append(label)
        return device.law(label, sizes) * (1.25 if slower else 1.0)

    set_scale(monkeypatch)
    result = run_demo(replace(device, law=law), sizes=(96,))
    assert result.drift == pytest.approx(0.25, abs=1e-6)
    rows = demo_rows(result.studies[0])
    assert [row.relative_error for row in rows] == pytest.approx([-0.2, -0.2], abs=0.01)
    assert demo_summary(result)["drift"] == result.drift
