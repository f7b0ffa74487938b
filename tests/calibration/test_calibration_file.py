"""Calibration files: exact round trip, and nothing but calibrations gets in."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from perflex import Calibration, FeatureTable, Model, diagnose
from perflex.calibration.calibration import calibration_names
from perflex.calibration.interval import interval_at
from perflex.calibration.usual_prior import fit_about_usual, usual_description
from perflex.errors import FileFormatError
from perflex.fit.problem import pose
from perflex.fit.result import FitResult, FitStatus, ParameterEstimate
from perflex.fit.table import FeatureInfo
from support.fitted import fitted

OUTPUT = "f_cl_wall_time_test"
MODEL = Model(OUTPUT, "p_add * f_op_float32_add + p_launch * f_sync_kernel_launch")


def calibration(*, residual="relative", groups=True):
    """Return a calibration in which everything is odd: labels, nan, a column too many, facts of numpy's types."""
    random = np.random.default_rng(0)
    counts = np.column_stack([np.floor(10 ** random.uniform(3, 17, 9)), np.ones(9), random.random(9)])
    seconds = counts[:, :2] @ [1e-12 / 3, 1e-5] * (1 + 0.03 * random.normal(size=9))
    table = FeatureTable(
        OUTPUT,
        # A column that the model does not use, and the output in the middle.
        ("f_op_float32_add", OUTPUT, "f_sync_kernel_launch", "f_thread_groups"),
        tuple(f"empty(dtype=float32, n={i}): \u00b5 'quoted' #x" for i in range(9)),
        np.column_stack([counts[:, 0], seconds, counts[:, 1], counts[:, 2]]),
        groups=("empty",) * 5 + ("other: 'x' #y",) * 4 if groups else (),
        spread=np.where(np.arange(9) == 2, np.nan, random.random(9)),
        info={OUTPUT: FeatureInfo("s"), "f_op_float32_add": FeatureInfo("sub-group operation", 32, "op")},
        sub_group_size=16,
        repeatability=np.where(np.arange(9) == 4, np.nan, random.random(9) / 10),
        dropped=(("kernel 9", "did not build: error: x"),),
        machine="V100",
    )
    return replace(
        fitted(MODEL, table, residual=residual),
        device={"name": "A: device #1", "platform": "PoCL", "compute_units": np.int64(4), "gpu": False},
        date="2025-06-01T12:00:00Z",
        options={"trials": 15, "statistic": "median", "limits": [1.5, None], "drift": np.float64(1.25)},
        noise_floor=0.0123456789,
    )


def saved(tmp_path):
    path = tmp_path / "calibration.yaml"
    calibration().save(path)
    return path


