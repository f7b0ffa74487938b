"""Quantities of a stencil in blocks: their names are features, their values need the block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import FeatureError
from perflex.features.families.feature import FeatureDefaults

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

BLOCK_UNITS = {
    "f_block_points": "point",
    "f_block_loads": "load",
    "f_block_runs": "run",
    "f_block_tiles": "tile",
    "f_block_tail": "load",
}
_VOLUME = "f_block_vol_"


@dataclass(frozen=True)
class BlockFeature(FeatureDefaults):
    """A quantity that choosing a block counts for each candidate; a kernel does not tell its block."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return BLOCK_UNITS.get(self.identifier, "B")

    def value(self, scop: Scop, _sizes: Sizes, _target: Target, /) -> Any:
        """Raise: no kernel has a value.

        Raises
        ------
        FeatureError
            Always.
        """
        msg = (
            f"feature {self.identifier} of kernel {scop.name!r} has a value for a block only; "
            "use calibrate_blocks and choose_block(..., calibration=...)"
        )
        raise FeatureError(msg, feature=self.identifier, kernel=scop.name)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True, so that asking for the value says why there is none."""
        return True

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return nothing: a kernel has none of them."""
        return []


class BlockFamily:
    """Reads the identifiers of this module."""

    def parse(self, identifier: str) -> BlockFeature | None:
        """Return the feature, or None when the identifier is another family's."""
        known = identifier in BLOCK_UNITS or (identifier.startswith(_VOLUME) and identifier != _VOLUME)
        return BlockFeature(identifier) if known else None

    def examples(self) -> tuple[str, ...]:
        """Return nothing to suggest: they are for `calibrate_blocks` alone."""
        return ()
