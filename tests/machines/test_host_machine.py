"""The machine of a CPU from what the operating system reports alone."""

from __future__ import annotations

import pytest

from perflex.errors import MachineError
from perflex.machines.host import ReportedCache, ReportedCpu, host_machine, is_victim

KIB = 1024
L1 = ReportedCache(1, 48 * KIB, 64, 1, 12)
L2 = ReportedCache(2, 2048 * KIB, 64, 1, 16)
L3 = ReportedCache(3, 32768 * KIB, 64, 8, None)
CPU = ReportedCpu("A  Processor 7", "Intel", 8, 2, 64, (L1, L2, L3))


def test_facts_are_those_reported() -> None:
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


def test_bandwidths_stay_unknown() -> None:
    machine = host_machine(CPU)
    assert machine.levels[0].load_bytes_per_cycle is None
    assert machine.memory_streams == ()
    with pytest.raises(MachineError, match="no fact clock_hz"):
        machine.need("clock_hz")


@pytest.mark.parametrize(
    ("vendor", "second", "victim"),
    [("Intel", L2, True), ("Intel", ReportedCache(2, 256 * KIB, 64, 1, 8), False), ("AMD", L2, True), ("", L2, False)],
)
def test_third_levels_filled_by_evictions(vendor: str, second: ReportedCache, victim: bool) -> None:
    cpu = ReportedCpu("A", vendor, 8, None, None, (L1, second, L3))
    assert is_victim(cpu, L3) is victim
    assert [level.victim for level in host_machine(cpu).levels] == [False, False, victim]


@pytest.mark.machine
def test_this_machine_in_a_moment() -> None:
    machine = host_machine()
    assert machine.kind == "cpu"
    assert machine.levels[0].name == "L1"
