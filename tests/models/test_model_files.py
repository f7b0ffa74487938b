"""Ready models: the files that come with perflex, and files of users."""

import re

import pytest

import perflex.features
from perflex import Model
from perflex.errors import FileFormatError
from perflex.models import FitSettings, KernelSet, ParameterDescription, TimingSettings, load_model, model_names

TEXT = """\
schema: perflex-model/1
name: mine
description: My model.
output: f_cl_wall_time
expression: >-
  p_op * f_op_float32_madd
  + p_mem * f_mem_access_tag:aLD
parameters:
  p_op: {meaning: cost of a multiply-add, unit: s per sub-group operation}
  p_mem: {meaning: cost of a load, unit: s per access}
measurement_kernels:
  - tags: [flops_madd_pattern, "dtype:float32"]
    match: superset
  - tags: [empty]
"""


@pytest.fixture(autouse=True)
def any_feature(monkeypatch):
    monkeypatch.setattr(perflex.features, "parse_feature", lambda identifier: identifier, raising=False)


def written(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


SHIPPED = TimingSettings(8, 0.15, 0.03)


@pytest.mark.parametrize(("more", "general", "fixed", "timing", "fit"), [
    ("", False, False, TimingSettings(), FitSettings("relative", "error")),
    ("fit: {residual: logarithmic, on_undetermined: warn}", False, False, TimingSettings(),
        FitSettings("logarithmic", "warn")),
    ("general: true\nfixed_sizes: true\ntiming: {trials: 12, precision: 0.03}", True, True,
        TimingSettings(12, None, 0.03), FitSettings()),
    # Measurement kernels of another model are sized and timed as there.
    ("like: general_cpu", False, True, SHIPPED, FitSettings()),
    ("like: general_cpu\nfixed_sizes: false\ntiming: {trials: 5}", False, False, TimingSettings(5), FitSettings()),
])  # fmt: skip
def test_how_a_model_is_measured_and_fitted_stands_in_its_file(tmp_path, more, general, fixed, timing, fit):
    found = load_model(written(tmp_path, f"{TEXT}{more}\n"))
    assert (found.general, found.fixed_sizes, found.timing, found.fit) == (general, fixed, timing, fit)


def test_like_names_a_file_beside_it_and_no_circle(tmp_path, monkeypatch):
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "base.yaml").write_text(TEXT.replace("mine", "base"), encoding="utf-8")
    path = written(folder, f"{TEXT.partition('parameters:')[0]}like: base.yaml\n")
    monkeypatch.chdir(tmp_path)
    assert load_model("models/mine.yaml").parameters == load_model(folder / "base.yaml").parameters
    for name, circle in (("mine", "mine.yaml is like mine.yaml"), ("base", "mine.yaml is like base.yaml is like mine")):
        (folder / f"{name}.yaml").write_text(f"{TEXT}like: mine.yaml\n", encoding="utf-8")
        with pytest.raises(FileFormatError, match=f"field like: the model is like itself: {circle}"):
            load_model(path)
        written(folder, f"{TEXT}like: base.yaml\n")


@pytest.mark.parametrize("name", ["general_cpu", "general_cpu_code", "general_gpu"])
def test_general_models_say_how_they_are_measured(name):
    found = load_model(name)
    timing = TimingSettings(12, 0.15, 0.03) if name == "general_gpu" else SHIPPED
    assert (found.general, found.timing, found.fixed_sizes) == (True, timing, name != "general_gpu")
    # Not every device has all that the models cost, such as arithmetic in double precision.
    assert found.fit.on_undetermined == "warn"


