"""The table of a kernel's source lines: what each does, and what the prediction says of it."""

import json
from pathlib import Path

import pytest

from perflex import load_calibration, source_kernel
from perflex.__main__ import main
from perflex.analysis.source_lines import source_lines
from perflex.features import count_features

EXAMPLES = Path(__file__).parents[2] / "examples"
N = 64


def tiled():
    return source_kernel(EXAMPLES / "matmul.cl", "tiled", local=[16, 16], global_size=["n", "n"])


def test_lines_do_what_the_source_says():
    found = {line.text: line for line in source_lines(tiled(), {"n": N})}
    tiles = N**3 // 16  # elements of a that work-items copy, one each for every block of 16
    assert {text: line.accesses for text, line in found.items()} == {
        "a_tile[y][x] = a[row * n + block * TILE + x];": tiles,
        "b_tile[y][x] = b[(block * TILE + y) * n + column];": tiles,
        "sum += a_tile[y][k] * b_tile[k][x];": 0,
        "c[row * n + column] = sum;": N**2,
    }
    product = found["sum += a_tile[y][k] * b_tile[k][x];"]
    assert (product.local_accesses, product.operations, product.share) == (2 * N**3, N**3, None)
    assert found["c[row * n + column] = sum;"].bytes == 4 * N**2
    numbers = [line.line for line in found.values()]
    assert numbers == sorted(numbers)
    written = (EXAMPLES / "matmul.cl").read_text().splitlines()
    assert [written[number - 1].strip() for number in numbers] == list(found)


def test_lines_together_are_the_kernel():
    found = source_lines(tiled(), {"n": N})
    names = ["f_mem_access_global_load", "f_mem_access_global_store"]
    counts = [entry.value for entry in count_features(tiled(), {"n": N}, identifiers=names)]
    assert sum(line.accesses for line in found) == sum(counts)


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_shares_are_those_of_the_time_without_the_line():
    found = source_lines(tiled(), {"n": 1024}, load_calibration("general_gpu"), machine="V100")
    shares = {line.text: line.share for line in found}
    assert all(share is not None and 0 <= share < 1 for share in shares.values())
    assert max(shares, key=lambda text: shares[text] or 0) == "sum += a_tile[y][k] * b_tile[k][x];"


def test_the_command_shows_them(capfd):
    words = ["predict", "--machine", "V100", f"{EXAMPLES / 'matmul.cl'}:tiled", "--local", "16,16", "--global", "n,n"]
    assert main([*words, "n=1024", "--lines"]) == 0
    shown = capfd.readouterr().out
    assert "sum += a_tile[y][k] * b_tile[k][x];" in shown
    assert "shorter without the line" in shown
    assert main([*words, "n=1024", "--lines", "--json"]) == 0
    (entry,) = json.loads(capfd.readouterr().out)
    assert [line["line"] for line in entry["lines"]] == [25, 26, 29, 32]
    loopy = f"{EXAMPLES / 'matmul.py'}:naive"
    assert main(["predict", "--machine", "V100", loopy, "n=64", "--lines"]) == 2
    assert "is none" in capfd.readouterr().err
