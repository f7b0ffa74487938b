"""Detecting a machine: a made-up system's files, a law's bandwidths found again, the file, and the command."""

import json

import pytest
from msgspec import structs

from perflex import load_machine
from perflex.__main__ import main
from perflex.errors import DeviceError, MachineError, PerflexWarning
from perflex.machines.host import reported_cpu
from perflex.studies import machine_detect
from perflex.studies.machine_detect import Bandwidths, cpu_device, detect_machine, repeated_rates
from perflex.testing import FakeDevice
from perflex.yaml_file import write_yaml

CLOCK = 3e9
KiB, MiB = 2**10, 2**20


def put(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


@pytest.fixture
def system(tmp_path):
    """Two nodes of two cores with two hardware threads each."""
    root = tmp_path / "root"
    put(root, "sys/devices/system/cpu/online", "0-7")
    put(root, "sys/devices/system/node/has_cpu", "0-1")
    flags = "fpu sse2 avx avx2"
    put(
        root,
        "proc/cpuinfo",
        f"vendor_id\t: AuthenticAMD\nmodel name\t: AMD Test 1\nflags\t\t: {flags}\n\nflags\t: avx512f",
    )
    for cpu in range(8):
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/core_id", str(cpu % 4))
        put(root, f"sys/devices/system/cpu/cpu{cpu}/topology/physical_package_id", "0")
    rows = (
        (0, 1, "Data", "32K", "0,4"),
        (1, 1, "Instruction", "64K", "0,4"),
        (2, 2, "Unified", "512K", "0,4"),
        (3, 3, "Unified", "16M", "0-1,4-5"),
    )
    for index, level, kind, size, sharing in rows:
        folder = f"sys/devices/system/cpu/cpu0/cache/index{index}"
        entries = {"level": str(level), "type": kind, "size": size, "coherency_line_size": "64"}
        entries |= {"ways_of_associativity": "8", "shared_cpu_list": sharing}
        for name, text in entries.items():
            put(root, f"{folder}/{name}", text)
    return root


def test_what_the_system_reports(system):
    cpu = reported_cpu(system)
    assert (cpu.model, cpu.vendor, cpu.cores, cpu.domains, cpu.simd_bytes) == ("AMD Test 1", "AMD", 4, 2, 32)
    found = [(c.level, c.size_bytes, c.shared_by, c.line_bytes, c.ways) for c in cpu.caches]
    assert found == [(1, 32 * KiB, 1, 64, 8), (2, 512 * KiB, 1, 64, 8), (3, 16 * MiB, 2, 64, 8)]
    assert cpu.missing == ()


@pytest.mark.parametrize(
    ("path", "words", "unknown"),
    [
        ("sys/devices/system/cpu/cpu0/cache/index3/size", "L3: size", lambda cpu: len(cpu.caches) == 2),
        (
            "sys/devices/system/cpu/cpu0/cache/index2/ways_of_associativity",
            "L2: ways_of_associativity",
            lambda cpu: cpu.caches[1].ways is None,
        ),
        ("sys/devices/system/node/has_cpu", "NUMA nodes", lambda cpu: cpu.domains is None),
        ("proc/cpuinfo", "model name", lambda _: True),
    ],
)
def test_what_is_missing_is_named_and_not_guessed(system, path, words, unknown):
    (system / path).unlink()
    cpu = reported_cpu(system)
    assert any(words in entry for entry in cpu.missing)
    assert unknown(cpu)


def test_cores_with_other_caches_are_told(system):
    # The first two are cores for speed with two hardware threads each, the others for economy.
    for cpu in range(8):
        for index, level, size in ((0, 1, "32K" if cpu % 4 < 2 else "16K"), (2, 2, "512K"), (3, 3, "16M")):
            for name, text in (("level", str(level)), ("size", size), ("type", "Unified")):
                put(system, f"sys/devices/system/cpu/cpu{cpu}/cache/index{index}/{name}", text)
    with pytest.warns(PerflexWarning, match="no one size of caches for all cores .CPU 2 and 3 more have others"):
        cpu = reported_cpu(system)
    assert cpu.caches[0].size_bytes == 32 * KiB
    assert "CPU 2 and 3 more have others than CPU 0, whose caches stand for all" in " ".join(cpu.missing)


def test_no_machine_without_caches(system, tmp_path):
    (system / "sys/devices/system/cpu/cpu0/cache/index0/size").unlink()
    with pytest.raises(MachineError, match=r"does not report the caches .*L1: size.* write the machine file by hand"):
        reported_cpu(system)
    with pytest.raises(MachineError, match="reports no CPUs"):
        reported_cpu(tmp_path)


# Cycles per byte of one core: loaded, and loaded and stored, by level; and of the memory with all cores.
LAW = {"L1": (1 / 64, 1 / 32), "L2": (1 / 32, 1 / 20), "L3": (1 / 16, 1 / 8), "memory": (1 / 4, 1 / 2)}
TOGETHER = 1 / 6
# Operations per cycle.
MADDS = {"float32": 32, "float64": 16}


def law(label, sizes):
    """The time of a launch: 50 microseconds, and what it goes through."""
    kind, *rest = label.split()
    if kind == "chain":
        return 5e-5 + sizes["m"] * 32 / CLOCK
    if kind in {"copy", "triad"}:
        return sizes["nvectors"] * 8 * (3 if kind == "copy" else 4) * TOGETHER / CLOCK
    if kind == "madd":
        return 5e-5 + sizes["m"] * 16 * 16 * 2 / MADDS[rest[0]] / CLOCK
    level, groups, _ = rest
    amount = sizes["m"] * sizes["nrows"] * 512
    if level == "memory" and groups != "1":
        return 5e-5 + amount * sizes["ngroups"] * TOGETHER * (2 if kind == "update" else 1) / CLOCK
    return 5e-5 + amount * LAW[level][kind == "update"] / CLOCK


@pytest.mark.parametrize("overlap", ["max", "sum"])
def test_the_machine_of_a_known_law_is_found(system, tmp_path, overlap):
    found = detect_machine(FakeDevice(law), reported_cpu(system), overlap=overlap, quick=True)
    assert found.remarks == ()
    file = tmp_path / "found.yaml"
    write_yaml(file, found.document)
    machine = load_machine(file)
    assert machine.clock_hz == pytest.approx(CLOCK, rel=1e-3)
    assert (machine.name, machine.cores, machine.cores_per_domain, machine.domains) == ("AMD-Test-1", 4, 2, 2)
    assert (machine.fp32_per_cycle, machine.fp64_per_cycle) == pytest.approx((32, 16), rel=1e-3)
    loaded = updated = 0.0
    for level in machine.levels:
        load, update = LAW[level.name]
        own = 1 / level.load_bytes_per_cycle
        both = max(own, 1 / level.store_bytes_per_cycle) if level.duplex else own + 1 / level.store_bytes_per_cycle
        # With full overlap a level's own time is what was measured; without, the times up to it add up to that.
        loaded, updated = (own, both) if overlap == "max" else (loaded + own, updated + both)
        assert (loaded, updated) == pytest.approx((load, update), rel=1e-3), level.name
        assert level.overlap == overlap
    assert [level.victim for level in machine.levels] == [False, False, True]
    streams = {stream.name: stream.bandwidth for stream in machine.memory_streams}
    # All of it is of one domain of two.
    assert streams == pytest.approx(dict.fromkeys(("load", "update", "copy", "triad"), CLOCK / TOGETHER / 2), rel=1e-3)
    assert machine.memory_load_penalty == pytest.approx(max(0, 64 * (1 / 4 - 2 * TOGETHER)), abs=0.02)


def test_every_number_has_a_source_and_assumptions_are_called_so(system, tmp_path):
    found = detect_machine(FakeDevice(law), reported_cpu(system), quick=True)
    file = tmp_path / "found.yaml"
    write_yaml(file, found.document)
    kinds = {fact: source.kind for fact, source in load_machine(file).sources.items()}
    assert kinds["L1.size_bytes"] == kinds["cores"] == "reported"
    assert kinds["clock_hz"] == kinds["L2.load_bytes_per_cycle"] == kinds["memory.copy"] == "measured"
    assert kinds["L1.overlap"] == kinds["L3.victim"] == kinds["L1.write_allocate"] == "assumed"


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            lambda label, sizes: law(label.replace("L3 1", "memory 1"), sizes),
            "L3: a working set that fits into its 16 MiB is loaded no faster than from memory",
        ),
        (lambda label, sizes: law(label, sizes) * (20 if " L1 " in label else 1), "makes no vectors"),
    ],
)
def test_what_does_not_show_is_reported(system, changed, words):
    remarks = detect_machine(FakeDevice(changed), reported_cpu(system), quick=True).remarks
    assert any(words in remark for remark in remarks)


