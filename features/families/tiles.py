"""Features of tile programs: what a launch accesses and computes, and what that costs at a machine's peaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from perflex.errors import FeatureError
from perflex.features.counting.touched import Certainty
from perflex.features.families.feature import Cost, Family, Remarks, Sizes
from perflex.features.target import Target
from perflex.features.tiles.costs import tile_costs
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.features.tiles.tile_program import TileProgram

_DIRECTIONS = ("load", "store", "atomic")
_KINDS = ("elementwise", "special", "reduction")


def _accessed(direction: str, what: str) -> Callable[[TileProgram], float]:
    return lambda program: sum(float(getattr(one, what)) for one in program.accesses if one.direction == direction)


def _computed(kind: str) -> Callable[[TileProgram], float]:
    return lambda program: sum(one.count for one in program.operations if one.kind == kind)


# Unit and function of the tile program, by name.
_COUNTS: Mapping[str, tuple[str, Callable[[TileProgram], float]]] = {
    "programs": ("program", lambda program: float(program.programs)),
    "iterations": ("iteration", lambda program: sum(one.iterations for one in program.loops)),
    "flops": ("op", lambda program: sum(one.flops for one in program.dots)),
    **{f"bytes_{one}": ("B", _accessed(one, "bytes")) for one in _DIRECTIONS},
    **{f"sectors_{one}": ("sector", _accessed(one, "sectors")) for one in _DIRECTIONS},
    **{f"ops_{one}": ("op", _computed(one)) for one in _KINDS},
}
_ROUND = ("tensor", "shared", "l2", "issue", "special", "rows", "added", "ends")
# Unit, and what terms with it stand for, by name.
_COSTS: Mapping[str, tuple[str, Cost]] = {
    "launch": ("launch", "overhead"),
    "starting": ("s", "overhead"),
    "dram": ("s", "memory"),
    "steps": ("iteration", "on-chip"),
    "full_rounds": ("round", "on-chip"),
    "last_rounds": ("round", "on-chip"),
    "starts": ("s", "overhead"),
    "start_latency": ("s", "overhead"),
    "chain": ("s", "on-chip"),
    "wait": ("s", "memory"),
    "wait_tensor": ("s", "on-chip"),
    "wait_shared": ("s", "on-chip"),
    "local_bytes": ("B", "other"),
    "registers": ("register", "other"),
    "resident": ("program", "other"),
    **{
        f"{when}_{what}": ("s", "memory" if what == "l2" else "on-chip")
        for when in ("full", "last")
        for what in _ROUND
    },
}  # fmt: skip


def _count(kernel: Any, sizes: Sizes, _target: Target, name: str) -> float:
    return _COUNTS[name][1](kernel.program(_one(kernel, sizes)))


def _one(kernel: Any, sizes: Sizes) -> Mapping[str, int]:
    """Return sizes, which must be numbers; beside those of the kernel they may choose its configuration."""
    if any(np.ndim(value) for value in sizes.values()):
        msg = f"kernel {kernel.name!r} is counted at one size after another; give numbers, no arrays"
        raise FeatureError(msg)
    return {name: int(value) for name, value in sizes.items()}


def _cost(kernel: Any, sizes: Sizes, target: Target, name: str) -> float:
    machine, one = target.need_machine(f"f_tile_{name}"), _one(kernel, sizes)
    found: Mapping[str, float] = kernel.derived(
        "costs of tiles",
        (tuple(sorted(one.items())), machine),
        lambda: tile_costs(kernel.program(one), machine),
        most=64,
    )
    return found[name]


def _counted(kernel: Any, sizes: Sizes | None, _target: Target, name: str) -> Remarks:
    """Say where some programs were counted in place of all."""
    some = name != "programs" and sizes is not None and not kernel.program(_one(kernel, sizes)).exact
    return Remarks(certainty=Certainty(estimated=some))


def _present(kernel: Any, _sizes: Sizes, _name: str) -> bool:
    return isinstance(kernel, TileKernel)


TILES = (
    Family(
        "What the programs of a tile program access and compute",
        f"f_tile_({'|'.join(_COUNTS)})",
        lambda name: _COUNTS[name][0],
        _count,
        examples=tuple(f"f_tile_{name}" for name in _COUNTS),
        remarks=_counted,
        present=_present,
        of="tiles",
    ),
    Family(
        "Seconds that a part of a tile program would take at the peak of one resource of a machine",
        f"f_tile_({'|'.join(_COSTS)})",
        lambda name: _COSTS[name][0],
        _cost,
        examples=tuple(f"f_tile_{name}" for name in _COSTS),
        remarks=lambda *_: Remarks(certainty=Certainty(estimated=True)),
        present=_present,
        needs="machine",
        cost=lambda name: _COSTS[name][1],
        of="tiles",
    ),
)
