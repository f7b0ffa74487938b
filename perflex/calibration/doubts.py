"""Reasons not to rely on a prediction: what the calibration has no kernels like, and what models cannot know."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.calibration.interval import carried_by
from perflex.errors import DoubtfulPredictionWarning, MachineError, warn
from perflex.features import extract_scop
from perflex.features.from_source.source import SourceKernel
from perflex.features.gpu.uneven_work import uneven_doubts
from perflex.features.gpu.waves import local_bytes
from perflex.features.sized_kernel import with_own_sizes
from perflex.features.tiles.costs import TileCosts
from perflex.features.tiles.doubts import UNLIKE_DEVIATION, tile_doubts, unlike_judged
from perflex.features.tiles.tile_kernel import TileKernel
from perflex.machines.files import load_machine, machine_names, machine_of_device
from perflex.machines.host import host_machine

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perflex.calibration.record import CalibrationRecord
    from perflex.features.scop.scop import Scop
    from perflex.features.target import Target
    from perflex.machines.machine import Machine

# Each point of arrays of sizes takes some milliseconds.
_MOST_POINTS = 16
# Features that count conflict misses themselves.
_KNOW_SETS = ("f_ecm", "f_traffic")
# Features that count idle compute units themselves.
_KNOW_UNITS = ("f_peak", "f_tile", "f_wave_quantisation", "f_su_imbalance")
_KINDS = ("cpu", "gpu")
# Of a work-group, as calibrations name them.
DEVICE_LIMITS = ("max_work_group_size", "local_memory_bytes", "most_local_memory_bytes")


def value_doubts(calibration: CalibrationRecord, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why not to rely on predictions at feature values, as short texts."""
    # Few samples have no range of their own: what a prior says of is within it, too.
    known = carried_by(calibration)
    return calibration.place_of(values).doubts if known is None else known.remarks


def machine_doubts(calibration: CalibrationRecord, machine: Machine | None) -> tuple[str, ...]:
    """Return that predictions mix one machine's parameters with facts of another one, or of another maker.

    Raises
    ------
    MachineError
        One is a CPU, and the other a GPU.
    """
    if machine is None:
        return ()
    cpu = "" if calibration.cpu is None else calibration.cpu.model
    device = str(calibration.device.get("name", ""))
    given = [name for name in (calibration.machine, cpu, device) if name]
    found = next(filter(None, map(machine_of_device, given)), None)
    kind = calibration.device.get("kind") or (found.kind if found is not None else "cpu" if calibration.cpu else None)
    if kind in _KINDS and kind != machine.kind:
        whose = f"the calibration is of {given[0] if given else 'a device'}, a {kind.upper()}"
        msg = (
            f"{machine.name} is a {machine.kind.upper()}, and {whose}; name a machine of that kind, or calibrate there"
        )
        raise MachineError(msg, machine=machine.name)
    # Without samples a transferred calibration is of no machine.
    if not calibration.has_samples:
        return _maker_doubts(calibration, machine)
    own = calibration.machine or cpu or ("" if found is None else found.name)
    names = {*given, *(() if found is None else (found.name, *found.aliases))}
    if not own or {*map(_plain, names)} & {*map(_plain, (machine.name, *machine.aliases))}:
        return ()
    return (f"calibrated on {own}, predicted with facts of {machine.name}",)


def _maker_doubts(calibration: CalibrationRecord, machine: Machine) -> tuple[str, ...]:
    """Return that no device of a machine's maker is among those that a transferred calibration comes from."""
    known, makers = {_plain(name): name for name in machine_names()}, set[str]()
    for source in () if calibration.transferred is None else map(_plain, calibration.transferred.sources):
        if source in known:
            makers.add(load_machine(known[source]).vendor)
        # Further files are not read: that takes longer than a prediction.
        if machine.vendor in makers:
            return ()
    if not makers or not machine.vendor:
        return ()
    behind = f"only times of {' and '.join(sorted(makers))}'s devices are behind it"
    return (f"{behind}, and {machine.name} is {machine.vendor}'s: it may be wrong by many times",)


def _plain(name: str) -> str:
    # Machines are called as their devices, without blanks.
    return " ".join(name.replace("-", " ").casefold().split())


