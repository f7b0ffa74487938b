"""The one writer of JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

from perflex.cli.json_output import as_json, picked, print_json


@dataclass(frozen=True)
class Inner:
    share: float
    names: tuple[str, ...]


@dataclass(frozen=True)
class Outer:
    inner: Inner
    array: np.ndarray
    place: Path | None = None

    @property
    def twice(self) -> float:
        return 2 * self.inner.share


def test_dataclasses_become_dictionaries_and_what_is_no_number_null() -> None:
    found = as_json(Outer(Inner(math.nan, ("a", "b")), np.array([1.5, math.inf])))
    assert found == {"inner": {"share": None, "names": ["a", "b"]}, "array": [1.5, None], "place": None}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(np.float64(2.0), 2.0), (np.int64(3), 3), (Fraction(1, 4), 0.25), (True, True), (Path("x.csv"), "x.csv")],
)
def test_numbers_and_paths(value: object, expected: object) -> None:
    assert as_json(value) == expected
    assert type(as_json(value)) is type(expected)


def test_attributes_are_picked_by_name_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    print_json(picked(Outer(Inner(0.5, ()), np.zeros(2)), "twice", "place"))
    assert json.loads(capsys.readouterr().out) == {"twice": 1.0, "place": None}


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, np.float64("nan"), np.float32("-inf"), np.longdouble("inf"), np.array(math.nan)],
)
def test_what_is_no_finite_number_becomes_null_at_any_depth(value: object) -> None:
    assert as_json(value) is None
    assert as_json({"a": [{"b": (1, value)}]}) == {"a": [{"b": [1, None]}]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.array(3), 3),
        (np.array([], dtype=float), []),
        (np.array([[1.0, math.inf], [-math.inf, 4.0]]), [[1.0, None], [None, 4.0]]),
        (np.array([True, False]), [True, False]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array([Fraction(1, 2), math.nan, None], dtype=object), [0.5, None, None]),
        (np.bool_(True), True),
        (np.str_("a"), "a"),
        (np.longdouble(1.5), 1.5),
        (np.uint64(2**64 - 1), 2**64 - 1),
        (2**70, 2**70),
        ((), []),
        ((1, (2, [3, (4,)])), [1, [2, [3, [4]]]]),
        (range(3), [0, 1, 2]),
        ({"a": 1}.values(), [1]),
        ("nan", "nan"),
    ],
)
def test_arrays_and_sequences(value: object, expected: object) -> None:
    found = as_json(value)
    assert found == expected
    # Of the same types all the way down: lists for tuples, Python's numbers for numpy's.
    assert repr(found) == repr(expected)
    assert json.loads(json.dumps(found, allow_nan=False)) == expected


def test_dataclasses_are_found_at_any_depth() -> None:
    inner = Inner(math.inf, ("x",))
    found = as_json({"all": [inner, (Outer(inner, np.arange(2), Path("a", "b")),)]})
    plain = {"share": None, "names": ["x"]}
    assert found == {"all": [plain, [{"inner": plain, "array": [0, 1], "place": str(Path("a", "b"))}]]}
    # Properties are no fields, and fields keep their order.
    assert list(found["all"][1][0]) == ["inner", "array", "place"]


def test_keys_of_mappings_stay_what_they_are_until_they_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    given = MappingProxyType({2: math.nan, 1.5: (1,), True: np.float64(0.5), None: {3: Path("x")}})
    found = as_json(given)
    assert type(found) is dict
    assert list(found.items()) == [(2, None), (1.5, [1]), (True, 0.5), (None, {3: "x"})]
    print_json(given)
    assert json.loads(capsys.readouterr().out) == {"2": None, "1.5": [1], "true": 0.5, "null": {"3": "x"}}


@pytest.mark.parametrize("value", [object(), 1j, {"a": [object()]}, Inner])
def test_what_says_nothing_in_json_is_an_error(value: object) -> None:
    with pytest.raises(TypeError):
        as_json(value)


def test_picked_gives_values_as_they_are_and_in_the_order_asked_for() -> None:
    outer = Outer(Inner(math.nan, ("a",)), np.zeros(2))
    found = picked(outer, "place", "twice", "inner")
    assert list(found) == ["place", "twice", "inner"]
    assert found["inner"] is outer.inner
    assert math.isnan(found["twice"])
    assert picked(outer) == {}
    with pytest.raises(AttributeError, match="nonesuch"):
        picked(outer, "place", "nonesuch")
