"""The example of each command's help works as it is written, and what it prints fits 80 columns."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
import typer

from perflex import Device
from perflex.__main__ import main
from perflex.cli.app import application
from perflex.devices.device import DeviceInfo

TOP = Path(__file__).parents[2]
# Examples that measure on a device, with what makes them shorter. None needs a GPU or a cluster.
MEASURING = {
    "demo": "--sizes 64,96 --trials 3 --accept-noise",
    "doctor": "--seconds 5",
    "calibrate": "--budget 2s --accept-noise",
    "evaluate": "--model linear --trials 3 --accept-noise",
    "machine detect": "--quick",
}
# Those that describe dozens of kernels, or fit a model many times.
LONG = ("diagnose", "prune", "tune")
GROUPS = ("", "machine", "store")


def examples() -> dict[str, str]:
    """Return the example of each command, of the groups and of the program itself, by the command's words."""
    top = typer.main.get_command(application())
    found = {"": top.epilog}
    for name, command in top.commands.items():
        found[name] = command.epilog
        found |= {f"{name} {word}": one.epilog for word, one in getattr(command, "commands", {}).items()}
    # A long example takes several lines.
    return {
        name: epilog.removeprefix("\b\n").replace(" \\\n    ", " ").removeprefix("Example: ")
        for name, epilog in found.items()
    }


NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in (*MEASURING, *LONG) else name for name in examples()]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with what examples name; what they write goes nowhere else."""
    for name in ("examples", "calib_data"):
        (tmp_path / name).symlink_to(TOP / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def test_every_command_has_an_example_of_its_own() -> None:
    for name, example in examples().items():
        assert example.startswith(f"perflex {name}".rstrip() + " "), name


@pytest.mark.parametrize("name", NAMES)
def test_example_works_and_fits_the_terminal(root: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    if name.startswith("store"):
        # There is a store once something was counted.
        assert main(["features", "examples/matmul.py:naive", "n=64"]) == 0
        capfd.readouterr()
    code = main([*shlex.split(examples()[name])[1:], *MEASURING.get(name, "").split()])
    shown = capfd.readouterr()
    # On a busy machine the doctor finds it unfit, and says so.
    assert code in ((0, 1) if name == "doctor" else (0,)), shown.err
    assert "error" not in shown.err
    assert shown.out
    if "--json" not in examples()[name]:
        assert [line for line in shown.out.splitlines() if len(line) > 80] == []
    # Paths are written as given, for these are relative and short.
    assert str(root) not in shown.out or name.startswith("store")


@pytest.mark.parametrize("name", examples())
def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert "Example: perflex" in " ".join(out.split())


MORE = [
    "machine show Gold-6248",
    "machine list",
    "features examples/jacobi.py:seven_point M=1000 N=600",
    "layers examples/jacobi.py:seven_point --machine Gold-6248 --series M=1000:2000:500 N=600",
    "roofline examples/transposes.py:naive examples/transposes.py:tiled n=1024 --machine V100 --time bound",
]


@pytest.mark.parametrize("words", MORE)
def test_wide_tables_fit_the_terminal(root: Path, capfd: pytest.CaptureFixture[str], words: str) -> None:
    assert main(words.split()) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) > 3


def test_devices_with_long_names_fit(
    root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "pthread-skylake-avx512-Intel(R) Xeon(R) Platinum 8480CL Processor @ 2.00GHz with a long name"
    device = Device("Portable Computing Language", "Maker", name, "5.0+debian OpenCL 3.0 " * 6, compute_units=3)
    found = DeviceInfo(device, usable=False, reason="the driver offers no compiler " * 5, found_by="/etc/" + "a/" * 60)
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: ((found,), ()))
    assert main(["devices"]) == 0
    out = capfd.readouterr().out
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert name in " ".join(out.split())
    monkeypatch.delenv("COLUMNS")
    assert main(["devices"]) == 0
    # A pipe has no width: what reads it gets whole lines.
    assert found.reason.strip() in capfd.readouterr().out