def test_a_small_last_cache_is_told_in_its_size(system):
    cpu = reported_cpu(system)
    small = structs.replace(cpu, caches=cpu.caches[:2])
    changed = FakeDevice(lambda label, sizes: law(label.replace("L2 1", "memory 1"), sizes))
    assert any("into its 0.5 MiB" in remark for remark in detect_machine(changed, small, quick=True).remarks)


def test_a_device_with_a_share_of_the_cores_is_told(system):
    class Part(FakeDevice):
        compute_units = 3

    found = detect_machine(Part(law), reported_cpu(system), quick=True)
    assert any("3 of the CPU's 4 cores" in remark for remark in found.remarks)
    assert "DOUBTFUL" in str(found.document["sources"])


def test_times_that_make_no_sense_are_errors(system):
    with pytest.raises(MachineError, match=r"took no longer .* does nothing else"):
        detect_machine(FakeDevice(lambda *_: 1e-3), reported_cpu(system), quick=True)
    with pytest.raises(MachineError, match="L2 was measured to be as fast as the level before it"):
        detect_machine(
            FakeDevice(lambda label, sizes: law(label.replace(" L2 ", " L1 "), sizes)),
            reported_cpu(system), overlap="sum", quick=True,
        )  # fmt: skip


@pytest.fixture(autouse=True)
def _no_limit(monkeypatch):
    monkeypatch.setattr(machine_detect, "_QUICK_LIMIT_S", 3600.0)


