"""Symbolic counts of a kernel against brute-force enumeration: one comparison for several tests."""

import re
from collections import Counter, defaultdict

import numpy as np

from oracles import brute
from perflex.features import Target, counts_of, extract_scop, parse_feature
from perflex.features.families.memory_accesses import touched

SUB_GROUP = 8
ON = Target(SUB_GROUP)
FEATURE_NAMES = {"fabs": "abs", "fmax": "max"}


def check_counts(drawn):
    """Assert that operations, accesses, footprints and strides are what enumeration finds."""
    counted = brute.count(drawn.kernel, drawn.sizes, SUB_GROUP)
    scop, sizes = extract_scop(drawn.kernel), drawn.sizes
    expected = Counter()
    for (dtype, name), number in counted.operations_per_sub_group.items():
        if dtype.startswith("float"):
            # loopy numbers the versions of a function: max, max_0. The type of a constant argument is its affair.
            kind = re.sub(r"_\d+$", "", name)
            expected[FEATURE_NAMES.get(kind, kind)] += number
    kinds = {op.kind for s in scop.statements for op in s.operations if op.dtype.startswith("float")} - {"cmp"}
    found = Counter()
    for kind in kinds:
        for dtype in ("float32", "float64"):
            found[kind] += parse_feature(f"f_op_{dtype}_{kind}").value(scop, sizes, ON)
    assert +found == +expected, drawn
    check_accesses(counted, scop, sizes)
    check_footprints(scop, counted, drawn)
    assert parse_feature("f_thread_groups").value(scop, sizes, ON) == counted.groups


def check_accesses(counted, scop, sizes):
    """Assert that instances, footprints and strides of all accesses are what enumeration finds."""
    counts = counts_of(scop)
    truth, found = defaultdict(list), defaultdict(list)
    for access in counted.accesses:
        if access.space != "private":
            truth[access.array, access.direction].append(access)
    for item in counts.accesses:
        if item.array.space != "private":
            found[item.array.name, item.access.direction].append(item)
    assert truth.keys() == found.keys()
    for key, accesses in truth.items():
        expected = sorted((a.per_work_item, a.per_sub_group, len(a.elements)) for a in accesses)
        actual = [
            (item.work_item_count, counts.instances(item.statement, SUB_GROUP), item.footprint) for item in found[key]
        ]
        assert sorted(tuple(int(one.evaluate(sizes)) for one in row) for row in actual) == expected, key
        if len(accesses) == 1:
            check_strides(found[key][0], accesses[0], sizes)


def check_footprints(scop, counted, drawn):
    """Distinct elements and accesses of every array and tag, by direction, are those that enumeration finds."""
    groups = defaultdict(list, {"global": [], "global_load": [], "global_store": []})
    for access in counted.select(space="global"):
        for name in ("global", f"array:{access.array}", *(f"tag:{tag}" for tag in access.tags)):
            for direction in ("", f"_{access.direction}"):
                groups[f"{name}{direction}"].append(access)
    for name, members in groups.items():
        feature = parse_feature(f"f_mem_footprint_{name}")
        found = touched(scop, drawn.sizes, feature.what)
        elements = {(a.array, int(element)): np.dtype(a.dtype).itemsize for a in members for element in a.elements}
        expected = (len(elements), sum(elements.values()), sum(a.per_work_item for a in members))
        actual = tuple(int(one.evaluate(drawn.sizes)) for one in (found.elements, found.bytes, found.accesses))
        assert actual == expected, (name, drawn)
        assert feature.value(scop, drawn.sizes, ON) == expected[0]
        if elements:
            assert found.afr(drawn.sizes) == expected[2] / expected[0], (name, drawn)


def check_strides(item, access, sizes):
    """A symbolic stride is the stride found at every pair of neighbours; absent pairs say nothing."""
    pairs = [(item.local_strides, access.local_strides)]
    # Work-groups do not run in lock step: which of their iterations go together is a convention.
    if not access.shifted:
        pairs.append((item.group_strides, access.group_strides))
    for symbolic, enumerated in pairs:
        for axis, stride in enumerate(symbolic):
            if stride is not None and axis in enumerated:
                assert stride.evaluate(sizes) == enumerated[axis], (access.text, axis, sizes)
