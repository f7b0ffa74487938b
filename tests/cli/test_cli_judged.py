"""``perflex diagnose --times``: a calibration beside times that it has not seen."""

import pytest

from perflex import Calibration, Model, calibrate, judge, load_times
from perflex.cli.kernel_files import load_kernels

MODEL = Model("f_cl_wall_time", "p_group * f_thread_groups + p_madd * f_op_float32_madd")
MINE = """from sample_kernels import matmul


def tiled(tile):
    return matmul(prefetch=False, tile=tile)
"""


@pytest.fixture
def files(tmp_path):
    """A calibration, times of which it has seen half, and their kernels."""
    (tmp_path / "mine.py").write_text(MINE)
    for name, sizes in (("old", (32, 64, 96, 128)), ("new", (64, 80))):
        lines = [f"tiled,{tile},{n},{1e-12 * n**3 * tile**0.5 + 1e-6 * n / tile}" for n in sizes for tile in (8, 16)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["kernel,tile,n,seconds", *lines]) + "\n")
    calibrate(MODEL, times=load_times(tmp_path / "old.csv", load_kernels(str(tmp_path / "mine.py")))).save(
        tmp_path / "made.yaml"
    )
    return tmp_path


def test_it_says_what_the_library_says(files, run, content):
    words = ("diagnose", files / "made.yaml", "--times", files / "new.csv", "--kernels", files / "mine.py")
    judged = content(*words)["judgement"]
    table = load_times(files / "new.csv", load_kernels(str(files / "mine.py")))
    expected = judge(Calibration.load(files / "made.yaml"), table)
    assert [one["method"] for one in judged["methods"]] == list(expected.accuracies)
    assert [one["rms"] for one in judged["methods"]] == pytest.approx([one.rms for one in expected.accuracies.values()])
    assert {one["kernel"] for one in judged["rows"]} == {"tiled(tile=8, n=80)", "tiled(tile=16, n=80)"}
    assert [one["kernel"] for one in judged["left_out"]] == ["tiled(tile=8, n=64)", "tiled(tile=16, n=64)"]
    assert (judged["better"], judged["inside"]) == (expected.better, expected.inside)
    code, out, err = run(*words, "--out", files / "out")
    assert (code, err) == (0, "")
    assert expected.heading in out
    assert "2 left out, for the calibration was fitted to it: tiled(tile=8, n=64), tiled(tile=16, n=64)" in out
    worst = (files / "out/judged.csv").read_text().splitlines()[1]
    assert worst.startswith(f"{expected.row_table().rows[0][0]!r},".replace("'", '"'))
    assert expected.method_table().caption in (files / "out/report.html").read_text()


@pytest.mark.parametrize("words", [("--kernels", "mine.py"), ("--machine", "V100")])
def test_what_is_of_no_use_without_times(files, refused, words):
    assert "name one with --times" in refused("diagnose", files / "made.yaml", *words)
