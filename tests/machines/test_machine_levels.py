"""Cache levels and memory bandwidths of machines, and the machine that the operating system reports."""

import json
import re
import subprocess
import sys

import pytest

from perflex import load_machine
from perflex.__main__ import main
from perflex.errors import FileFormatError, MachineError
from perflex.machines.host import ReportedCache, ReportedCpu, host_machine, is_victim
from perflex.machines.machine import CacheLevel, MemoryStream

LEVELS = """\
schema: perflex-machine/1
name: Small
aliases: []
vendor: Me
kind: cpu
sources:
  sheet: {kind: datasheet, text: my sheet}
facts:
  cores: {value: 2, unit: core, source: sheet}
levels:
- name: L1
  size_bytes: {value: 1, unit: KiB, source: sheet}
  shared_by: {value: 1, unit: core, source: sheet}
  line_bytes: {value: 64, unit: B, source: sheet}
  write_allocate: {value: true, source: sheet}
  victim: {value: false, source: sheet}
  duplex: {value: true, source: sheet}
  overlap: {value: sum, source: sheet}
- name: L2
  size_bytes: {value: 8, unit: KiB, source: sheet}
  shared_by: {value: 2, unit: core, source: sheet}
  line_bytes: {value: 64, unit: B, source: sheet}
  ways: {value: 3, unit: way, source: sheet}
  write_allocate: {value: true, source: sheet}
  victim: {value: true, source: sheet}
  load_bytes_per_cycle: {value: 16, unit: B/cycle, source: sheet}
  store_bytes_per_cycle: {value: 8, unit: B/cycle, source: sheet}
  duplex: {value: false, source: sheet}
  overlap: {value: max, source: sheet}
memory_streams:
- {name: copy, loads: 1, stores: 1, write_allocates: 1, bandwidth: {value: 2, unit: GB/s, source: sheet}}
"""


@pytest.fixture
def small(tmp_path):
    path = tmp_path / "small.yaml"
    path.write_text(LEVELS)
    return path


def test_levels_and_streams_are_read_in_si_units_with_sources(small):
    machine = load_machine(small)
    first, second = machine.levels
    assert first == CacheLevel("L1", 1024, 1, 64, None, True, False, None, None, True, "sum")
    assert second == CacheLevel("L2", 8192, 2, 64, 3, True, True, 16.0, 8.0, False, "max")
    assert machine.memory_streams == (MemoryStream("copy", 1, 1, 1, 2e9),)
    assert machine.memory_streams[0].stored_part == 1 / 3
    assert machine.need_levels() == machine.levels
    assert machine.sources["L2.ways"].text == machine.sources["memory.copy"].text == "my sheet"
    assert "L1.ways" not in machine.sources
    assert hash(machine) == hash(load_machine(small))


def test_a_shared_cache_is_divided_in_whole_sets():
    level = load_machine("clx").levels[2]
    assert [level.bytes_per_core(cores) for cores in (1, 2, 10, 20)] == [14680064, 7340032, 1467392, 1467392]
    assert (
        load_machine("rome").levels[2].bytes_per_core(4) == load_machine("rome").levels[2].bytes_per_core(32) == 2**22
    )
    assert load_machine("clx-snc-off").levels[2].bytes_per_core(20) == 1467392


