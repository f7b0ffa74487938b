"""Features of a kernel as it was built for a device: registers and private memory per work-item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import FeatureError
from perflex.features.families.feature import FeatureDefaults, NamedFamily

if TYPE_CHECKING:
    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target

_UNITS = {"f_registers": "register", "f_private_bytes": "B", "f_spill_bytes": "B"}
_FIELDS = {"f_registers": "registers", "f_private_bytes": "private_bytes", "f_spill_bytes": "spill_bytes"}


@dataclass(frozen=True)
class BuildFeature(FeatureDefaults):
    """A number per work-item that the compiler decides; the most of several device programs."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value of the target's build, or the registers that are stated for it.

        Raises
        ------
        FeatureError
            The kernel was not built, or the driver does not tell.
        """
        scop.check_sizes(sizes)
        built = target.built
        found = None if built is None else getattr(built, _FIELDS[self.identifier])
        # Registers may be stated where nothing was built (`using_machine`).
        if built is None and self.identifier == "f_registers":
            found = target.registers
        if found is not None:
            return float(found)
        if built is None:
            why = "is known only of kernels built for a device; gather it with a wall time"
        else:
            why = "is not reported by the device's driver; leave it out, or measure through CUDA"
        msg = f"feature {self.identifier} of kernel {scop.name!r} {why}"
        raise FeatureError(msg, feature=self.identifier, kernel=scop.name)

    def matches(self, _scop: Scop, _sizes: Sizes, /) -> bool:
        """Return True: every kernel takes some, were it none."""
        return True

    def inventory(self, _scop: Scop, /) -> list[str]:
        """Return the features of this family."""
        return list(_UNITS)


BUILD_FAMILY = NamedFamily(_UNITS, BuildFeature)


def needs_build(feature: object) -> bool:
    """Return whether a feature has no value without a built kernel."""
    return isinstance(feature, BuildFeature)
