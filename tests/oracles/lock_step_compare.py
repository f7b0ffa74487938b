"""Counts of a kernel, and the instances that its Scop has, against what its printed code executes in lock step."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import islpy as isl
import numpy as np

from oracles.lock_step import SECTOR, execute
from oracles.points import affine_values, fixed_at, integer_points
from perflex.features import counts_of, extract_scop, kernel_feature_values

if TYPE_CHECKING:
    from collections.abc import Mapping

    from oracles.shifted_kernels import ShiftedKernel

SUB_GROUP = 32


def differences(drawn: ShiftedKernel) -> list[str]:
    """Return what differs, in words: operations, loads, strides and sectors."""
    done = execute(drawn.kernel, drawn.sizes, drawn.groups, SUB_GROUP)
    scop = extract_scop(drawn.kernel)
    counts = counts_of(scop)
    expected: dict[str, float] = {}
    for kind in ("add", "madd"):
        expected[f"f_op_float32_{kind}"] = done.operations[kind]
    if drawn.plain:
        expected["f_txn_global"] = sum(done.sectors.values())
    found = kernel_feature_values(list(expected), drawn.kernel, drawn.sizes, machine="V100")
    wrong = [f"{name}: {found[name]} for {want}" for name, want in expected.items() if found[name] != want]
    sectors: Counter[str] = Counter()
    for access in counts.accesses:
        name = access.array.name
        if access.array.space != "global":
            continue
        sectors[name] += _sectors(scop, access, drawn.sizes)
        loads = counts.instances(access.statement, SUB_GROUP).evaluate(drawn.sizes)
        if access.access.direction == "load" and loads != done.loads[name]:
            wrong.append(f"loads of {name}: {loads} for {done.loads[name]}")
        stride = access.local_strides[0]
        if stride is not None and not done.steps[name] <= {int(stride.evaluate(drawn.sizes))}:
            wrong.append(f"stride of {name}: {stride} for {sorted(done.steps[name])}")
    names = sorted(sectors.keys() | done.sectors.keys())
    differing = [name for name in names if sectors[name] != done.sectors[name]]
    return wrong + [f"sectors of {name}: {sectors[name]} for {done.sectors[name]}" for name in differing]


def _sectors(scop: Any, access: Any, sizes: Mapping[str, int]) -> int:
    """Return the sectors that the sub-groups of a Scop touch by an access of an array with one axis."""
    launch = scop.launches[access.statement.launch]
    groups, items = len(launch.groups), launch.items
    domain = access.statement.domain
    rank = domain.dim(isl.dim_type.set)
    names = [f"i{place}" for place in range(rank)]
    touched = []
    for piece, function in access.access.relation.as_pw_multi_aff().get_at(0).get_pieces():
        part = domain.intersect(piece)
        for place, name in enumerate(names):
            part = part.set_dim_name(isl.dim_type.set, place, name)
        points = integer_points(part, names, sizes)
        columns = [points[name] for name in names]
        value = isl.PwAff.from_aff(function)
        ((_, plain),) = fixed_at(isl.Map.from_pw_aff(value), sizes).as_pw_multi_aff().get_at(0).get_pieces()
        flat = affine_values(plain, columns, len(points[""])) // plain.get_denominator_val().to_python()
        number, factor = np.zeros_like(flat), 1
        for axis, extent in enumerate(items):
            number, factor = number + factor * columns[groups + axis], factor * extent
        touched.append(
            np.stack([*columns[:groups], number // SUB_GROUP, *columns[groups + len(items) :], flat * 4 // SECTOR])
        )
    return np.unique(np.concatenate(touched, axis=1), axis=1).shape[1]
