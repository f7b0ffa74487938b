"""Work that few sub-groups of a launch do, which models share out over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from perflex.features.counting.scop_counts import counts_of
from perflex.features.scop.scop import Scop
from perflex.isl import ISL_LOCK, isl

# So many times longer than the model says: below that it errs as much for other reasons.
_DOUBTFUL = 4.0
# Sub-groups that run at once, of which each gets on at full speed: of a small GPU.
_AT_ONCE = 128


def uneven_doubts(scop: Scop, sizes: Mapping[str, int], sub_group_size: int, *, waits: bool = False) -> list[str]:
    """Return of each launch the statement whose few sub-groups take longer than all work shared out, in words.

    With `waits`, the model counts what they wait for: of loads, and of values of the iteration before.
    """
    found = []
    for number, launch in enumerate(scop.launches):
        counts, outside = counts_of(scop), len(launch.groups) + len(launch.items)
        # Launches in a loop of the host run one after another.
        groups = prod(float(extent.evaluate(sizes)) for extent in launch.groups)
        launched = groups * -(-launch.group_size // sub_group_size)
        work: list[tuple[float, float, str]] = []
        for statement in scop.statements:
            if statement.launch != number or not statement.loops:
                continue
            each = sum(operation.count for operation in statement.operations) + len(statement.accesses)
            done = each * float(counts.instances(statement, sub_group_size).evaluate(sizes))
            with ISL_LOCK:
                inner = statement.domain.dim(isl.dim_type.set) - outside
                domain = statement.domain.project_out(isl.dim_type.set, outside, inner)
            by = float(counts.executions(domain, number, sub_group_size).evaluate(sizes))
            known = waits and (statement.recurrence or any(one.direction == "load" for one in statement.accesses))
            mine = 0.0 if known else done / max(by, 1.0)
            work.append((mine, done, f"{by:.0f} of {launched:.0f} sub-groups execute line {statement.line}"))
        if not work:
            continue
        longest, _, words = max(work)
        shared = sum(done for _, done, _ in work) / min(launched, _AT_ONCE)
        if longest > _DOUBTFUL * shared > 0:
            more = f"it may take {longest / shared:.0f} times as long"
            found.append(f"{words}, but the model shares their work out over all; {more}")
    return found
