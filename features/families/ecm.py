"""Cache volumes and cycles on a CPU: ``f_ecm_vol_<level>`` and ``f_ecm_cycles_<level>``.

A level is one of the machine's, in lower case, or ``mem``; what is counted crosses between it and the level before it,
for ``l1`` the registers. Values are those of one core that runs the whole kernel.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex.errors import MachineError
from perflex.features.families.feature import Amount, FeatureDefaults

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

_IDENTIFIER = re.compile(r"f_ecm_(vol|cycles)_([a-z][a-z0-9]*)")
_USUAL = ("l1", "l2", "l3", "mem")
_KEPT = 64


@dataclass(frozen=True)
class EcmFeature(FeatureDefaults):
    """Bytes or cycles of one level per run of a kernel on a CPU.

    Attributes
    ----------
    identifier
        In model strings.
    quantity
        ``"vol"`` or ``"cycles"``.
    level
        The level's name in lower case, or ``"mem"``.
    """

    identifier: str
    quantity: str
    level: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return "B" if self.quantity == "vol" else "cycle"

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine.

        Raises
        ------
        MachineError
            The target has no machine, it has no such level, or no bandwidth for cycles.
        UnsupportedKernelError
            An access or a loop is too irregular.
        """
        machine = target.need_machine(self.identifier)
        known = [*(level.name.lower() for level in machine.need_levels()), "mem"]
        if self.level not in known:
            msg = f"machine {machine.name} has no level {self.level} ({self.identifier}); it has {', '.join(known)}"
            raise MachineError(msg, machine=machine.name, feature=self.identifier)
        if not self.matches(scop, sizes):
            # A kernel that only computes, or does nothing, moves nothing.
            scop.check_sizes(sizes)
            return 0.0
        found = _estimated(scop, sizes, machine)
        if self.identifier not in found:
            fact = "memory_streams" if self.level == "mem" else f"load and store_bytes_per_cycle of {self.level}"
            msg = f"machine {machine.name} has no {fact}, which {self.identifier} needs; add it to its file"
            raise MachineError(msg, machine=machine.name, feature=self.identifier)
        return found[self.identifier]

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether the kernel accesses memory at all."""
        return bool(self.inventory(scop))

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the usual features of this family if the kernel accesses memory."""
        # Private variables are taken as registers, which move nothing between levels.
        touches = any(
            scop.array(access.array).space != "private"
            for statement in scop.statements
            for access in statement.accesses
        )
        return list(EcmFamily().examples()) if touches else []

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for volumes."""
        return Amount(1.0, "B") if self.quantity == "vol" else None


def _estimated(scop: Scop, sizes: Sizes, machine: Machine) -> Mapping[str, Any]:
    import numpy as np

    from perflex.features.cpu.estimate import estimate_ecm

    used = {name: np.asarray(sizes[name]) for name in scop.parameters if name in sizes}
    # Arrays are not hashable: shape and bytes stand for them.
    key = (tuple((name, array.shape, array.tobytes()) for name, array in sorted(used.items())), machine)
    # A model asks for several features of one computation.
    return scop.derived("ECM", key, lambda: estimate_ecm(scop, sizes, machine).features(), most=_KEPT)


class EcmFamily:
    """Reads the identifiers of this module."""

    def parse(self, identifier: str) -> EcmFeature | None:
        """Return the feature, or None when the identifier is another family's."""
        match = _IDENTIFIER.fullmatch(identifier)
        return EcmFeature(identifier, match[1], match[2]) if match else None

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(f"f_ecm_{quantity}_{level}" for quantity in ("vol", "cycles") for level in _USUAL)
