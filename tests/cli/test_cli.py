"""The program: help, exit codes, what it loads; reading sizes; small commands."""

import sqlite3
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import perflex
from perflex import Device
from perflex.__main__ import main
from perflex.cli.arguments import ArgumentError, read_series, read_sizes
from perflex.cli.kernel_files import load_kernel
from perflex.devices.device import DeviceInfo
from perflex.errors import MeasurementError

EXAMPLES = Path(__file__).parents[2] / "examples"
LOOKS_UP = (
    "from perflex.cli.completion import complete_machine, complete_model; complete_machine(''); complete_model('')"
)
RUNS = "from perflex.__main__ import main; assert not main({})"
COUNTED = [f"{EXAMPLES}/matmul.cl:tiled", "--machine", "V100", "--local", "16,16", "--global", "n,n", "n=1024"]
OTHERS = {"loopy", "pytools", "sympy", "pyopencl", "scipy", "matplotlib", "jinja2"}
HEAVY = {*OTHERS, "numpy", "islpy", "sqlite3"}
UNUSED = {
    *OTHERS,
    "unittest.mock",
    "perflex.calibration.calibrating",
    "perflex.compiled.code_values",
    "perflex.compiled.nvidia.cubin",
    "perflex.features.cpu",
    "perflex.features.from_loopy.extraction",
    "perflex.features.from_triton",
    "perflex.features.gpu.su_stencils",
}


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        (RUNS.format(["--help"]), HEAVY),
        (RUNS.format(["--version"]), {*HEAVY, "perflex.cli.predict", "rich"}),
        (RUNS.format(["list", "machines"]), HEAVY),
        # A command loads no other command.
        (RUNS.format(["list", "generators", "empty"]), {"perflex.cli.calibrate"}),
        # What takes a kernel loads what reads and counts it, and no more.
        (RUNS.format(["features", *COUNTED]), {*UNUSED, "perflex.calibration.calibration"}),
        (RUNS.format(["predict", *COUNTED, "--confidence", "0.9"]), UNUSED),
        (RUNS.format(["explain", *COUNTED]), UNUSED),
        (LOOKS_UP, HEAVY),
    ],
)
def test_what_is_not_loaded(code, absent):
    assert all(find_spec(name) for name in absent)
    code = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stderr.split())
    assert "perflex.cli" in loaded
    assert not absent & loaded


def test_version_of_the_module_as_a_program():
    done = subprocess.run([sys.executable, "-m", "perflex", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"perflex {perflex.__version__}"


def test_devices_shows_why_one_is_not_usable(run, monkeypatch):
    device = Device("Old [1]", "Maker", "Some CPU", "1.2", local_memory_bytes=2048, compute_units=3)
    broken = DeviceInfo(device, usable=False, reason="unknown target CPU [x]", found_by="file [y]")
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: ((broken,), ("driver libz.so: [gone]",)))
    code, out, err = run("devices")
    assert code == 0
    for text in ("no: unknown target CPU [x]", "Some CPU (Old [1])", "(KiB) ", "file [y]"):
        assert text in out
    assert "libz.so: [gone]" in " ".join(err.split())
    assert "perflex[cpu]" in err


def test_generators_are_shown_generators_with_allowed_values(shown, content):
    from uipick import ALL_GENERATORS

    text = shown("list", "generators", "matmul_sq")
    assert text.startswith("matmul_sq ")
    assert "dtype: float32, float64" in text
    assert "flops" not in text
    rows = content("list", "generators")
    assert [row["name"] for row in rows] == [generator.name for generator in ALL_GENERATORS]
    assert all(a["allowed"] and a["default"] for row in rows for a in row["arguments"])


def test_failed_work_has_another_exit_code(capsys, monkeypatch):
    def fail(**_):
        msg = "the launch\nfailed"
        raise MeasurementError(msg)

    monkeypatch.setattr("perflex.devices.listing.list_devices", fail)
    assert main(["devices"]) == 1
    assert capsys.readouterr().err == "perflex: error: the launch failed\n"


def test_reader_that_stops_early_is_no_error():
    words = [sys.executable, "-m", "perflex", "list", "generators"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout.readline().endswith("\n")
        command.stdout.close()
        assert command.stderr.read() == ""


def test_sizes_are_read():
    assert read_sizes(["n=1024", " m = -3 "]) == {"n": 1024, "m": -3}
    for words in (["n"], ["n="], ["=3"], ["n=1.5"], ["n=two"], ["1n=2"], ["n=1", "n=2"], ["n=1=2"]):
        with pytest.raises(ArgumentError, match=r"write name=value|must be an integer|given twice"):
            read_sizes(words)
    with pytest.raises(ArgumentError, match=r"n=2,3 has several values, which this command does not take"):
        read_sizes(["m=1", "n=2,3"])


def test_series_are_read():
    assert read_series([]) == [{}]
    assert read_series(["n=3,-1", "m=5"]) == [{"n": 3, "m": 5}, {"n": -1, "m": 5}]
    found = read_series(["x,y=8:16:4", "z=1:2:1,7"])
    assert [tuple(each.values()) for each in found] == [(xy, xy, z) for xy in (8, 12, 16) for z in (1, 2, 7)]
    assert [each["n"] for each in read_series(["n=1:10:4"])] == [1, 5, 9]
    for words in (
        ["n=3:1:1"],
        ["n=1:3"],
        ["n=1:3:0"],
        ["n=1-5"],
        ["n,n=1"],
        ["x,n=1", "n=2"],
        ["n,=1"],
        ["n=1:900000:1"],
    ):
        with pytest.raises(ArgumentError, match=r"first:last:step|given twice|write name=value|more than 100000 comb"):
            read_series(words)


def test_errors_of_files_and_caches_in_users_code_are_passed_on(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text("import sqlite3\n\ndef full():\n    raise sqlite3.OperationalError('full')\n")
    with pytest.raises(sqlite3.OperationalError, match="full"):
        load_kernel(f"{path}:full")


MATMUL, TRANSPOSE = f"{EXAMPLES / 'matmul.py'}:naive", f"{EXAMPLES / 'transposes.py'}:tiled"


@pytest.mark.parametrize(
    ("words", "entries"),
    [
        (("features", MATMUL, "-f", "f_op_float32_madd"), lambda found: found["features"]),
        (("features", "examples/matmul.cl:tiled<<<(n/16, n/16), (16, 16)>>>", "--lines"), lambda found: found["lines"]),
        (("volumes", TRANSPOSE, "--machine", "V100"), lambda found: {k: v for k, v in found.items() if k != "sizes"}),
    ],
)
def test_what_is_found_at_several_sizes_is_what_is_found_at_each(words, entries, content, shown, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    series = content(*words, "n=64:128:64")
    assert [one["sizes"] for one in series] == [{"n": 64}, {"n": 128}]
    assert [entries(one) for one in series] == [content(*words, f"n={n}") for n in (64, 128)]
    assert shown(*words, "n=64,128") == shown(*words, "n=64") + shown(*words, "n=128")


def test_a_roofline_of_several_sizes_has_each(content, shown):
    words = ("roofline", TRANSPOSE, "--machine", "V100", "--time", "bound")
    kernels = content(*words, "n=64,128")["kernels"]
    assert kernels == [content(*words, f"n={n}")["kernels"][0] for n in (64, 128)]
    lines = [line.split() for line in shown(*words, "n=64,128").splitlines()]
    # Beside the names of each of the four tables.
    assert lines.count(["sizes", "n=64", "n=128"]) == 4
