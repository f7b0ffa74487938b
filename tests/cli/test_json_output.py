"""The one writer of JSON."""

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


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(2.0), 2.0), (np.int64(3), 3), (Fraction(1, 4), 0.25), (True, True), (Path("x.csv"), "x.csv"),
        (math.nan, None), (-math.inf, None), (np.float32("-inf"), None), (np.array(math.nan), None),
        (np.array([], dtype=float), []), (np.array([[1.0, math.inf], [-math.inf, 4.0]]), [[1.0, None], [None, 4.0]]),
        (np.array([True, False]), [True, False]), (np.array(["a", "b"]), ["a", "b"]),
        (np.array([Fraction(1, 2), math.nan, None], dtype=object), [0.5, None, None]), (np.bool_(True), True),
        (np.longdouble(1.5), 1.5), (np.uint64(2**64 - 1), 2**64 - 1), (2**70, 2**70),
        ((1, (2, [3, (4,)])), [1, [2, [3, [4]]]]),
        ({"a": 1}.values(), [1]), ("nan", "nan"),
        (MappingProxyType({"a": [Inner(math.inf, ("x",))]}), {"a": [{"share": None, "names": ["x"]}]}),
    ],
)  # fmt: skip
def test_values(value, expected, capsys):
    found = as_json(value)
    # Of the same types all the way down: lists for tuples, Python's numbers for numpy's.
    assert repr(found) == repr(expected)
    print_json(value)
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == expected


@pytest.mark.parametrize("value", [object(), 1j, {"a": [object()]}, Inner])
def test_what_says_nothing_in_json_is_an_error(value):
    with pytest.raises(TypeError):
        as_json(value)


def test_picked_gives_values_as_they_are_and_in_the_order_asked_for():
    assert list(picked(Inner(0.5, ("a",)), "names", "share").items()) == [("names", ("a",)), ("share", 0.5)]
    with pytest.raises(AttributeError, match="nonesuch"):
        picked(Inner(0.5, ()), "nonesuch")
