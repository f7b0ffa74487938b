"""``perflex roofline``: table, JSON, pictures, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import perflex.calib_data
from perflex.__main__ import main
from perflex.errors import PerflexWarning

KERNELS = """
import loopy as lp
import numpy as np
from uipick import ALL_GENERATORS, KernelCollection

def _one(*tags):
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return kernel

def naive():
    return _one("transpose", "variant:naive", "lsize:32", "rows:4", "dtype:float32", "groups_fit:True", "n:1024")

def tiled():
    return _one("transpose", "variant:tiled", "lsize:32", "rows:4", "dtype:float32", "groups_fit:True", "n:1024")

def branch():
    return _one("gsrb", "variant:branch", "colour:0", "dtype:float64", "lsize_0:32", "lsize_1:4", "lsize_2:1",
                "chunk:1", "groups_fit:True", "nx:32", "ny:32", "nz:32")

def alone():
    kernel = lp.make_kernel("{[g, l]: 0 <= g < n and 0 <= l < 32}", "<> t = 2*g + l", [lp.ValueArg("n", np.int32)],
                            lang_version=(2018, 2), target=lp.PyOpenCLTarget())
    return lp.tag_inames(kernel, "g:g.0, l:l.0")

def sequential():
    return lp.make_kernel("{[i]: 0 <= i < n}", "b[i] = a[i]",
                          [lp.GlobalArg("a, b", np.float32, shape="n"), lp.ValueArg("n", np.int32)],
                          lang_version=(2018, 2), target=lp.PyOpenCLTarget())
