"""``perflex diff``: what it shows and prints of two versions, and what it refuses."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NAIVE, TILED = (f"{EXAMPLES / 'matmul.cl'}:{name}<<<(n/16,n/16),(16,16)>>>" for name in ("naive", "tiled"))
AT = ("-m", "V100", "n=512,1024")


def test_diff(shown):
    out = shown("diff", NAIVE, TILED, *AT)
    head, columns, *rows = out.splitlines()
    assert head == "Predicted change of tiled"
    assert columns.split() == ["sizes", "old", "(ms)", "new", "(ms)", "new/old", "from", "to", "verdict"]
    assert [row.split()[0] for row in rows[:2]] == ["n=512", "n=1024"]
    assert "limited at n=1024 by L1 cache -> addresses of loads and stores" in out
    assert "f_sync_barrier_local" in out
    assert "sum += a_tile[y][k] * b_tile[k][x];" in out


def test_json_agrees_with_predictions(content):
    words = ("-m", "V100", "n=1024", "--confidence", "0.9")
    (found,) = content("diff", NAIVE, TILED, *words)
    times = [content("predict", word, *words)[0]["predicted_s"] for word in (NAIVE, TILED)]
    assert [found["old_s"], found["new_s"]] == times
    assert found["ratio"] == times[1] / times[0]
    assert found["low"] < found["ratio"] < found["high"]
    counts = {row["name"]: row for row in found["counts"]}
    assert counts["local memory of a work-group"] == {
        "name": "local memory of a work-group", "old": 0, "new": 2048, "ratio": None, "unit": "B",
    }  # fmt: skip
    # Both kernels lie in one file, so that both versions have all lines.
    assert [(row["old_line"], row["old_s"] is None) for row in found["lines"]] == [
        (13, False), (14, False), (25, True), (26, True), (29, True), (32, True),
    ]  # fmt: skip
    assert 0 < sum(row["new_s"] or 0 for row in found["lines"]) < found["new_s"]


def test_calibrations_of_cpus(shown, calibration):
    kernels = [f"{EXAMPLES / 'matmul.py'}:{name}" for name in ("naive", "prefetching")]
    out = shown("diff", calibration, *kernels, "n=512")
    assert "Counts that differ at n=512" in out
    assert "Lines" not in out
    assert "no change" in shown("diff", calibration, kernels[0], kernels[0], "n=512")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((NAIVE, *AT), "give two versions of a kernel, or one and --against REV"),
        ((NAIVE, TILED, *AT, "--against", "HEAD"), "give two versions of a kernel, or one and --against REV"),
        ((NAIVE, TILED, "n=64"), "is no calibration"),
        ((NAIVE, TILED, "-m", "V100", "m=64"), "the kernel has no size m"),
        ((NAIVE, f"{EXAMPLES / 'heat.cl'}:radiate<<<n/64,64>>>", *AT), "heat.cl, line 46"),
    ],
)
def test_bad_input(refused, words, said):
    assert said in refused("diff", *words)
