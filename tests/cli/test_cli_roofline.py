"""``perflex roofline``: table, JSON, pictures, times from several sources, and ceilings that are not known."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

import perflex.calib_data
from perflex import Calibration, using_machine
from perflex.cli.kernel_files import load_kernel
from perflex.errors import DoubtfulPredictionWarning

EXAMPLES = Path(__file__).parents[2] / "examples"
NAIVE, TILED = (f"{EXAMPLES / 'transposes.py'}:{name}" for name in ("naive", "tiled"))
V100 = Path(perflex.calib_data.__file__).parent / "machines" / "V100.yaml"


def test_table_and_pictures(run, tmp_path):
    out = tmp_path / "new" / "folder"
    code, text, remarks = run("roofline", NAIVE, TILED, "n=1024", "--machine", "v100", "--out", out)
    assert code == 0
    assert "no times" in remarks
    assert re.search(r"instruction issue +489.6 +derived: Ding and Williams", text)
    # The first table that has them.
    lines = {line.split("  ")[0]: line for line in reversed(text.splitlines())}
    assert lines["global loads and stores"].split()[-2:] == ["0.05556", "0.2500"]
    assert lines["local loads and stores"].split()[-1:] == ["0.06061"]
    assert "L1 (94 % local memory)" in lines["limiter"]
    assert "time (µs)" not in lines
    assert "no times" in (out / "report.html").read_text(encoding="utf-8")
    assert (out / "roofline.png").read_bytes().startswith(b"\x89PNG")
    drawn = (out / "roofline.svg").read_text(encoding="utf-8")
    for label in ("<svg", "stride-8", "32-way", "no conflict", "peak 489.6 GIPS", "naive", "no times"):
        assert label in drawn


def test_the_least_time(content, shown):
    words = ("roofline", TILED, "n=64", "--machine", "V100", "--time", "bound")
    (kernel,) = content(*words)["kernels"]
    assert (kernel["kernel"], kernel["sizes"], kernel["time"]) == ("tiled", {"n": 64}, "bound")
    assert kernel["time_s"] == kernel["bound_s"] == max(kernel["limits_s"].values())
    assert kernel["gips"] == pytest.approx(kernel["f_inst_thread"] / 32 / kernel["time_s"] / 1e9)
    assert kernel["intensities"]["l1"] == pytest.approx(kernel["f_inst_thread"] / 32 / kernel["f_txn_l1"])
    # Limits have the names that they have in volumes.
    (limiter,) = (line.split()[1] for line in shown(*words).splitlines() if line.startswith("limiter"))
    assert f"\n{limiter} " in shown("volumes", TILED, "n=64", "--machine", "V100")


def test_many_kernels_go_to_several_pictures(shown, tmp_path):
    other = tmp_path / "others.py"
    other.write_text((EXAMPLES / "transposes.py").read_text(encoding="utf-8"), encoding="utf-8")
    references = [NAIVE, TILED, f"{other}:naive", f"{other}:tiled"]
    text = shown("roofline", *references, "n=64", "--machine", "V100", "--time", "bound", "--out", tmp_path)
    pictures = [str(tmp_path / f"roofline-{n}.{kind}") for n in (1, 2) for kind in ("png", "svg")]
    assert text.split()[-5:] == [str(tmp_path / "report.html"), *pictures]
    # Kernels of one name are told apart by their files.
    assert f"{other}:tiled" in text


def test_measured_times(content, default_device):
    words = ["roofline", TILED, "n=64", "--machine", "V100", "--time", "measured"]
    (kernel,) = content(*words)["kernels"]
    assert kernel["time"] == "measured"
    assert kernel["time_s"] > 0


def test_predicted_times(run, content, calibration):
    naive = f"{EXAMPLES / 'matmul.py'}:naive"
    words = ["roofline", naive, "n=512", "--machine", "V100", "--time", "predicted", "--calibration", calibration]
    code, _, remarks = run(*words)
    assert code == 2
    assert "V100 is a GPU, and the calibration is of AMD EPYC, a CPU" in remarks
    replace(Calibration.load(calibration), device={"name": "Tesla K20", "kind": "gpu"}).save(calibration)
    (kernel,) = content(*words)["kernels"]
    expected = Calibration.load(calibration).predict(load_kernel(naive), {"n": 512})
    assert (kernel["time"], kernel["time_s"]) == ("predicted", pytest.approx(expected))
    # A calibration of another device is used, and said to be one.
    assert "the ceilings those of V100" in run(*words)[2]


def test_predicted_times_are_of_the_registers_that_are_given(content):
    words = ("roofline", TILED, "n=1024", "--machine", "V100", "--time", "predicted", "--calibration", "general_gpu")
    kernel, times = load_kernel(TILED), []
    # With 200 registers for each of 256 work-items a compute unit holds one work-group.
    for given in (None, 200):
        with using_machine("V100", registers=given), pytest.warns(DoubtfulPredictionWarning):
            times.append(Calibration.load("general_gpu").predict(kernel, {"n": 1024}))
        more = [] if given is None else ["--registers", given]
        (entry,) = content(*words, *more)["kernels"]
        assert entry["time_s"] == pytest.approx(times[-1])
    assert times[1] > 1.02 * times[0]


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        (("  l2: {", "  l2_bandwidth:"), "no ceiling of L2: machine V100 has no fact l2_bandwidth"),
        (("  l2_effective_bytes:",), "no transactions of L2: machine V100 has no fact l2_effective_bytes"),
    ],
)
def test_what_a_machines_file_lacks_is_absent_and_named(facts, told, shown, tmp_path):
    lines = V100.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(facts)]
    assert len(kept) == len(lines) - len(facts)
    path = tmp_path / "machine.yaml"
    path.write_text("".join(kept), encoding="utf-8")
    assert told in shown("roofline", TILED, "n=64", "--machine", path, "--out", tmp_path)
    assert (tmp_path / "roofline.png").is_file()
