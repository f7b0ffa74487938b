"""``perflex report``: files in, one page out, errors in one line; what prune and roofline print is what it reads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perflex.__main__ import main
from support.html_structure import checked
from support.report_files import pruning_content, roofline_content
from support.saved_calibrations import saved_text

TOP = Path(__file__).parents[2]
SPACE = """
import sys
sys.path.append({folder!r})
from matmul_space import matmul
from perflex import VariantSpace

settings = {{"wide": (8, 16), "high": (4,), "columns": (1, 2), "rows": (1,), "depth": (16,), "unroll": (1,)}}
space = VariantSpace(matmul, settings)
"""


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_what_roofline_prints_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    kernel = f"{TOP / 'examples' / 'transposes.py'}:tiled"
    code, printed, _ = run(capsys, "roofline", kernel, "n=1024", "--machine", "V100", "--time", "bound", "--json")
    assert code == 0
    (tmp_path / "r.json").write_text(printed, encoding="utf-8")
    assert set(roofline_content()) == set(json.loads(printed))
    assert set(roofline_content()["kernels"][0]) - {"f_txn_x"} == set(json.loads(printed)["kernels"][0])
    code, shown, errors = run(capsys, "report", tmp_path / "r.json", "--out", tmp_path / "page.html")
    assert (code, shown.strip()) == (0, str(tmp_path / "page.html")), errors
    found = checked((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert found.table("Kernels and their limits").column("limiter") == ["L1"]
    assert found.notices == [
        ("remark", "Remark: times are the least that the ceilings allow; nothing was measured"),
    ]


def test_what_prune_prints_is_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = saved_text("matmul_sq_amd_epyc_4cores_intel_opencl")
    (tmp_path / "c.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "space.py").write_text(SPACE.format(folder=str(TOP / "examples")), encoding="utf-8")
    words = ["prune", tmp_path / "c.yaml", f"{tmp_path / 'space.py'}:space", "n=128", "--keep", "2", "--json"]
    code, printed, errors = run(capsys, *words)
    assert code == 0, errors
    content = json.loads(printed)
    assert set(pruning_content()) - {"check"} == set(content)
    assert set(pruning_content()["table"][0]) == set(content["table"][0])
    (tmp_path / "p.json").write_text(printed, encoding="utf-8")
    code, _, errors = run(capsys, "report", tmp_path / "p.json", tmp_path / "c.yaml", "-o", tmp_path / "page.html")
    assert code == 0, errors
    found = checked((tmp_path / "page.html").read_text(encoding="utf-8"))
    assert found.table("Kept variants").column("variant") == content["kept"]
    assert content["device"]["driver"] in found.text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["no-such.yaml"], "cannot read"),
        (["no-such-file"], "there is no file"),
        (["bad.json"], "damaged"),
        (["fine.json", "--out", "no/folder/x.html"], "cannot write"),
    ],
)
def test_errors_are_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bad.json").write_text("{", encoding="utf-8")
    Path("fine.json").write_text(json.dumps(roofline_content()), encoding="utf-8")
    code, shown, errors = run(capsys, "report", *words)
    assert code != 0
    assert shown == ""
    assert message in errors
    assert len(errors.strip().splitlines()) == 1
    assert not Path("report.html").exists()
