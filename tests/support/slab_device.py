"""A device whose work-groups cost what a law says: short launches without hardware."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np
from pymbolic import evaluate

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SlabDevice", "SlabKernel"]


@dataclass(frozen=True)
class SlabDevice:
    """Plays a device on which each work-group costs what a law says; `START_S` is what a launch costs beside.

    The law is given the group's number in launch order, and whether its data were not used before; with ``named``, the
    kernel's name before them. It may raise MeasurementError to play a kernel that fails.
    """

    law: Any
    compute_units: int = 2
    kind: str = "cpu"
    name: str = "slab device"
    named: bool = False
    sub_group_size: int = 16
    restored: list[int] = field(default_factory=list)

    START_S = 2e-6

    def backend(self) -> SlabBackend:
        return SlabBackend(self)


class SlabBackend:
    timer_resolution_s = 1e-9

    def __init__(self, device: SlabDevice) -> None:
        self.device = device

    def build(self, request: Any) -> SlabKernel:
        return SlabKernel(self.device, request)

    def close(self) -> None:
        pass


class SlabKernel:
    def __init__(self, device: SlabDevice, request: Any) -> None:
        self.device = device
        self.law = partial(device.law, request.kernel.default_entrypoint.name) if device.named else device.law
        # All device programs of the tests' kernels have the same grid.
        unit = lp.infer_unknown_types(lp.preprocess_program(request.kernel), expect_completion=True)
        groups, _ = unit.default_entrypoint.get_grid_size_upper_bounds_as_exprs(unit.callables_table)
        self.groups = tuple(int(evaluate(axis, dict(request.sizes))) for axis in groups)
        self.used: set[tuple[int, int]] = set()

    def run(self, launches: int) -> tuple[float, ...]:
        self.used.clear()
        return tuple(self._seconds(0, range(prod(self.groups))) for _ in range(launches))

    def run_slabs(self, slabs: Sequence[Any]) -> tuple[float, ...]:
        self.device.restored.append(len(slabs))
        return tuple(self._seconds(slab.program, self._numbers(slab)) for slab in slabs)

    def _numbers(self, slab: Any) -> Sequence[int]:
        every = np.arange(prod(self.groups)).reshape(self.groups, order="F")
        box = every[tuple(slice(f, f + g) for f, g in zip(slab.first, slab.groups, strict=True))]
        return [int(number) for number in box.ravel()]

    def _seconds(self, program: int, numbers: Sequence[int]) -> float:
        cold = [(program, number) not in self.used for number in numbers]
        self.used |= {(program, number) for number in numbers}
        return self.device.START_S + sum(map(self.law, numbers, cold)) / self.device.compute_units
