"""What the requests of each access take: sectors of global memory or wavefronts of local memory, and the least."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from perflex.features.gpu.memory_instructions import IDLE, PERIOD, distinct, instructions, wavefronts
from perflex.features.gpu.resolved_launch import accessing_launches
from perflex.features.gpu.work_group_kinds import representatives, whole_grid
from perflex.features.scop.scop import Scop
from perflex.machines.machine import Machine


@dataclass(frozen=True)
class Requests:
    """The requests of an access: memory instructions of sub-groups, in all launches of a run.

    Attributes
    ----------
    number
        Requests.
    served, least
        Sectors that they touch, of local memory wavefronts that they take; and the fewest that hold the same elements.
    """

    number: float = 0.0
    served: float = 0.0
    least: float = 0.0

    def __add__(self, other: Requests) -> Requests:
        """Return the requests of both."""
        return Requests(self.number + other.number, self.served + other.served, self.least + other.least)

    @property
    def each(self) -> tuple[float, float]:
        """What a request takes on average, and the least."""
        return (self.served / self.number, self.least / self.number) if self.number else (0.0, 0.0)


def requests_of(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, spaces: Sequence[str] = ("global", "local")
) -> dict[tuple[int, int], Requests]:
    """Return the requests of each access of some address spaces, by places of statement and access in the Scop.

    Counted as `global_transactions` and `local_wavefronts`; errors as there.
    """
    lanes, line, sector = (int(machine.need(name)) for name in ("sub_group_size", "line_bytes", "sector_bytes"))
    total: dict[tuple[int, int], Requests] = defaultdict(Requests)
    for _, launch in accessing_launches(scop, sizes):
        for space in spaces:
            if space not in launch.spaces.values():
                continue
            period, unit = (PERIOD, line) if space == "global" else (1, 1)
            for group, weight in representatives(launch, whole_grid(launch, unit), period):
                for item in instructions(launch, group, lanes, space, {}):
                    if space == "local":
                        served, least = wavefronts(item, machine)
                    else:
                        served = distinct(item.addresses, sector)
                        least = -(-distinct(item.addresses, item.itemsize) * item.itemsize // sector)
                    active = (item.addresses != IDLE).any(axis=-1)
                    times = launch.repeats * weight * item.times * item.weights
                    made = [float(np.asarray(each).sum(axis=-1) @ times) for each in (active, served, least)]
                    for source, count in item.sources.items():
                        total[source] += Requests(*(count * each for each in made))
    return dict(total)
