"""Part 3: the device's ceilings, and what calibrated parameters say they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from perflex import TimingOptions, load_machine
from perflex.errors import PerflexError
from perflex.features import SizedKernel
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure

from .ceiling_kernels import Quantity, copy_sizes, kernels_of, quantities, with_count
from .driver_copy import driver_copy_s
from .keeping import rows_kept
from .open_once import OpenOnce
from .parts import Goal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from uipick import MeasurementKernel

    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["ceilings"]

COLUMNS = ("quantity", "source", "configuration", "size", "seconds", "spread", "rate", "unit", "of_ceiling", "remark")
WITHIN = 0.05
_OPTIONS = TimingOptions(trials=15, min_trials=5, budget_s=0.4)
_QUICK = TimingOptions(trials=3, min_trials=3, budget_s=0.4)
# A ceiling's kernels take this long, so that neither the launch nor the last wave of work-groups counts.
_LONG_S = {"gpu": 5e-3, "cpu": 2e-2}
_FIRST_COUNTS = {"nelements": 65536, "ngroups": 256, "m": 8}
# Arrays that no cache holds, beside the last cache where its size is known.
_BEYOND_CACHES = {"gpu": 256 * 2**20, "cpu": 128 * 2**20}
_MOST_COPIED = {"gpu": 2**30, "cpu": 128 * 2**20}
_COPY = ("gmem_copy", "dtype:float32", "lsize_0:256", "groups_fit:True")


@dataclass(frozen=True)
class _Ceiling:
    quantity: str
    unit: str
    rate: float
    configuration: str


@dataclass(frozen=True)
class _Work:
    """What all steps need: the part's arguments, what keeps rows, and the device, opened once."""

    setting: Setting
    time: Allotted
    run: PartRun
    keep: Callable[[Mapping[str, Any]], None]
    device: OpenOnce


