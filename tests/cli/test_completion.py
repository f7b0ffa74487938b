"""Completion in the shell: the scripts, and the names that are offered."""

import os
import subprocess
import sys

import pytest

from perflex import Device, machine_names
from perflex.__main__ import main
from perflex.cli.completion import complete_description, complete_device, complete_machine, complete_model
from perflex.devices.device import DeviceInfo
from perflex.models import model_names

ENTRY = "import sys; sys.argv[0] = 'perflex'; from perflex.__main__ import main; sys.exit(main())"


def offered(line):
    """Return what Bash would be offered for the last word of a line, from a process of its own."""
    asked = {"_PERFLEX_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("perflex prun", {"prune", "prune-table"}),
        ("perflex predict --mach", {"--machine"}),
        ("perflex volumes examples/stencil.py:star25 --machine V1", {"V100"}),
        ("perflex machine show A40", {"A40"}),
        ("perflex calibrate matmul_s", {"matmul_sq"}),
        ("perflex prune-table cache.json conv", {"convolution"}),
    ],
)
def test_words_are_completed(line, words):
    assert set(offered(line)) == words


def test_names_are_those_of_the_library():
    assert complete_machine("") == list(machine_names())
    assert complete_model("") == ["general", *model_names()]
    assert "gemm" in complete_description("")
    assert complete_machine("nonesuch") == []


def test_devices_are_those_of_the_last_listing(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "new" / "store.sqlite"))
    assert complete_device("") == []
    infos = tuple(
        DeviceInfo(Device("Portable", "Maker", name, "1.2"), usable=usable, reason="", found_by="file")
        for name, usable in (("First CPU", True), ("Second GPU", False))
    )
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: (infos, ()))
    assert main(["devices", "--json"]) == 0
    capsys.readouterr()
    (name,) = complete_device("")
    assert "first" in name
    assert complete_device("zzz") == []
    assert offered("perflex doctor --device ") == [name]
    # A listing that cannot be kept is no error.
    monkeypatch.setenv("PERFLEX_STORE", "/dev/null/store.sqlite")
    assert main(["devices", "--json"]) == 0
    assert complete_device("") == []


@pytest.mark.parametrize("shell", [pytest.param("bash", marks=pytest.mark.machine), "zsh", "fish"])
def test_scripts_are_shown(shell):
    asked = {"_PERFLEX_COMPLETE": f"source_{shell}"}
    done = subprocess.run(
        [sys.executable, "-c", ENTRY], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )
    assert done.stderr == ""
    assert f"_PERFLEX_COMPLETE=complete_{shell}" in done.stdout
    assert "perflex" in done.stdout
