"""Parts of a kernel that are followed together: nests whose loops keep their length, and those with varying loops."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.cpu.nest_values import NestValues
from perflex.features.cpu.reuse import Reuse
from perflex.features.cpu.sets import Sets
from perflex.features.cpu.traffic import Crossing, Traffic, plan
from perflex.features.cpu.varying_loops import sampled

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perflex.features.cpu.rules import Rules
    from perflex.features.cpu.traffic import GroupPlan
    from perflex.machines.levels import CacheLevel


@dataclass(frozen=True)
class Part:
    """Some of a kernel's groups of accesses.

    Attributes
    ----------
    reuse
        The kernel; with weights, at some iterations of the loops that others depend on, along the last axis.
    plans
        The groups.
    sets
        Sets of the caches that have some, by name.
    weights
        What part of the iterations each of those stands for.
    """

    reuse: Reuse
    plans: tuple[GroupPlan, ...]
    sets: Mapping[str, Sets]
    weights: Any = None

    def beyond(self, level: CacheLevel, rules: Rules, everything: Any, *, write_allocate: bool) -> Crossing:
        """Return the bytes that cross beyond a cache; `everything` are those of all data of the kernel."""
        if self.weights is not None and isinstance(everything, np.ndarray):
            everything = everything[..., None]
        traffic = Traffic(
            self.reuse,
            level.bytes_per_core(rules.cores),
            strict=rules.strict,
            whole=everything,
            sets=self.sets.get(level.name),
        )
        found = traffic.beyond(self.plans, write_allocate=write_allocate)
        if self.weights is None:
            return found
        each = [found.loads, found.evicts, found.allocates]
        return Crossing(*(_plain(np.sum(self.weights * value, axis=-1)) for value in each))


def _plain(value: Any) -> Any:
    return value if np.ndim(value) else float(value)


def parts_of(
    reuse: Reuse,
    plans: Sequence[GroupPlan],
    sizes: Mapping[str, Any],
    blocks: Mapping[str, Any],
    levels: Sequence[CacheLevel],
    cores: int,
) -> tuple[Part, ...]:
    """Return the parts of a kernel: first that with loops of fixed length, which may be empty.

    Parameters
    ----------
    reuse, plans
        The kernel with the largest length of each loop.
    sizes, blocks
        Values, numbers or arrays of one shape.
    levels, cores
        Caches, and cores that work.
    """
    nests = reuse.nests
    fixed = tuple(entry for entry in plans if not nests.nests[entry.nest].drivers)
    parts = [Part(reuse, fixed, _sets(reuse, levels, cores))]
    for number, nest in enumerate(nests.nests):
        if nest.drivers:
            at, weights = sampled(nest, sizes)
            wide = {
                name: np.broadcast_to(np.asarray(value)[..., None], weights.shape) for name, value in blocks.items()
            }
            here = Reuse(nests, NestValues(at, wide), reuse.line, [driver.name for driver in nest.drivers])
            own = tuple(entry for entry in plan(here) if entry.nest == number)
            parts.append(Part(here, own, _sets(here, levels, cores), weights))
    return tuple(parts)


def _sets(reuse: Reuse, levels: Sequence[CacheLevel], cores: int) -> dict[str, Sets]:
    shapes = {level.name: level.sets(cores) for level in levels}
    return {name: Sets(reuse, *shape) for name, shape in shapes.items() if shape is not None}
