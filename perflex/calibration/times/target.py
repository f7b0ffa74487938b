"""What features are counted for where times come from a table: no device, but a machine, and what rows state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.devices.listing import is_wall_time
from perflex.errors import CalibrationError, warn
from perflex.features.target import DEFAULT_SUB_GROUP_SIZE, machine_in_use
from perflex.features.values import target_of
from perflex.machines.files import load_machine, machine_names, machine_of_device

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.calibration.times.table import TimesTable
    from perflex.features import Feature
    from perflex.features.target import Target
    from perflex.machines.machine import Machine


def require_no_device(**given: object) -> None:
    """Refuse arguments that say what is measured and how, by name; those that are None were not given."""
    named = [name for name, value in given.items() if value is not None]
    if named:
        msg = f"times from a table are not measured again; leave out {', '.join(named)}, or times"
        raise CalibrationError(msg)


def machine_for_times(times: TimesTable) -> Machine | None:
    """Return the machine that times are of: the one in use, or called as the table's device; None without."""
    chosen = machine_in_use()
    return _machine_of(times.device) if chosen is None else chosen


def _machine_of(device: str) -> Machine | None:
    if device.casefold() in {name.casefold() for name in machine_names()}:
        return load_machine(device)
    return machine_of_device(device) if device else None


def warn_of_another(device: str, machine: Machine) -> None:
    """Warn where times of a device that comes with perflex go with facts of another machine."""
    of = _machine_of(device)
    named = {name.casefold() for name in (machine.name, *machine.aliases)}
    if of is not None and not named & {name.casefold() for name in (device, of.name, *of.aliases)}:
        warn(f"the times are of {device}, and features are counted with facts of {machine.name}; name its own machine")


def target_for_times(times: TimesTable, features: Iterable[str], sub_group_size: int | None = None) -> Target:
    """Return what features are counted for; sub-groups are the machine's where nothing else is said."""
    found = machine_for_times(times)
    if found is not None:
        warn_of_another(times.device, found)
    if sub_group_size is None:
        sub_group_size = (found.sub_group_size if found is not None else None) or DEFAULT_SUB_GROUP_SIZE
    counted = [name for name in features if not is_wall_time(name)]
    return target_of(counted, sub_group_size, otherwise="" if found is None else found)


def refuse_unknown_builds(features: Iterable[Feature], times: TimesTable) -> None:
    """Refuse features of built kernels, of which only registers can stand in a table."""
    for feature in features:
        name = feature.identifier
        if feature.family.needs == "code":
            msg = (
                f"feature {name} is of kernels built for a device, but times from a table use no device; "
                "choose a model without it"
            )
            raise CalibrationError(msg, feature=name)
        stated = name == "f_registers" and all(row.registers is not None for row in times.rows)
        if feature.family.needs == "build" and not stated:
            fix = "fill the column registers" if name == "f_registers" else "take a model without it"
            msg = f"feature {name} is of built kernels, and {times.source} does not state it of each row; {fix}"
            raise CalibrationError(msg, feature=name)