@pytest.mark.parametrize("residual", ["relative", "logarithmic", "absolute"])
@pytest.mark.parametrize("groups", [True, False])
def test_round_trip_is_exact(tmp_path, residual, groups):
    made, path = calibration(residual=residual, groups=groups), tmp_path / "kept.yaml"
    made.save(path)
    loaded = Calibration.load(path)
    assert loaded.table.features == (OUTPUT, "f_op_float32_add", "f_sync_kernel_launch")
    for name in ("values", "spread", "repeatability"):
        np.testing.assert_array_equal(getattr(loaded.table, name), getattr(made.table, name))
    assert (loaded.table.kernels, loaded.table.groups) == (made.table.kernels, made.table.groups)
    assert loaded.table.machine == loaded.machine == "V100"
    assert loaded.sub_group_size == 16
    one, other = made.fit, loaded.fit
    # nan equals nan in text only; floats show every bit.
    assert repr(one.parameters) == repr(other.parameters)
    np.testing.assert_array_equal(one.covariance, other.covariance)
    for name in ("status", "kernels", "relative_errors", "condition_number", "residual", "nonnegative", "intervals"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("model", "device", "date", "versions", "options", "noise_floor", "dropped", "between_generators"):
        assert getattr(made, name) == getattr(loaded, name)
    assert diagnose(loaded).as_dict() == diagnose(made).as_dict()
    loaded.save(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("nonnegative", [True, False])
def test_an_interval_with_one_infinite_end_comes_back(tmp_path, nonnegative):
    random = np.random.default_rng(0)
    counts = 10 ** random.uniform(6, 9, (40, 2))
    # Additions take less than the noise hides: their rate has a least value, and no largest one.
    seconds = counts @ [2e-11, 1e-15] * (1 + 0.05 * random.normal(size=40))
    columns, labels = (OUTPUT, "f_thread_groups", "f_op_float32_add"), tuple(f"kernel {i}" for i in range(40))
    table = FeatureTable(OUTPUT, columns, labels, np.column_stack([seconds, counts]))
    made = fitted(
        Model(OUTPUT, "p_group * f_thread_groups + f_op_float32_add / p_rate"), table, nonnegative=nonnegative
    )
    made.save(tmp_path / "c.yaml")
    low, high = Calibration.load(tmp_path / "c.yaml").fit.interval("p_rate")
    assert (low, high) == made.fit.interval("p_rate")
    assert 1e13 < low < high == math.inf


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=2, max_size=2), st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=80, deadline=None)
def test_any_numbers_and_texts_come_back(tmp_path_factory, values, label, name):
    estimates = tuple(
        ParameterEstimate(f"p_{i}", value, "s per thing", math.nan, at_bound=bool(i)) for i, value in enumerate(values)
    )
    model = Model(OUTPUT, "p_0 * f_thread_groups + p_1")
    table = FeatureTable(OUTPUT, (OUTPUT, "f_thread_groups"), (label,), np.array([[1.0, 0.5]]))
    fit = FitResult(
        estimates,
        pose(model, table, few=True),
        FitStatus(False, "why: not", 3, 2, 1),
        np.full((2, 2), math.nan),
        math.nan,
        sub_group_size=64,
    )
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    Calibration(model, fit, table, {"name": name}, label).save(path)
    loaded = Calibration.load(path)
    assert list(loaded.params.values()) == values
    assert loaded.fit.relative_errors == fit.relative_errors
    # A carriage return is a line break to YAML, as it is to any text file.
    assert loaded.fit.kernels == (label,)
    assert loaded.device["name"] == name
    assert loaded.noise_floor is None
    assert math.isnan(loaded.fit.condition_number)


def test_what_stands_in_the_file(tmp_path):
    content = yaml.safe_load(saved(tmp_path).read_text(encoding="utf-8"))
    assert content["schema"] == "perflex-calibration/3"
    assert [(entry["name"], entry["unit"]) for entry in content["parameters"]] == [
        ("p_add", "s per sub-group operation"),
        ("p_launch", "s per f_sync_kernel_launch"),
    ]
    assert content["parameters"][0]["rate_unit"] == "op/s"
    assert (content["fit"]["residual"], content["fit"]["nonnegative"]) == ("relative", True)
    assert content["versions"]["perflex"]
    assert content["measurement_kernels"]["columns"] == [
        {"feature": OUTPUT, "unit": "s"},
        {"feature": "f_op_float32_add", "unit": "sub-group operation"},
        {"feature": "f_sync_kernel_launch", "unit": "f_sync_kernel_launch"},
    ]
    entry = content["measurement_kernels"]["kernels"][2]
    assert entry["generator"] == "empty"
    assert "spread" not in entry
    assert "repeatability" not in content["measurement_kernels"]["kernels"][4]
    assert re.fullmatch(r"\S+ \d+ 1", entry["values"])


