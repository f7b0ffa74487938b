"""Symbolic counts of a kernel against brute-force enumeration: one comparison for several tests.

Branches count where their conditions hold.
"""

import re
from collections import Counter, defaultdict

import numpy as np

from oracles import brute
from perflex.features import Target, counts_of, extract_scop, parse_feature
from perflex.features.families.memory_accesses import touched

SUB_GROUP = 8
FEATURE_NAMES = {"fabs": "abs", "fmax": "max"}


def operations(counted):
    """Floating-point operations by kind; the type of a constant argument is loopy's affair."""
    found = Counter()
    for (dtype, name), number in counted.items():
        if dtype.startswith("float"):
            # loopy numbers the versions of a function: max, max_0.
            kind = re.sub(r"_\d+$", "", name)
            found[FEATURE_NAMES.get(kind, kind)] += number
    return {kind: number for kind, number in found.items() if number}


def symbolic(prefix, scop, sizes):
    """The same by symbolic counts, of features with a prefix."""
    kinds = {op.kind for s in scop.statements for op in s.operations if op.dtype.startswith("float")} - {"cmp"}
    found = {
        kind: sum(
            parse_feature(f"{prefix}_{dtype}_{kind}").value(scop, sizes, Target(SUB_GROUP))
            for dtype in ("float32", "float64")
        )
        for kind in kinds
    }
    return {kind: number for kind, number in found.items() if number}


def check_counts(drawn):
    """Assert that operations, accesses, footprints and strides are what enumeration finds."""
    counted = brute.count(drawn.kernel, drawn.sizes, SUB_GROUP)
    scop = extract_scop(drawn.kernel)
    assert symbolic("f_op", scop, drawn.sizes) == operations(counted.operations_per_sub_group), drawn
    check_accesses(counted, scop, drawn.sizes)
    check_footprints(scop, counted, drawn)
    assert parse_feature("f_thread_groups").value(scop, drawn.sizes, Target(SUB_GROUP)) == counted.groups


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
        actual = sorted(
            (
                int(item.work_item_count.evaluate(sizes)),
                int(counts.instances(item.statement, SUB_GROUP).evaluate(sizes)),
                int(item.footprint.evaluate(sizes)),
            )
            for item in found[key]
        )
        assert actual == expected, key
        if len(accesses) == 1:
            check_strides(found[key][0], accesses[0], sizes)


def check_footprints(scop, counted, drawn):
    """Distinct elements and accesses of every array and tag, by direction, are those that enumeration finds."""
    accesses = counted.select(space="global")
    for direction in (None, "load", "store"):
        selected = [a for a in accesses if direction in {None, a.direction}]
        groups = defaultdict(list)
        for access in selected:
            for name in (f"array:{access.array}", *(f"tag:{tag}" for tag in access.tags)):
                groups[name].append(access)
        groups["global"] = selected
        for name, members in groups.items():
            feature = parse_feature(f"f_mem_footprint_{name}{f'_{direction}' if direction else ''}")
            found = touched(scop, drawn.sizes, feature.what)
            elements = {(a.array, int(element)) for a in members for element in a.elements}
            itemsizes = {a.array: np.dtype(a.dtype).itemsize for a in members}
            expected = {
                "elements": len(elements),
                "bytes": sum(itemsizes[array] for array, _ in elements),
                "accesses": sum(a.per_work_item for a in members),
            }
            actual = {what: int(getattr(found, what).evaluate(drawn.sizes)) for what in expected}
            assert actual == expected, (name, direction, drawn)
            assert feature.value(scop, drawn.sizes, Target(SUB_GROUP)) == expected["elements"]
            if elements:
                ratio = expected["accesses"] / expected["elements"]
                assert found.afr(drawn.sizes) == ratio, (name, direction, drawn)


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
