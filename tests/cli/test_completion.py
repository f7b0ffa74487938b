"""Completion in the shell: the scripts, and the names that are offered."""

import os
import subprocess
import sys

import pytest

from perflex import Device
from perflex.__main__ import main
from perflex.cli.completion import complete_device
from perflex.devices.device import DeviceInfo

ENTRY = "import sys; sys.argv[0] = 'perflex'; from perflex.__main__ import main; sys.exit(main())"


def completed(**asked):
    """Return what the program prints, in a process of its own, to a shell that asks."""
    environment = {**os.environ, **asked}
    done = subprocess.run([sys.executable, "-c", ENTRY], capture_output=True, text=True, check=False, env=environment)
    assert done.stderr == ""
    return done.stdout


def offered(line):
    """Return what Bash would be offered for the last word of a line."""
    place = str(len(line.split(" ")) - 1)
    return completed(_PERFLEX_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=place).split()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("perflex prun", {"prune"}),
        ("perflex predict --mach", {"--machine"}),
        ("perflex volumes examples/stencil.py:star25 --machine V1", {"V100"}),
        ("perflex machine show A40", {"A40"}),
        ("perflex calibrate matmul_s", {"matmul_sq"}),
    ],
)
def test_words_are_completed(line, words):
    assert set(offered(line)) == words


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
    script = completed(_PERFLEX_COMPLETE=f"source_{shell}")
    assert f"_PERFLEX_COMPLETE=complete_{shell}" in script
    assert "perflex" in script