def ceilings(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``ceilings.csv`` and a calibration for each rate; goals are parameters within 5 % of their ceilings."""
    found: list[_Ceiling] = []
    try:
        with rows_kept(setting.folder / "ceilings.csv", COLUMNS) as keep, OpenOnce(setting.device, _OPTIONS) as device:
            work = _Work(setting, time, run, keep, device)
            _data_sheet(work)
            _driver_copies(work)
            found.append(_copies(work))
            _compare_copy(work, found[0])
            for quantity in quantities(getattr(setting.device, "compute_units", 1), on_gpu=setting.on_gpu):
                try:
                    _one(work, quantity, found)
                except PerflexError as error:
                    run.notes.append(f"{quantity.name}: {error.message}")
    finally:
        names = "; ".join(f"{c.quantity} {_shown(c.rate, c.unit)} ({c.configuration})" for c in found)
        run.notes.append(f"Ceilings: {names or 'none'}. All in `ceilings.csv`.")


def _one(work: _Work, quantity: Quantity, found: list[_Ceiling]) -> None:
    ceiling = _best(work, quantity)
    if ceiling is None:
        work.run.notes.append(f"{quantity.name}: no kernel could be timed.")
        return
    found.append(ceiling)
    if quantity.calibration:
        _compare(work, quantity, ceiling)


def _kind(setting: Setting) -> str:
    return "gpu" if setting.on_gpu else "cpu"


def _most_bytes(setting: Setting) -> int:
    most = _MOST_COPIED[_kind(setting)]
    limits = (
        getattr(setting.device, "max_allocation_bytes", 0),
        getattr(setting.device, "global_memory_bytes", 0) // 4,
    )
    return min(most, *(limit for limit in limits if limit))


def _data_sheet(work: _Work) -> None:
    """Keep what the device's machine file says: the greatest clock and bandwidth, which no kernel reaches."""
    if work.setting.machine is None or not work.setting.own_machine:
        return
    machine = load_machine(work.setting.machine)
    facts = machine.known()
    cycles = facts.get("compute_units", 0.0) * facts.get("clock_hz", 0.0)
    rates = {
        "copy": (facts.get("dram_bandwidth", 0.0), "B/s"),
        "multiply-adds fp32": (facts.get("fp32_per_cycle", 0.0) / 2 * cycles, "op/s"),
        "multiply-adds fp64": (facts.get("fp64_per_cycle", 0.0) / 2 * cycles, "op/s"),
        "local memory loads": (facts.get("local_banks", 0.0) * facts.get("local_bank_bytes", 0.0) * cycles, "B/s"),
    }
    for quantity, (rate, unit) in rates.items():
        if rate:
            work.keep(
                {
                    "quantity": quantity,
                    "source": "data sheet",
                    "configuration": machine.name,
                    "rate": rate,
                    "unit": unit,
                }
            )


def _driver_copies(work: _Work) -> None:
    """Keep the rates of copies by the driver; where it copies is no matter of perflex's, so its faults are remarks."""
    for elements in copy_sizes(_most_bytes(work.setting))[-3:]:
        work.time.check()
        row = {"quantity": "copy", "source": "driver", "configuration": "driver's own copy", "size": 4 * elements}
        try:
            seconds = driver_copy_s(work.setting.device, 4 * elements)
        except (RuntimeError, ImportError, ValueError, AttributeError, PerflexError) as error:
            work.keep({**row, "remark": f"{type(error).__name__}: {error}".replace("\n", " ")[:200]})
            return
        work.keep({**row, "seconds": seconds, "rate": 8 * elements / seconds, "unit": "B/s"})


def _copies(work: _Work) -> _Ceiling:
    """Keep copy bandwidth by size; return the best beyond caches."""
    kernels = [
        kernels_of((*_COPY, f"width:{width}"), nelements=elements)
        for elements in copy_sizes(_most_bytes(work.setting))[:: 1 if work.setting.on_gpu else -2]
        for width in (1, 4)
    ]
    outcomes = measure([_job(k) for k in kernels], work.device, _OPTIONS, work.time.progress)
    best = _Ceiling("copy", "B/s", 0.0, "none")
    large = min(_BEYOND_CACHES[_kind(work.setting)], _most_bytes(work.setting))
    for kernel, outcome in zip(kernels, outcomes, strict=True):
        size = 4 * int(str(kernel.arguments["nelements"]))
        configuration = f"float32 width {kernel.arguments['width']}, work-groups of 256"
        row: dict[str, Any] = {"quantity": "copy", "source": "kernel", "configuration": configuration, "size": size}
        if isinstance(outcome, MeasurementFailure):
            work.keep({**row, "remark": outcome.reason})
            continue
        rate = 2 * size / outcome.seconds
        remark = "" if size >= large else "not beyond caches"
        work.keep(
            {**row, "seconds": outcome.seconds, "spread": outcome.spread, "rate": rate, "unit": "B/s", "remark": remark}
        )
        if size >= large and rate > best.rate:
            best = _Ceiling("copy", "B/s", rate, configuration)
    return best


def _compare_copy(work: _Work, ceiling: _Ceiling) -> None:
    """Calibrate the cost of a copied element from sizes between those that were tried."""
    if not ceiling.rate:
        work.run.notes.append("No copy beyond caches could be timed.")
        return
    elements = _most_bytes(work.setting) // 4
    width = 4 if "width 4" in ceiling.configuration else 1
    sizes = [elements * part // 16 // 1024 * 1024 for part in (9, 11, 13, 15)]
    kernels = [kernels_of((*_COPY, f"width:{width}"), nelements=size) for size in sizes]
    # Sizes so close together leave the cost of a launch open.
    kernels += _empty(1, 16)
    expression = "p_launch * f_sync_kernel_launch + p_copy * f_mem_access_global_float32"
    _calibrated(work, "copy", expression, "p_copy", kernels, ceiling)


def _best(work: _Work, quantity: Quantity) -> _Ceiling | None:
    """Keep the rates of all configurations; return the best."""
    first = [with_count(quantity, tags, _FIRST_COUNTS[quantity.count[0]]) for tags in quantity.configurations]
    pilots = measure([_job(k) for k in first], work.device, _QUICK, work.time.progress)
    kernels = []
    for tags, kernel, pilot in zip(quantity.configurations, first, pilots, strict=True):
        if isinstance(pilot, MeasurementFailure):
            work.keep(
                {"quantity": quantity.name, "source": "kernel", "configuration": _words(tags), "remark": pilot.reason}
            )
            continue
        longer = _LONG_S[_kind(work.setting)] / pilot.seconds
        kernels.append(with_count(quantity, tags, longer * float(str(kernel.arguments[quantity.count[0]]))))
    outcomes = measure([_job(k) for k in kernels], work.device, _OPTIONS, work.time.progress) if kernels else []
    best: _Ceiling | None = None
    for kernel, outcome in zip(kernels, outcomes, strict=True):
        row: dict[str, Any] = {"quantity": quantity.name, "source": "kernel", "configuration": kernel.name}
        if isinstance(outcome, MeasurementFailure):
            work.keep({**row, "remark": outcome.reason})
            continue
        rate = quantity.amount(kernel.arguments) / outcome.seconds
        size = int(str(kernel.arguments[quantity.count[0]]))
        work.keep(
            {
                **row,
                "size": size,
                "seconds": outcome.seconds,
                "spread": outcome.spread,
                "rate": rate,
                "unit": quantity.unit,
            }
        )
        if best is None or rate > best.rate:
            best = _Ceiling(quantity.name, quantity.unit, rate, kernel.name)
    return best


def _compare(work: _Work, quantity: Quantity, ceiling: _Ceiling) -> None:
    """Calibrate the quantity's parameter with kernels of several lengths beside empty ones."""
    name = quantity.count[0]
    tags = quantity.calibration
    pilot = with_count(quantity, tags, _FIRST_COUNTS[name])
    (outcome,) = measure([_job(pilot)], work.device, _QUICK, work.time.progress)
    if isinstance(outcome, MeasurementFailure):
        work.run.notes.append(f"{quantity.name}: {outcome.reason}")
        return
    counted = float(str(pilot.arguments[name]))
    longer = 2 if work.setting.on_gpu else 5
    kernels = [with_count(quantity, tags, longer * length / outcome.seconds * counted) for length in quantity.lengths_s]
    kernels += _empty(16, 256, 4096, 16384)
    _calibrated(work, quantity.name, quantity.expression, quantity.parameter, kernels, ceiling)


def _calibrated(
    work: _Work,
    name: str,
    expression: str,
    parameter: str,
    kernels: Sequence[MeasurementKernel],
    ceiling: _Ceiling,
) -> None:
    from perflex import Model, calibrate
    from perflex.devices.wall_time import wall_time_identifier

    model = Model(wall_time_identifier(work.setting.device), expression)
    calibration = calibrate(model, kernels, device=work.setting.device, timing=_OPTIONS, progress=work.time.progress)
    file = f"calibration_ceiling_{parameter.removeprefix('p_')}.yaml"
    calibration.save(work.setting.folder / file)
    found = next(p for p in calibration.fit.parameters if p.name == parameter)
    row = {"quantity": name, "source": "parameter", "configuration": f"{parameter} of {file}"}
    if found.rate is None or found.rate_unit != ceiling.unit:
        work.keep({**row, "remark": f"{parameter} has no rate in {ceiling.unit} ({found.flags or found.rate_unit})"})
        work.run.notes.append(f"{name}: {parameter} has no rate in {ceiling.unit}.")
        return
    ratio = found.rate / ceiling.rate
    work.keep({**row, "rate": found.rate, "unit": found.rate_unit, "of_ceiling": ratio})
    work.run.goals.append(
        Goal(
            what=f"{name}: rate of the calibrated {parameter} against the ceiling",
            goal=f"within {100 * WITHIN:.0f} %",
            reached=f"{100 * (ratio - 1):+.1f} % ({_shown(found.rate, found.rate_unit)})",
            met=abs(ratio - 1) <= WITHIN,
        )
    )


def _empty(*groups: int) -> list[MeasurementKernel]:
    return [kernels_of(("empty", "lsize_0:16", "lsize_1:16"), ngroups=number) for number in groups]


def _job(kernel: MeasurementKernel) -> SizedKernel:
    return SizedKernel(kernel.kernel, kernel.sizes, kernel.name)


def _words(tags: Sequence[str]) -> str:
    return f"{tags[0]}({', '.join(tag.replace(':', '=') for tag in tags[1:])})"


def _shown(rate: float, unit: str) -> str:
    return f"{rate / 1e12:.3g} T{unit}" if rate >= 1e12 else f"{rate / 1e9:.3g} G{unit}"
