"""The planted kernels are described, and their numbers are those of an enumeration."""

import re
from math import ceil, prod

import pytest

from . import held_back_kernels, planted_kernels, sub_group
from .planted_kernels import COMPUTE_UNITS, MEANINGS, UNIT, line_of

SETS = planted_kernels, held_back_kernels
PLANTED = [each for one in SETS for each in one.PLANTED]
CLEAN = [each for one in SETS for each in one.CLEAN]

ENUMERATED = {
    "coalescing": sub_group.sectors,
    "bank-conflicts": sub_group.wavefronts,
    "divergence": sub_group.active_share,
    "repeated-loads": sub_group.loads_per_element,
}


def of(*flaws):
    """Mark a test with the planted kernels of some flaws."""
    found = [each for each in PLANTED if each.flaw in flaws]
    return pytest.mark.parametrize("planted", found, ids=lambda each: each.name)


def work_groups(groups, sizes):
    return prod(eval(each.replace("/", "//"), {}, sizes) for each in groups)


def halved_until(groups, items, enough):
    while not enough(groups):
        groups, items = 2 * groups, items // 2
    return groups, items


@pytest.mark.parametrize("one", SETS)
def test_there_are_many_and_their_names_differ(one):
    assert len(one.PLANTED) >= 40
    assert len(one.CLEAN) >= 25
    assert {each.flaw for each in one.PLANTED} == set(MEANINGS)
    assert len({each.kind for each in one.PLANTED}) >= 5
    assert len({each.name for each in one.PLANTED}) == len(one.PLANTED)


def test_the_sets_have_no_text_in_common():
    assert not {each.source for each in planted_kernels.PLANTED} & {each.source for each in held_back_kernels.PLANTED}


@of(*ENUMERATED)
def test_accesses(planted):
    enumerate_ = ENUMERATED[planted.flaw]
    where = planted.sizes, planted.over
    found = enumerate_(planted.source, planted.access.split(" = ")[-1], planted.local, *where)
    mended_access = planted.mended_access.split(" = ")[-1]
    mended = enumerate_(planted.mended_source, mended_access, planted.mended_local, *where)
    assert (found, mended) == pytest.approx((planted.found, planted.mended))
    line_of(planted.mended_source, planted.mended_access)


@of("float64")
def test_float64(planted):
    times = prod(map(len, planted.over.values()))
    assert times * sub_group.float64_operations(planted.access) == planted.found
    assert not re.search(r"\d\.\d+\b", planted.mended_source)


@of("few-groups")
def test_few_groups(planted):
    units = COMPUTE_UNITS[planted.machine]
    groups = work_groups(planted.groups, planted.sizes)
    assert groups == planted.found < units
    mended = halved_until(groups, planted.local[0], lambda groups: groups >= units)
    assert mended == (planted.mended, planted.mended_local[0])
    assert work_groups(planted.mended_groups, planted.sizes) == planted.mended


@of("last-wave")
def test_last_wave(planted):
    units = COMPUTE_UNITS[planted.machine]

    def uneven(groups):
        return ceil(groups / units) / (groups / units)

    groups = work_groups(planted.groups, planted.sizes)
    mended, items = halved_until(groups, planted.local[0], lambda groups: uneven(groups) < 1.1)
    assert (uneven(groups), uneven(mended)) == pytest.approx((planted.found, planted.mended))
    assert (mended, items) == (work_groups(planted.mended_groups, planted.sizes), planted.mended_local[0])


@of("group-starts")
def test_group_starts(planted):
    assert (prod(planted.local), prod(planted.mended_local)) == (32, 256)
    found = work_groups(planted.groups, planted.sizes), work_groups(planted.mended_groups, planted.sizes)
    assert found == (planted.found, planted.mended)


def resident(machine, items, local_bytes, registers):
    """Return work-groups that a compute unit holds, and those that it would hold without local memory and registers."""
    most, part, local, reserved = UNIT[machine]
    sub_groups = ceil(items / 32)
    limits = [most // items]
    if registers:
        limits.append(4 * (part // (32 * 8 * ceil(registers / 8))) // sub_groups)
    if local_bytes:
        limits.append(local // (local_bytes + reserved))
    return min(limits), limits[0]


@of("occupancy")
def test_occupancy(planted):
    def at(access, registers):
        elements = int(access[2:-1]) if access.startswith("s[") else 0
        return resident(planted.machine, prod(planted.local), 4 * elements, registers)

    (found, most), (mended, _) = (
        at(planted.access, planted.registers),
        at(planted.mended_access, planted.mended_registers),
    )
    assert (found, mended) == (planted.found, planted.mended)
    assert mended == found + 1
    assert 2 * found < most


@of("launch-bound")
def test_a_small_kernel_fills_the_units_evenly(planted):
    groups, units = work_groups(planted.groups, planted.sizes), COMPUTE_UNITS[planted.machine]
    assert groups >= units
    assert ceil(groups / units) / (groups / units) < 1.1


@pytest.mark.parametrize("planted", PLANTED, ids=lambda each: each.name)
def test_the_line_holds_the_flaw(planted):
    assert planted.access in planted.source.splitlines()[planted.line - 1]
    assert planted.access.startswith("void ") == (planted.source == planted.mended_source or not planted.mended_source)


@pytest.mark.parametrize("clean", CLEAN, ids=lambda each: f"{each.name} on {each.machine}")
def test_clean_kernels_have_many_even_rounds(clean):
    groups, units = work_groups(clean.groups, clean.sizes), COMPUTE_UNITS[clean.machine]
    assert ceil(groups / units) / (groups / units) < 1.1
    assert prod(clean.local) >= 64


@pytest.mark.parametrize("clean", CLEAN, ids=lambda each: f"{each.name} on {each.machine}")
def test_accesses_of_clean_kernels_are_coalesced_and_free_of_conflicts(clean):
    text, where = clean.source, (clean.local, clean.sizes, {})
    local = dict(re.findall(r"(?:__shared__|__local) float (\w+)((?:\[\d+\])+);", text))
    for access in set(re.findall(r"\b\w+(?:\[[^]]+\])+", text)) - {name + extents for name, extents in local.items()}:
        if access.split("[")[0] in local:
            assert sub_group.wavefronts(text, access, *where) == 1, access
        else:
            # One more where a request does not begin with a sector.
            most = sub_group.least_sectors(text, access, *where) + 1
            assert sub_group.sectors(text, access, *where) <= most, access
