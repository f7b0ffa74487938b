"""Machines: what ships, how files are read, names found, and how many work-groups fit a compute unit."""

import pickle
import re
from dataclasses import replace
from pathlib import Path

import pytest

import perflex.calib_data
from perflex import Machine, load_machine, machine_names
from perflex.errors import FileFormatError, MachineError, UnsupportedKernelError, WorkGroupTooLargeError
from perflex.features import Target
from perflex.machines.files import machine_of_device
from perflex.machines.machine import FACTS
from perflex.machines.residency import Resources, residency

FOLDER = Path(perflex.calib_data.__file__).parent / "machines"
WANTED = (
    "V100", "A100-40GB", "A100-80GB", "H100-PCIe", "H100-SXM", "H200", "K20", "RTX-2080-Ti", "RTX-3060-Laptop",
    "RTX-3090", "RTX-4090", "RTX-A4000", "L4", "L40", "L40S", "B200", "MI210", "MI250X", "MI300X", "W6600", "W7800",
)  # fmt: skip

# What residency, data volumes and times need.
ESTIMATED_WITH = (
    "compute_units", "clock_hz", "sub_group_size", "l1_bytes", "line_bytes", "sector_bytes", "l2_bytes",
    "l2_effective_bytes", "dram_bandwidth", "local_bytes", "local_banks", "local_bank_bytes", "max_items_per_unit",
    "max_groups_per_unit", "max_items_per_group", "registers_per_unit", "registers_per_item_max",
    "register_granularity", "fp32_per_cycle", "fp64_per_cycle",
)  # fmt: skip

# Makers' peak rates in 1e12 operations per second: single and double precision.
PEAKS = {
    "V100": (14.0, 7.0), "A100-40GB": (19.5, 9.7), "H100-PCIe": (51.2, 25.6), "H100-SXM": (66.9, 33.5),
    "K20": (3.52, 1.17), "RTX-2080-Ti": (13.45, 0.42), "RTX-A4000": (19.17, 0.30), "RTX-A6000": (38.7, 0.605),
    "MI210": (22.6, 22.6),
    "MI250X": (23.95, 23.95), "W6600": (10.4, 0.65), "W7800": (45.2, 1.41), "RTX-3090": (35.6, 0.556),
    "RTX-4090": (82.6, 1.29), "L4": (30.3, 0.473), "L40S": (91.6, 1.43), "B200": (75, 37),
    "TITAN-RTX": (16.3, 0.51), "RTX-2070-SUPER": (9.06, 0.283), "GTX-1070": (6.46, 0.202),
    "GTX-1080-Ti": (11.34, 0.354), "TITAN-V": (14.9, 7.45),
    # Without packed operations, as of the MI210 and the MI250X.
    "MI300X": (81.7, 81.7),
}  # fmt: skip

# Makers' peak rates of tensor cores without sparsity, in 1e12 operations per second: float16, TF32 and 8-bit floats
# added up in float32, int8, float64; None where there is no such type. Of the MI250X, one of its two dies.
TENSOR_TYPES = ("fp16", "tf32", "fp8", "int8", "fp64")
TENSOR_PEAKS = {
    "V100": (112, None, None, None, None), "T4": (65, None, None, 130, None),
    "RTX-2080-Ti": (53.8, None, None, 215.2, None), "TITAN-RTX": (130.5, None, None, 261, None),
    "A100-40GB": (312, 156, None, 624, 19.5),
    "A100-80GB": (312, 156, None, 624, 19.5), "A40": (149.7, 74.8, None, 299.3, None),
    "RTX-A4000": (153.4 / 2, None, None, None, None), "RTX-A6000": (154.8, 77.4, None, 309.7, None),
    "RTX-3090": (71, 35.6, None, 284, None),
    "RTX-4070": (None, None, None, 466 / 2, None), "RTX-4090": (165.2, 82.6, 330.3, 660.6, None),
    "L4": (242 / 2, 120 / 2, 485 / 2, 485 / 2, None), "L40": (181.05, 90.5, 362.1, 362.1, None),
    "L40S": (362.05, 183, 733, 733, None), "H100-PCIe": (756, 378, 1513, 1513, 51.2),
    "H100-SXM": (989.4, 494.7, 1978.9, 1978.9, 66.9), "H200": (989.4, 494.7, 1978.9, 1978.9, 66.9),
    "B200": (2250, 1125, 4500, 4500, 37), "MI210": (181, None, None, 181, 45.3),
    "MI250X": (383 / 2, None, None, 383 / 2, 95.7 / 2), "MI300X": (1307.4, 653.7, 2614.9, 2614.9, 163.4),
    "W7800": (90.5, None, None, None, None),
}  # fmt: skip
# Clocks of these peaks in GHz, but of that for float64, where the maker does not reckon with the boost clock. That of
# the B200 follows from its peaks: no document has it.
TENSOR_CLOCKS = {"H100-PCIe": 1.62, "H100-SXM": 1.83, "H200": 1.83, "B200": 1.856}
WITHOUT_TENSOR_CORES = {"GTX-1070", "GTX-1080-Ti", "GTX-TITAN-X", "K20", "MI50", "P100", "P4", "W6600"}