"""
MATMUL = Path(__file__).parents[2] / "examples" / "matmul.py"
CALIBRATIONS = Path(perflex.calib_data.__file__).parent / "calibrations"
V100 = Path(perflex.calib_data.__file__).parent / "machines" / "V100.yaml"


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS, encoding="utf-8")
    return str(path)


def run(capsys, *words) -> tuple[int, str, str]:
    code = main(["roofline", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_table_and_pictures(capsys, file, tmp_path) -> None:
    out = tmp_path / "new" / "folder"
    words = [f"{file}:naive", f"{file}:tiled", "n=1024", "--machine", "v100"]
    code, shown, remarks = run(capsys, *words, "--out", out)
    assert code == 0
    assert "no times" in remarks
    assert "489.6 GIPS  [derived: Ding and Williams" in shown
    assert "GTXN/s of 128 B" in shown
    lines = {line.split("  ")[0]: line for line in shown.splitlines()}
    assert lines["global loads and stores / transaction"].split()[-2:] == ["0.05556", "0.25"]
    assert lines["local loads and stores / transaction"].split()[-2:] == ["-", "0.06061"]
    assert "L1 (94 % local memory)" in lines["limiter"]
    assert "time" not in lines
    assert (out / "roofline.png").read_bytes().startswith(b"\x89PNG")
    drawn = (out / "roofline.svg").read_text(encoding="utf-8")
    assert "<svg" in drawn
    for label in ("stride-8", "32-way", "no conflict", "peak 489.6 GIPS", "naive", "no times"):
        assert label in drawn


def test_json_with_the_least_time(capsys, file, tmp_path) -> None:
    words = [f"{file}:branch", "nx=64", "ny=32", "nz=32", "--machine", "V100", "--time", "bound", "--out", tmp_path]
    code, shown, _ = run(capsys, *words, "--json")
    assert code == 0
    found = json.loads(shown)
    (kernel,) = found["kernels"]
    assert found["ceilings"]["l2"] == pytest.approx(
        {"rate": 93.625e9, "transaction_bytes": 32, "source": found["ceilings"]["l2"]["source"]}
    )
    assert found["local_walls"]["32-way"] == 1 / 32
    assert kernel["kernel"] == "branch"
    assert kernel["sizes"] == {"nx": 64, "ny": 32, "nz": 32}
    assert kernel["global_walls"] == {"stride-0": 1.0, "stride-1": 0.125, "stride-4": 1 / 32}
    assert kernel["time"] == "bound"
    assert kernel["time_s"] == kernel["bound_s"] == max(kernel["limits_s"].values())
    assert kernel["gips"] / kernel["warp_gips"] == pytest.approx(kernel["f_inst_predication"])
    assert kernel["intensities"]["l1"] == pytest.approx(kernel["f_inst_thread"] / 32 / kernel["f_txn_l1"])
    # The dotted line of sub-groups' instructions, above the markers.
    assert "sub-group instructions" in (tmp_path / "roofline.svg").read_text(encoding="utf-8")


def test_many_kernels_go_to_several_pictures(capsys, file, tmp_path, monkeypatch) -> None:
    drawn = []
    monkeypatch.setattr(
        "perflex.analysis.roofline_report.draw_roofline", lambda places, *_, **__: drawn.append(len(places))
    )
    other = tmp_path / "others.py"
    other.write_text(KERNELS, encoding="utf-8")
    references = [f"{file}:naive", f"{file}:tiled", f"{other}:naive", f"{other}:tiled"]
    code, shown, _ = run(capsys, *references, "n=64", "--machine", "V100", "--time", "bound", "--out", tmp_path)
    assert code == 0
    assert drawn == [3, 1]
    assert shown.split()[-4:] == [str(tmp_path / f"roofline-{n}.{kind}") for n in (1, 2) for kind in ("png", "svg")]
    # Kernels of one name are told apart by their files.
    assert f"{other}:tiled" in shown


@pytest.mark.machine
def test_measured_times(capsys, file) -> None:
    pytest.importorskip("pyopencl")
    from perflex import list_devices

    if not list_devices():
        pytest.skip("no OpenCL device on this machine")
    words = [f"{file}:tiled", "n=64", "--machine", "V100", "--time", "measured", "--json"]
    code, shown, remarks = run(capsys, *words)
    assert code == 0, remarks
    (kernel,) = json.loads(shown)["kernels"]
    assert kernel["time"] == "measured"
    assert kernel["time_s"] > 0
    assert kernel["gips"] == pytest.approx(kernel["f_inst_thread"] / 32 / kernel["time_s"] / 1e9)


def test_predicted_times(capsys, file) -> None:
    from perflex import Calibration
    from uipick import ALL_GENERATORS, KernelCollection

    path = CALIBRATIONS / "matmul_sq_amd_epyc_4cores_pocl.yaml"
    words = [f"{MATMUL}:naive", "n=512", "--machine", "V100", "--time", "predicted", "--calibration", path, "--json"]
    code, shown, remarks = run(capsys, *words)
    assert code == 0, remarks
    (kernel,) = json.loads(shown)["kernels"]
    tags = ["matmul_sq", "prefetch:False", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "n:512"]
    (same,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    # Rows of a power of two conflict in the caches of the CPU that was calibrated.
    with pytest.warns(PerflexWarning, match="conflict misses in L2"):
        expected = Calibration.load(path).predict(same.kernel, {"n": 512})
    assert kernel["time_s"] == pytest.approx(expected)
    assert kernel["time"] == "predicted"
    # A calibration of another device is used, and said to be one.
    assert "the ceilings those of V100" in remarks


def changed(tmp_path: Path, *lines: tuple[str, str]) -> Path:
    text = V100.read_text(encoding="utf-8")
    for old, new in lines:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "machine.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_missing_ceiling_is_absent_and_named(capsys, file, tmp_path) -> None:
    stated = (
        "  l2: {value: 2996, unit: GB/s, source: ding}\n",
        "  l2_bandwidth: {value: 2500, unit: GB/s, source: ernst}\n",
    )
    path = changed(tmp_path, *((line, "") for line in stated))
    code, shown, _ = run(capsys, f"{file}:tiled", "n=64", "--machine", str(path))
    assert code == 0
    assert "L2: none: machine V100 has no fact l2_bandwidth" in shown


def test_limits_have_the_same_names_and_units_as_in_volumes(capsys, file) -> None:
    code, shown, _ = run(capsys, f"{file}:tiled", "n=64", "--machine", "V100", "--time", "bound")
    assert code == 0
    rows = {line.split("  ")[0] for line in shown.splitlines()}
    assert {
        "transactions, global memory (32 B)", "transactions, local memory (128 B)", "transactions, L1 (32 B)",
        "transactions, L2 (32 B)", "transactions, DRAM (32 B)", "limiter",
    } <= rows  # fmt: skip
    (limiter,) = (line.split()[1] for line in shown.splitlines() if line.startswith("limiter"))
    assert main(["volumes", f"{file}:tiled", "n=64", "--machine", "V100"]) == 0
    assert f"  {limiter}: " in capsys.readouterr().out


def test_bad_input_is_one_line(capsys, file, tmp_path) -> None:
    cases = [
        ([f"{file}:naive", "--machine", "V100"], "needs a value for size n"),
        (["n=64", "--machine", "V100"], "there is no kernel"),
        ([f"{file}:sequential", "n=64", "--machine", "V100"], "no grid of work-groups and work-items"),
        ([f"{file}:naive", "n=64", "--machine", "V100", "--time", "predicted"], "give --calibration FILE"),
        ([f"{file}:naive", "n=64", "--machine", "V10"], "V100"),
    ]
    for words, text in cases:
        code, shown, remarks = run(capsys, *words)
        assert code != 0
        assert not shown
        assert text in remarks
        assert remarks.count("\n") == 1
    kinds = [
        ("kind: gpu", "kind: cpu", "V100 is a CPU"),
        ("  sector_bytes: {value: 32, unit: B, source: ernst_specs}\n", "", "no fact sector_bytes"),
        ("l2: {value: 2996, unit: GB/s", "l2: {value: 2996, unit: GHz", "the unit must be one of"),
        ("l2: {value: 2996", "l3: {value: 2996", "there is no such ceiling"),
        ("source: ding_peak}", "source: nobody}", "there is no source 'nobody'"),
        ("instructions: {value: 489.6", "instructions: {value: 0", "more than zero"),
    ]
    for old, new, text in kinds:
        code, _, remarks = run(capsys, f"{file}:naive", "n=64", "--machine", changed(tmp_path, (old, new)))
        assert code != 0
        assert text in remarks


def test_without_l2_facts_the_rest_is_shown(capsys, file, tmp_path) -> None:
    machine = changed(tmp_path, ("  l2_effective_bytes: {value: 6, unit: MiB, source: whole}\n", ""))
    code, shown, _ = run(capsys, f"{file}:naive", "n=64", "--machine", machine, "--out", tmp_path)
    assert code == 0
    assert "no transactions of DRAM: " in shown
    assert "no transactions of L2: machine V100 has no fact l2_effective_bytes" in shown
    assert (tmp_path / "roofline.png").is_file()
