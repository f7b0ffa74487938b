"""Features that need a machine, which is the target's; without one they are errors that say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import isnan
from typing import Any

import numpy as np

from perflex.errors import MachineError, warn
from perflex.features.families.feature import (
    Cost,
    Family,
    Remarks,
    Sizes,
    any_of,
    counted_of_all,
    estimated_of_all,
    kept,
    touches_memory,
)
from perflex.features.gpu.volume_estimate import cache_transactions, estimate_volumes, l1_transactions, require_gpu
from perflex.features.gpu.waves import wave_values
from perflex.features.scop.scop import Scop
from perflex.features.target import Target

# Values by identifier, of a Scop at integer sizes on a target that has a machine.
_Compute = Callable[[Scop, Mapping[str, int], Target], Mapping[str, float]]

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
_L1_TRANSACTIONS = dict.fromkeys(("f_txn_global", "f_txn_local", "f_txn_l1"), "transaction")
_CACHE_TRANSACTIONS = dict.fromkeys(("f_txn_l2", "f_txn_dram"), "transaction")
# What compilers that keep values in registers have fewer of.
_WITH_LOADS = {*VOLUME_FEATURES, *_L1_TRANSACTIONS, *_CACHE_TRANSACTIONS}


def _waves(scop: Scop, sizes: Mapping[str, int], target: Target) -> Mapping[str, float]:
    return wave_values(scop, sizes, target.need_machine(), target.registers_per_item)


def _volumes(scop: Scop, sizes: Mapping[str, int], target: Target) -> Mapping[str, float]:
    machine, registers = target.need_machine(), target.registers_per_item
    return estimate_volumes(scop, sizes, machine, registers=registers, caches=target.caches).features()


def _transactions(scop: Scop, sizes: Mapping[str, int], target: Target) -> Mapping[str, float]:
    return cache_transactions(scop, sizes, target.need_machine(), target.registers_per_item, target.caches)


def _su(scop: Scop, sizes: Mapping[str, int], target: Target) -> Mapping[str, float]:
    from perflex.features.gpu.su_stencils import recognise_stencil, su_volumes

    volumes = su_volumes(recognise_stencil(scop, sizes), target.need_machine(), registers=target.registers_per_item)
    return {name: float(getattr(volumes, name.removeprefix("f_su_"))) for name in _SU_FEATURES}


def _value(compute: _Compute, scop: Scop, sizes: Mapping[str, int], target: Target, name: str) -> float:
    spilt = target.resources.spill_bytes if target.resources is not None else None
    if spilt and name in _WITH_LOADS:
        msg = (
            f"kernel {scop.name!r} spills {spilt} B of each work-item, and {name} does not count what "
            "that loads and stores; fewer outputs per work-item avoid it"
        )
        warn(msg)
    machine = target.need_machine()
    require_gpu(machine)
    key = (compute, machine, target.registers_per_item, target.caches)
    value = float(kept(scop, "on machines", sizes, key, lambda: compute(scop, sizes, target))[name])
    if isnan(value):
        machine.need_l1_rules()
    return value


def _gpu_features(scop: Scop) -> list[str]:
    spaces = {scop.array(access.array).memory for statement in scop.statements for access in statement.accesses}
    names = [*RESIDENCY_FEATURES, *VOLUME_FEATURES, *_SU_FEATURES, *_L1_TRANSACTIONS, *_CACHE_TRANSACTIONS]
    if "global" in spaces:
        return [name for name in names if name != "f_txn_local" or "local" in spaces]
    return [*RESIDENCY_FEATURES, *(["f_txn_local", "f_txn_l1"] if "local" in spaces else [])]


def _on_gpu(
    title: str,
    units: dict[str, str],
    compute: _Compute,
    cost: Cost | Callable[[str], Cost],
    remarks: Callable[..., Remarks] | None = estimated_of_all,
) -> Family:
    return Family(
        title,
        any_of(units),
        units.__getitem__,
        partial(_value, compute),
        examples=tuple(units),
        inventory=_gpu_features,
        remarks=remarks,
        needs="machine",
        cost=cost,
        one_size=True,
    )


def _volume_cost(name: str) -> Cost:
    return "memory" if name.startswith("f_vol_") else "overhead" if name.startswith("f_oversub_") else "on-chip"


_ECM = (
    *(f"f_ecm_{what}_{level}" for what in ("vol", "cycles") for level in ("l1", "l2", "l3", "mem")),
    "f_ecm_cycles_penalty",
)
_TRAFFIC = (
    *(f"f_traffic_{what}_{level}" for what in ("bytes", "streams", "store_streams") for level in ("l2", "l3", "mem")),
    "f_traffic_pages",
    "f_traffic_bytes_tlb",
)


def _ecm(scop: Scop, sizes: Sizes, target: Target, what: tuple[str, str, str | None]) -> Any:
    from perflex.features.cpu.ecm_estimate import estimate_ecm

    machine, name, level = target.need_machine(), "f_ecm_{}_{}".format(*what), what[1]
    known = [*(one.name.lower() for one in machine.need_levels()), "mem"]
    if level not in known and name != "f_ecm_cycles_penalty":
        msg = f"machine {machine.name} has no level {level} ({name}); it has {', '.join(known)}"
        raise MachineError(msg, machine=machine.name, feature=name)
    if not touches_memory(scop):
        return _nothing(scop, sizes)
    cores = int(what[2] or 1)
    # A model asks for several features of one computation.
    found = kept(
        scop, "ECM", sizes, (machine, cores), lambda: estimate_ecm(scop, sizes, machine, cores=cores).features()
    )
    if name not in found:
        fact = "memory_streams" if level == "mem" else f"load and store_bytes_per_cycle of {level}"
        msg = f"machine {machine.name} has no {fact}, which {name} needs; add it to its file"
        raise MachineError(msg, machine=machine.name, feature=name)
    return found[name]


def _traffic(scop: Scop, sizes: Sizes, target: Target, what: str) -> Any:
    from perflex.features.cpu.core_traffic import traffic_of_cores

    if not touches_memory(scop):
        return _nothing(scop, sizes)
    machine, lanes = target.need_machine(), target.sub_group_size
    widths = lanes, lanes if target.lock_step else 1
    found = kept(scop, "traffic", sizes, (machine, widths), lambda: traffic_of_cores(scop, sizes, machine, widths))
    if what not in found:
        known = ", ".join(f"f_traffic_{name}" for name in found)
        msg = f"machine {machine.name} has no level for f_traffic_{what}; it has {known}"
        raise MachineError(msg, machine=machine.name, feature=f"f_traffic_{what}")
    return found[what]


def _nothing(scop: Scop, sizes: Sizes) -> Any:
    """Return what a kernel moves that accesses no memory."""
    return np.zeros(np.broadcast_shapes(*(np.shape(sizes[name]) for name in scop.parameters)))[()]


ON_MACHINE = (
    _on_gpu("Waves of work-groups, and how full they are", RESIDENCY_FEATURES, _waves, "overhead", None),
    _on_gpu(
        "Bytes between the levels of a GPU's memory, and cycles of its L1", VOLUME_FEATURES, _volumes, _volume_cost
    ),
    _on_gpu("Bytes that a stencil moves by Su's closed forms", _SU_FEATURES, _su, "memory"),
    _on_gpu(
        "Memory transactions of L1 and of local memory",
        _L1_TRANSACTIONS,
        lambda scop, sizes, target: l1_transactions(scop, sizes, target.need_machine()),
        "memory",
        counted_of_all,
    ),
    _on_gpu("Memory transactions of L2 and of DRAM", _CACHE_TRANSACTIONS, _transactions, "memory"),
    Family(
        "Bytes or cycles of one level per run of a kernel on a CPU",
        "f_ecm_(vol|cycles)_([a-z][a-z0-9]*)(?:_cores:([1-9][0-9]{0,5}))?",
        lambda what: "B" if what[0] == "vol" else "cycle",
        _ecm,
        examples=_ECM,
        inventory=lambda scop: list(_ECM) if touches_memory(scop) else [],
        present=lambda scop, _sizes, _what: touches_memory(scop),
        remarks=estimated_of_all,
        needs="machine",
        cost="memory",
    ),
    Family(
        "Bytes or streams that cross between a level and the one before it, or pages, per run of a kernel on a CPU",
        "f_traffic_(pages|(?:bytes|streams|store_streams)_[a-z][a-z0-9]*)",
        lambda what: "page" if what == "pages" else "B" if what.startswith("bytes") else "stream",
        _traffic,
        examples=_TRAFFIC,
        inventory=lambda scop: list(_TRAFFIC) if touches_memory(scop) else [],
        present=lambda scop, _sizes, _what: touches_memory(scop),
        remarks=estimated_of_all,
        needs="machine",
        cost="memory",
    ),
)
