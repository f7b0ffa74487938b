"""``perflex layers``: conditions, volumes, series and picture from the command line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from perflex.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

KERNELS = '''
import loopy as lp
import numpy as np


def jacobi():
    kernel = lp.make_kernel(
        "{[k,j,i]: 1<=k<m-1 and 1<=j<n-1 and 1<=i<n-1}",
        """b[k,j,i] = a[k-1,j,i] + a[k+1,j,i] + a[k,j-1,i] + a[k,j+1,i] + a[k,j,i-1] + a[k,j,i+1]""",
        [lp.GlobalArg("a,b", np.float64, shape="(m,n,n)"), lp.ValueArg("m,n", np.int32)],
        assumptions="m>=3 and n>=3", name="jacobi", lang_version=(2018, 2))
    return lp.prioritize_loops(kernel, "k,j,i")


def irregular():
    return lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = a[(37*i) % 1024]",
        [lp.GlobalArg("a,b", np.float64, shape="(n,)"), lp.ValueArg("n", np.int32)],
        assumptions="n>=1", lang_version=(2018, 2))
'''


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return f"{path}:jacobi"


def test_json_has_conditions_and_volumes(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", kernel, "--machine", "clx", "m=100", "n=1000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["volumes"] == {"L1": 56.0, "L2": 56.0, "L3": 40.0, "memory": 40.0}
    rows = {(row["level"], row["loop"]): row for row in found["conditions"]}
    assert rows["L1", "j"]["inequality"] == "3*n <= 2050"
    assert (rows["L1", "j"]["largest"], rows["L1", "j"]["symbol"], rows["L1", "j"]["met"]) == (683, "n", False)
    assert rows["L2", "k"]["largest"] == 181
    assert rows["L3", "all"]["inequality"] == "m*n^2 < 917504"
    assert (found["kernel"], found["machine"], found["iterations"]) == ("jacobi", "Gold-6248", 98 * 998**2)
    assert found["cycles"]["L3"] == 2.0


def test_text_says_the_same(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", kernel, "--machine", "rome", "m=100", "n=200", "--cores", "4"]) == 0
    shown = capsys.readouterr().out
    for text in ("kernel jacobi at m=100, n=200 on EPYC-7452, 4 core(s)", "2*n^2 - n <= 262144", "n = 362", "not"):
        assert text in shown
    rows = [line.split() for line in shown.splitlines()]
    assert ["L3", "-", "memory", "16", "8", "24"] in [row[:6] for row in rows]
    assert ["L1", "-", "L2", "32", "8"] in [row[:5] for row in rows]


def test_blocks_and_folds(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["layers", kernel, "--machine", "clx", "m=4000", "n=1000", "--json"]
    assert main([*command, "--block", "j=200", "--block", "i=300"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["blocks"] == {"j": 200, "i": 300}
    assert 24.0 < found["volumes"]["memory"] < 28.0
    assert any(row["symbol"] in {"i", "j"} for row in found["conditions"])
    assert main([*command, "--fold", "k=2", "--fold", "j=4"]) == 0
    assert json.loads(capsys.readouterr().out)["volumes"] != found["volumes"]


def test_a_series_and_its_picture(kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "layers.png"
    command = ["layers", kernel, "--machine", "clx", "m=1000", "--series", "n=100:260:40"]
    assert main([*command, "--out", str(picture)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["100", "56", "40", "24", "24"], ["140", "56", "40", "24", "24"], ["180", "56", "40", "24", "24"],
    ]  # fmt: skip
    assert lines[5].split() == ["220", "56", "40", "40", "24"]
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*command, "--json"]) == 0
    series = json.loads(capsys.readouterr().out)["series"]
    assert [entry["n"] for entry in series] == [100, 140, 180, 220, 260]
    assert series[-1]["volumes"]["L3"] == 40.0


def test_thresholds_stand_where_the_series_passes_them(kernel: str) -> None:
    from perflex import estimate_ecm
    from perflex.analysis.volume_series import thresholds
    from perflex.cli.arguments import load_kernel
    from perflex.features import extract_scop

    scop = extract_scop(load_kernel(kernel))
    rows = [(n, estimate_ecm(scop, {"m": 1000, "n": n}, "clx")) for n in range(100, 1000, 50)]
    assert thresholds(rows, "n") == {("L2", "k"): 181, ("L3", "k"): 677, ("L1", "j"): 683}
    assert thresholds(rows[4:], "n") == {("L3", "k"): 677, ("L1", "j"): 683}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--machine", "clx", "m=10"], "n"),
        (["--machine", "V100", "m=10", "n=10"], "no cache levels"),
        (["--machine", "clx", "m=10", "n=10", "--out", "x.png"], "--series"),
        (["--machine", "clx", "m=10", "n=10", "--block", "x=4"], "no loop 'x'"),
        (["--machine", "clx", "m=10", "--series", "n=1-5"], "cannot read --series"),
        (["--machine", "clx", "m=10", "--series", "n=10:20:5", "--out", "x.txt"], "--out x.png"),
        (["--machine", "clx", "m=10", "--series", "n=10:20:5", "--out", "nowhere/x.png"], "cannot write"),
    ],
)
def test_mistakes_are_one_line(kernel: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", kernel, *words]) != 0
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_size_that_the_kernel_has_not_is_remarked_on(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", kernel, "--machine", "clx", "m=10", "n=10", "x=7"]) == 0
    shown = capsys.readouterr()
    assert "the kernel has no size x; its sizes are" in shown.err
    assert "x=7" not in shown.out


def test_an_irregular_access_is_named(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["layers", kernel.replace("jacobi", "irregular"), "--machine", "clx", "n=5000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "% 1024]" in lines[lines.index("not followed exactly") + 1]
