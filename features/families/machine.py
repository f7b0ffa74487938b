"""Features that need a machine: residency, data volumes, memory transactions, and Su's closed forms.

The machine is the target's; without one these features are errors that say so.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import PerflexWarning
from perflex.features.families.ecm import EcmFeature
from perflex.features.families.feature import Amount, FeatureDefaults, NamedFamily
from perflex.features.families.peaks import PeakFeature
from perflex.features.families.traffic import TrafficFeature
from perflex.features.gpu.estimate import estimate_volumes
from perflex.features.gpu.su_stencil import recognise_stencil
from perflex.features.gpu.su_volumes import su_volumes
from perflex.features.gpu.transactions import cache_transactions, l1_transactions
from perflex.features.gpu.waves import wave_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

# Values of so many sizes and machines stay with a kernel: what one fit or one prediction asks for.
_KEPT = 64


@dataclass(frozen=True)
class _Kind:
    """A group of features that one computation gives.

    Attributes
    ----------
    units
        Unit of each feature.
    compute
        Their values, keyed by identifier, for a Scop at integer sizes on a machine, with registers per work-item, and
        whether loaded values are kept in registers.
    """

    units: Mapping[str, str]
    compute: Callable[[Scop, Mapping[str, int], Machine, int | None, bool], Mapping[str, float]]


def _volumes(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None, reuse: bool
) -> Mapping[str, float]:
    values = estimate_volumes(scop, sizes, machine, registers=registers, register_reuse=reuse).features()
    return {identifier: float(values[identifier]) for identifier in VOLUME_FEATURES}


def _su(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None, _reuse: bool
) -> Mapping[str, float]:
    volumes = su_volumes(recognise_stencil(scop, sizes), machine, registers=registers)
    return {identifier: float(getattr(volumes, identifier.removeprefix("f_su_"))) for identifier in _SU_FEATURES}


def _cache(
    scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None, reuse: bool
) -> Mapping[str, float]:
    return cache_transactions(scop, sizes, machine, registers, register_reuse=reuse)


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
    _Kind(RESIDENCY_FEATURES, lambda scop, sizes, machine, registers, _: wave_values(scop, sizes, machine, registers)),
    _Kind(VOLUME_FEATURES, _volumes),
    _Kind(_SU_FEATURES, _su),
    _Kind(
        _L1_TRANSACTIONS,
        lambda scop, sizes, machine, _, reuse: l1_transactions(scop, sizes, machine, register_reuse=reuse),
    ),
    _Kind(_CACHE_TRANSACTIONS, _cache),
)
# Of these, compilers that keep values in registers have fewer.
_WITH_LOADS = {*VOLUME_FEATURES, *_L1_TRANSACTIONS, *_CACHE_TRANSACTIONS}
_UNITS = {identifier: unit for kind in _KINDS for identifier, unit in kind.units.items()}


@dataclass(frozen=True)
class MachineFeature(FeatureDefaults):
    """A number that a kernel has on a machine."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return _UNITS[self.identifier]

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine.

        Raises
        ------
        MachineError
            The target has no machine, it lacks a fact, or the kernel exceeds its limits.
        UnsupportedKernelError
            The kernel is none that this feature is for.

        Warns
        -----
        PerflexWarning
            The built kernel spills registers.
        """
        scop.check_sizes(sizes)
        used = {name: np.asarray(sizes[name]) for name in scop.parameters}
        shape = np.broadcast_shapes(*(array.shape for array in used.values()))
        if not shape:
            return self._at(scop, {name: int(array) for name, array in used.items()}, target)
        result = np.empty(shape)
        spread = {name: np.broadcast_to(array, shape) for name, array in used.items()}
        # Launches are resolved at one tuple of sizes, where their extents are numbers.
        for place in np.ndindex(shape):
            result[place] = self._at(scop, {name: int(array[place]) for name, array in spread.items()}, target)
        return result

    def _at(self, scop: Scop, sizes: Mapping[str, int], target: Target) -> float:
        spilt = target.resources.spill_bytes if target.resources is not None else None
        if spilt and target.register_reuse and self.identifier in _WITH_LOADS:
            msg = (
                f"kernel {scop.name!r} spills {spilt} B of each work-item, and {self.identifier} does not count what "
                "that loads and stores; fewer outputs per work-item avoid it"
            )
            warnings.warn(msg, PerflexWarning, stacklevel=3)
        given = (target.need_machine(self.identifier), target.registers_per_item, target.register_reuse)
        kind = next(kind for kind in _KINDS if self.identifier in kind.units)
        key = (kind.compute, tuple(sorted(sizes.items())), *given)
        # A model asks for several features of one computation.
        found = scop.derived("on machines", key, lambda: kind.compute(scop, sizes, *given), most=_KEPT)
        return found[self.identifier]

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel can have."""
        spaces = {scop.array(access.array).space for statement in scop.statements for access in statement.accesses}
        if "global" in spaces:
            return [name for name in _UNITS if name != "f_txn_local" or "local" in spaces]
        return [*RESIDENCY_FEATURES, *(["f_txn_local", "f_txn_l1"] if "local" in spaces else [])]

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for volumes."""
        return Amount(1.0, "B") if self.unit == "B" else None


MACHINE_FAMILY = NamedFamily(_UNITS, MachineFeature)


def needs_machine(feature: object) -> bool:
    """Return whether a feature has no value without a machine."""
    return isinstance(feature, (MachineFeature, EcmFeature, TrafficFeature, PeakFeature))
