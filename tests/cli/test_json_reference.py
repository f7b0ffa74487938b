"""docs/reference/json.md lists the keys that commands print, no others and none fewer."""

import json
import math
import re
from pathlib import Path

import pytest
import typer

from perflex.__main__ import main
from perflex.cli.app import application
from perflex.testing import FakeDevice
from support.own_model import MODEL

TOP = Path(__file__).parents[2]
POCL = "calib_data/calibrations/matmul_sq_amd_epyc_4cores_pocl.yaml"
KERNELS = "examples/matmul.py:naive examples/matmul.py:prefetching"
STENCIL = "examples/stencil.py:star25 --machine V100 nz=512"
JACOBI = "examples/jacobi.py:seven_point --machine Gold-6248 N=600"
QUICK = {
    "devices": "",
    "list generators": "empty",
    "predict": f"{POCL} examples/matmul.py:naive n=64 --confidence 0.9",
    "explain": "examples/matmul.cl:naive --machine V100 --local 16,16 --global n,n n=1024",
    "diff": f"{POCL} {KERNELS} n=64",
    "gate": f"{POCL} {KERNELS} n=64 time<=10s,exact",
    "rank": f"{POCL} {KERNELS} n=64",
    "prune": f"{POCL} space.yaml",
    "volumes": f"{STENCIL} nx=640 ny=512,1024",
    "layers": f"{JACOBI} M=1000",
    "layers, a series": f"{JACOBI} M=1000:1500:500",
    "block": f"{JACOBI} M=1000",
    "roofline": "examples/transposes.py:tiled n=1024 --machine V100",
    "transfer": f"{POCL} --machine EPYC-7452 -o new.yaml",
    "calibrate": "mine.yaml --times log.csv --kernels examples/matmul.py --machine V100 -o mine_v100.yaml",
    "machine show": "V100",
    "store list": "",
    "time": f"{KERNELS} n=64 -d fake",
    "tune": f"{POCL} space.yaml --measurements 3 -d fake",
}
# Those that look at the machine, describe dozens of kernels, or fit a model many times.
LONG = {
    "doctor": "--seconds 5",
    "diagnose": POCL,
    "demo": "--out demo-out --sizes 96,160 --trials 3 --accept-noise",
    "evaluate": "matmul --out evaluation --trials 3 --accept-noise",
}
MARKS = {name: [pytest.mark.slow, pytest.mark.machine] if name == "doctor" else [pytest.mark.slow] for name in LONG}
# Commands whose JSON is described in words: a document of another reference, or lines.
IN_WORDS = {"features", "list machines", "list models", "list calibrations", "machine detect"}


def documented():
    """Return the keys of each section of the reference: all, and those that are always there."""
    text = (TOP / "docs" / "reference" / "json.md").read_text(encoding="utf-8")
    found = {}
    for section in re.split(r"^## perflex ", text, flags=re.MULTILINE)[1:]:
        heading, _, body = section.partition("| Key of ")[0].partition("\n")
        everything = set()
        always = set()
        optional = False
        for line in body.splitlines():
            # Of what is there with an option alone.
            optional = line.startswith("| Key of") or (optional and line.startswith("|"))
            if line.startswith("| `"):
                cells = line.split("|")
                names = set(re.findall(r"`([^`]+)`", cells[1]))
                everything |= names
                always |= set() if optional or "only with" in line else names
        if everything:
            found[heading.strip()] = (everything, always)
    return found


@pytest.fixture
def root(tmp_path, monkeypatch):
    for name in ("examples", "calib_data"):
        (tmp_path / name).symlink_to(TOP / name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(MODEL, encoding="utf-8")
    rows = [f"{name},{n},{5.0 + n**3 / 32 * 16e-6!r}" for name in ("naive", "prefetching") for n in (128, 256, 512)]
    (tmp_path / "log.csv").write_text("\n".join(["kernel,n,time_us", *rows]) + "\n", encoding="utf-8")
    assert main(["features", "examples/matmul.py:naive", "n=64"]) == 0  # makes a store
    few = Path("examples/convolution_space.yaml").read_text(encoding="utf-8").replace("[8, 16, 32, 64]", "[32]")
    few = few.replace("source: ", f"source: {TOP}/examples/").replace("[1, 2, 4]", "[2]")
    Path("space.yaml").write_text(few, encoding="utf-8")
    return tmp_path


def test_every_command_with_json_is_in_the_reference():
    commands = dict(typer.main.get_command(application()).commands)
    for group in ("list", "machine", "store"):
        commands |= {f"{group} {name}": one for name, one in commands.pop(group).commands.items()}
    with_json = {name for name, one in commands.items() if any("--json" in p.opts for p in one.params)}
    # These write a file, delete or check: the exit code says whether that went well.
    assert with_json == commands.keys() - {"store export", "store verify", "store prune"}
    assert with_json | {"layers, a series"} == documented().keys() | IN_WORDS
    assert documented().keys() == QUICK.keys() | LONG.keys()


def law(label, sizes):
    return 1e-5 + 1e-11 * (1 + len(label) % 7) * math.prod(sizes.values())


@pytest.mark.parametrize("name", [*QUICK, *(pytest.param(name, marks=MARKS[name]) for name in LONG)])
def test_keys_are_those_of_the_reference(root, monkeypatch, capfd, name):
    if name in {"demo", "evaluate", "time", "tune"}:
        device = FakeDevice(law, sub_group_size=16, name="fake device", platform="fake platform")
        for place in ("timing.measuring", "devices.listing"):
            monkeypatch.setattr(f"perflex.{place}.find_device", lambda _=None: device)
    words = name.removesuffix(", a series").split() + (QUICK | LONG)[name].split()
    capfd.readouterr()
    code = main([*words, "--json"])
    shown = capfd.readouterr()
    # An unfit machine is a result of the doctor's, too.
    assert code in ((0, 1) if name == "doctor" else (0,)), shown.err
    content = json.loads(shown.out, parse_constant=pytest.fail)
    everything, always = documented()[name]
    for entry in content if isinstance(content, list) else [content]:
        assert entry.keys() <= everything
        assert entry.keys() >= always
