"""Bad input on the command line: one line on standard error, the right exit code, nothing executed or written."""

from __future__ import annotations

from dataclasses import asdict, fields
from pathlib import Path

import pytest

from perflex import Calibration, TimingOptions, calibrate
from perflex.__main__ import main
from perflex.errors import MeasurementError, PerflexWarning
from perflex.testing import FakeDevice

EXAMPLE = Path(__file__).parents[2] / "examples" / "matmul.py"
MADD = '[flops_madd_pattern, "dtype:float32", "groups_fit:True", "nelements:32768,65536", "m:64,128"]'


def model_file(folder: Path, expression: str, output: str = "f_cl_wall_time", tags: str = MADD) -> str:
    names = [name for name in ("p_a", "p_b") if name in expression]
    parameters = "".join(f"  {name}: {{meaning: a cost, unit: s}}\n" for name in names)
    path = folder / "model.yaml"
    path.write_text(
        "schema: perflex-model/1\nname: mine\ndescription: mine\n"
        f"output: {output}\nexpression: '{expression}'\n"
        f"fixed_sizes: true\nparameters:\n{parameters}measurement_kernels:\n  - tags: {tags}\n"
    )
    return str(path)


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(list(words))
    out, err = capfd.readouterr()
    return code, out, err


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """The only device there is: 1 ps per multiply-add; kernels with m=128 do not build where n is 65536."""

    def law(label: str, sizes: dict[str, int]) -> float:
        if "m=128" in label and "nelements=65536" in label:
            msg = f"{label}: <source>:3: error: use of undeclared identifier 'x'"
            raise MeasurementError(msg, kernel=label)
        return 1e-12 * 32 * sizes["nelements"] * sizes["m"]

    device = FakeDevice(law)
    monkeypatch.setattr("perflex.devices.listing.find_device", lambda _=None: device)
    monkeypatch.setattr("perflex.calibration.ready.chosen_device", lambda _: device)
    monkeypatch.setattr("perflex.calibration.ready.device_of", lambda _: device)
    monkeypatch.setattr("perflex.calibration.ready._output", lambda _: "f_cl_wall_time_fake")
    return device


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("p_a * f_op_float32_madd $ 3", "at character 25: '$' is not allowed"),
        ("p_a * f_op_float32_madd +", "at character"),
        ("p_a * f_op_float32_mad", "unknown operation 'mad'; did you mean madd"),
        ("p_a * sqr(f_op_float32_madd)", "there is no function 'sqr'; did you mean 'sqrt'"),
        ("p_a * madd", "madd"),
        ('__import__("os").system("touch executed") * p_a', "at character 1"),
        ("p_a * (lambda: open(executed))()", "at character"),
        ("p_a.__class__ * f_op_float32_madd", "at character 4"),
        ("p_a * f_op_float32_madd if 1 else 2", "at character"),
    ],
)
def test_bad_and_hostile_model_strings(
    expression: str, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capfd, "calibrate", model_file(tmp_path, expression), "-o", "c.yaml")
    assert (code, out) == (2, "")
    assert err.startswith("perflex: error: ")
    assert "line 5, field expression" in err
    assert message in err
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["model.yaml"]


