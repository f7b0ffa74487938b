"""The example of each command's help works as it is written, and what it prints fits 80 columns."""

import shlex
from pathlib import Path

import pytest
import typer

from perflex.__main__ import main
from perflex.cli.app import application
from perflex.cli.options import LAUNCH

TOP = Path(__file__).parents[2]
# Examples that measure on a device, with what makes them shorter. None needs a GPU or a cluster.
MEASURING = {
    "time": "",
    "demo": "--sizes 64,96 --trials 3 --accept-noise",
    "doctor": "--seconds 5",
    "calibrate": "--budget 2s --accept-noise",
    "evaluate": "--model linear --trials 3 --accept-noise",
    "machine detect": "--quick",
    "tune": "",
}
# Those that describe dozens of kernels, or fit a model many times.
LONG = ("diagnose", "prune")
MOST_OPTIONS = 12


def commands():
    """Return each command, the groups, and the program itself, by its words."""
    top = typer.main.get_command(application())
    found = {"": top}
    for name, command in top.commands.items():
        found[name] = command
        found |= {f"{name} {word}": one for word, one in getattr(command, "commands", {}).items()}
    return found


def examples():
    # A long example takes several lines.
    return {
        name: command.epilog.removeprefix("\b\n").replace(" \\\n    ", " ").removeprefix("Example: ")
        for name, command in commands().items()
    }


MARKS = dict.fromkeys(LONG, (pytest.mark.slow,)) | dict.fromkeys(MEASURING, (pytest.mark.slow, pytest.mark.machine))
NAMES = [pytest.param(name, marks=MARKS.get(name, ())) for name in examples()]


@pytest.fixture
def root(tmp_path, monkeypatch):
    """A folder with the kernels that examples name; what they write goes nowhere else."""
    (tmp_path / "examples").symlink_to(TOP / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.mark.parametrize("name", NAMES)
def test_example_works_and_fits_the_terminal(root, capfd, name):
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
def test_help_fits_the_terminal_and_has_an_example_of_its_own(name, monkeypatch, shown):
    monkeypatch.setenv("COLUMNS", "80")
    out = shown(*name.split(), "--help")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    text = " ".join(out.replace("\u2502", " ").split())
    assert f"Example: perflex {name}".rstrip() in text
    if name in {"features", "volumes", "layers", "block", "roofline", "predict", "rank"}:
        assert "KERNEL.cl:name, KERNEL.cu:name, KERNEL.py:function (a loopy kernel), or SCOP.yaml" in text


def test_commands_have_few_options():
    for name, command in commands().items():
        # Those of a kernel's launch stand in a group of their own.
        options = [one.name for one in command.params if one.param_type_name == "option"]
        assert len({*options} - {"help", *LAUNCH}) <= MOST_OPTIONS, name
