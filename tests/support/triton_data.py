"""Launches of Triton kernels in ``tests/data/triton``: their TTIR, and what they were launched with."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from perflex.features.from_triton.counting import TileCode
from perflex.features.from_triton.interpreter import Launch

DATA = Path(__file__).parents[1] / "data" / "triton"
NAMES = sorted({path.name.removesuffix(".json.gz") for path in DATA.glob("*.json.gz")} - {"more_operations"})


def stored(name: str) -> dict[str, Any]:
    return dict(json.loads(gzip.decompress((DATA / f"{name}.json.gz").read_bytes())))


def code_of(case: dict[str, Any], text: str) -> TileCode:
    return TileCode(text, tuple(one["name"] for one in case["arguments"] if one["type"] != "constexpr"))


def launch_of(case: dict[str, Any]) -> Launch:
    """Return the launch; arrays that are reached by addresses stand one behind the other."""
    addresses = {name: (1 + place) << 24 for place, name in enumerate(case["arrays"])}
    arrays = {}
    for name, array in case["arrays"].items():
        if "values" in array:
            arrays[name] = np.array(array["values"])
        elif "points_to" in array:
            arrays[name] = np.array([addresses[other] + behind for other, behind in array["points_to"]])
    numbers = {one["name"]: one["value"] for one in case["arguments"] if "value" in one}
    return Launch(numbers, arrays, tuple(case["grid"]))
