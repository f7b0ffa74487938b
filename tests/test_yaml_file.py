"""Files read by schema: what does not fit is named with its line and field."""

from typing import Literal

import pytest

from perflex.errors import FileFormatError
from perflex.yaml_file import Fields, Positive, parse_yaml, read_yaml, write_yaml


class Unit(Fields, frozen=True):
    value: Positive
    unit: Literal["s", "ms"]


class Inner(Fields, frozen=True, kw_only=True):
    b: tuple[Unit, ...] = ()
    d: dict[str, dict[str, Unit]]


class Outer(Fields, frozen=True):
    a: Inner
    n: float | None = None


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("unit: min", "unit: ms", ""),
        ("", "", r"line 14, field a\.d\.two\.y\.unit: it must be one of 'ms', 's', not 'min'"),
        ("value: 4", "value: 0", r"line 13, field a\.d\.two\.y\.value: it must be a number > 0.0, not 0"),
        ("value: 1", "value: .nan", r"line 4, field a\.b\[0\]\.value: a finite number must stand here, not nan"),
        ("value: 2", "value: 1e-9", r"line 9, field a\.d\.one\.x\.value: a number such as 1\.0e-9 .* not '1e-9'"),
        ("unit: min", "unit: {s: 1}", r"field a\.d\.two\.y\.unit: it must be one of 'ms', 's', not a mapping"),
        ("unit: min", "init: s", r"line 14, field a\.d\.two\.y\.init: there is no such field; known here: unit, value"),
        ("      unit: min\n", "", r"field a\.d\.two\.y\.unit: it is missing"),
        ("\na:", "\nn: x\na:", r"line 2, field n: a number such as 1\.0e-9 must stand here, not 'x'"),
        ("\na:", "\nextra: 1\na:", r"line 2, field extra: there is no such field; known here: a, n"),
    ],
)
def test_a_misfit_is_named_by_line_and_field(tmp_path, old, new, says):
    unit = {"unit": "s"}
    inner = {"b": [{"value": 1, **unit}], "d": {"one": {"x": {"value": 2, **unit}}, "two": {"y": {"value": 4}}}}
    inner["d"]["two"]["y"]["unit"] = "min"
    path = tmp_path / "some.yaml"
    write_yaml(path, {"schema": "thing/1", "a": inner})
    path.write_text(path.read_text().replace(old, new, 1))
    top = read_yaml(path, "thing/1")
    if not says:
        assert top.read(Outer).a.d["two"]["y"] == Unit(4.0, "ms")
        return
    with pytest.raises(FileFormatError, match=says):
        top.read(Outer)


@pytest.mark.parametrize("value", ["!!bool zz", "!!int ''", "!!float ''", "!!int x"])
def test_a_tag_that_its_text_does_not_fit_is_refused(tmp_path, value):
    path = tmp_path / "file.yaml"
    path.write_text(f"schema: test/1\nname: {value}\n", encoding="utf-8")
    with pytest.raises(FileFormatError, match="line 2"):
        read_yaml(path, "test/1")


def test_half_a_character_is_no_yaml():
    with pytest.raises(FileFormatError, match="is no YAML"):
        parse_yaml("a: \ud800", "x/1", "text")
