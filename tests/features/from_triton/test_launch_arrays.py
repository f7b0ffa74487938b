"""Contents of arrays: those that are given, for arguments that are arrays, and those that a GPU's memory holds."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import perflex.triton
from perflex import load_machine
from perflex.errors import UnsupportedKernelError
from perflex.features.from_triton import launches
from perflex.features.from_triton.launches import Configuration, StandIn, TritonKernel, TritonLaunch
from perflex.features.tiles.tile_program import TileProgram
from support import triton_data

if TYPE_CHECKING:
    from perflex.features.from_triton.interpreter import Launch

pytestmark = pytest.mark.filterwarnings("ignore::perflex.errors.DoubtfulPredictionWarning")


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

    source = SimpleNamespace(code=lambda: SimpleNamespace(program=counted, read=set()))
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


class OnGpu:
    """Stands for a tensor of PyTorch in a GPU's memory; counts how often it is copied."""

    device = SimpleNamespace(type="cuda")
    data_ptr = None

    def __init__(self, held: Any, dtype: str = "torch.int32") -> None:
        self.held, self.dtype, self.copied = np.asarray(held), dtype, 0

    def cpu(self) -> Any:
        self.copied += 1
        return self.held

    def numel(self) -> int:
        return int(self.held.size)

    def element_size(self) -> int:
        return int(self.held.itemsize)

    def is_contiguous(self) -> bool:
        return self.held.flags.c_contiguous


def launched(name: str, monkeypatch: pytest.MonkeyPatch) -> tuple[TritonLaunch, TileProgram, dict[str, OnGpu]]:
    """Return a launch whose arrays are all in a GPU's memory, what it counts with arrays that are given, and arrays."""
    case = triton_data.stored(name)
    true = triton_data.launch_of(case)
    code = triton_data.code_of(case, max(max(texts.values()) for texts in case["ttir"].values()))
    monkeypatch.setattr(launches, "triton_source", lambda *_: SimpleNamespace(code=lambda: code))
    arrays = {
        one["name"]: OnGpu(true.arrays.get(one["name"], [0]), "torch.int32" if one["type"][1] == "i" else "torch.half")
        for one in case["arguments"]
        if one["type"].startswith("*")
    }
    names = [*arrays, *true.arguments]
    kernel = SimpleNamespace(__name__=name, arg_names=names, params=[parameter(one) for one in names])
    configurations = (Configuration({}), Configuration({}, warps=8))
    launch = TritonLaunch(kernel, {**arrays, **true.arguments}, true.grid, configurations)
    return launch, code.program(true), arrays


@pytest.mark.parametrize("name", ["fused_moe", "paged_attention", "selective_scan", "embedding"])
def test_integers_of_a_gpu_that_decide_the_program_are_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, true, arrays = launched(name, monkeypatch)
    for configuration in launch.configurations:
        found = TritonKernel(launch, configuration).program({})
        assert (found.accesses, found.grid) == (true.accesses, true.grid)
    deciding = {one for one, array in arrays.items() if array.copied}
    assert deciding == set(triton_data.launch_of(triton_data.stored(name)).arrays)
    assert {array.copied for array in arrays.values()} == {0, 1}
    perflex.triton.rank(launch, load_machine("A100-80GB"))
    assert launch.read.keys() == deciding


@pytest.mark.parametrize("why", ["large", "strided", "captured", "fake"])
def test_what_cannot_be_read_is_named(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    launch, _, arrays = launched("embedding", monkeypatch)
    index = arrays["index_ptr"]
    if why == "large":
        monkeypatch.setattr(launches, "_MOST_COPIED", 4 * index.numel() - 1)
    elif why == "strided":
        index.held = np.repeat(index.held, 2)[::2]
    elif why == "captured":
        torch = SimpleNamespace(cuda=SimpleNamespace(is_current_stream_capturing=lambda: True))
        monkeypatch.setitem(sys.modules, "torch", torch)
    else:
        index.fake_mode = None  # type: ignore[attr-defined]
    with pytest.raises(UnsupportedKernelError, match="depends on array index_ptr; give its contents as a NumPy array"):
        perflex.triton.rank(launch, load_machine("A100-80GB"))
    assert (index.copied, launch.read["index_ptr"]) == (0, None)
