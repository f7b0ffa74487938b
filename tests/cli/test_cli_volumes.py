"""``perflex machine``, ``perflex volumes``, ``perflex compare`` and ``--machine``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from perflex import machine_names
from perflex.__main__ import main

if TYPE_CHECKING:
    from pathlib import Path

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
    for module in ("families.machine", "gpu.transactions", "gpu.estimate"):
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
    for text in (r"l2_bytes +1280 KiB", r"0\.71 GHz", r"160\.88 GB/s", r"l1_banks +not known", "measured: Su, Cai"):
        assert re.search(text, shown)
    assert main(["machine", "show", "K20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["l2_bytes"]["value"] == 1310720
    assert found["facts"]["dram_bandwidth"]["source"].startswith("measured: Su")
    assert "l1_banks" in found["unknown"]
    assert main(["machine", "show", "K2O"]) != 0
    assert "did you mean K20" in capsys.readouterr().err


def test_volumes_as_json(calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["volumes", kernel, *SIZES, "--machine", "A100-40GB", "--json"]
    assert main([*words, "--variant", "paper2022", "--granule", "64", "--registers", "32"]) == 0
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
            "variant": "paper2022",
            "granule": 64,
            "registers": 32,
            "caches": None,
            "register_reuse": True,
        }
    ]


def test_volumes_of_each_load_of_the_source(calls: list[dict], kernel: str) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", "A100-40GB", "--source-loads"]) == 0
    assert [call["register_reuse"] for call in calls] == [False]


def test_volumes_as_text(calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", "A100-40GB"]) == 0
    shown = capsys.readouterr().out
    for text in (
        *(f"{key} = " for key in KEYS),
        "l2_l1_load_compulsory",
        "123456",
        "(all)",
        "limiter: DRAM",
        "rules: current",
    ):
        assert text in shown
    assert calls[0]["variant"] == "current"


def test_volumes_hold_where_the_limiter_is_not_known(
    calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["volumes", kernel, *SIZES, "--machine", "W6600"]) == 0
    assert "limiter: not known: machine W6600 has no fact l2_bandwidth" in capsys.readouterr().out
    assert main(["volumes", kernel, *SIZES, "--machine", "W6600", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["limiter"] is None
    assert "l2_bandwidth" in found["limiter_unknown"]
    assert len(calls) == 2


def test_a_series_over_domain_sizes(calls: list[dict], kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["volumes", kernel, "--machine", "A100-40GB", "--series", "nx,ny=256:512:128", "--points", str(2**27)]
    assert main([*words, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert (
        [row["sizes"] for row in rows]
        == [{"nx": n, "ny": n, "nz": 2**27 // n**2} for n in (256, 384, 512)]
        == [call["sizes"] for call in calls]
    )
    assert all(row["dram_load"] == 9 and row["dram_store"] == 8 and row["l2_load"] == 20 for row in rows)
    assert [row["layers_fit"] for row in rows] == [True, False, False]
    # 1728 work-groups are resident: four, two and one layers of 256**2, 384**2 and 512**2 points.
    assert [row["wave_depth"] for row in rows] == [4, 2, 1]
    assert [row["level"] for row in rows] == [24, 40, 72]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 5
    assert lines[2].split() == ["256", "256", "2048", "9", "8", "20", "4", "24", "yes"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--series", "nx=1"], "write e.g. nx,ny=128:1024:64"),
        (["--series", "nx,ny=64:32:32", "--points", "999"], "is empty"),
        (["--series", "nx,ny=64:64:0", "--points", "999"], "is empty"),
        (["nx=64", "--series", "nx,ny=64:64:1", "--points", "999"], "given twice"),
        (["--series", "nx,nx=64:64:1", "--points", "999"], "given twice"),
        (["--series", "n=64:64:1"], "none of the kernel's: nx, ny, nz"),
        (["--series", "nx,ny=64:64:1"], "size nz has no value"),
        (["nz=64", "--series", "nx,ny=64:64:1", "--points", "99"], "none has no value"),
        (["nx=64"], "needs a value for size ny, nz"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(
    calls: list[dict], kernel: str, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["volumes", kernel, "--machine", "V100", *words]) != 0
    assert message in " ".join(capsys.readouterr().err.split())
    assert not calls


def test_a_machine_file_can_be_given(
    calls: list[dict], kernel: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("schema: perflex-machine/1\nname: Bad\n")
    assert main(["volumes", kernel, *SIZES, "--machine", str(path)]) != 0
    assert "bad.yaml, line 1" in " ".join(capsys.readouterr().err.split())


def test_features_with_a_machine(kernel: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["features", kernel, *SIZES, "-f", "f_waves", "-f", "f_su_v_smx", "--json"]
    assert main([*words, "--machine", "K20", "--registers", "64"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["f_waves"]["value"] == pytest.approx(2048 / (13 * 8))
    assert found["f_su_v_smx"]["value"] == 64**3 * (17 + 2 * 8 + 1) * 8
    assert main(words) != 0
    assert "f_waves needs a machine" in " ".join(capsys.readouterr().err.split())


def test_compare(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right, picture = tmp_path / "left.csv", tmp_path / "right.csv", tmp_path / "picture.png"
    left.write_text("x,y,z,dram\n32,4,1,10\n64,2,1,22\n2,2,2,8\n")
    right.write_text("x,y,z,measured\n64,2,1,20\n32,4,1,10\n")
    words = ["compare", str(left), str(right), "--key", "x", "--key", "y", "--key", "z", "--value", "dram=measured"]
    assert main([*words, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["configurations"], row["unmatched"]) == (2, 1)
    assert row["worst"] == pytest.approx(0.1)
    assert main([*words, "--shape", "x,y,z", "--picture", str(picture)]) == 0
    assert "dram: 1 configurations are in one table only" in capsys.readouterr().out
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main([*words, "--picture", str(picture)]) != 0
    assert "--shape" in capsys.readouterr().err
