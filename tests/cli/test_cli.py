"""The program: help, exit codes, errors in one line; reading kernels and sizes; small commands."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import loopy as lp
import pytest
import typer

import perflex
from perflex import Device
from perflex.__main__ import main
from perflex.cli.app import application
from perflex.cli.arguments import ArgumentError, load_kernel, read_sizes
from perflex.cli.options import LAUNCH
from perflex.devices.device import DeviceInfo
from perflex.errors import MeasurementError, TagError

if TYPE_CHECKING:
    from pathlib import Path

MOST_OPTIONS = 12


def test_help_lists_the_commands_without_loading_heavy_packages() -> None:
    code = (
        "import sys; from perflex.__main__ import main; code = main(['--help']); "
        "heavy = {'loopy', 'sympy', 'pyopencl', 'numpy', 'scipy', 'matplotlib', 'islpy', 'sqlite3', 'jinja2'}; "
        "heavy &= set(sys.modules); "
        "sys.exit(f'loaded {heavy}' if heavy else code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "devices" in done.stdout
    assert "catalog" in done.stdout


def test_a_command_loads_no_other_command() -> None:
    code = (
        "import sys; from perflex.__main__ import main; main(['catalog', 'empty']); "
        "print(*[name for name in sys.modules if name.startswith('perflex.cli.')], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.split().count("perflex.cli.features") == 1
    assert "perflex.cli.calibrate" not in done.stderr.split()


def _commands() -> dict[str, typer.core.TyperCommand]:
    """Return every command by its words, those of ``machine`` and ``store`` included."""
    found = {}
    for name, command in typer.main.get_command(application()).commands.items():
        inner = getattr(command, "commands", None)
        found |= {name: command} if inner is None else {f"{name} {word}": one for word, one in inner.items()}
    return found


@pytest.mark.parametrize("name", _commands())
def test_help_of_each_command_has_an_example_and_few_options(name: str) -> None:
    command = _commands()[name]
    program, *words = command.epilog.replace("\\\n", "").replace("\b\n", "").removeprefix("Example: ").split()
    assert [program, *words][: 1 + len(name.split())] == ["perflex", *name.split()]
    # Reads the words and checks their types; runs nothing.
    assert command.make_context(name, words[len(name.split()) :]).params
    # Those of a kernel's launch stand in a group of their own.
    options = [one for one in command.params if one.param_type_name == "option" and one.name not in {"help", *LAUNCH}]
    assert len(options) <= MOST_OPTIONS


def test_version_of_the_module_as_a_program() -> None:
    done = subprocess.run([sys.executable, "-m", "perflex", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"perflex {perflex.__version__}"


def test_devices_shows_why_one_is_not_usable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device("Old [1]", "Maker", "Some CPU", "1.2", local_memory_bytes=2048, compute_units=3)
    broken = DeviceInfo(device, usable=False, reason="unknown target CPU [x]", found_by="file [y]")
    monkeypatch.setattr("perflex.devices.listing._listed", lambda: ((broken,), ("driver libz.so: [gone]",)))
    assert main(["devices"]) == 0
    shown = capsys.readouterr()
    for text in ("not usable: unknown target CPU [x]", "Some CPU (Old [1])", "3 compute units, 2 KiB", "file [y]"):
        assert text in shown.out
    assert "libz.so: [gone]" in " ".join(shown.err.split())
    assert "perflex[cpu]" in shown.err


def test_catalog_shows_generators_with_allowed_values(capsys: pytest.CaptureFixture[str]) -> None:
    from uipick import ALL_GENERATORS

    assert main(["catalog", "matmul_sq"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("matmul_sq ")
    assert "dtype: float32, float64" in text
    assert "flops" not in text
    assert main(["catalog", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["name"] for row in rows] == [generator.name for generator in ALL_GENERATORS]
    assert all(a["allowed"] and a["default"] for row in rows for a in row["arguments"])


@pytest.mark.parametrize("tag", ["matmull", "n:3"])
def test_bad_tag_is_one_line_on_standard_error(capsys: pytest.CaptureFixture[str], tag: str) -> None:
    assert main(["catalog", tag]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("perflex: error: ")
    assert shown.err.count("\n") == 1
    assert tag in shown.err
    with pytest.raises(TagError):
        main(["--debug", "catalog", tag])


@pytest.mark.parametrize("words", [["no-such-command"], ["devices", "--no-such-option"]])
def test_unknown_words_are_bad_input(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert "no-such" in capsys.readouterr().err


def test_failed_work_has_another_exit_code(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        msg = "the launch\nfailed"
        raise MeasurementError(msg)

    monkeypatch.setattr("perflex.devices.listing.list_devices", fail)
    assert main(["devices"]) == 1
    assert capsys.readouterr().err == "perflex: error: the launch failed\n"


def test_reader_that_stops_early_is_no_error() -> None:
    words = [sys.executable, "-m", "perflex", "catalog"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline().endswith("\n")
        command.stdout.close()
        assert command.stderr.read() == ""


def test_sizes_are_read() -> None:
    assert read_sizes(["n=1024", " m = -3 "]) == {"n": 1024, "m": -3}
    for words in (["n"], ["n="], ["=3"], ["n=1.5"], ["n=two"], ["1n=2"], ["n=1", "n=2"], ["n=1=2"]):
        with pytest.raises(ArgumentError, match=r"write name=value|must be an integer|given twice"):
            read_sizes(words)


KERNEL_FILE = """
from dataclasses import dataclass
import json
import loopy as lp
import beside_the_kernel

