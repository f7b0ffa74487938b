"""Launches of Triton's kernels on the command line, with predictions as they come."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import perflex.triton
from perflex import Calibration
from perflex.__main__ import main
from perflex.cli import kernel_files, launches
from perflex.triton import Configuration, LaunchedKernel, Prediction, TileResources, TritonLaunch

if TYPE_CHECKING:
    from collections.abc import Mapping

FAST, SLOW, LARGE = (Configuration({"BLOCK": size}, warps, 3) for size, warps in ((64, 4), (128, 4), (128, 8)))


class Shown(list[str]):
    """A terminal that keeps what it shows."""

    def show(self, *lines: str, **_: Any) -> None:
        self.extend(lines)


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> LaunchedKernel:
    def launch(n: int, m: int = 4) -> None:
        """Stands for one of a user's."""

    def capture(_make: Any, sizes: Mapping[str, int]) -> TritonLaunch:
        function = SimpleNamespace(__name__="kernel")
        return TritonLaunch(function, dict(sizes), 1, (SLOW, FAST, LARGE))

    def predict(found: TritonLaunch, _machine: Any, **_: Any) -> list[Prediction]:
        known = {str(FAST): 1e-4, str(SLOW): 2e-4}
        return [
            Prediction(one, known[str(one)])
            if str(one) in known
            else Prediction(one, math.inf, "it is too large", False)
            for one in found.configurations
        ]

    monkeypatch.setattr("perflex.features.from_triton.launches.captured_launch", capture)
    monkeypatch.setattr(perflex.triton, "predict_configurations", predict)
    return LaunchedKernel(launch)


def test_sizes_are_parameters_of_the_function_or_choose_a_configuration(kernel: LaunchedKernel) -> None:
    assert (kernel.parameters, kernel.optional) == (("n",), {"m"})
    found = kernel.launch({"n": 8, "BLOCK": 128})
    assert found.arguments == {"n": 8}
    assert found.configurations == (SLOW, LARGE)
    assert kernel.launch({"n": 8, "num_warps": 8}).configurations == (LARGE,)
    with pytest.raises(perflex.PerflexError, match="no configuration has BLOCK=7; the first is BLOCK=128"):
        kernel.launch({"n": 8, "BLOCK": 7})
    with pytest.raises(perflex.PerflexError, match="launch has 3 configurations; choose one, such as BLOCK=128"):
        kernel.program({"n": 8})


def test_rank_orders_configurations_and_names_what_is_not_possible(kernel: LaunchedKernel) -> None:
    shown: Any = Shown()
    launches.rank_launch(shown, kernel, {"n": 8}, SimpleNamespace(), as_json=False)  # type: ignore[arg-type]
    assert shown == [
        "1. BLOCK=64 num_warps=4 num_stages=3: 100 us (1.00 x)",
        "2. BLOCK=128 num_warps=4 num_stages=3: 200 us (2.00 x)",
        "not possible: BLOCK=128 num_warps=8 num_stages=3: it is too large",
    ]


def test_rank_prints_json(kernel: LaunchedKernel, capsys: pytest.CaptureFixture[str]) -> None:
    launches.rank_launch(Shown(), kernel, {"n": 8}, SimpleNamespace(), as_json=True)  # type: ignore[arg-type]
    rows = json.loads(capsys.readouterr().out)
    assert [row["configuration"]["BLOCK"] for row in rows] == [64, 128, 128]
    assert rows[0]["predicted_s"] == 1e-4
    assert rows[2] == {
        "rank": 3, "configuration": {"BLOCK": 128, "num_warps": 8, "num_stages": 3}, "reason": "it is too large"
    }  # fmt: skip