MINIMAL = """\
schema: perflex-machine/1
name: Mine
aliases: [My GPU]
vendor: Me
kind: gpu
sources:
  sheet: {kind: datasheet, text: my sheet}
facts:
  compute_units: {value: 4, unit: '1', source: sheet}
  clock_hz: {value: 1.5, unit: GHz, source: sheet}
  l2_bytes: {value: 1.5, unit: MiB, source: sheet}
"""


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL)
    return path


@pytest.mark.parametrize("name", machine_names())
def test_shipped_machines_have_consistent_facts_with_sources(name):
    machine = load_machine(name)
    assert machine.name == name == Path(FOLDER / f"{name}.yaml").stem
    assert all(source.text for source in machine.sources.values())
    if machine.kind == "cpu":
        assert machine.levels
        return
    words = {name for name in ("l1_rules", "target") if getattr(machine, name)}
    assert machine.sources.keys() == {*machine.known(), *words}
    # What code is compiled for.
    if machine.vendor == "AMD":
        assert machine.target
        assert not machine.compute_capability
    assert not machine.levels
    for fact in ESTIMATED_WITH:
        assert machine.need(fact) > 0
    assert machine.need("line_bytes") % machine.need("sector_bytes") == 0
    assert machine.need("l2_effective_bytes") <= machine.need("l2_bytes")
    assert machine.need("l2_bandwidth") > machine.need("dram_bandwidth")
    assert machine.need("local_bytes_per_group") <= machine.need("local_bytes")
    assert machine.need("max_items_per_group") <= machine.need("max_items_per_unit")
    assert machine.need("max_items_per_unit") % machine.need("sub_group_size") == 0


def test_the_wanted_machines_ship():
    assert set(WANTED) <= set(machine_names())


def test_no_two_machines_share_a_name_of_a_device():
    aliases = [alias for name in machine_names() for alias in load_machine(name).aliases]
    assert len(aliases) == len({alias.casefold() for alias in aliases})


@pytest.mark.parametrize("name", PEAKS)
def test_units_clock_and_operations_per_cycle_give_the_peak_rates(name):
    machine = load_machine(name)
    cycles = machine.need("compute_units") * machine.need("clock_hz") / 1e12
    single, double = PEAKS[name]
    assert cycles * machine.need("fp32_per_cycle") == pytest.approx(single, rel=0.015)
    assert cycles * machine.need("fp64_per_cycle") == pytest.approx(double, rel=0.03)


@pytest.mark.parametrize("name", TENSOR_PEAKS)
def test_units_clock_and_operations_of_tensor_cores_give_the_peak_rates(name):
    machine = load_machine(name)
    for kind, peak in zip(TENSOR_TYPES, TENSOR_PEAKS[name], strict=True):
        clock = machine.need("clock_hz") / 1e9 if kind == "fp64" else TENSOR_CLOCKS.get(name, machine.clock_hz / 1e9)
        rate = getattr(machine, f"tensor_{kind}_per_cycle")
        if peak is not None:
            assert rate * machine.need("compute_units") * clock / 1e3 == pytest.approx(peak, rel=0.02), kind