def test_a_model_file_that_wants_to_run_code(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("model.yaml").write_text("!!python/object/apply:os.system ['touch executed']\n")
    for command in (["calibrate", "model.yaml", "-o", "c.yaml"], ["predict", "model.yaml", f"{EXAMPLE}:naive", "n=16"]):
        code, out, err = run(capfd, *command)
        assert (code, out) == (2, "")
        assert "model.yaml, line 1" in err
    assert [path.name for path in tmp_path.iterdir()] == ["model.yaml"]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ({"expression": "p_a * f_op_float32_madd + p_b * f_op_float32_exp"}, 2, "f_op_float32_exp matches nothing"),
        ({"expression": "p_a * f_op_float32_madd + p_b * f_mem_access_tag:zz"}, 2, "f_mem_access_tag:zz matches"),
        ({"expression": "p_a * f_op_float32_madd + p_b * f_op_float32_madd"}, 1, "combination of p_a, p_b"),
        ({"expression": "min(p_a, 3) * f_op_float32_madd"}, 1, "min(p_a, 3) cannot be differentiated"),
        ({"expression": "p_a * f_op_float32_madd", "tags": "[no_such]"}, 2, "no generator has the tag 'no_such'"),
        ({"expression": "p_a * f_op_float32_madd", "tags": '[matmul_sq, "n:x"]'}, 2, "value 'x' is not allowed"),
        ({"expression": "p_a * f_op_float32_madd", "tags": "[]"}, 2, "has no tags"),
    ],
)
def test_models_that_the_kernels_do_not_inform(
    words: dict[str, str], code: int, message: str, fake: FakeDevice, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found, out, err = run(capfd, "calibrate", model_file(tmp_path, **words), "-o", str(tmp_path / "c.yaml"))
    assert (found, out) == (code, "")
    error = err.splitlines()[-1]
    assert error.startswith("perflex: error: ")
    assert message in error
    assert not (tmp_path / "c.yaml").exists()


def test_a_model_that_cannot_be_fitted_is_refused_before_anything_is_measured(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], fake: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_file(tmp_path, "max(p_a, 1) * f_op_float32_madd")

    def measure(*_: object) -> None:
        pytest.fail("measured in vain")

    monkeypatch.setattr("perflex.timing.measuring.measure", measure)
    code, _, err = run(capfd, "calibrate", model, "-o", str(tmp_path / "c.yaml"))
    assert code == 1
    assert "cannot be differentiated" in err


def test_a_kernel_that_does_not_build_is_left_out_and_named(
    fake: FakeDevice, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "c.yaml"
    model = model_file(tmp_path, "p_a * f_op_float32_madd")
    code, out, err = run(capfd, "calibrate", model, "-o", str(target))
    assert code == 0
    (warning,) = [line for line in err.splitlines() if line.startswith("warning: ")]
    assert warning.count("nelements=65536") == 1
    assert "m=128" in warning
    assert warning.endswith("is left out: <source>:3: error: use of undeclared identifier 'x'")
    assert "left out: flops_madd_pattern(" in out
    assert "3 measurement kernels" in out
    calibration = Calibration.load(target)
    assert calibration.params["p_a"] == pytest.approx(1e-12 * 32, rel=1e-6)
    assert len(calibration.dropped) == 1
    assert calibration.model.output_feature == "f_cl_wall_time_fake"


def test_a_device_on_the_command_line_comes_before_the_one_in_the_file(
    fake: FakeDevice, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_file(tmp_path, "p_a * f_op_float32_madd", output="f_cl_wall_time_somewhere_else")
    target = tmp_path / "c.yaml"
    assert run(capfd, "calibrate", model, "-o", str(target), "-q", "--device", "fake")[0] == 0
    assert Calibration.load(target).model.output_feature == "f_cl_wall_time_fake"
    assert run(capfd, "calibrate", model, "-o", str(target), "-q")[0] == 0
    assert Calibration.load(target).model.output_feature == "f_cl_wall_time_somewhere_else"


def test_the_command_times_kernels_as_the_function_does(fake: FakeDevice, tmp_path: Path) -> None:
    model, target = model_file(tmp_path, "p_a * f_op_float32_madd"), tmp_path / "c.yaml"
    assert main(["calibrate", model, "-o", str(target), "-q"]) == 0
    with pytest.warns(PerflexWarning, match="is left out"):
        called = calibrate(model, device=fake)
    options = {entry.name: called.options[entry.name] for entry in fields(TimingOptions)}
    assert options == asdict(TimingOptions()) == {name: Calibration.load(target).options[name] for name in options}


@pytest.mark.parametrize("words", [[], ["--device", "pocl"]])
def test_the_output_of_a_model_file_must_be_a_time(
    words: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = model_file(tmp_path, "p_a * f_op_float32_madd", output="f_thread_groups")
    code, _, err = run(capfd, "calibrate", model, "-o", str(tmp_path / "c.yaml"), *words)
    assert code == 2
    assert "'f_thread_groups' is no wall-time feature" in err


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["calibrate", "madd_only", "-o", "{folder}/absent/c.yaml"], "cannot write {folder}/absent/c.yaml: No such"),
        (["calibrate", "madd_only", "-o", "{folder}"], "cannot write {folder}: it is a folder"),
        (["calibrate", "madd_only", "-o", "{folder}/file/c.yaml"], "Not a directory"),
        (["demo", "--out", "{folder}/file"], "cannot write to {folder}/file"),
        (["demo", "--out", "{folder}/file/out"], "cannot write to {folder}/file/out"),
    ],
)
def test_places_that_cannot_be_written_are_found_before_measuring(
    command: list[str], message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: pytest.fail("looked for devices first"))
    (tmp_path / "file").write_text("in the way")
    code, out, err = run(capfd, *[word.format(folder=tmp_path) for word in command])
    assert (code, out) == (2, "")
    assert err.startswith("perflex: error: ")
    assert message.format(folder=tmp_path) in err
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("command", [["demo", "--out", "{}"], ["calibrate", "madd_only", "-o", "{}/c.yaml"]])
def test_no_device_at_all(
    command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: ((), ()))
    code, out, err = run(capfd, *[word.format(tmp_path) for word in command])
    assert (code, out) == (2, "")
    assert err.startswith("perflex: error: no usable device")
    assert "perflex[cpu]" in err
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())