@pytest.mark.parametrize(("line", "says"), [
    ("general: 1", "true or false must stand here"), ("timing: {precision: 1.0}", "timing.precision"),
    ("timing: {trials: 0}", "timing.trials: it must be a number >= 1"),
    ("timing: {budget_s: 0}", "timing.budget_s: it must be a number > 0"),
    ("fit: {on_undetermined: ignore}", "on_undetermined"),
    ("timing: {warmups: 2}", "there is no such field; known here: budget_s, precision, trials"),
    ("fixed_sizes: true\nlike: fdiff_linear", "sizes that are fixed do not grow"),
    ("  - tags: [empty]\n    scale: {ngroup: {power: 1, step: 8}}",
        "line 16, field measurement_kernels[2].scale: no tag of the set gives sizes of ngroup; add one such as"),
])  # fmt: skip
def test_how_kernels_are_timed_is_checked(tmp_path, line, says):
    with pytest.raises(FileFormatError, match=re.escape(says)):
        load_model(written(tmp_path, f"{TEXT}{line}\n"))


def test_a_users_file(tmp_path):
    description = load_model(written(tmp_path, TEXT))
    assert description.name == "mine"
    assert description.parameters["p_mem"] == ParameterDescription("cost of a load", "s per access")
    assert description.measurement_kernels == (
        KernelSet(("flops_madd_pattern", "dtype:float32"), "superset"),
        KernelSet(("empty",), None),
    )
    expression = "p_op * f_op_float32_madd + p_mem * f_mem_access_tag:aLD"
    assert description.model() == Model("f_cl_wall_time", expression)
    assert description.model("f_cl_wall_time_pocl_cpu").output_feature == "f_cl_wall_time_pocl_cpu"
    assert load_model(str(tmp_path / "mine.yaml")) == description


def test_every_shipped_model_can_be_read():
    names = model_names()
    assert "madd_only" in names
    assert names == sorted(names)
    for name in names:
        description = load_model(name)
        assert description.name == name
        # Times of tile programs come from elsewhere.
        assert description.measurement_kernels or name == "general_tile"
        assert all(parameter.meaning and parameter.unit for parameter in description.parameters.values())


@pytest.mark.parametrize(("name", "says"), [
    ("madd_onyl", "no model is called 'madd_onyl'; did you mean 'madd_only'"), ("none.yaml", "cannot read"),
    ("generl", "no model is called 'generl'; did you mean 'general'"), ("../models/madd_only", "no model is called"),
])  # fmt: skip
def test_shipped_names_are_suggested(name, says):
    with pytest.raises(FileFormatError, match=says):
        load_model(name)


@pytest.mark.parametrize(("pattern", "replacement", "says"), [
    ("perflex-model/1", "perflex-model/7", "version '7'.*update perflex"),
    ("perflex-model/1", "perflex-calibration/1", "this is a 'perflex-calibration' file"),
    ("name: mine\n", "", "field name: it is missing"),
    ("name: mine\n", "name: 3\n", "line 2, field name: a text"),
    ("name: mine\n", "name: mine\ntitle: x\n", "line 3, field title: there is no such field"),
    ("p_op \\* f_op", "p_op f_op", "field expression: cannot read the model string"),
    ("  p_op: .*\n", "", "field parameters: the parameters must be those of the expression: p_op, p_mem"),
    ("  p_op: ", "  p_xx: ", "the parameters must be those"),
    (", unit: s per access", "", "field parameters.p_mem.unit: it is missing"),
    ("unit: s per access", "unit: 1", "field parameters.p_mem.unit: a text"),
    ("tags: \\[empty\\]", "tags: empty", r"field measurement_kernels\[1\].tags: a list"),
    ("tags: \\[empty\\]", "tags: [1]", r"field measurement_kernels\[1\].tags\[0\]: a text"),
    ("tags: \\[empty\\]", "tag: [empty]",
        r"field measurement_kernels\[1\].tag: there is no such field; known here: .*tags"),
    ("match: superset", "mode: superset", r"field measurement_kernels\[0\].mode: there is no such"),
    ("match: superset", "match: !!python/name:os.system", "tag .* is refused"),
    ("output: f_cl_wall_time", "output: seconds", "the output must be one feature"),
])  # fmt: skip
def test_damage_is_named(tmp_path, pattern, replacement, says):
    text, count = re.subn(pattern, lambda _: replacement, TEXT, count=1)
    assert count == 1
    with pytest.raises(FileFormatError, match=re.compile(says, re.DOTALL)):
        load_model(written(tmp_path, text))
