"""How similar devices are, from the facts of their machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from perflex.machines.machine import Machine

    Array = NDArray[np.float64]

# What the time of a kernel follows beyond the peaks: how much is on the device, and what of it is shared.
_FACTS = (
    "compute_units",
    "clock_hz",
    "l1_bytes",
    "l2_bytes",
    "l2_bandwidth",
    "dram_bandwidth",
    "dram_latency",
    "local_bytes",
    "max_items_per_unit",
    "max_groups_per_unit",
    "compute_capability",
    "fp32_per_cycle",
    "fp64_per_cycle",
)


def distances(machines: Sequence[Machine | None]) -> Array:
    """Return how far apart devices are: root mean square of the logarithms of ratios of their facts.

    Over the facts that all machines have, so that the distance is Euclidean; infinite to one that is not known.

    Parameters
    ----------
    machines
        The machines, None for one that is not known.

    Returns
    -------
    numpy.ndarray
        Shape ``(d, d)``.
    """
    found = np.where(np.eye(len(machines), dtype=bool), 0.0, np.inf)
    places = [place for place, machine in enumerate(machines) if machine is not None]
    facts = [machine.known() for machine in machines if machine is not None]
    shared = [name for name in _FACTS if facts and all(known.get(name, 0.0) > 0 for known in facts)]
    if not shared:
        return found
    points = np.log([[known[name] for name in shared] for known in facts])
    found[np.ix_(places, places)] = np.sqrt(np.mean((points[:, None] - points[None, :]) ** 2, axis=2))
    return found
