"""``perflex machine``, ``perflex volumes`` and ``--machine``."""

import re
from pathlib import Path

import pytest

import perflex.calib_data
from perflex import estimate_volumes, load_machine, machine_names
from perflex.cli.kernel_files import load_kernel
from perflex.features import extract_scop

TOP = Path(__file__).parents[2]
MACHINES = Path(perflex.calib_data.__file__).parent / "machines"
STENCIL = f"{TOP / 'examples' / 'stencil.py'}:star25"
SIZES = ["nx=64", "ny=64", "nz=64"]


def test_machine_list(shown, content):
    _, *rows = shown("list", "machines").splitlines()
    names = [row["name"] for row in content("list", "machines")]
    assert [row.split()[0] for row in rows] == names == list(machine_names())


def test_machine_show(shown, content):
    text = shown("machine", "show", "k20")
    for part in (r"l2_bytes +1280  KiB", r"710  MHz", r"160\.88  GB/s", "measured: Su, Cai"):
        assert re.search(part, text)
    found = content("machine", "show", "K20")
    assert found["facts"]["l2_bytes"]["value"] == 1310720
    assert found["facts"]["dram_bandwidth"]["source"].startswith("measured: Su")
    cpu = shown("machine", "show", "Gold-6248")
    assert re.search(r"^L1 +32 +1 +64 +8 +128.0 +64.00  yes", cpu, re.MULTILINE)
    assert re.search(r"^copy +\S+ +1 +1 +1  ", cpu, re.MULTILINE)


def test_volumes_are_those_of_the_library(content, shown):
    words = ["volumes", STENCIL, *SIZES, "--machine", "A100-40GB", "--registers", "64", "--caches", "cold"]
    found = content(*words)
    scop, sizes = extract_scop(load_kernel(STENCIL)), dict.fromkeys(("nx", "ny", "nz"), 64)
    expected = estimate_volumes(scop, sizes, load_machine("A100-40GB"), registers=64, caches="cold")
    printed = {name: value for name, value in found.items() if name.startswith("f_")}
    assert printed == {name: expected.features()[name] for name in printed}
    assert {"f_l1_wavefronts", "f_vol_l2_l1_load", "f_vol_dram_store", "f_oversub_l2"} < set(printed)
    assert found["arrays"]["u"]["dram_load"] == expected.arrays["u"].dram_load
    assert found["total"]["dram_load"] == expected.total.dram_load
    text = shown(*words)
    for name, value in printed.items():
        assert f"{name} = {value:g}" in text
    assert f"limiter: {found['limiter']}, " in text


@pytest.mark.parametrize("command", [("volumes", "V100"), ("layers", "Gold-6248")])
def test_what_volumes_rest_on_is_shown(command, tmp_path, shown):
    name, machine = command
    path = tmp_path / "positive.cl"
    launch = ("--local", "64", "--groups", "64", "--machine", machine)
    for condition, there in (("x[i] > 0", True), ("i > 9", False)):
        text = f"int i = get_global_id(0); if ({condition}) y[i] = 1;"
        path.write_text(f"kernel void f(global float *x, global float *y) {{ {text} }}", encoding="utf-8")
        assert ("upper bounds: data decide what is executed" in shown(name, f"{path}:f", *launch)) == there


def without(fact, folder):
    """Write a machine file that lacks a fact."""
    lines = (MACHINES / "A100-40GB.yaml").read_text(encoding="utf-8").splitlines(keepends=True)
    path = folder / "mine.yaml"
    path.write_text("".join(line for line in lines if not line.startswith(fact)), encoding="utf-8")
    return path


def test_limits_that_are_known_are_shown_where_a_fact_is_missing(tmp_path, shown, content):
    path = without("  l2_bandwidth:", tmp_path)
    lines = shown("volumes", STENCIL, *SIZES, "--machine", path).splitlines()
    assert any(re.fullmatch(r"L2 +l2_bandwidth \(B/s\)", text) for text in lines)
    known = ("DRAM", "L1", "local memory", "arithmetic", "group start", "latency")
    for name in known:
        assert any(re.fullmatch(rf"{name} +[\d.e-]+", text) for text in lines)
    assert re.fullmatch(r"limiter: L1, [\d.]+ µs \(of the limits that are known\)", lines[-1])
    found = content("volumes", STENCIL, *SIZES, "--machine", path)
    assert (found["limiter"], found["missing"]) == ("L1", {"L2": ["l2_bandwidth"]})
    assert tuple(found["seconds"]) == known


def test_volumes_of_a_gpu_whose_rules_of_l1_are_not_known(tmp_path, shown, content):
    path = without("l1_rules:", tmp_path)
    lines = shown("volumes", STENCIL, *SIZES, "--machine", path).splitlines()
    assert "f_l1_wavefronts: not known" in lines
    assert any(re.fullmatch(r"L1 +l1_rules", text) for text in lines)
    assert any(re.fullmatch(r"L2 +[\d.]+", text) for text in lines)
    found = content("volumes", STENCIL, *SIZES, "--machine", path)
    assert found["f_l1_wavefronts"] is None
    assert found["missing"]["L1"] == ["l1_rules"]


def test_features_with_a_machine(content):
    words = ["features", STENCIL, *SIZES, "-f", "f_waves", "-f", "f_su_v_smx"]
    found = content(*words, "--machine", "K20", "--registers", "64")
    assert found["f_waves"]["value"] == pytest.approx(2048 / (13 * 8))
    assert found["f_su_v_smx"]["value"] == 64**3 * (17 + 2 * 8 + 1) * 8