def test_rank_compiles_the_best(
    kernel: LaunchedKernel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def predict(found: TritonLaunch, _machine: Any, compiled: int) -> list[Prediction]:
        codes = [TileResources(registers=255, spilt_bytes=16, local_bytes=40960), None, None]
        assert compiled == 1
        return [Prediction(one, 1e-4, resources=code) for one, code in zip(found.configurations, codes, strict=True)]

    monkeypatch.setattr(perflex.triton, "predict_configurations", predict)
    shown: Any = Shown()
    for as_json in (False, True):
        launches.rank_launch(shown, kernel, {"n": 8}, SimpleNamespace(), compiled=1, as_json=as_json)  # type: ignore[arg-type]
    assert shown[0].endswith("(1.00 x), compiled: 255 registers, 40960 B of shared memory, 16 B spilt")
    assert shown[1].endswith("(1.00 x)")
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["compiled"] == {"registers": 255, "spilt_bytes": 16, "local_bytes": 40960}
    assert "compiled" not in rows[1]


def test_rank_fails_where_nothing_is_predicted(kernel: LaunchedKernel, capsys: pytest.CaptureFixture[str]) -> None:
    for as_json in (False, True):
        shown: Any = Shown()
        with pytest.raises(perflex.errors.MachineError, match="launch: none of 1 configurations can be predicted"):
            launches.rank_launch(shown, kernel, {"n": 8, "num_warps": 8}, SimpleNamespace(), as_json=as_json)  # type: ignore[arg-type]
        assert shown == ([] if as_json else ["not possible: BLOCK=128 num_warps=8 num_stages=3: it is too large"])
    assert json.loads(capsys.readouterr().out)[0]["reason"] == "it is too large"


def test_rank_tells_what_has_no_prediction_and_which_doubts_there_are(
    kernel: LaunchedKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def predict(found: TritonLaunch, _machine: Any, **_: Any) -> list[Prediction]:
        first, *others = found.configurations
        return [Prediction(first, math.inf, "clusters"), *(Prediction(one, 1e-4, doubts=("far",)) for one in others)]

    monkeypatch.setattr(perflex.triton, "predict_configurations", predict)
    shown: Any = Shown()
    launches.rank_launch(shown, kernel, {"n": 8}, SimpleNamespace(), as_json=False)  # type: ignore[arg-type]
    assert shown[2:] == [f"not predicted: {SLOW}: clusters", "doubtful: far"]


def test_equal_reasons_are_told_once(kernel: LaunchedKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    def predict(found: TritonLaunch, _machine: Any, **_: Any) -> list[Prediction]:
        first, *others = found.configurations
        return [Prediction(first, 1e-4), *(Prediction(one, math.inf, "a histogram") for one in others)]

    monkeypatch.setattr(perflex.triton, "predict_configurations", predict)
    shown: Any = Shown()
    launches.rank_launch(shown, kernel, {"n": 8}, SimpleNamespace(), as_json=False)  # type: ignore[arg-type]
    assert shown[1:] == [f"not predicted: {FAST} and 1 more: a histogram"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rank", "one.py:launch", "two.py:launch"], "a launch of a Triton kernel is ranked alone"),
        (["rank", "one.py:launch", "--time"], "perflex does not time Triton kernels"),
        (["rank", "one.py:launch", "--keep", "3"], "all configurations of a launch are shown"),
        (["predict", "one.py:launch", "--time"], "perflex does not time Triton kernels"),
        (["volumes", "one.py:launch"], "one.py:launch is a program of tiles, without work-items"),
        (["roofline", "one.py:launch"], "one.py:launch is a program of tiles, without work-items"),
    ],
)
def test_what_launches_cannot_be_asked(
    words: list[str],
    said: str,
    kernel: LaunchedKernel,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("perflex.cli.kernel_files.load_kernel", lambda _word: kernel)
    assert main([*words, "--machine", "A100-80GB", "n=8"]) == 2
    assert said in capsys.readouterr().err


def test_kernels_of_no_launch_are_not_compiled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("perflex.cli.kernel_files.load_kernel", lambda _word: SimpleNamespace())
    assert main(["rank", "one.py:kernel", "--compile", "2", "--machine", "A100-80GB", "n=8"]) == 2
    assert "--compile is for a function that launches a Triton kernel; leave it out" in capsys.readouterr().err


def test_a_calibration_that_is_given_predicts_for_the_machine_that_is_named() -> None:
    other_model = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    own = launches.calibration_of_launch(other_model, "A100-80GB", given=False)
    assert own.device == {"name": "A100-80GB"}
    assert launches.calibration_of_launch(own, None) is own
    other = launches.calibration_of_launch(own, "H100-SXM")
    assert (other.fit, other.machine) == (own.fit, "H100-SXM")


def test_usual_values_predict_for_a_machine_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text((Path(__file__).parents[2] / "calib_data/machines/H100-SXM.yaml").read_text())
    loaded = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    found = launches.calibration_of_launch(loaded, str(path), given=False)
    facts, values = perflex.triton.model_facts(found)
    assert facts.compute_capability == 9.0
    assert values == pytest.approx(dict(perflex.load_model("general_tile").usual))


@pytest.mark.parametrize(("machine", "capability"), [(None, 80), ("H100-SXM", 90), ("MI210", 80)])
def test_a_launch_is_counted_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None, capability: int
) -> None:
    (tmp_path / "launches.py").write_text("def launch():\n    pass\n", encoding="utf-8")
    monkeypatch.setattr(kernel_files, "_has_triton", lambda _: True)
    monkeypatch.setattr(kernel_files, "machine_given", lambda: machine)
    assert cast("LaunchedKernel", kernel_files.load_kernel(f"{tmp_path}/launches.py:launch")).capability == capability
