"""``perflex prune``: tables, files, measuring, and words that cannot be read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perflex import Promise
from perflex.__main__ import main
from perflex.cli.prune import read_keep
from support.saved_calibrations import saved_text

if TYPE_CHECKING:
    from perflex import Device

TOP = Path(__file__).parents[2]
SPACE = """
from pathlib import Path
import sys
sys.path.append({folder!r})
from matmul_space import matmul
from perflex import VariantSpace

space = VariantSpace(
    matmul,
    {{"wide": (8, 16), "high": (4,), "columns": (1, 2), "rows": (1, 2), "depth": (16,), "unroll": (1,)}},
    ["rows <= columns"],
)

def made():
    return space

number = 5
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("prune")
    text = saved_text("matmul_sq_amd_epyc_4cores_intel_opencl")
    (folder / "matmul.yaml").write_text(text, encoding="utf-8")
    (folder / "some_space.py").write_text(SPACE.format(folder=str(TOP / "examples")), encoding="utf-8")
    return [str(folder / "matmul.yaml"), f"{folder / 'some_space.py'}:space", "n=128"]


def run(capfd: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["prune", *words])
    out, err = capfd.readouterr()
    return code, out, err


def test_table_and_files(words: list[str], capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, out, _ = run(capfd, *words, "--keep", "2", "--out", str(tmp_path / "out"))
    assert code == 0
    assert "2 of 6: those predicted fastest" in out
    assert "left out: constraint: rows <= columns (2)" in out
    assert (tmp_path / "out" / "pruning.csv").read_text(encoding="utf-8").count("\n") == 7
    assert (tmp_path / "out" / "pruning.png").read_bytes()[:4] == b"\x89PNG"


def test_json_of_a_function(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    here = run(capfd, *words, "--keep", "50%", "--json")
    there = run(capfd, words[0], words[1].replace(":space", ":made"), words[2], "--keep", "50%", "--json")
    assert here[0] == there[0] == 0
    content = json.loads(here[1])
    # The second in which each was made may be another one.
    assert {**content, "date": ""} == {**json.loads(there[1]), "date": ""}
    assert content["variants"] == 6
    assert len(content["kept"]) == 3
    assert [row["rank"] for row in content["table"]] == [1, 2, 3, 4, 5, 6]
    assert all(row["measured_s"] is None for row in content["table"])


def test_measuring(words: list[str], capfd: pytest.CaptureFixture[str], default_device: Device) -> None:
    code, out, _ = run(
        capfd, *words, "--keep", "promise:0.1,0.5", "--measure", "3", "--device", str(default_device.name), "--json"
    )
    assert code == 0
    content = json.loads(out)
    assert content["check"]["measured"] == 3 + len(content["kept"]) - 1
    assert len(content["batch"]) == 3
    # Beside the batch those that were kept and timed afterwards.
    timed = {row["variant"] for row in content["table"] if row["measured_s"] is not None}
    assert timed == {*content["batch"], *content["kept"]}
    assert content["check"]["measured"] == len(timed)


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("5%", 0.05),
        ("12.5%", 0.125),
        ("20", 20),
        ("promise", Promise()),
        ("promise:0.1", Promise(0.1)),
        ("promise:0.1,0.9", Promise(0.1, 0.9)),
    ],
)
def test_how_many_to_keep(word: str, expected: object) -> None:
    assert read_keep(word) == expected
    assert type(read_keep(word)) is type(expected)


@pytest.mark.parametrize(
    ("ending", "message"),
    [(":nothing", "has no 'nothing'; it has"), (":number", "is a int; it must be"), ("x:space", "there is no file")],
)
def test_bad_spaces(words: list[str], capfd: pytest.CaptureFixture[str], ending: str, message: str) -> None:
    code, _, err = run(capfd, words[0], words[1].removesuffix(":space") + ending, "n=128")
    assert code == 2
    assert message in " ".join(err.split())