def slowed(factor):
    return lambda label, sizes: law(label, sizes) * (factor if "L3" in label else 1)


def detected(system, monkeypatch, *laws):
    """Detect a machine whose runs of all kernels follow one law after the other; return how many there were, too."""
    plain, left = machine_detect.measure_rates, list(laws)

    def measured(caches, cores, _, **more):
        return plain(caches, cores, FakeDevice(left.pop(0)), **more)

    monkeypatch.setattr(machine_detect, "measure_rates", measured)
    found = detect_machine(FakeDevice(law), reported_cpu(system), overlap="max", quick=True)
    return found, len(laws) - len(left)


@pytest.mark.parametrize(
    ("laws", "expected"),
    [
        ([law, law, law], 2),
        # Until two agree; a run that makes no sense is taken again.
        ([slowed(5.0), slowed(1.0), slowed(3.0), slowed(1.04), law], 4),
        ([lambda *_: 1e-3, law, law, law], 3),
    ],
)
def test_runs_are_repeated_until_two_agree(system, monkeypatch, laws, expected):
    found, runs = detected(system, monkeypatch, *laws)
    assert (runs, found.remarks) == (expected, ())
    assert found.rates.rate("L3") == pytest.approx(CLOCK * 16, rel=0.01)
    assert "two runs agree within 10 %" in found.document["sources"]["one_core"]["text"]


def test_runs_that_never_agree_are_told_and_written_down(system, monkeypatch):
    found, runs = detected(system, monkeypatch, *map(slowed, (6.0, 5.0, 4.0, 3.0, 2.0, 1.0)))
    assert runs == 5
    (remark,) = [one for one in found.remarks if "5 runs" in one]
    assert "5 runs differ in 4 numbers by up to 33 % (L3" in remark
    for source in ("one_core", "streams"):
        assert "DOUBTFUL: 5 runs differ" in found.document["sources"][source]["text"]


def test_time_is_bounded_and_permanent_load_is_told():
    def rates(value, disturbed=0):
        return Bandwidths({"clock": value}, (disturbed, 20))

    values = iter((1e9, 2e9, 4e9))
    moments = iter((0.0, 50.0, 130.0))
    found, (doubt,) = repeated_rates(lambda: rates(next(values)), 120.0, clock=lambda: next(moments))
    assert found.clock_hz == 2e9
    assert doubt == "2 runs differ in 1 numbers by up to 50 % (clock), not within 10 %"
    # One run that takes too long has none to agree with.
    late = iter((0.0, 200.0))
    _, (doubt,) = repeated_rates(lambda: rates(1e9), 120.0, clock=lambda: next(late))
    assert "only one run succeeded" in doubt
    # What is always there lets runs agree, but the system reports that others ran.
    _, doubts = repeated_rates(lambda: rates(1e9, disturbed=7), 120.0)
    assert doubts == ["7 of 20 measurements were disturbed every time"]


def test_no_cpu_is_a_clear_error(monkeypatch):
    monkeypatch.setattr("perflex.devices.listing.list_devices", tuple)
    with pytest.raises(DeviceError, match=r"no OpenCL device is a CPU .*perflex\[cpu\]"):
        cpu_device()


def test_the_command_writes_a_machine_that_can_be_shown(system, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine_detect, "cpu_device", lambda _: FakeDevice(law))
    monkeypatch.setattr(machine_detect, "reported_cpu", lambda: reported_cpu(system))
    out = tmp_path / "mine.yaml"
    assert main(["machine", "detect", "--quick", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    assert "AMD Test 1: 4 cores, 3 GHz" in shown
    assert " 192.0 " in shown
    assert main(["machine", "show", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "AMD-Test-1"
    assert main(["machine", "detect", "--out", str(tmp_path / "mine.txt")]) != 0
    assert "end in .yaml" in capsys.readouterr().err


def test_kernels_go_through_what_they_say(system):
    """Working sets lie inside their level and outside the one before it."""
    caches = reported_cpu(system).caches
    sizes = {(one.name, one.groups): one.size_bytes for one in machine_detect._working_sets(caches, 4)}
    assert sizes["L1", 1] < 32 * KiB < sizes["L2", 1] < 512 * KiB < sizes["L3", 1] < 16 * MiB < sizes["memory", 1]
    assert 512 * KiB < sizes["L3", 4] <= 8 * MiB
    assert 4 * sizes["memory", 4] >= 4 * 2 * 16 * MiB
