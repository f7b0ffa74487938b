"""Counts of public kernels' TTIR, of two versions of Triton, equal what Triton's own interpreter executed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from perflex.errors import UnsupportedKernelError
from support.triton_data import NAMES, code_of, launch_of, stored

if TYPE_CHECKING:
    from perflex.features.tiles.tile_program import TileProgram

# Locks and queues: how often programs ask, and what they get, is a matter of time.
REFUSED = {"layer_norm_backward": "operation tt.atomic_cas", "queue": "operation tt.atomic_rmw"}


def true_accesses(case: dict[str, Any]) -> Counter[tuple[str, str, str]]:
    """Return what was executed, by array and direction; what addresses lead to is named after their array."""
    owners = {other: f"{name}[]" for name, array in case["arrays"].items() for other, _ in array.get("points_to", ())}
    found: Counter[tuple[str, str, str]] = Counter()
    for name, directions in case["truth"]["arrays"].items():
        for direction, counts in directions.items():
            for what in ("executions", "elements", "sectors", "bytes"):
                found[owners.get(name, name), direction, what] += counts[what]
    return found


def accesses(program: TileProgram) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for one in program.accesses:
        for what in ("executions", "elements", "sectors", "bytes"):
            found[one.array, one.direction, what] += getattr(one, what)
    return found


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REFUSED])
def test_counts_are_what_triton_executes(name: str) -> None:
    case = stored(name)
    assert {version.rpartition(".")[0] for version in case["ttir"]} == {"3.5", "3.9"}
    for texts in case["ttir"].values():
        for text in texts.values():
            program = code_of(case, text).program(launch_of(case))
            assert program.exact
            assert accesses(program) == true_accesses(case)
            products = Counter({(one.shape, one.types[2]): 0.0 for one in program.dots})
            for dot in program.dots:
                products[dot.shape, dot.types[2]] += dot.executions
            true: Counter[Any] = Counter()
            for dot in case["truth"]["dots"]:
                true[(dot["m"], dot["n"], dot["k"]), dot["result"]] += dot["executions"] * dot["batch"]
            assert products == true


@pytest.mark.parametrize("name", REFUSED)
def test_what_time_decides_is_refused(name: str) -> None:
    case = stored(name)
    for texts in case["ttir"].values():
        for text in texts.values():
            with pytest.raises(UnsupportedKernelError, match=REFUSED[name]):
                code_of(case, text).program(launch_of(case))


def test_there_are_twenty_kernels() -> None:
    assert len({stored(name)["kernel"] for name in NAMES}) >= 20