def test_which_machines_have_which_tensor_cores():
    types = {
        name: tuple(kind for kind in TENSOR_TYPES if getattr(load_machine(name), f"tensor_{kind}_per_cycle"))
        for name in machine_names()
        if load_machine(name).vendor in {"NVIDIA", "AMD"} and load_machine(name).kind == "gpu"
    }
    assert {name for name, found in types.items() if not found} == WITHOUT_TENSOR_CORES
    # A capability has the same types on all of its boards.
    expected = {7.0: ("fp16",), 7.5: ("fp16", "int8"), 8.0: ("fp16", "tf32", "int8", "fp64"),
                8.6: ("fp16", "tf32", "int8"), 8.9: ("fp16", "tf32", "fp8", "int8"), 9.0: TENSOR_TYPES,
                10.0: TENSOR_TYPES}  # fmt: skip
    for name, found in types.items():
        capability = load_machine(name).compute_capability
        assert found == expected.get(capability, found if capability is None else ()), name
        for kind in found:
            assert load_machine(name).sources[f"tensor_{kind}_per_cycle"].text
    # GeForce boards add float16 up in float32 at half the rate of others, and integers at the same.
    geforce, other = load_machine("RTX-3090"), load_machine("A40")
    assert geforce.need("tensor_fp16_per_cycle") * 2 == other.need("tensor_fp16_per_cycle")
    assert geforce.need("tensor_int8_per_cycle") == other.need("tensor_int8_per_cycle")


def test_whose_rules_the_first_cache_follows(tmp_path):
    unknown = {name for name in machine_names() if load_machine(name).kind == "gpu" and not load_machine(name).l1_rules}
    assert not unknown
    path = tmp_path / "mine.yaml"
    path.write_text(MINIMAL + "l1_rules: {value: amd_cdna2, source: sheet}\n")
    assert load_machine(path).need_l1_rules() == "amd_cdna2"
    path.write_text(MINIMAL + "target: {value: gfx90a, source: sheet}\n")
    assert load_machine(path).target == "gfx90a"
    path.write_text(MINIMAL + "target: {value: sm_90, source: sheet}\n")
    with pytest.raises(FileFormatError, match=r"field target\.value: LLVM's name of a GPU must stand here"):
        load_machine(path)
    path.write_text(MINIMAL + "l1_rules: {value: intel, source: sheet}\n")
    with pytest.raises(FileFormatError, match=r"field l1_rules\.value: it must be one of"):
        load_machine(path)
    path.write_text(MINIMAL)
    with pytest.raises(MachineError, match="Mine has no fact l1_rules"):
        load_machine(path).need_l1_rules()


def test_numbers_are_read_in_si_units(mine):
    machine = load_machine(mine)
    assert (machine.name, machine.vendor, machine.aliases) == ("Mine", "Me", ("My GPU",))
    assert (machine.compute_units, machine.clock_hz, machine.l2_bytes) == (4, 1.5e9, 3 * 2**19)
    assert isinstance(machine.l2_bytes, int)
    assert machine.sources["l2_bytes"].text == "my sheet"
    assert load_machine(str(mine)) == machine == pickle.loads(pickle.dumps(machine))
    assert hash(machine) == hash(load_machine(mine))


def test_a_fact_that_is_not_known_is_an_error_with_machine_and_fact(mine):
    with pytest.raises(MachineError, match=r"Mine has no fact l1_bytes; .*unit B") as caught:
        load_machine(mine).need("l1_bytes")
    assert (caught.value.machine, caught.value.fact) == ("Mine", "l1_bytes")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("perflex-machine/1", "perflex-machine/9", 1, "update perflex"),
        ("perflex-machine/1", "perflex-calibration/1", 1, "not 'perflex-machine'"),
        ("kind: gpu", "kind: tpu", 5, "'cpu', 'gpu'"),
        ("vendor: Me", "", 1, "vendor: it is missing"),
        ("name: Mine", "name: ' '", 2, "a name"),
        ("kind: datasheet", "kind: hearsay", 7, "one of 'assumed', 'datasheet', 'derived'"),
        ("compute_units:", "units:", 9, "no such fact"),
        ("value: 4,", "value: four,", 9, "a number"),
        ("value: 4,", "value: 4.5,", 9, "whole number"),
        ("value: 4,", "value: -4,", 9, "more than zero"),
        ("value: 4,", "value: .inf,", 9, "finite"),
        ("value: 4, ", "", 9, "value: it is missing"),
        ("unit: GHz", "unit: GB", 10, "'Hz', 'MHz', 'GHz'"),
        ("unit: MiB, source: sheet", "unit: MiB", 11, "source: it is missing"),
        ("unit: MiB, source: sheet", "unit: MiB, source: rumour", 11, "no source 'rumour'"),
        ("facts:", "colour: red\nfacts:", 8, "no such field"),
    ],
)
def test_what_is_wrong_in_a_file_is_named_with_its_line(mine, old, new, line, words):
    assert old in MINIMAL
    mine.write_text(MINIMAL.replace(old, new, 1))
    with pytest.raises(FileFormatError, match=words) as caught:
        load_machine(mine)
    assert f"line {line}" in str(caught.value)


