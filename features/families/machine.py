"""Features that need a machine, which is the target's; without one they are errors that say so.

On GPUs: residency, data volumes, memory transactions, and Su's closed forms. On CPUs: ``f_ecm_vol_<level>`` and
``f_ecm_cycles_<level>``, of one core that runs the whole kernel, between a level and the one before it (for ``l1`` the
registers); and ``f_traffic_<what>_<level>``, of all cores, to which the work-groups are dealt out. ``streams`` are what
hardware prefetchers follow: the contiguous bytes that an access touches before it jumps. Pages are those that the TLB
has forgotten when they are touched again.
"""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.errors import MachineError, PerflexWarning
from perflex.features.families.feature import Amount, Family, FeatureDefaults, NamedFeature, named_family
from perflex.features.families.peaks import PeakFeature
from perflex.features.gpu.su_stencils import recognise_stencil, su_volumes
from perflex.features.gpu.volume_estimate import cache_transactions, estimate_volumes, l1_transactions
from perflex.features.gpu.waves import wave_values

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features.families.feature import Sizes
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

_IDENTIFIER = re.compile(r"f_ecm_(vol|cycles)_([a-z][a-z0-9]*)")
_EXAMPLES = tuple(f"f_ecm_{what}_{level}" for what in ("vol", "cycles") for level in ("l1", "l2", "l3", "mem"))
# Values of so many sizes and machines stay with a kernel: what one fit or one prediction asks for.
_KEPT = 64


@dataclass(frozen=True)
class EcmFeature(FeatureDefaults):
    """Bytes or cycles of one level per run of a kernel on a CPU."""

    identifier: str  # In model strings
    quantity: str  # ``"vol"`` or ``"cycles"``
    level: str  # The level's name in lower case, or ``"mem"``

    @property
    def unit(self) -> str:
        """What is counted."""
        return "B" if self.quantity == "vol" else "cycle"

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine."""
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
        return list(_EXAMPLES) if touches else []

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for volumes."""
        return Amount(1.0, "B") if self.quantity == "vol" else None


def _estimated(scop: Scop, sizes: Sizes, machine: Machine) -> Mapping[str, Any]:
    import numpy as np

    from perflex.features.cpu.ecm_estimate import estimate_ecm

    used = {name: np.asarray(sizes[name]) for name in scop.parameters if name in sizes}
    # Arrays are not hashable: shape and bytes stand for them.
    key = (tuple((name, array.shape, array.tobytes()) for name, array in sorted(used.items())), machine)
    # A model asks for several features of one computation.
    return scop.derived("ECM", key, lambda: estimate_ecm(scop, sizes, machine).features(), most=_KEPT)


def _ecm(identifier: str) -> EcmFeature | None:
    match = _IDENTIFIER.fullmatch(identifier)
    return EcmFeature(identifier, match[1], match[2]) if match else None


ECM_FAMILY = Family(_ecm, _EXAMPLES)
_TRAFFIC = "f_traffic_"
_TRAFFIC_IDENTIFIER = re.compile(_TRAFFIC + r"(pages|(?:bytes|streams|store_streams)_[a-z][a-z0-9]*)")
_TRAFFIC_EXAMPLES = tuple(
    f"{_TRAFFIC}{what}_{level}" for what in ("bytes", "streams", "store_streams") for level in ("l2", "l3", "mem")
)
_TLB = (f"{_TRAFFIC}pages", f"{_TRAFFIC}bytes_tlb")
_TRAFFIC_UNITS = {"bytes": "B", "streams": "stream", "pages": "page"}


