"""Work-groups that differ by alignment alone are looked at together, with the results of looking at each."""

from __future__ import annotations

import pytest

from perflex import estimate_volumes, load_machine
from perflex.features import extract_scop
from perflex.features.gpu import l1, work_group_kinds
from perflex.features.gpu.resolved_launch import accessing_launches
from support.ecm_kernels import loopy_kernel, on_grid, star_offsets, terms


def star(radius: int):
    shifted = [tuple(step + radius for step in at) for at in [(0, 0, 0), *star_offsets(3, radius)]]
    shape = f"(n+{2 * radius},n+{2 * radius},n+{2 * radius})"
    kernel = loopy_kernel(
        "{[i,j,k]: 0<=i,j,k<n}", f"b[k,j,i] = {terms('a', 'kji', shifted)}", {"a": shape, "b": "(n,n,n)"}
    )
    return extract_scop(on_grid(kernel, i=(0, 16), j=(1, 4), k=(2, 2)))


@pytest.mark.parametrize("machine", ["V100", "MI210"])
@pytest.mark.parametrize(("radius", "n"), [(1, 64), (1, 67), (2, 45), (1, 50)])
def test_volumes_are_those_of_each_alignment_by_itself(
    machine: str, radius: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = estimate_volumes(star(radius), {"n": n}, load_machine(machine))
    monkeypatch.setattr(l1, "shifts", lambda _: None)
    alone = estimate_volumes(star(radius), {"n": n}, load_machine(machine))
    assert together == alone


def test_accesses_that_move_differently_have_no_common_distance() -> None:
    kernel = loopy_kernel("{[i]: 0<=i<n}", "b[i] = a[i] + a[2*i]", {"a": "(2*n)", "b": "(n)"})
    scop = extract_scop(on_grid(kernel, i=(0, 16)))
    ((_, launch),) = accessing_launches(scop, {"n": 64})
    assert work_group_kinds.shifts(launch) is None
    ((_, launch),) = accessing_launches(star(1), {"n": 64})
    assert work_group_kinds.shifts(launch) == {
        "a": (128, 4 * 8 * 66, 2 * 8 * 66**2),
        "b": (128, 4 * 8 * 64, 2 * 8 * 64**2),
    }
