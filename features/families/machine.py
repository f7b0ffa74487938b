"""Features that need a machine: residency, data volumes, memory transactions, and Su's closed forms.

The machine is the one of `perflex.machines.using_machine`; without one these features are errors that say so.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.features.families.feature import Amount
from perflex.machines.choice import Choice, current_choice
from perflex.machines.resources import current_resources

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop

__all__ = ["RESIDENCY_FEATURES", "VOLUME_FEATURES", "MachineFamily", "MachineFeature", "needs_machine"]

_KEPT = 64


@dataclass(frozen=True)
class _Kind:
    """A group of features that one computation gives.

    Attributes
    ----------
    units
        Unit of each feature.
    compute
        Their values, keyed by identifier, for a Scop at integer sizes on a machine.
    """

    units: Mapping[str, str]
    compute: Callable[[Scop, Mapping[str, int], Choice], Mapping[str, float]]


def _residency(scop: Scop, sizes: Mapping[str, int], choice: Choice) -> Mapping[str, float]:
    from perflex.features.gpu.waves import wave_values

    return wave_values(scop, sizes, choice.machine, choice.registers)


def _volumes(scop: Scop, sizes: Mapping[str, int], choice: Choice) -> Mapping[str, float]:
    from perflex.features.gpu import estimate_volumes

    values = estimate_volumes(scop, sizes, choice.machine, registers=choice.registers).features()
    return {identifier: float(values[identifier]) for identifier in VOLUME_FEATURES}


def _su(scop: Scop, sizes: Mapping[str, int], choice: Choice) -> Mapping[str, float]:
    from perflex.features.gpu.su_stencil import recognise_stencil
    from perflex.features.gpu.su_volumes import su_volumes

    volumes = su_volumes(recognise_stencil(scop, sizes), choice.machine, registers=choice.registers)
    return {identifier: float(getattr(volumes, identifier.removeprefix("f_su_"))) for identifier in _SU_FEATURES}


def _l1_transactions(scop: Scop, sizes: Mapping[str, int], choice: Choice) -> Mapping[str, float]:
    from perflex.features.gpu.transactions import l1_transactions

    return l1_transactions(scop, sizes, choice.machine)


def _cache_transactions(scop: Scop, sizes: Mapping[str, int], choice: Choice) -> Mapping[str, float]:
    from perflex.features.gpu.transactions import cache_transactions

    return cache_transactions(scop, sizes, choice.machine, choice.registers)


RESIDENCY_FEATURES = {"f_waves": "wave", "f_wave_quantisation": "1", "f_occupancy": "1", "f_su_imbalance": "1"}
VOLUME_FEATURES = {
    "f_l1_wavefronts": "wavefront",
    "f_lmem_wavefronts": "wavefront",
    "f_lmem_wavefronts_load": "wavefront",
    "f_lmem_wavefronts_store": "wavefront",
    "f_vol_l1_load": "B",
    "f_vol_l2_l1_load": "B",
    "f_vol_l2_l1_store": "B",
    "f_vol_dram_load": "B",
    "f_vol_dram_store": "B",
    "f_oversub_l1": "1",
    "f_oversub_l2": "1",
}
_SU_FEATURES = {"f_su_v_smx": "B", "f_su_v_l2": "B", "f_su_v_gm": "B"}
# Instruction roofline: sectors of global memory, L2 and DRAM; accesses of local memory with replays; L1's total.
_L1_TRANSACTIONS = {"f_txn_global": "transaction", "f_txn_local": "transaction", "f_txn_l1": "transaction"}
_CACHE_TRANSACTIONS = {"f_txn_l2": "transaction", "f_txn_dram": "transaction"}
_KINDS = (
    _Kind(RESIDENCY_FEATURES, _residency),
    _Kind(VOLUME_FEATURES, _volumes),
    _Kind(_SU_FEATURES, _su),
    _Kind(_L1_TRANSACTIONS, _l1_transactions),
    _Kind(_CACHE_TRANSACTIONS, _cache_transactions),
)
_UNITS = {identifier: unit for kind in _KINDS for identifier, unit in kind.units.items()}


@dataclass(frozen=True)
class MachineFeature:
    """A number that a kernel has on a machine."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.identifier]

    @property
    def needs_machine(self) -> bool:
        """True: there is no value without a machine."""
        return True

    def value(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Any:  # noqa: ARG002 - the machine has its own
        """Return the value at the given sizes on the machine that is chosen.

        Raises
        ------
        MachineError
            No machine is chosen, it lacks a fact, or the kernel exceeds its limits.
        UnsupportedKernelError
            The kernel is none that this feature is for.
        """
        scop.check_sizes(sizes)
        used = {name: np.asarray(sizes[name]) for name in scop.parameters}
        shape = np.broadcast_shapes(*(array.shape for array in used.values()))
        if not shape:
            return self._at(scop, {name: int(array) for name, array in used.items()})
        result = np.empty(shape)
        spread = {name: np.broadcast_to(array, shape) for name, array in used.items()}
        for place in np.ndindex(shape):
            result[place] = self._at(scop, {name: int(array[place]) for name, array in spread.items()})
        return result

    def _at(self, scop: Scop, sizes: Mapping[str, int]) -> float:
        choice = _with_build(current_choice(self.identifier))
        kind = next(kind for kind in _KINDS if self.identifier in kind.units)
        key = (kind.compute, tuple(sorted(sizes.items())), choice)
        # A model asks for several features of one computation.
        found = scop.derived("on machines", key, lambda: kind.compute(scop, sizes, choice), most=_KEPT)
        return found[self.identifier]

    def matches(self, scop: Scop, sizes: Sizes) -> bool:  # noqa: ARG002 - protocol
        """Return whether the kernel has any: volumes need accesses of global arrays."""
        return self.identifier in self.inventory(scop)

    def inventory(self, scop: Scop) -> list[str]:
        """Return the features of this family that the kernel can have."""
        spaces = {scop.array(access.array).space for statement in scop.statements for access in statement.accesses}
        if "global" in spaces:
            return [name for name in _UNITS if name != "f_txn_local" or "local" in spaces]
        return [*RESIDENCY_FEATURES, *(["f_txn_local", "f_txn_l1"] if "local" in spaces else [])]

    def amount(self, scop: Scop, sizes: Sizes, sub_group_size: int) -> Amount | None:  # noqa: ARG002 - protocol
        """Return one byte for volumes."""
        return Amount(1.0, "B") if self.unit == "B" else None


def _with_build(choice: Choice) -> Choice:
    """Return the choice with the registers that the kernel at hand was built with, where nothing else was stated."""
    built = current_resources()
    if choice.registers is not None or built is None or built.registers is None:
        return choice
    return replace(choice, registers=built.registers)


class MachineFamily:
    """Reads the identifiers of this module."""

    def parse(self, identifier: str) -> MachineFeature | None:
        """Return the feature, or None when the identifier is another family's."""
        return MachineFeature(identifier) if identifier in _UNITS else None

    def examples(self) -> tuple[str, ...]:
        """Return identifiers to suggest."""
        return tuple(_UNITS)


def needs_machine(feature: object) -> bool:
    """Return whether a feature has no value without a machine."""
    return bool(getattr(feature, "needs_machine", False))
