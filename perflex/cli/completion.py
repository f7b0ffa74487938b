"""What a shell offers for a word that has been begun: names of machines, models and devices.

A shell waits for this at each press of the tabulator, so that nothing is imported or probed: names of what is shipped
are those of files, names of devices those that ``perflex devices`` found last.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from perflex.devices.device import DeviceInfo

_SUFFIX = ".yaml"
_DEVICES = "device-names.txt"


def complete_machine(incomplete: str) -> list[str]:
    """Return the shipped machines whose names begin so."""
    return _matching(_shipped("perflex.calib_data", "machines"), incomplete)


def complete_model(incomplete: str) -> list[str]:
    """Return the shipped models whose names begin so, and ``general``."""
    return _matching(["general", *_shipped("perflex.models")], incomplete)


def complete_device(incomplete: str) -> list[str]:
    """Return the devices whose short names begin so, as the last listing had them; none before the first listing."""
    try:
        names = _devices_file().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    return _matching(names, incomplete)


def remember_devices(infos: Sequence[DeviceInfo]) -> None:
    """Keep the short names of the devices that work, for `complete_device`."""
    from perflex.devices.device import short_names
    from perflex.file_io import writing

    names = short_names([info.device for info in infos])
    usable = [name for name, info in zip(names, infos, strict=True) if info.usable]
    # Completion is a convenience: no command fails because its names cannot be kept.
    with suppress(OSError):
        _devices_file().parent.mkdir(parents=True, exist_ok=True)
        with writing(_devices_file()) as stream:
            stream.write("".join(f"{name}\n" for name in usable))


def _devices_file() -> Path:
    """Return the file of device names: beside the store."""
    from perflex.caches import cache_folder

    store = os.environ.get("PERFLEX_STORE", "").strip()
    return (cache_folder() if store in {"", "off"} else Path(store).parent) / _DEVICES


def _shipped(package: str, *folders: str) -> list[str]:
    """Return the names of a package's YAML files, which is not imported: models would load numpy."""
    spec = find_spec(package)
    places = (spec.submodule_search_locations if spec is not None else None) or ()
    return sorted(path.stem for place in places for path in Path(place, *folders).glob(f"*{_SUFFIX}"))


def _matching(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
