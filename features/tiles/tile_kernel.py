"""Kernels that tile programs describe, taken wherever a kernel is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping
from typing import Any

from perflex.errors import MissingSizeError
from perflex.features.tiles.tile_program import TileProgram
from perflex.isl import computed_once
from perflex.machines.machine import Machine


class TileKernel(ABC):
    """A kernel whose launch at given sizes is a tile program; it stands where others have a `Scop`."""

    name: str
    parameters: tuple[str, ...]  # Its sizes
    # What a Scop has and asks; a tile program has no work-items.
    launches = statements = barriers = ()

    @computed_once
    def unknown_extents(self) -> dict[str, str]:
        """None: contents are known."""
        return {}

    def derived(self, what: str, key: Hashable, compute: Callable[[], Any], *, most: int | None = None) -> Any:
        """Return what `compute` returned first; see `Scop.derived`."""
        values = self.__dict__.setdefault("_derived", {}).setdefault(what, {})
        if key not in values:
            if most is not None and len(values) >= most:
                values.clear()
            values[key] = compute()
        return values[key]

    def compiled_for(self, _machine: Machine) -> TileKernel:
        """Return the kernel as it is for a machine: what a compiler makes of it may depend on that."""
        return self

    @abstractmethod
    def program(self, sizes: Mapping[str, Any]) -> TileProgram:
        """Return the tile program of the launch at these sizes."""

    def scop(self, _sizes: Mapping[str, Any] | None = None) -> Any:
        """Return itself: it is its own description."""
        return self

    def checked(self, sizes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the sizes if they are complete; raises what `check_sizes` raises."""
        self.check_sizes(sizes)
        return sizes

    def check_sizes(self, sizes: Mapping[str, Any], **_: Any) -> None:
        """Stop unless every size has a value that is a whole number; a `MissingSizeError`."""
        if missing := [name for name in self.parameters if name not in sizes]:
            msg = f"kernel {self.name!r} needs a value for size {', '.join(missing)}; pass {missing[0]}=..."
            raise MissingSizeError(msg, kernel=self.name, parameters=tuple(missing))
        if self.parameters:
            from perflex.features.scop.checks import require_whole

            require_whole(sizes, self.parameters, self.name)