def test_a_file_cut_off_anywhere_is_refused(tmp_path):
    whole = saved(tmp_path).read_text(encoding="utf-8").rstrip("\n")
    broken = tmp_path / "broken.yaml"
    for end in [*range(0, len(whole), max(1, len(whole) // 150)), len(whole) - 1]:
        broken.write_text(whole[:end], encoding="utf-8")
        with pytest.raises(FileFormatError) as caught:
            Calibration.load(broken)
        assert str(broken) in caught.value.message


def refused(tmp_path, text):
    path = tmp_path / "refused.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError) as caught:
        Calibration.load(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "replacement", "says"),
    [
        (r"calibration/3", "calibration/4", "line 1, field schema: version '4'.* update perflex"),
        (r"perflex-calibration/3", "perflex-model/1", "this is a 'perflex-model' file"),
        (r"date: .*\n", "", "field date: it is missing"),
        (r"date: ", "extra: 3\ndate: ", "line 2, field extra: there is no such field"),
        (r"date: ", "date: a\ndate: ", "line 3: the field 'date' stands here twice"),
        (r"noise_floor: \S+", "noise_floor: high", "field noise_floor: a number"),
        (r"  rate_unit: op/s", "  rate_uint: op/s", r"line \d+, field parameters\[0\].rate_uint: there is no such"),
        (r"- name: p_add", "- name: p_other", "field parameters: the parameters must be those of the model"),
        (r"  value: \S+", "  value: .nan", r"field parameters\[0\].value: a finite number"),
        (r"p_add \* f", "p_add ** * f", "field model.expression: cannot read the model string"),
        (r"f_op_float32_add", "f_op_float32_and", "field model.expression: .*f_op_float32_and"),
        (r"relative_error_unit: '1'", "relative_error_unit: '%'", "relative_error_unit: it must be '1', not '%'"),
        (r"sub_group_size: 16", "sub_group_size: 0", "sub_group_size"),
        (r"residual: relative", "residual: huber", "fit.residual: .*'absolute', 'logarithmic'"),
        (r"nonnegative: true", "nonnegative: 1", "fit.nonnegative: true or false"),
        (r"    - - (\S+)\n", "    - - oops\n", r"rows\[0\]\[0\]: a number"),
        (r"    - - (\S+)\n", "    - - 1.0\n      - 2.0\n", "rows: 2 rows of 2 numbers"),
        (r"  generators: 2", "  generators: -2", "between_generators.generators"),
        (r"complete: true", "complete: false", "field complete"),
        (r"device:\n", "device:\n  local_memory_bytes: 1e308\n", "field device.local_memory_bytes: a whole number"),
        (r"compute_units: \d+", "compute_units: {}", "field device.compute_units: a whole number"),
        (r"  kernels:\n", "  kernels:\n  - 3\n", r"kernels\[0\]: a mapping must stand here"),
        (r"values: \S+ ", "values: x ", r"kernels\[0\].values: 3 finite numbers"),
        (r"values: \S+ ", "values: nan ", r"kernels\[0\].values: 3 finite numbers"),
        (r"values: \S+ ", "values: -1.0e-3 ", r"kernels\[0\].values: the measured output.* positive, not -0.001"),
        (r"spread: ", "spread: x", r"kernels\[0\].spread: a number"),
        (r"    generator: 'other[^\n]+\n", "", r"kernels\[5\].generator: every kernel must have a generator, or none"),
        (r"  - feature: f_op_float32_add", "  - feature: f_op_float32_mul", "columns: the columns must be the model's"),
    ],
)
def test_damage_is_named_by_line_and_field(tmp_path, pattern, replacement, says):
    damaged, count = re.subn(pattern, lambda _: replacement, saved(tmp_path).read_text(encoding="utf-8"), count=1)
    assert count == 1
    error = refused(tmp_path, damaged)
    assert re.search(says, error.message, flags=re.DOTALL), error.message


@pytest.mark.parametrize(
    "text",
    [
        *("", "a: [1, 2", "schema: [perflex-calibration/3]", "a: 0x" + "f" * 5000, "[" * 20_000, b"\x00\x01\x02"),
        *("schema: !mine 3", "a: &x 1\nb: *x\n", "a: &a {b: 1}\nc:\n  <<: *a\n"),
        "%TAG ! tag:yaml.org,2002:python/\n--- !name:os.system\n",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_foreign_files_are_refused(tmp_path, text):
    refused(tmp_path, text)


def test_hostile_files_run_nothing_and_do_not_expand(tmp_path):
    bomb = 'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
    for previous, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{','.join([f'*{previous}'] * 9)}]\n"
    assert "anchors and aliases are refused" in refused(tmp_path, bomb).message
    target, text = tmp_path / "made", saved(tmp_path).read_text(encoding="utf-8")
    hostile = text.replace("trials: 15", f"trials: !!python/object/apply:pathlib.Path.touch ['{target}']")
    assert hostile != text
    assert "tag" in refused(tmp_path, hostile).message
    assert not target.exists()


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(FileFormatError, match=r"cannot read .*No such file"):
        Calibration.load(tmp_path / "none.yaml")
    with pytest.raises(FileFormatError, match=r"cannot write .*No such file"):
        calibration().save(tmp_path / "none" / "calibration.yaml")


def test_noise_floor_is_the_median_repeatability_of_the_kernels():
    table = calibration().table
    assert fitted(MODEL, table).noise_floor == np.nanmedian(table.repeatability) < 0.1
    # Where no kernel has samples enough the spread of single timings takes its place.
    without = replace(table, repeatability=None)
    assert fitted(MODEL, without).noise_floor == np.nanmedian(table.spread)


@pytest.mark.parametrize("name", [name for name in calibration_names() if name not in {"general_gpu", "general_tile"}])
def test_shipped_calibrations_are_as_fitted_and_can_be_diagnosed(name):
    shipped = Calibration.load(name)
    assert len(diagnose(shipped).parameters) == len(shipped.params)
    usual = usual_description(shipped.model)
    if usual is not None:
        again = fit_about_usual(usual, shipped.table)
        assert dict(again) == pytest.approx(dict(shipped.params), rel=1e-6)
        assert again.prior.noise == pytest.approx(shipped.fit.prior.noise, rel=1e-3)
        return
    again = fitted(shipped.model, shipped.table, residual=shipped.fit.residual)
    assert dict(again.params) == pytest.approx(dict(shipped.params), rel=1e-6)
    # Else each command refits the model for every generator before it predicts.
    assert again.between_generators.ratio == pytest.approx(shipped.kept_between.ratio, rel=1e-3)


def test_what_refits_of_generators_say_is_kept(tmp_path, monkeypatch):
    """Refits take long for a large model, and are not repeated."""
    random = np.random.default_rng(0)
    counts = random.uniform(1, 100, 40)
    owners = tuple(f"make{i // 5}" for i in range(40))
    shared = np.repeat(np.exp(0.2 * random.normal(size=8)), 5)
    seconds = 1e-6 * (3 + counts) * shared * np.exp(0.02 * random.normal(size=40))
    columns = (OUTPUT, "f_sync_kernel_launch", "f_thread_groups")
    labels, rows = tuple(map(str, range(40))), np.column_stack([seconds, np.ones(40), counts])
    table = FeatureTable(OUTPUT, columns, labels, rows, groups=owners)
    made = fitted(Model(OUTPUT, "p_launch * f_sync_kernel_launch + p_group * f_thread_groups"), table)
    made.save(tmp_path / "c.yaml")
    assert made.between_generators.generators == 8
    assert made.between_generators.ratio > 0.1
    monkeypatch.setattr("perflex.calibration.cross_validation.between_generators", lambda *_: pytest.fail("refitted"))
    loaded = Calibration.load(tmp_path / "c.yaml")
    assert loaded.between_generators == made.between_generators
    at = {"f_sync_kernel_launch": 1.0, "f_thread_groups": 50.0}
    assert interval_at(loaded, at).high == pytest.approx(interval_at(made, at).high)
