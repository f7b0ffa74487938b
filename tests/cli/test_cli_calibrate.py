"""``perflex calibrate``: what it measures, what it leaves out, what it says and writes."""

from dataclasses import asdict, fields

import pytest

from perflex import Calibration, TimingOptions, calibrate
from perflex.errors import MeasurementError, PerflexWarning
from perflex.testing import FakeDevice

MODEL = """\
schema: perflex-model/1
name: mine
description: mine
output: {output}
expression: {expression}
fixed_sizes: true
parameters:
  p_a: {{meaning: a cost, unit: s per sub-group operation}}
measurement_kernels:
  - tags: [flops_madd_pattern, "dtype:float32", "groups_fit:True", "nelements:32768,65536", "m:64,128"]
"""


@pytest.fixture
def model(tmp_path):
    def model(expression="p_a * f_op_float32_madd", output="f_cl_wall_time"):
        path = tmp_path / "model.yaml"
        path.write_text(MODEL.format(expression=expression, output=output), encoding="utf-8")
        return str(path)

    return model


@pytest.fixture
def fake(monkeypatch):
    """The only device there is: 1 ps per multiply-add; kernels with m=128 do not build where n is 65536."""

    def law(label, sizes):
        if "m=128" in label and "nelements=65536" in label:
            msg = f"{label}: <source>:3: error: use of undeclared identifier 'x'"
            raise MeasurementError(msg, kernel=label)
        return 1e-12 * 32 * sizes["nelements"] * sizes["m"]

    device = FakeDevice(law)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _=None: device)
    monkeypatch.setattr("perflex.calibration.ready.chosen_device", lambda *_: device)
    monkeypatch.setattr("perflex.calibration.ready.found_device", lambda *_: (device, "f_cl_wall_time_fake"))
    return device


@pytest.mark.parametrize(
    ("expression", "code", "message"),
    [
        ("p_a * f_op_float32_madd * f_op_float32_exp", 2, "f_op_float32_exp matches nothing"),
        ("max(p_a, 1) * f_op_float32_madd", 1, "cannot be differentiated"),
    ],
)
def test_models_that_the_kernels_do_not_inform_are_refused_before_anything_is_measured(
    expression, code, message, fake, model, tmp_path, run, monkeypatch
):
    monkeypatch.setattr("perflex.timing.measuring.measure", lambda *_: pytest.fail("measured in vain"))
    found, out, err = run("calibrate", model(expression), "-o", tmp_path / "c.yaml")
    assert (found, out) == (code, "")
    assert err.splitlines()[-1].startswith("perflex: error: ")
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "c.yaml").exists()


def test_a_kernel_that_does_not_build_is_left_out_and_named(fake, model, tmp_path, run):
    code, out, err = run("calibrate", model(), "-o", tmp_path / "c.yaml")
    assert code == 0
    (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert warning.count("nelements=65536") == 1
    assert "m=128" in warning
    assert warning.endswith("is left out: <source>:3: error: use of undeclared identifier 'x'")
    assert "left out: flops_madd_pattern(" in out
    assert "3 measurement kernels" in out
    calibration = Calibration.load(tmp_path / "c.yaml")
    assert calibration.params["p_a"] == pytest.approx(1e-12 * 32, rel=1e-6)
    assert len(calibration.dropped) == 1
    assert calibration.model.output_feature == "f_cl_wall_time_fake"
    # Kernels are timed as the function does.
    with pytest.warns(PerflexWarning, match="is left out"):
        called = calibrate(model(), device=fake)
    names = [entry.name for entry in fields(TimingOptions)]
    assert {name: called.options[name] for name in names} == asdict(TimingOptions())
    assert {name: calibration.options[name] for name in names} == asdict(TimingOptions())


def test_a_device_on_the_command_line_comes_before_the_one_in_the_file(fake, model, tmp_path, shown):
    words = ("calibrate", model(output="f_cl_wall_time_somewhere_else"), "-o", tmp_path / "c.yaml", "-q")
    for more, output in (["--device", "fake"], "f_cl_wall_time_fake"), ([], "f_cl_wall_time_somewhere_else"):
        shown(*words, *more)
        assert Calibration.load(tmp_path / "c.yaml").model.output_feature == output


@pytest.mark.parametrize("words", [[], ["--device", "pocl"]])
def test_the_output_of_a_model_file_must_be_a_time(words, model, tmp_path, refused):
    error = refused("calibrate", model(output="f_thread_groups"), "-o", tmp_path / "c.yaml", *words)
    assert "'f_thread_groups' is no wall-time feature" in error


def test_on_a_device(tmp_path, model, default_device, shown):
    out = tmp_path / "c.yaml"
    # How busy the test machine is, is not for tests to say.
    text = shown("calibrate", model(), "-o", out, "--accept-noise")
    assert "p_a" in text
    assert "noise floor" in text
    assert str(out) in text.replace("\n", "")
    loaded = Calibration.load(out)
    assert loaded.params["p_a"] > 0
    assert loaded.device["name"] == default_device.name
