"""The one writer of JSON."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

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
