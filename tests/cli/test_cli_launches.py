"""Launches of Triton's kernels on the command line; products in closed form stand for Triton's code."""

from __future__ import annotations

import csv
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

import perflex
from perflex.__main__ import main
from perflex.cli import kernel_files
from perflex.cli.options import Told
from perflex.triton import Configuration, LaunchedKernel, TritonKernel, TritonLaunch
from support.closed_form_products import launched

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

FAST, SLOW, LARGE, CLUSTERS, EIGHT = (
    Configuration({"M": size, "N": size, "K": min(size, 64)}, warps, 3, options)
    for size, warps, options in ((128, 4, {}), (32, 4, {}), (512, 4, {}), (64, 4, {"num_ctas": 2}), (64, 8, {}))
)
HERE = ["-m", "A100-80GB", "one.py:launch", "n=2048"]


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> LaunchedKernel:
    def launch(n: int, m: int = 4) -> None:
        """Stands for one of a user's."""

    def capture(_make: Any, sizes: Mapping[str, int]) -> TritonLaunch:
        function = SimpleNamespace(__name__="kernel")
        return TritonLaunch(function, dict(sizes), 1, (SLOW, FAST, LARGE, CLUSTERS, EIGHT))

    monkeypatch.setattr("perflex.features.from_triton.launches.captured_launch", capture)
    monkeypatch.setattr(TritonKernel, "_launched", property(launched))
    found = LaunchedKernel(launch)
    monkeypatch.setattr("perflex.cli.kernel_files.load_kernel", lambda _word: found)
    monkeypatch.setattr("perflex.cli.kernel_files._made", lambda *_: found)
    return found


def test_sizes_are_parameters_of_the_function_or_choose_a_configuration(kernel: LaunchedKernel) -> None:
    assert (kernel.parameters, kernel.optional) == (("n",), {"m"})
    found = kernel.launch({"n": 8, "M": 64})
    assert found.arguments == {"n": 8}
    assert found.configurations == (CLUSTERS, EIGHT)
    assert kernel.launch({"n": 8, "num_warps": 8}).configurations == (EIGHT,)
    with pytest.raises(perflex.PerflexError, match="no configuration has M=7; the first is M=32"):
        kernel.launch({"n": 8, "M": 7})
    with pytest.raises(perflex.PerflexError, match="launch has 5 configurations; choose one, such as M=32"):
        kernel.program({"n": 8})


@pytest.mark.usefixtures("kernel")
def test_rank_orders_configurations_and_names_what_cannot_be_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", *HERE]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Variants by predicted time"
    names = [line.partition("  ")[0] for line in lines[2:5]]
    assert names == [str(FAST), str(EIGHT), str(SLOW)]
    said = [line for line in lines if line.startswith("left out: ")]
    assert [str(one) in line for one, line in zip((LARGE, CLUSTERS), said, strict=True)] == [True, True]
    assert "B of shared memory, A100-80GB has 166912 B for a program" in said[0]
    assert "num_ctas=2 cannot be predicted" in said[1]
    assert "doubtful: no sample of this device" in lines[-1]


@pytest.mark.usefixtures("kernel")
def test_rank_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rank", *HERE, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["settings"]["M"] for row in rows[:3]] == [128, 64, 32]
    assert (rows[0]["rank"], rows[0]["knowledge"], rows[0]["registers"]) == (1, "code", None)
    assert [(row["name"], row["possible"]) for row in rows[3:]] == [(str(LARGE), False), (str(CLUSTERS), True)]
    assert "B of shared memory" in rows[3]["reason"]


@pytest.mark.usefixtures("kernel")
def test_a_few_are_kept_compiled_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for command in ("rank", "prune"):
        assert main([command, *HERE, "--keep", "1", "--compile", "2", "--out", str(tmp_path / command)]) == 0
        (heading, *shown) = capsys.readouterr().out.splitlines()[1:4]
        assert "registers  shared memory (B)  spilt (B)" in heading
        assert shown[0].startswith(str(FAST))
        assert shown[1].startswith("1 of 2: ")
        with (tmp_path / command / "ranking.csv").open() as file:
            rows = list(csv.DictReader(file))
        assert [(row["variant"], row["kept"], row["registers"]) for row in rows] == [
            (str(FAST), "True", "200"), (str(SLOW), "False", "200")
        ]  # fmt: skip
        assert "it needs 1048576 B of shared memory" in (tmp_path / command / "report.html").read_text()


@pytest.mark.usefixtures("kernel")
def test_rank_fails_where_nothing_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    for more in ([], ["--json"]):
        assert main(["rank", *HERE, "M=512", *more]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert f"none of the 1 variants can be described; {LARGE}: kernel" in err
        assert "A100-80GB has 166912 B for a program; take smaller tiles or fewer stages" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["rank", "one.py:launch", "two.py:launch"], "a launch of a Triton kernel is ranked alone"),
        (["rank", "one.py:launch", "--time"], "perflex does not time Triton kernels"),
        (["tune", "one.py:launch"], "perflex does not time Triton kernels; perflex.tune(..., measure=) takes"),
        (["rank", "one.py:launch", "--caches", "cold"], "Triton kernels are predicted as they were timed"),
        (["predict", "one.py:launch", "--time"], "perflex does not time Triton kernels"),
        (["volumes", "one.py:launch"], "one.py:launch is a program of tiles, without work-items"),
        (["roofline", "one.py:launch"], "one.py:launch is a program of tiles, without work-items"),
    ],
)
@pytest.mark.usefixtures("kernel")
def test_what_launches_cannot_be_asked(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*words, "--machine", "A100-80GB", "n=8"]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("machine", "capability"), [(None, 80), ("H100-SXM", 90), ("MI210", 80)])
def test_a_launch_is_counted_for_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: str | None, capability: int
) -> None:
    (tmp_path / "launches.py").write_text("def launch():\n    pass\n", encoding="utf-8")
    monkeypatch.setattr(kernel_files, "_has_triton", lambda _: True)
    monkeypatch.setattr(kernel_files, "TOLD", SimpleNamespace(get=lambda: Told(machine=machine)))
    assert cast("LaunchedKernel", kernel_files.load_kernel(f"{tmp_path}/launches.py:launch")).capability == capability