@dataclass
class Options:
    name: str = "scale"

def make(factor=beside_the_kernel.FACTOR):
    return lp.make_kernel("{[i]: 0<=i<n}", f"b[i] = {factor}*a[i]", name=Options().name, lang_version=(2018, 2))

def needs(n):
    return make()

def wrong():
    return 3

def late():
    import beside_the_kernel
    return make(beside_the_kernel.FACTOR)

def fails():
    return json.loads('{mine')

def full():
    import sqlite3
    raise sqlite3.OperationalError('full')

def gone():
    open('/absent')

constant = 3
"""


@pytest.fixture
def kernel_file(tmp_path: Path) -> Path:
    path = tmp_path / "my kernels.py"
    path.write_text(KERNEL_FILE)
    (tmp_path / "beside_the_kernel.py").write_text("FACTOR = 2\n")
    (tmp_path / "json.py").write_text("raise RuntimeError('hides a standard module')\n")
    return path


def test_kernel_is_loaded_from_a_file(kernel_file: Path) -> None:
    assert load_kernel(f"{kernel_file}:make").default_entrypoint.name == "scale"
    # Modules beside the file can be imported until the next one; the path keeps its own entries.
    before = list(sys.path)
    assert before[-1] == str(kernel_file.parent)
    assert isinstance(load_kernel(f"{kernel_file}:late"), lp.TranslationUnit)
    assert sys.path == before


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("mak", "has no 'mak'; it has .*make, .*needs, wrong, late"),
        ("constant", "constant is a int; name a function that returns a loopy TranslationUnit"),
        ("needs", r"needs arguments \(n\)"),
        ("wrong", "wrong is a int; name a function"),
        # The error is raised below the user's file; its line is that of the file's own call.
        ("fails", r"kernels\.py, line 25 in fails: JSONDecodeError: Expecting .*--debug"),
    ],
)
def test_wrong_functions_are_named(kernel_file: Path, function: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        load_kernel(f"{kernel_file}:{function}")


def test_source_code_needs_its_launch() -> None:
    with pytest.raises(ArgumentError, match=r"my\.cl:axpy needs its launch: --local 32,8, and --groups or --global"):
        load_kernel("my.cl:axpy")
    with pytest.raises(ArgumentError, match=r"there is no file my\.cl"):
        load_kernel("my.cl")


@pytest.mark.parametrize("command", ["features", "volumes", "layers", "block", "roofline", "predict", "rank"])
def test_help_says_which_files_hold_kernels(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    help_text = " ".join(capfd.readouterr().out.replace("│", " ").split())
    assert "KERNEL.cl:name, KERNEL.cu:name, KERNEL.py:function (a loopy kernel), or SCOP.yaml" in help_text


def test_errors_of_files_and_caches_in_users_code_are_passed_on(kernel_file: Path) -> None:
    with pytest.raises(sqlite3.OperationalError, match="full"):
        load_kernel(f"{kernel_file}:full")
    with pytest.raises(FileNotFoundError, match="absent"):
        load_kernel(f"{kernel_file}:gone")


def test_wrong_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=r"write KERNEL\.py:function"):
        load_kernel("kernel.py")
    with pytest.raises(ArgumentError, match=r"there is no file .*absent\.py"):
        load_kernel(f"{tmp_path}/absent.py:make")
    (tmp_path / "kernel.txt").write_text("")
    with pytest.raises(ArgumentError, match="is no Python file"):
        load_kernel(f"{tmp_path}/kernel.txt:make")
    (tmp_path / "broken.py").write_text("def make(:\n")
    with pytest.raises(ArgumentError, match=r"broken\.py, line 1"):
        load_kernel(f"{tmp_path}/broken.py:make")
    (tmp_path / "at_once.py").write_text("\n{}['mine']\n")
    with pytest.raises(ArgumentError, match=r"at_once\.py, line 2: KeyError: 'mine'"):
        load_kernel(f"{tmp_path}/at_once.py:make")
