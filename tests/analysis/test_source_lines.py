"""The table of a kernel's source lines: what each does, and what the prediction says of it."""

import json
from pathlib import Path

import pytest

from perflex import Calibration, source_kernel
from perflex.__main__ import main
from perflex.analysis.source_lines import source_lines
from perflex.features import count_features
from support.html_structure import checked

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


def test_arrays_in_registers_are_no_memory():
    text = """
kernel void k(global const float *a, global float *b, global const int *m) {
    float sums[4];
    for (int j = 0; j < 4; ++j) sums[j] = a[4 * get_global_id(0) + j];
    b[get_global_id(0)] = sums[m[get_global_id(0)]];
}
"""
    found = source_lines(source_kernel(text, "k", local=32, groups=2), {})
    counts = [(line.accesses, line.bytes, line.local_accesses, str(line.certainty)) for line in found]
    assert counts == [(4 * 64, 16 * 64, 0, "exact"), (2 * 64, 8 * 64, 0, "exact")]


@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_shares_are_those_of_the_time_without_the_line():
    found = source_lines(tiled(), {"n": 1024}, Calibration.load("general_gpu"), machine="V100")
    shares = {line.text: line.share for line in found}
    assert all(share is not None and 0 <= share < 1 for share in shares.values())
    assert max(shares, key=lambda text: shares[text] or 0) == "sum += a_tile[y][k] * b_tile[k][x];"


@pytest.mark.parametrize("command", [["features"], ["predict", "--machine", "V100"]], ids=" ".join)
def test_the_commands_show_them(command, capfd):
    words = [*command, f"{EXAMPLES / 'matmul.cl'}:tiled", "--local", "16,16", "--global", "n,n", "n=1024", "--lines"]
    assert main(words) == 0
    shown = capfd.readouterr().out
    (product,) = [line.split("b_tile[k][x];")[1].split() for line in shown.splitlines() if "b_tile[k][x]" in line]
    assert product[:4] == [str(1024**3), "0", "0", str(2 * 1024**3)]
    predicted = command[0] == "predict"
    assert ("shorter without the line" in shown, len(product) > 4) == (predicted, predicted)
    assert main([*words, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    lines = found[0]["lines"] if predicted else found
    assert [(line["line"], "share" in line) for line in lines] == [(line, predicted) for line in (25, 26, 29, 32)]
    loopy = f"{EXAMPLES / 'matmul.py'}:naive"
    assert main([*command, loopy, "n=64", "--lines"]) == 2
    assert "is none" in capfd.readouterr().err


SPARSE = """
kernel void rows(global const int *begin, global const float *a, global float *y) {
    int i = get_global_id(0);
    float sum = 0;
    for (int k = begin[i]; k < begin[i + 1]; k++)
        sum += 1.0f;
    if (a[i] > 0)
        y[i] = sum;
}
"""


def test_bounds_and_what_was_stated_are_marked(tmp_path, capfd):
    (tmp_path / "rows.cl").write_text(SPARSE)
    place = f"{tmp_path / 'rows.cl'}:rows"
    assert main(["features", place, "--local", "64", "--groups", "2", "--state", "5=4", "--lines"]) == 0
    found = " ".join(capfd.readouterr().out.split())
    # 128 work-items with 4 iterations each.
    assert "sum += 1.0f; 512 0 0 as stated " in found
    assert "if (a[i] > 0) 128 128 512 " in found
    assert found.endswith("y[i] = sum; 0 128 512 upper bound")


def test_notebooks_show_a_table():
    table = checked(source_lines(tiled(), {"n": N})._repr_html_()).table("Lines")
    assert table.numbers("line") == [25, 26, 29, 32]
    assert table.numbers("operations") == [0, 0, N**3, 0]
    assert "share (%)" not in table.head


@pytest.mark.parametrize(("words", "error"), [
    ([], "needs a value for size n"), (["n=64", "-f", "f_op_float32_madd"], "leave -f and --code out"),
])  # fmt: skip
def test_what_lines_need(words, error, capfd):
    place = f"{EXAMPLES / 'matmul.cl'}:tiled"
    assert main(["features", place, "--local", "16,16", "--global", "n,n", "--lines", *words]) == 2
    assert error in capfd.readouterr().err
