"""``perflex layers``: conditions, volumes, series and picture from the command line."""

from pathlib import Path

import pytest

from perflex import estimate_ecm
from perflex.analysis.volume_series import thresholds
from perflex.cli.kernel_files import load_kernel
from perflex.features import extract_scop

# A star of seven points in double precision, of M planes of N rows of N points.
JACOBI = f"{Path(__file__).parents[2] / 'examples' / 'jacobi.py'}:seven_point"
IRREGULAR = """
import loopy as lp
import numpy as np

def irregular():
    return lp.make_kernel(
        "{[i]: 0<=i<n}", "b[i] = a[(37*i) % 1024]",
        [lp.GlobalArg("a,b", np.float64, shape="(n,)"), lp.ValueArg("n", np.int32)],
        assumptions="n>=1", lang_version=(2018, 2))
"""


def test_json_has_conditions_and_volumes(content):
    found = content("layers", JACOBI, "--machine", "clx", "M=100", "N=1000")
    assert found["volumes"] == {"L1": 56.0, "L2": 56.0, "L3": 40.0, "memory": 40.0}
    rows = {(row["level"], row["loop"]): row for row in found["conditions"]}
    assert rows["L1", "j"]["inequality"] == "3*N <= 2050"
    assert (rows["L1", "j"]["largest"], rows["L1", "j"]["symbol"], rows["L1", "j"]["met"]) == (683, "N", False)
    assert rows["L2", "k"]["largest"] == 181
    assert rows["L3", "all"]["inequality"] == "M*N^2 < 917504"
    assert (found["machine"], found["iterations"], found["cycles"]["L3"]) == ("Gold-6248", 98 * 998**2, 2.0)


def test_text_says_the_same(shown):
    text = shown("layers", JACOBI, "--machine", "rome", "M=100", "N=200", "--cores", "4")
    for part in ("on EPYC-7452, 4 cores, at M=100, N=200", "2*N^2 - N <= 262144", "N = 362", "not"):
        assert part in text
    rows = [line.split() for line in text.splitlines()]
    # Planes on either side of three boundaries between the cores' parts are loaded twice: 6 of 98.
    assert ["L3", "-", "memory", "16.495", "8.000", "24.495"] in [row[:6] for row in rows]
    assert ["L1", "-", "L2", "32.000", "8.000"] in [row[:5] for row in rows]


@pytest.mark.parametrize("command", ["layers", "block", "features"])
def test_sizes_that_no_kernel_has_are_refused(command, refused):
    told = refused(command, JACOBI, "--machine", "clx", "M=4000", "N=1000", "x=7")
    assert "the kernel has no size x; its sizes are M, N\n" in told


def test_blocks(content):
    words = ["layers", JACOBI, "--machine", "clx", "M=4000", "N=1000"]
    found = content(*words, "--block", "j=200", "--block", "i=300")
    assert found["blocks"] == {"j": 200, "i": 300}
    assert 24.0 < found["volumes"]["memory"] < 28.0
    assert any(row["symbol"] in {"i", "j"} for row in found["conditions"])


def test_a_series_and_its_picture(shown, content, tmp_path):
    picture = tmp_path / "layers.png"
    words = ["layers", JACOBI, "--machine", "clx", "M=1000", "N=100:260:40"]
    lines = shown(*words, "--out", picture).splitlines()
    assert [[float(word) for word in line.split()] for line in lines[3:7]] == [
        *([n, 56, 40, 24, 24] for n in (100, 140, 180)), [220, 56, 40, 40, 24],
    ]  # fmt: skip
    assert picture.read_bytes().startswith(b"\x89PNG")
    series = content(*words)["series"]
    assert [entry["N"] for entry in series] == [100, 140, 180, 220, 260]
    assert series[-1]["volumes"]["L3"] == 40.0


def test_several_series_are_all_combinations(content, refused):
    words = ["layers", JACOBI, "--machine", "clx", "M=1000,2000", "N=100:140:40"]
    series = content(*words)["series"]
    assert [(entry["M"], entry["N"]) for entry in series] == [(1000, 100), (1000, 140), (2000, 100), (2000, 140)]
    assert "--out is for the picture of one series" in refused(*words, "--out", "x.png")
    together = content("layers", JACOBI, "--machine", "clx", "M,N=100:140:40")["series"]
    assert [(entry["M"], entry["N"]) for entry in together] == [(100, 100), (140, 140)]


def test_thresholds_stand_where_the_series_passes_them():
    scop = extract_scop(load_kernel(JACOBI))
    rows = [(n, estimate_ecm(scop, {"M": 1000, "N": n}, "clx")) for n in range(100, 1000, 50)]
    assert thresholds(rows, "N") == {("L2", "k"): 181, ("L3", "k"): 677, ("L1", "j"): 683}
    assert thresholds(rows[4:], "N") == {("L3", "k"): 677, ("L1", "j"): 683}


def test_an_irregular_access_is_named(shown, tmp_path):
    (tmp_path / "k.py").write_text(IRREGULAR)
    lines = shown("layers", f"{tmp_path / 'k.py'}:irregular", "--machine", "clx", "n=5000").splitlines()
    assert "% 1024]" in lines[lines.index("not followed exactly") + 1]