def test_a_machine_without_levels_says_so():
    with pytest.raises(MachineError, match="V100 has no cache levels"):
        load_machine("V100").need_levels()


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("name: L2", "name: L1", 19, "two levels L1"),
        ("name: L2", "name: mem", 19, "letters and digits"),
        ("value: 8, unit: KiB", "value: 1, unit: KiB", 20, "larger than L1"),
        ("value: 8, unit: KiB", "value: 8, unit: core", 20, "unit must be one of 'B'"),
        ("value: 3, unit: way", "value: 2.5, unit: way", 23, "whole number"),
        ("value: 3, unit: way", "value: 300, unit: way", 20, "a set of 300"),
        ("overlap: {value: max", "overlap: {value: min", 29, "'max', 'sum'"),
        ("duplex: {value: false", "duplex: {value: 0", 28, "true or false"),
        ("value: 2, unit: GB/s, source: sheet", "value: 2, unit: GB/s, source: web", 31, "no source 'web'"),
        ("loads: 1, stores: 1, write_allocates: 1", "loads: 0, stores: 0, write_allocates: 0", 31, "not all zero"),
        ("loads: 1,", "loads: 1.5,", 31, "whole number"),
        ("duplex: {value: false, source: sheet}", "duplex: {value: false, source: sheet}\n  speed: 1", 29, "no such"),
    ],
)  # fmt: skip
def test_a_wrong_field_is_named_with_its_line(small, old, new, line, words):
    assert LEVELS.count(old) == 1
    small.write_text(LEVELS.replace(old, new))
    with pytest.raises(FileFormatError, match=words) as caught:
        load_machine(small)
    assert f"line {line}" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "cores", "level", "overlap"), [("clx", 20, "14336", "sum"), ("rome", 32, "16384", "max")]
)
def test_show_prints_levels(name, cores, level, overlap, capsys):
    assert main(["machine", "show", name]) == 0
    shown = capsys.readouterr().out
    assert re.search(rf"^L3 +{level} ", shown, re.MULTILINE)
    assert "registers_per_unit" not in shown
    assert main(["machine", "show", name, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["facts"]["cores"]["value"] == cores
    assert {entry["overlap"] for entry in found["levels"]} == {overlap}
    assert found["levels"][2]["sources"]["size_bytes"].startswith("datasheet: ")
    assert [entry["name"] for entry in found["memory_streams"]] == ["copy", "triad"]


KIB = 1024
L1 = ReportedCache(1, 48 * KIB, 64, 1, 12)
L2 = ReportedCache(2, 2048 * KIB, 64, 1, 16)
L3 = ReportedCache(3, 32768 * KIB, 64, 8, None)
CPU = ReportedCpu("A  Processor 7", "Intel", 8, 2, 64, (L1, L2, L3))


def test_facts_are_those_reported():
    machine = host_machine(CPU)
    assert (machine.name, machine.kind, machine.vendor) == ("A-Processor-7", "cpu", "Intel")
    assert machine.known() == {
        "compute_units": 8, "cores": 8, "line_bytes": 64, "cores_per_domain": 4, "domains": 2, "simd_bytes": 64,
    }  # fmt: skip
    levels = [(level.name, level.size_bytes, level.ways, level.shared_by, level.hashed) for level in machine.levels]
    assert levels == [
        ("L1", 48 * KIB, 12, 1, False),
        ("L2", 2048 * KIB, 16, 1, False),
        ("L3", 32768 * KIB, None, 8, True),
    ]
    assert machine.sources["L2.size_bytes"].kind == "reported"


def test_bandwidths_stay_unknown():
    machine = host_machine(CPU)
    assert machine.levels[0].load_bytes_per_cycle is None
    assert machine.memory_streams == ()
    with pytest.raises(MachineError, match="no fact clock_hz"):
        machine.need("clock_hz")


@pytest.mark.parametrize(
    ("vendor", "second", "victim"),
    [("Intel", L2, True), ("Intel", ReportedCache(2, 256 * KIB, 64, 1, 8), False), ("AMD", L2, True), ("", L2, False)],
)
def test_third_levels_filled_by_evictions(vendor, second, victim):
    cpu = ReportedCpu("A", vendor, 8, None, None, (L1, second, L3))
    assert is_victim(cpu, L3) is victim
    assert [level.victim for level in host_machine(cpu).levels] == [False, False, victim]


@pytest.mark.machine
def test_this_machine_in_a_moment():
    machine = host_machine()
    assert machine.kind == "cpu"
    assert machine.levels[0].name == "L1"


LOOK_UP = """
import sys
from perflex.machines.files import load_machine, machine_names, machine_of_device
assert load_machine(machine_names()[0])
assert machine_of_device("no such device") is None
print(*sorted(name for name in sys.modules if name.startswith(("perflex.", "loopy", "islpy", "sympy", "scipy"))))
"""


def test_looking_up_a_machine_loads_nothing_of_calibration():
    done = subprocess.run([sys.executable, "-c", LOOK_UP], check=True, capture_output=True, text=True)
    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("perflex.")}
    ground = {"caches", "errors", "file_io", "guard", "html", "tables", "version", "yaml_file"}
    assert rooms <= {"machines", "calib_data", *ground}
    assert not [name for name in done.stdout.split() if not name.startswith("perflex.")]
