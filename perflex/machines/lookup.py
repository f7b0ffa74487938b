"""Finding a machine: by its name, in a file, or by the name that a driver gives the device."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.resources import as_file, files
from pathlib import Path

from perflex.errors import MachineError
from perflex.machines.files import read_machine
from perflex.machines.machine import Machine

_SUFFIXES = (".yaml", ".yml")
_HOME = "perflex.calib_data"


@lru_cache(maxsize=1)
def machine_names() -> tuple[str, ...]:
    """Return the names of the machines that come with perflex, sorted."""
    folder = files(_HOME) / "machines"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@lru_cache(maxsize=64)
def _shipped(name: str) -> Machine:
    with as_file(files(_HOME) / "machines" / f"{name}.yaml") as path:
        return read_machine(path)


def load_machine(place: str | Path | Machine) -> Machine:
    """Return a machine.

    Parameters
    ----------
    place
        The name of a shipped machine or one of its aliases (upper and lower case mean the same), or a YAML file
        (a path, or a name that ends in ``.yaml``).

    Raises
    ------
    MachineError
        No machine has that name; the message lists those there are.
    FileFormatError
        The file cannot be read, or a field of it is missing, unknown or wrong.
    """
    if isinstance(place, Machine):
        return place
    if isinstance(place, Path) or place.endswith(_SUFFIXES):
        return read_machine(place)
    by_name = {name.casefold(): name for name in machine_names()}
    if place.casefold() in by_name:
        return _shipped(by_name[place.casefold()])
    found = machine_of_device(place)
    if found is not None:
        return found
    # difflib rates a short beginning of a long name low, though it is the likelier meaning.
    begun = [name for name in by_name if name.startswith(place.casefold())] if place else []
    near = begun or difflib.get_close_matches(place.casefold(), by_name, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(by_name[name] for name in near)}? " if near else ""
    msg = f"no machine is called {place!r}; {hint}there are {', '.join(machine_names())}, or name a file NAME.yaml"
    raise MachineError(msg, machine=place)


def machine_of_device(device: str) -> Machine | None:
    """Return the shipped machine that a device's name stands for, None if there is none."""
    # Processors' brand strings, which drivers pass on, may hold runs of blanks.
    wanted = " ".join(device.split()).casefold()
    return next(
        (
            machine
            for machine in map(_shipped, machine_names())
            if wanted in {alias.casefold() for alias in machine.aliases}
        ),
        None,
    )
