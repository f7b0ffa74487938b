"""Calibration files: exact round trip, and nothing but calibrations gets in."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import perflex.features
from perflex import (
    Calibration,
    FeatureInfo,
    FeatureTable,
    FitResult,
    FitStatus,
    Model,
    fit_model,
    scale_features_by_output,
)
from perflex.calibration.interval import interval_at
from perflex.errors import FileFormatError, PerflexError
from perflex.fit.result import ParameterEstimate

if TYPE_CHECKING:
    from perflex.features import Target

OUTPUT = "f_cl_wall_time_test"
TAGGED = "f_mem_access_global_float32_load_lstrides:{0:1;1:>15}_gstrides:{0:16}_afr:>1"


@pytest.fixture(autouse=True)
def any_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(identifier: str) -> SimpleNamespace:
        if "unheard" in identifier:
            msg = f"no feature is called {identifier}"
            raise PerflexError(msg)
        return SimpleNamespace(identifier=identifier)

    monkeypatch.setattr(perflex.features, "parse_feature", parse, raising=False)


def fitted() -> Calibration:
    model = Model(OUTPUT, f"p_op * f_op +\n p_mem * {TAGGED} + p_launch")
    random = np.random.default_rng(3)
    counts = 10 ** random.uniform(3, 8, (12, 2))
    seconds = (counts @ [1.1e-12, 3.3e-10] + 1e-6) * (1 + 0.03 * random.normal(size=12))
    labels = tuple(f"matmul_sq(dtype=float32, n={i}): \u00b5 'quoted' #x" for i in range(12))
    table = FeatureTable(
        OUTPUT,
        (OUTPUT, "f_op", TAGGED),
        labels,
        np.column_stack([seconds, counts]),
        info={"f_op": FeatureInfo("sub-group operation", 8, "op")},
        sub_group_size=8,
    )
    return Calibration(
        model,
        fit_model(model, scale_features_by_output(table)),
        {"name": "A: device #1", "platform": "PoCL", "driver": "3.1", "compute_units": np.int64(4), "gpu": False},
        "2025-06-01T12:00:00Z",
        {"perflex": "0.1.0", "numpy": "2.0"},
        {"trials": 15, "statistic": "median", "limits": [1.5, None]},
        0.0123456789,
        (("kernel 9", "did not build: error: x"),),
    )


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "calibration.yaml"
    fitted().save(path)
    return path


def same(one: Calibration, other: Calibration) -> bool:
    a, b = one.fit, other.fit
    return (
        one.model == other.model
        and repr(a.parameters) == repr(b.parameters)  # nan equals nan in text only; floats show every bit
        and np.array_equal(a.covariance, b.covariance, equal_nan=True)
        and a.status == b.status
        and (a.kernels, a.relative_errors, a.residual_norm) == (b.kernels, b.relative_errors, b.residual_norm)
        and (a.condition_number, a.degrees_of_freedom) == (b.condition_number, b.degrees_of_freedom)
        and (a.undetermined, a.sub_group_size, a.scaled) == (b.undetermined, b.sub_group_size, b.scaled)
        and dict(one.device) == dict(other.device)
        and (one.date, dict(one.versions), dict(one.options)) == (other.date, dict(other.versions), dict(other.options))
        and (one.noise_floor, one.dropped) == (other.noise_floor, other.dropped)
    )


def test_round_trip_is_exact(tmp_path: Path) -> None:
    calibration = fitted()
    path = saved(tmp_path)
    loaded = Calibration.load(path)
    assert same(calibration, loaded)
    assert dict(loaded.params) == dict(calibration.params)
    assert loaded.sub_group_size == 8
    loaded.save(tmp_path / "again.yaml")
    assert (tmp_path / "again.yaml").read_bytes() == path.read_bytes()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith(".")] == []


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, min_size=2, max_size=2), FLOATS, st.text(max_size=30), st.text(max_size=30))
@settings(max_examples=80, deadline=None)
def test_any_numbers_and_texts_come_back(values: list[float], error: float, label: str, name: str) -> None:
    estimates = tuple(
        ParameterEstimate(f"p_{i}", value, "s per thing", math.nan, at_bound=bool(i)) for i, value in enumerate(values)
    )
    status = FitStatus(False, "why: not", 3, 2, 1)
    fit = FitResult(
        estimates, abs(error), False, (label,), (error,), status, np.full((2, 2), math.nan), math.nan, -1, ("p_1",), 64
    )
    calibration = Calibration(Model(OUTPUT, "p_0 * f_x + p_1"), fit, {"name": name}, label)
    path = Path(os.environ["PERFLEX_TEST_FOLDER"]) / "any.yaml"
    calibration.save(path)
    loaded = Calibration.load(path)
    assert list(loaded.params.values()) == values
    assert loaded.fit.relative_errors == (error,)
    # A carriage return is a line break to YAML, as it is to any text file.
    assert loaded.fit.kernels == (label,)
    assert loaded.device["name"] == name
    assert loaded.noise_floor is None
    assert math.isnan(loaded.fit.condition_number)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PERFLEX_TEST_FOLDER", str(tmp_path))


def test_every_number_has_a_unit(tmp_path: Path) -> None:
    content = yaml.safe_load(saved(tmp_path).read_text(encoding="utf-8"))
    for entry in content["parameters"].values():
        assert isinstance(entry["unit"], str)
    assert content["noise_floor"] == {"value": 0.0123456789, "unit": "1"}
    assert content["fit"]["residual_norm"]["unit"] == "1"
    assert content["parameters"]["p_op"]["rate"]["unit"] == "op/s"
    assert content["schema"] == "perflex-calibration/1"
    assert content["date"] == "2025-06-01T12:00:00Z"
    assert content["versions"]["perflex"] == "0.1.0"


def test_a_file_cut_off_anywhere_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    text = path.read_text(encoding="utf-8")
    whole = text.rstrip("\n")
    broken = tmp_path / "broken.yaml"
    for end in [*range(0, len(whole), max(1, len(whole) // 150)), len(whole) - 1]:
        broken.write_text(whole[:end], encoding="utf-8")
        with pytest.raises(FileFormatError) as caught:
            Calibration.load(broken)
        assert str(broken) in caught.value.message


def refused(tmp_path: Path, text: str | bytes) -> FileFormatError:
    path = tmp_path / "refused.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(FileFormatError) as caught:
        Calibration.load(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.mark.parametrize(
    ("pattern", "replacement", "says"),
    [
        (r"calibration/1", "calibration/2", "line 1, field schema: version '2'.* update perflex"),
        (r"calibration/1", "calibration/x", "field schema: version 'x'.* damaged"),
        (r"perflex-calibration/1", "perflex-model/1", "this is a 'perflex-model' file"),
        (r"schema: .*\n", "", "there is no field 'schema'"),
        (r"date: .*\n", "", "field date: it is missing"),
        (r"date: ", "extra: 3\ndate: ", "line 2, field extra: there is no such field"),
        (r"value: 1.23456789e-02|value: 0.0123456789", "value: high", "field noise_floor.value: a number"),
        (r"    kind: cost", "    knid: cost", "field parameters.p_op.knid: there is no such field; known here: .*kind"),
        (r"    kind: cost", "    more: 1\n    kind: cost", "line \\d+, field parameters.p_op.more: there is no such"),
        (r"\n  p_op:", "\n  p_other:", "field parameters: the parameters must be those of the model"),
        (r"negative: false", "negative: 0", "field parameters.p_op.negative: true or false"),
        (r"p_op \* f_op", "p_op ** * f_op", "field model.expression: cannot read the model string"),
        (r"p_op \* f_op", "p_op * f_unheard", "field model.expression: no feature is called f_unheard"),
        (r"degrees_of_freedom: .*", "degrees_of_freedom: 3.5", "a whole number"),
        (r"degrees_of_freedom: .*", "degrees_of_freedom: true", "a whole number"),
        (r"relative_error_unit: '1'", "relative_error_unit: '%'", "relative_error_unit: it must be '1', not '%'"),
        (r"unit: work-item", "unit: warp", "sub_group_size.unit: it must be 'work-item', not 'warp'"),
        (r"    - - (\S+)\n", "    - - oops\n", r"rows\[0\]\[0\]: a number"),
        (r"    - - (\S+)\n", "    - - 1.0\n      - 2.0\n", "rows of 3 numbers"),
        (r"complete: true", "complete: false", "field complete"),
        (r"date: .*", "date: {a: 1}", "field date: a text"),
        (r"device:\n", "device: x\nold:\n", "field"),
        (r"date: ", "date: a\ndate: ", "line 3: the field 'date' stands here twice"),
        (r"  kernels:\n", "  kernels:\n  - 3\n", r"kernels\[0\]: a mapping must stand here"),
    ],
)
def test_damage_is_named_by_line_and_field(tmp_path: Path, pattern: str, replacement: str, says: str) -> None:
    text = saved(tmp_path).read_text(encoding="utf-8")
    damaged, count = re.subn(pattern, lambda _: replacement, text, count=1)
    assert count == 1
    error = refused(tmp_path, damaged)
    assert re.search(says, error.message, flags=re.DOTALL), error.message


def test_parameter_values_must_be_finite_numbers(tmp_path: Path) -> None:
    text = saved(tmp_path).read_text(encoding="utf-8")
    head, tail = text.split("parameters:\n", 1)
    for bad in (".nan", ".inf", "'3'", "null", "[1]", "true", "1e-9"):
        error = refused(tmp_path, head + "parameters:\n" + re.sub(r"value: \S+", f"value: {bad}", tail, count=1))
        assert "field parameters.p_op.value" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "just a text",
        "- 1\n- 2\n",
        "a: [1, 2",
        "a: b: c",
        "\ta: 1",
        "{}",
        "schema: 3",
        "schema: [perflex-calibration/1]",
        "--- a\n--- b\n",
        "? [a]\n: 1\n",
        "a: 0x" + "f" * 5000,
        "a: " + "9" * 5000,
        "[" * 20_000,
        "a: " + "{a: " * 5000,
        b"\x00\x01\x02",
        b"\xff\xfe\x00",
        b"PK\x03\x04 zip",
        b"\x80\x04\x95",
        "schema: !!python/object/apply:os.system ['true']",
        "schema: !!python/name:os.system",
        "!!python/object:perflex.Model {}",
        "schema: !mine 3",
        "schema: !!set {a, b}",
        "schema: !!binary aGVsbG8=",
        "a: &x 1\nb: *x\n",
        "a: &x [1]\n",
        "a: &a {b: 1}\nc:\n  <<: *a\n",
        "%TAG ! tag:yaml.org,2002:python/\n--- !name:os.system\n",
    ],
    ids=lambda text: ascii(text[:30]),
)
def test_foreign_files_are_refused(tmp_path: Path, text: str | bytes) -> None:
    refused(tmp_path, text)


def test_yaml_bombs_are_refused_before_they_expand(tmp_path: Path) -> None:
    bomb = 'a: &a ["x","x","x","x","x","x","x","x","x"]\n'
    for previous, name in zip("abcdefgh", "bcdefghi", strict=True):
        bomb += f"{name}: &{name} [{','.join([f'*{previous}'] * 9)}]\n"
    assert "anchors and aliases are refused" in refused(tmp_path, bomb).message


def test_a_python_tag_runs_nothing(tmp_path: Path) -> None:
    target = tmp_path / "made"
    text = saved(tmp_path).read_text(encoding="utf-8")
    hostile = text.replace("trials: 15", f"trials: !!python/object/apply:pathlib.Path.touch ['{target}']")
    assert hostile != text
    assert "tag" in refused(tmp_path, hostile).message
    assert not target.exists()


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_refused(data: bytes) -> None:
    refused(Path(os.environ["PERFLEX_TEST_FOLDER"]), data)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_one_changed_character_gives_a_calibration_or_an_error(data: st.DataObject) -> None:
    folder = Path(os.environ["PERFLEX_TEST_FOLDER"])
    path = folder / "calibration.yaml"
    text = path.read_text(encoding="utf-8") if path.exists() else saved(folder).read_text(encoding="utf-8")
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.sampled_from("\n :-{}[]'\"&*!#%xe.01\t\u00e9"))
    changed = folder / "changed.yaml"
    changed.write_text(text[:place] + character + text[place + 1 :], encoding="utf-8")
    try:
        loaded = Calibration.load(changed)
    except FileFormatError:
        return
    assert loaded.model.params() == ["p_op", "p_mem", "p_launch"] or "p_op" not in loaded.model.expression


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"cannot read .*No such file"):
        Calibration.load(tmp_path / "none.yaml")
    with pytest.raises(FileFormatError, match=r"cannot read .*: it is a folder"):
        Calibration.load(tmp_path)


def test_unwritable_places(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"cannot write .*No such file"):
        fitted().save(tmp_path / "none" / "calibration.yaml")
    with pytest.raises(FileFormatError, match="cannot write"):
        fitted().save(tmp_path)
    assert not [entry for entry in tmp_path.parent.iterdir() if entry.name.startswith(f".{tmp_path.name}.")]


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(FileFormatError, match="No space left on device"):
        fitted().save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["calibration.yaml"]


def test_permissions_survive_a_rewrite(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o644
    path.chmod(0o600)
    fitted().save(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_predict_uses_the_calibrations_sub_group_size(monkeypatch: pytest.MonkeyPatch) -> None:
    calibration = fitted()
    seen = []

    def values(features: list[str], kernel: object, sizes: dict[str, int], target: Target) -> dict[str, float]:
        seen.append(target.sub_group_size)
        return dict.fromkeys(features, float(sizes["n"]))

    monkeypatch.setattr("perflex.features.values.feature_values", values)
    monkeypatch.setattr("perflex.features.coverage.warn_uncounted", lambda *_: None)
    params = calibration.params
    expected = 10 * (params["p_op"] + params["p_mem"]) + params["p_launch"]
    assert calibration.predict(object(), {"n": 10}) == pytest.approx(expected, rel=1e-14, abs=0)
    assert calibration.model.eval_with_kernel(calibration, object(), {"n": 10}) == pytest.approx(expected, rel=1e-14)
    assert seen == [8, 8]


def test_repr_says_what_a_user_wants_to_know() -> None:
    text = repr(fitted())
    for part in ("A: device #1 (3.1)", "2025-06-01", "p_mem", "op/s", "noise floor 1.2 %"):
        assert part in text


def test_what_refits_of_generators_say_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few generators of several kernels: their refits take long for a large model, and are not repeated."""
    random = np.random.default_rng(0)
    counts = random.uniform(1, 100, 40)
    owners = tuple(f"make{i // 5}" for i in range(40))
    seconds = (
        1e-6 * (3 + counts) * np.repeat(np.exp(0.2 * random.normal(size=8)), 5) * np.exp(0.02 * random.normal(size=40))
    )
    labels = tuple(f"{owner}(n={i})" for i, owner in enumerate(owners))
    columns = (OUTPUT, "f_sync_kernel_launch", "f_thread_groups")
    values = np.column_stack([seconds, np.ones(40), counts])
    table = scale_features_by_output(FeatureTable(OUTPUT, columns, labels, values, groups=owners))
    model = Model(OUTPUT, "p_launch * f_sync_kernel_launch + p_group * f_thread_groups")
    calibration = Calibration(model, fit_model(model, table), table=table)
    calibration.save(tmp_path / "c.yaml")
    expected = calibration.generator_term
    assert expected.generators == 8
    assert expected.ratio > 0.1

    def refitted(*_: object) -> None:
        pytest.fail("the generators were refitted")

    monkeypatch.setattr("perflex.calibration.generator_term.generator_term", refitted)
    loaded = Calibration.load(tmp_path / "c.yaml")
    assert loaded.generator_term == expected
    counts = {"f_sync_kernel_launch": 1.0, "f_thread_groups": 50.0}
    assert interval_at(loaded, counts).high == pytest.approx(interval_at(calibration, counts).high)
