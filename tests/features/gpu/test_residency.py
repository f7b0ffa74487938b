"""One rule for resident work-groups: the waves of `f_waves` are those that data volumes are estimated with."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import prod
from typing import TYPE_CHECKING

import islpy as isl
import pytest

from perflex import estimate_volumes, load_machine, machine_names
from perflex.errors import MachineError, UnsupportedKernelError
from perflex.features import Access, Array, QuasiPolynomial
from perflex.features.gpu import volume_estimate
from perflex.features.gpu.waves import wave_values
from support.volume_kernels import one_axis

if TYPE_CHECKING:
    from perflex import Machine
    from perflex.features import Scop
    from perflex.features.gpu.resolved_launch import ResolvedLaunch
    from perflex.features.gpu.volume_result import Volumes

GPUS = [name for name in machine_names() if load_machine(name).kind == "gpu"]
ITEMS = (32, 64, 96, 128, 256, 512, 1024)
LOCAL_KIB = (0, 1, 8, 32, 48)
REGISTERS = (None, 24, 40, 64, 128, 255)


def kernel(items: int, local_kib: int) -> Scop:
    """Four work-groups, each with a local array that it writes once."""
    scop = one_axis(4 * items, (items,), 1, 4)
    if not local_kib:
        return scop
    where = f"{{ [g0, l0] : 0 <= g0 < 4 and 0 <= l0 < {items} }}"
    tile = Access("tile", "store", isl.Map("{ [g0, l0] -> [l0] }"), text="tile[l0]")
    fill = replace(scop.statements[0], name="fill", domain=isl.Set(where), accesses=(tile,))
    return replace(scop, arrays=(*scop.arrays, local("tile", local_kib)), statements=(*scop.statements, fill))


def local(name: str, kib: int) -> Array:
    return Array(name, "local", "float32", (QuasiPolynomial.constant(256 * kib),), (QuasiPolynomial.constant(1),))


def waves(scop: Scop, machine: Machine, registers: int | None) -> tuple[float | str, float | str]:
    """Return the waves as the feature has them and as volumes have, or the errors' messages."""
    found: list[float | str] = []
    for way in (
        lambda: wave_values(scop, {}, machine, registers)["f_waves"],
        lambda: estimate_volumes(scop, {}, machine, registers=registers).waves,
    ):
        try:
            found.append(way())
        except (MachineError, UnsupportedKernelError) as error:
            found.append(error.message)
    return found[0], found[1]


@pytest.mark.slow
def test_waves_and_volumes_have_the_same_resident_work_groups_on_every_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without the footprints, which depend on the waves but not the other way round: the sweep takes seconds.
    whole = estimate_volumes(kernel(64, 0), {}, load_machine("V100"))

    def rules(launch: ResolvedLaunch, machine: Machine, resident: int, *_: object) -> Volumes:
        return replace(whole, waves=prod(launch.groups) / (resident * machine.need("compute_units")))

    monkeypatch.setattr(volume_estimate, "current_volumes", rules)
    monkeypatch.setattr(volume_estimate, "local_wavefronts", lambda *_: {})
    monkeypatch.setattr("perflex.features.gpu.waves._highest_occupancy", lambda *_: 1.0)
    scops = [kernel(items, kib) for items, kib in product(ITEMS, LOCAL_KIB)]
    both = [waves(*case) for case in product(scops, map(load_machine, GPUS), REGISTERS)]
    assert len(both) == 210 * len(GPUS)
    assert len({one for one, _ in both}) > 100
    assert [one for one, _ in both] == [other for _, other in both]


def test_a_work_group_that_does_not_fit_is_refused_by_both_as_a_kernel_and_by_its_machine() -> None:
    machine, scop = load_machine("K20"), kernel(64, 64)
    for refused in (UnsupportedKernelError, MachineError):
        with pytest.raises(refused, match="65536 bytes of local memory"):
            wave_values(scop, {}, machine)
        with pytest.raises(refused, match="65536 bytes of local memory"):
            estimate_volumes(scop, {}, machine)