@dataclass(frozen=True)
class TrafficFeature(FeatureDefaults):
    """Bytes or streams that cross between a level and the one before it, or pages, per run of a kernel on a CPU."""

    identifier: str

    @property
    def unit(self) -> str:
        """What is counted."""
        return next(unit for name, unit in _TRAFFIC_UNITS.items() if name in self._what)

    @property
    def _what(self) -> str:
        return self.identifier.removeprefix(_TRAFFIC)

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine."""
        target.need_machine(self.identifier)
        scop.check_sizes(sizes)
        if not self.matches(scop, sizes):
            # A kernel that touches no memory moves nothing.
            return sum((np.zeros(np.shape(sizes[name])) for name in scop.parameters), start=np.zeros(()))[()]
        found = _counted(scop, sizes, target)
        if self._what not in found:
            known = ", ".join(_TRAFFIC + name for name in found)
            msg = f"machine {target.need_machine().name} has no level for {self.identifier}; it has {known}"
            raise MachineError(msg, machine=target.need_machine().name, feature=self.identifier)
        return found[self._what]

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family, if the kernel touches memory."""
        touches = any(scop.array(access.array).space != "private" for one in scop.statements for access in one.accesses)
        return [*_TRAFFIC_EXAMPLES, *_TLB] if touches else []

    def matches(self, scop: Scop, _sizes: Sizes, /) -> bool:
        """Return whether the kernel touches memory."""
        return bool(self.inventory(scop))

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for bytes."""
        return Amount(1.0, "B") if self.unit == "B" else None


def _counted(scop: Scop, sizes: Sizes, target: Target) -> Mapping[str, Any]:
    from perflex.features.cpu.core_traffic import traffic_of_cores

    machine = target.need_machine()
    used = {name: np.asarray(sizes[name]) for name in scop.parameters if name in sizes}
    # Arrays are not hashable: shape and bytes stand for them.
    key = (
        tuple((name, one.shape, one.tobytes()) for name, one in sorted(used.items())),
        machine,
        target.sub_group_size,
    )
    return scop.derived(
        "traffic", key, lambda: traffic_of_cores(scop, sizes, machine, target.sub_group_size), most=_KEPT
    )


TRAFFIC_FAMILY = Family(
    lambda identifier: TrafficFeature(identifier) if _TRAFFIC_IDENTIFIER.fullmatch(identifier) else None,
    (*_TRAFFIC_EXAMPLES, *_TLB),
)


@dataclass(frozen=True)
class _Kind:
    """A group of features that one computation gives."""

    units: Mapping[str, str]  # Unit of each feature
    # Their values, keyed by identifier, for a Scop at integer sizes on a machine, with registers per work-item.
    compute: Callable[[Scop, Mapping[str, int], Machine, int | None], Mapping[str, float]]


def _volumes(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> Mapping[str, float]:
    values = estimate_volumes(scop, sizes, machine, registers=registers).features()
    return {identifier: float(values[identifier]) for identifier in VOLUME_FEATURES}


def _su(scop: Scop, sizes: Mapping[str, int], machine: Machine, registers: int | None) -> Mapping[str, float]:
    volumes = su_volumes(recognise_stencil(scop, sizes), machine, registers=registers)
    return {identifier: float(getattr(volumes, identifier.removeprefix("f_su_"))) for identifier in _SU_FEATURES}


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
    _Kind(RESIDENCY_FEATURES, wave_values),
    _Kind(VOLUME_FEATURES, _volumes),
    _Kind(_SU_FEATURES, _su),
    _Kind(_L1_TRANSACTIONS, lambda scop, sizes, machine, _: l1_transactions(scop, sizes, machine)),
    _Kind(_CACHE_TRANSACTIONS, cache_transactions),
)
# Of these, compilers that keep values in registers have fewer.
_WITH_LOADS = {*VOLUME_FEATURES, *_L1_TRANSACTIONS, *_CACHE_TRANSACTIONS}
_UNITS = {identifier: unit for kind in _KINDS for identifier, unit in kind.units.items()}


@dataclass(frozen=True)
class MachineFeature(NamedFeature):
    """A number that a kernel has on a machine."""

    units = _UNITS

    def value(self, scop: Scop, sizes: Sizes, target: Target, /) -> Any:
        """Return the value at the given sizes on the target's machine."""
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
        if spilt and self.identifier in _WITH_LOADS:
            msg = (
                f"kernel {scop.name!r} spills {spilt} B of each work-item, and {self.identifier} does not count what "
                "that loads and stores; fewer outputs per work-item avoid it"
            )
            warnings.warn(msg, PerflexWarning, stacklevel=3)
        given = (target.need_machine(self.identifier), target.registers_per_item)
        kind = next(kind for kind in _KINDS if self.identifier in kind.units)
        key = (kind.compute, tuple(sorted(sizes.items())), *given)
        # A model asks for several features of one computation.
        found = scop.derived("on machines", key, lambda: kind.compute(scop, sizes, *given), most=_KEPT)
        value = found[self.identifier]
        if isnan(value):
            target.need_machine(self.identifier).need_l1_rules()
        return value

    def inventory(self, scop: Scop, /) -> list[str]:
        """Return the features of this family that the kernel can have."""
        spaces = {scop.array(access.array).space for statement in scop.statements for access in statement.accesses}
        if "global" in spaces:
            return [name for name in _UNITS if name != "f_txn_local" or "local" in spaces]
        return [*RESIDENCY_FEATURES, *(["f_txn_local", "f_txn_l1"] if "local" in spaces else [])]

    def amount(self, _scop: Scop, _sizes: Sizes, _target: Target, /) -> Amount | None:
        """Return one byte for volumes."""
        return Amount(1.0, "B") if self.unit == "B" else None


MACHINE_FAMILY = named_family(_UNITS, MachineFeature)


def needs_machine(feature: object) -> bool:
    """Return whether a feature has no value without a machine."""
    return isinstance(feature, (MachineFeature, EcmFeature, TrafficFeature, PeakFeature))