def kernel_doubts(
    calibration: CalibrationRecord, kernel: Any, sizes: Mapping[str, Any], target: Target
) -> tuple[str, ...]:
    """Return what of a kernel a model does not see, as short texts.

    That facts are of another machine, that the device cannot run it, that some of its compute units are idle, or that
    few sub-groups do most of its work; on CPUs conflict misses, or, for models with cache volumes, what these follow
    only approximately. Of tile programs, what no prediction was judged with.
    """
    names, device = calibration.model.input_features(), calibration.device
    kind = device.get("kind") or (None if target.machine is None else target.machine.kind)
    on_cpu = kind == "cpu"
    mixed = machine_doubts(calibration, target.machine)
    if (costs := _tile_costs(kernel, sizes, target)) is not None:
        return (*mixed, *tile_doubts(costs, timed=_has_times(calibration, costs.machine)))
    if kind is None and all(device.get(limit) is None for limit in (*DEVICE_LIMITS, "compute_units")):
        return mixed
    kernel, sizes = with_own_sizes(kernel, sizes)
    scop = extract_scop(kernel, sizes)
    columns = np.broadcast_arrays(*(np.asarray(sizes[name]) for name in scop.parameters))
    points = list(zip(*(column.ravel().tolist() for column in columns), strict=True)) if columns else [()]
    places = np.unique(np.linspace(0, len(points) - 1, _MOST_POINTS).astype(int))
    chosen = [dict(zip(scop.parameters, points[number], strict=True)) for number in places]
    limits = _limits(calibration, kernel)
    found: list[Iterable[str]] = [mixed, *(_beyond_the_device(limits, scop, point) for point in chosen)]
    found.append(_idle_units(calibration, scop, chosen))
    if not on_cpu:
        size, waits = target.sub_group_size, "f_peak_latency" in names
        found += [uneven_doubts(scop, point, size, waits=waits) for point in chosen]
        return _each_once(found)
    from perflex.features.cpu.ecm_estimate import conflict_doubts, volume_doubts

    # A model with cache volumes counts conflict misses itself, but rests on what these follow.
    doubts_of = volume_doubts if any(name.startswith(_KNOW_SETS) for name in names) else conflict_doubts
    machine = target.machine or _calibrated_machine(calibration)
    found += [doubts_of(scop, point, machine) for point in chosen]
    return _each_once(found)


def _has_times(calibration: CalibrationRecord, machine: Machine) -> bool:
    return calibration.has_samples and calibration.table.machine == machine.name


def doubted_deviation(kernel: Any, sizes: Mapping[str, Any], target: Target) -> float:
    """Return the standard deviation of the logarithm that doubts about a kernel add to that of predictions."""
    costs = _tile_costs(kernel, sizes, target)
    return 0.0 if costs is None or not unlike_judged(costs) else UNLIKE_DEVIATION


def _tile_costs(kernel: Any, sizes: Mapping[str, Any], target: Target) -> TileCosts | None:
    """Return the costs of a tile program; None of other kernels, or where no machine is known."""
    if not isinstance(kernel, TileKernel) or target.machine is None:
        return None
    return TileCosts(kernel.program(sizes), target.machine)


def _calibrated_machine(calibration: CalibrationRecord) -> Machine | None:
    """Return the machine whose caches the CPU that was calibrated has; None where nothing is known of them."""
    if calibration.cpu is not None:
        return host_machine(calibration.cpu)
    return machine_of_device(str(calibration.device.get("name", "")))


def _each_once(texts: Iterable[Iterable[str]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for some in texts for text in some))


def _idle_units(calibration: CalibrationRecord, scop: Scop, points: Sequence[Mapping[str, int]]) -> list[str]:
    """Return that compute units are idle where no launch has a work-group for each: costs are those of all units."""
    units = calibration.device.get("compute_units") or 0
    groups = min(
        max(prod(int(extent.evaluate(sizes)) for extent in launch.groups) for launch in scop.launches)
        for sizes in points
    )
    if groups >= units or any(name.startswith(_KNOW_UNITS) for name in calibration.model.input_features()):
        return []
    idle = f"{units - groups} of {units} compute units are idle"
    return [f"with {groups} work-groups {idle}, which the model does not see"]


def _limits(calibration: CalibrationRecord, kernel: Any) -> tuple[int | None, int | None]:
    """Return the most work-items and bytes of local memory of a work-group, as far as the calibration knows them."""
    items, memory, asked = (calibration.device.get(limit) for limit in DEVICE_LIMITS)
    # Launches ask for local memory of kernels from source code only; generated ones declare all of it.
    return items, asked if asked and isinstance(kernel, SourceKernel) else memory


def _beyond_the_device(limits: tuple[int | None, int | None], scop: Scop, sizes: Mapping[str, int]) -> list[str]:
    """Return why the device cannot run a kernel at all; a model gives a time of it all the same."""
    items, memory = limits
    found = []
    for number, launch in enumerate(scop.launches):
        if items is not None and launch.group_size > items:
            found.append(
                f"the device cannot run it: a work-group has {launch.group_size} work-items, the device allows {items}"
            )
        if memory is not None and (needed := local_bytes(scop, number, sizes)) > memory:
            found.append(
                f"the device cannot run it: a work-group needs {needed} B of local memory, the device has {memory} B"
            )
    return found


def warn_of_prediction(doubts: Iterable[str]) -> None:
    """Give one `PerflexWarning` with all doubts about a prediction, if there are any."""
    if text := "; ".join(doubts):
        msg = f"this prediction is doubtful: {text}; measure the kernel, or calibrate with kernels like it"
        warn(msg, DoubtfulPredictionWarning)