@pytest.mark.parametrize(("kind", "facts", "words"), [
    ("gpu", {"l2_bytes": "8 B", "l2_effective_bytes": "9 B"}, "l2_effective_bytes.*at most l2_bytes, 8, not 9"),
    ("gpu", {"line_bytes": "96 B"}, "line_bytes.*a power of two, not 96"),
    ("gpu", {"line_bytes": "32 B", "sector_bytes": "64 B"}, "sector_bytes.*at most line_bytes"),
    ("cpu", {"cores": "40 core", "cores_per_domain": "10 core", "domains": "2 domain"}, "2 domains with 10 cores each"),
    ("cpu", {"domain_efficiency": "66 1"}, "domain_efficiency.*at most 1"),
    ("cpu", {"line_bytes": "96 B", "cores": "40 core", "cores_per_domain": "20 core", "domains": "2 domain"}, ""),
])  # fmt: skip
def test_facts_that_contradict_one_another_are_refused(mine, kind, facts, words):
    head = MINIMAL.partition("facts:")[0].replace("kind: gpu", f"kind: {kind}")
    pairs = ((name, *text.split()) for name, text in facts.items())
    lines = (f"  {name}: {{value: {value}, unit: '{unit}', source: sheet}}\n" for name, value, unit in pairs)
    mine.write_text(f"{head}facts:\n{''.join(lines)}")
    if not words:
        assert load_machine(mine).cores == 40
        return
    with pytest.raises(FileFormatError, match=words):
        load_machine(mine)


def test_machines_are_found_by_name_device_and_file_only():
    assert load_machine("v100").name == "V100"
    assert load_machine("NVIDIA GeForce RTX 2080 Ti").name == "RTX-2080-Ti"
    assert machine_of_device("  tesla  v100-pcie-32gb ") == load_machine("V100")
    assert machine_of_device("AMD EPYC") is None
    assert load_machine(load_machine("K20")) is load_machine("K20")
    with pytest.raises(MachineError, match=r"did you mean A100-40GB or A100-80GB\? there are A100-40GB"):
        load_machine("A100")
    with pytest.raises(FileFormatError, match=r"cannot read none\.yaml"):
        load_machine("none.yaml")


def test_every_fact_has_an_attribute_and_a_unit():
    machine = Machine("empty")
    assert all(getattr(machine, fact) is None and FACTS[fact].unit for fact in FACTS)


def test_reserved_bytes_and_steps_of_local_memory_both_count():
    machine = load_machine("H100-SXM")
    assert residency(machine, 128, 20200).groups_per_unit == 10
    assert residency(replace(machine, local_reserved_bytes=None), 128, 20200).groups_per_unit == 11
    assert residency(replace(machine, local_granularity_bytes=None), 128, 20200).groups_per_unit == 11
    # Without local memory nothing is reserved.
    assert residency(replace(machine, local_reserved_bytes=10**6), 128).groups_per_unit == 16


@pytest.mark.parametrize(
    ("name", "group", "message", "fact"),
    [
        ("L40", (1025,), "1025 work-items in a work-group are more than the 1024", "max_items_per_group"),
        ("L40", (64, 101377), "101377 bytes of local memory in a work-group are more than the 101376",
         "local_bytes_per_group"),
        ("H100-SXM", (64, 232449), "232449 bytes of local memory in a work-group are more than the 232448",
         "local_bytes_per_group"),
        ("H100-SXM", (64, 0, 256), "256 registers per work-item are more than the 255", "registers_per_item_max"),
        ("MI250X", (64, 0, 513), "513 registers per work-item are more than the 512", "registers_per_item_max"),
        # Of several, the first.
        ("MI250X", (2048, 10**6, 999), "2048 work-items in a work-group are more than the 1024", "max_items_per_group"),
    ],
)  # fmt: skip
def test_what_exceeds_a_limit_is_told_with_both_numbers(name, group, message, fact):
    with pytest.raises(WorkGroupTooLargeError) as caught:
        residency(load_machine(name), *group)
    assert caught.value.message == f"{message} that machine {name} has ({fact})"
    assert (caught.value.machine, caught.value.fact) == (name, fact)


