"""Contents of arrays are taken for arguments that are arrays, and for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import perflex.triton
from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton import launches
from perflex.features.from_triton.launches import Configuration, StandIn, TritonKernel, TritonLaunch
from perflex.features.tiles.tile_program import TileProgram

if TYPE_CHECKING:
    from perflex.features.from_triton.interpreter import Launch


def parameter(name: str) -> Any:
    return SimpleNamespace(
        name=name, is_constexpr=False, has_default=False, do_not_specialize=False, annotation_type=""
    )


NAMES = ["x_ptr", "y_ptr", "n"]
KERNEL = SimpleNamespace(__name__="scale", arg_names=NAMES, params=[parameter(name) for name in NAMES])
ARGUMENTS = {"x_ptr": StandIn("float16", 64), "y_ptr": None, "n": 64}


def program(grid: Any = 1, **arrays: Any) -> Any:
    given = {name: np.arange(64) for name in arrays}
    return TritonKernel(TritonLaunch(KERNEL, ARGUMENTS, grid, arrays=given), Configuration({})).program({})


@pytest.mark.parametrize("name", ["x", "n", "z_ptr"])
def test_a_name_that_is_no_array_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedKernelError, match=f"kernel 'scale' has no array {name}; its arrays are x_ptr$"):
        program(**{name: 1})


def test_an_array_that_is_absent_needs_no_contents(monkeypatch: pytest.MonkeyPatch) -> None:
    def counted(launch: Launch, **_: Any) -> TileProgram:
        return TileProgram(name=" ".join(sorted(launch.arrays)), grid=(1, 1, 1))

    source = SimpleNamespace(code=lambda: SimpleNamespace(program=counted))
    monkeypatch.setattr(launches, "triton_source", lambda *_: source)
    assert program(y_ptr=1, x_ptr=1).name == "x_ptr y_ptr"


@pytest.mark.parametrize("grid", ["x", (None,), float("nan"), lambda _: "abc"])
def test_a_grid_that_is_none_is_an_error(grid: Any) -> None:
    with pytest.raises(UnsupportedKernelError, match="its grid, a heuristic or a pre_hook fails"):
        program(grid)


def test_the_decorator_names_what_is_no_argument() -> None:
    tuner = SimpleNamespace(early_config_prune=None, configs=[], keys=[], run=None, fn=KERNEL)
    with pytest.raises(UnsupportedKernelError, match="the kernel has no argument x; it has x_ptr, y_ptr, n"):
        perflex.triton.prune(machine="A100-80GB", arrays={"x": 1})(tuner)
    assert perflex.triton.prune(machine="A100-80GB", arrays={"x_ptr": 1})(tuner) is tuner
