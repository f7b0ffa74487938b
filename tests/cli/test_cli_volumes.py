"""``perflex machine``, ``perflex volumes`` and ``--machine``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import perflex.calib_data
from perflex import machine_names
from perflex.__main__ import main

KERNELS = """
from uipick import ALL_GENERATORS, KernelCollection

def stencil():
    tags = ["stencil3d", "points:25", "variant:plain", "chunk:1", "dtype:float64", "groups_fit:True", "lsize_0:32",
            "lsize_1:4", "lsize_2:1", "nx:64", "ny:64", "nz:64"]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    return kernel
"""
KEYS = (
    "f_l1_wavefronts", "f_vol_l2_l1_load", "f_vol_l2_l1_store", "f_vol_dram_load", "f_vol_dram_store",
    "f_oversub_l1", "f_oversub_l2", "f_lmem_wavefronts", "f_lmem_wavefronts_load", "f_lmem_wavefronts_store",
    "f_vol_l1_load",
)  # fmt: skip
SIZES = ["nx=64", "ny=64", "nz=64"]
MACHINES = Path(perflex.calib_data.__file__).parent / "machines"


@dataclass(frozen=True)
class FakeArray:
    l2_l1_load_compulsory: float
    dram_load_capacity: float


@dataclass(frozen=True)
class FakeVolumes:
    l1_wavefronts: float = 1e5
    vol_l2_l1_load: float = 3e6
    vol_l2_l1_store: float = 1e6
    vol_dram_load: float = 2e9
    vol_dram_store: float = 1e9
    oversub_l1: float = 0.5
    oversub_l2: float = 0.25
    waves: float = 2.0
    caches: str = "warm"
    arrays: dict[str, FakeArray] = field(
        default_factory=lambda: {"u": FakeArray(123456.0, 789.0), "v": FakeArray(0.0, 5.0)}
    )
    total: FakeArray = FakeArray(123456.0, 794.0)

    def features(self):
        numbers = {f"f_{name}": value for name, value in vars(self).items() if isinstance(value, float)}
        return {**dict.fromkeys(KEYS, 0.0), **numbers}


@pytest.fixture
def kernel(tmp_path: Path) -> str:
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    return f"{path}:stencil"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict]:
    made: list[dict] = []

    def estimate_volumes(scop, sizes, machine, **options):
        made.append({"sizes": dict(sizes), "machine": machine.name, **options})
        points = sizes["nx"] * sizes["ny"] * sizes["nz"]
        return FakeVolumes(vol_dram_load=9.0 * points, vol_dram_store=8.0 * points, vol_l2_l1_load=20.0 * points)

    # Modules that take the function by name come first: imported by a test, they would keep its stand-in.
    for module in ("families.machine", "gpu.volume_estimate"):
        monkeypatch.setattr(f"perflex.features.{module}.estimate_volumes", estimate_volumes)
    return made


def test_machine_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(machine_names())
    assert main(["machine", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == list(machine_names())


def test_machine_show(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machine", "show", "k20"]) == 0
    shown = capsys.readouterr().out
    for text in (r"l2_bytes +1280 KiB", r"0\.71 GHz", r"160\.88 GB/s", "measured: Su, Cai"):
        assert re.search(text, shown)
    assert main(["machine", "show", "K20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["l2_bytes"]["value"] == 1310720
    assert found["facts"]["dram_bandwidth"]["source"].startswith("measured: Su")
    assert found["unknown"] == []
    assert main(["machine", "show", "K2O"]) != 0
    assert "did you mean K20" in capsys.readouterr().err


def test_volumes_as_json(calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["volumes", kernel, *SIZES, "--machine", "A100-40GB", "--json"]
    assert main([*words, "--registers", "32"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(KEYS) < set(found)
    assert found["limiter"] == "DRAM"
    assert found["seconds"]["DRAM"] == pytest.approx(17 * 64**3 / 1400e9)
    assert found["arrays"]["u"] == {"l2_l1_load_compulsory": 123456.0, "dram_load_capacity": 789.0}
    assert found["total"] == {"l2_l1_load_compulsory": 123456.0, "dram_load_capacity": 794.0}
    assert calls == [
        {
            "sizes": {"nx": 64, "ny": 64, "nz": 64},
            "machine": "A100-40GB",
            "registers": 32,
            "caches": None,
        }
    ]


def test_volumes_as_text(calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", "A100-40GB"]) == 0
    shown = capsys.readouterr().out
    for text in (
        *(f"{key} = " for key in KEYS),
        "l2_l1_load_compulsory",
        "123456",
        "(all)",
        "limiter: DRAM",
    ):
        assert text in shown
    assert calls[0]["caches"] is None


def test_limits_that_are_known_are_shown_where_a_fact_is_missing(
    calls: list[dict], kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = (MACHINES / "A100-40GB.yaml").read_text(encoding="utf-8")
    line = next(one for one in shipped.splitlines(keepends=True) if one.startswith("  l2_bandwidth:"))
    path = tmp_path / "mine.yaml"
    path.write_text(shipped.replace(line, ""), encoding="utf-8")
    assert main(["volumes", kernel, *SIZES, "--machine", str(path)]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "  L2: not known; the machine's file needs l2_bandwidth (B/s)" in shown
    known = ("DRAM", "L1", "local memory", "arithmetic", "group start", "latency")
    for name in known:
        assert any(re.fullmatch(rf"  {name}: [\d.e-]+ ms", text) for text in shown)
    assert re.fullmatch(r"limiter: DRAM, [\d.]+ ms \(of the limits that are known\)", shown[-1])
    assert main(["volumes", kernel, *SIZES, "--machine", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["limiter"], found["missing"]) == ("DRAM", {"L2": ["l2_bandwidth"]})
    assert tuple(found["seconds"]) == known
    assert len(calls) == 2


def test_volumes_of_a_gpu_whose_rules_of_l1_are_not_known(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", "W7800"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "f_l1_wavefronts: not known" in shown
    assert "  L1: not known; the machine's file needs l1_rules" in shown
    assert any(re.fullmatch(r"  L2: [\d.]+ ms", text) for text in shown)
    (row,) = (text.split() for text in shown if text.lstrip().startswith("l1_wavefronts (wavefronts)"))
    assert set(row[2:]) == {"-"}
    assert main(["volumes", kernel, *SIZES, "--machine", "W7800", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["f_l1_wavefronts"] is None
    assert found["missing"]["L1"] == ["l1_rules"]


@pytest.mark.parametrize("name", ["H100-SXM", "MI250X", "W6600", "W7800"])
def test_bandwidth_of_l2_is_a_limit_of_every_gpu(
    calls: list[dict], kernel: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["seconds"]["L2"] > 0
    assert found["seconds"]["DRAM"] > 0
    assert len(calls) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nx=64"], "needs a value for size ny, nz"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    calls: list[dict], kernel: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["volumes", kernel, "--machine", "V100", *words]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not calls


def test_features_with_a_machine(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["features", kernel, *SIZES, "-f", "f_waves", "-f", "f_su_v_smx", "--json"]
    assert main([*words, "--machine", "K20", "--registers", "64"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["f_waves"]["value"] == pytest.approx(2048 / (13 * 8))
    assert found["f_su_v_smx"]["value"] == 64**3 * (17 + 2 * 8 + 1) * 8
    assert main(words) != 0
    assert "f_waves needs a machine" in " ".join(capsys.readouterr().err.split())