@pytest.mark.parametrize(
    ("name", "items", "registers", "fits"),
    [("H100-SXM", 1024, 65, 64), ("L40", 1024, 72, 64), ("MI250X", 320, 505, 256)],
)
def test_a_work_group_that_no_unit_holds_is_refused(name, items, registers, fits):
    machine = load_machine(name)
    message = f"no work-group of {items} work-items fits a compute unit of {name} (registers); make work-groups smaller"
    with pytest.raises(WorkGroupTooLargeError, match=f"^{re.escape(message)}$") as caught:
        residency(machine, items, 0, registers)
    assert isinstance(caught.value, MachineError)
    assert isinstance(caught.value, UnsupportedKernelError)
    assert (caught.value.machine, caught.value.fact) == (name, "registers")
    assert residency(machine, items, 0, fits).groups_per_unit == 1


def test_stated_registers_come_before_those_of_the_build():
    assert Target().registers_per_item is None
    assert Target(resources=Resources(registers=96)).registers_per_item == 96
    assert Target(registers=40, resources=Resources(registers=96)).registers_per_item == 40


# Work-groups per compute unit as the maker's occupancy calculator gives them.
@pytest.mark.parametrize(
    ("name", "items", "local", "registers", "groups", "limit"),
    [
        ("K20", 128, 0, None, 16, "work-items"),
        ("K20", 32, 0, None, 16, "work-groups"),
        ("V100", 1024, 0, 32, 2, "work-items"),
        ("V100", 1024, 0, 33, 1, "registers"),
        ("V100", 33, 0, None, 32, "work-items"),
        # 12 warps in each of four register files, not 51 in one.
        ("V100", 96, 0, 40, 16, "registers"),
        ("V100", 256, 16384, None, 6, "local memory"),
        # 48 KiB and the reserved 1 KiB, three times in 164 KiB.
        ("A100-40GB", 256, 49152, None, 3, "local memory"),
        ("A100-40GB", 64, 163 * 1024, None, 1, "local memory"),
        ("RTX-2080-Ti", 64, 0, None, 16, "work-items"),
        ("RTX-2080-Ti", 32, 0, None, 16, "work-groups"),
        ("RTX-A4000", 1024, 0, None, 1, "work-items"),
        ("MI210", 256, 65536, None, 1, "local memory"),
        ("W7800", 64, 0, 96, 16, "work-items"),
        ("W7800", 64, 0, 97, 12, "registers"),
        # Two compute units hold work-groups together: three by 128 KiB, and one of 32 sub-groups by 8 in each of four
        # register files.
        ("W6600", 256, 40 * 1024, None, 1.5, "local memory"),
        ("W7800", 1024, 0, 192, 0.5, "registers"),
        ("W6600", 1024, 0, 64, 1, "work-items"),
    ],
)
def test_residency(name, items, local, registers, groups, limit):
    machine = load_machine(name)
    held = residency(machine, items, local, registers)
    assert (held.groups_per_unit, held.limit) == (groups, limit)
    assert held.wave_groups == groups * machine.need("compute_units")
    size = machine.need("sub_group_size")
    resident = groups * -(-items // size)
    assert held.occupancy == pytest.approx(resident / (machine.need("max_items_per_unit") / size))


@pytest.mark.parametrize("amounts", [(0, 0, None), (64, -1, None), (64, 0, 0)])
def test_amounts_that_are_no_work_group_are_refused(amounts):
    with pytest.raises(MachineError, match="do not make a work-group"):
        residency(load_machine("K20"), *amounts)


def test_residency_needs_only_the_facts_it_uses():
    machine = Machine("bare", compute_units=2, sub_group_size=32, max_items_per_unit=1024, max_groups_per_unit=8,
                      max_items_per_group=512)  # fmt: skip
    assert residency(machine, 128).wave_groups == 16
    with pytest.raises(MachineError, match="local_bytes_per_group"):
        residency(machine, 128, 1024)
    small = replace(machine, local_bytes=4096, local_bytes_per_group=4096)
    assert residency(small, 128, 1000).groups_per_unit == 4
    with pytest.raises(MachineError, match="register"):
        residency(machine, 128, 0, 32)
