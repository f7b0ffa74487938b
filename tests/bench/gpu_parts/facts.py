"""Part 1: what the device is, and what drives it."""

from __future__ import annotations

import dataclasses
import os
import platform
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from .keeping import write_yaml_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .budget import Allotted
    from .parts import PartRun, Setting

__all__ = ["device_facts"]

_PACKAGES = ("perflex", "loopy", "islpy-barvinok", "pyopencl", "numpy", "scipy", "cupy", "cupy-cuda12x", "cupy-cuda13x")
_SMI_FIELDS = (
    "name", "uuid", "driver_version", "vbios_version", "compute_cap", "memory.total", "clocks.sm", "clocks.mem",
    "clocks.max.sm", "clocks.max.mem", "clocks.applications.graphics", "power.limit", "temperature.gpu",
    "ecc.mode.current", "mig.mode.current", "persistence_mode", "pstate",
)  # fmt: skip
_SMI_LIMIT_S = 15.0
# Containers mount the driver's programs here, and not always on the path.
_DRIVER_PROGRAMS = "/usr/local/nvidia/bin:/usr/lib/wsl/lib:/usr/bin"


def device_facts(setting: Setting, time: Allotted, run: PartRun) -> None:
    """Write ``device.yaml``: names, driver, limits, how it was found, the driver's own report, versions."""
    content = {
        "schema": "perflex-study-device/1",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": _plain(setting.device),
        "found_by": _found_by(setting.device),
        "output_feature": _output_feature(setting.device),
        "machine": {"name": setting.machine, "is_the_device": setting.own_machine},
        "nvidia_smi": _nvidia_smi(),
        "host": {
            "processor": _processor(),
            "cores": os.cpu_count(),
            "usable_cores": len(os.sched_getaffinity(0)),
            "system": platform.platform(),
            "python": sys.version.split()[0],
        },
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }
    write_yaml_file(setting.folder / "device.yaml", content)
    run.notes.append(f"{setting.device}, found by {content['found_by']}; facts in `device.yaml`.")
    if setting.machine is None:
        run.notes.append("No machine file has this device's name: nothing that needs a machine is estimated.")
    elif not setting.own_machine:
        run.notes.append(f"Volumes are those of {setting.machine}, which is **not** this device.")


def _plain(device: Any) -> dict[str, Any]:
    """Return the device's fields as YAML knows them."""
    if not dataclasses.is_dataclass(device) or isinstance(device, type):
        return {"name": str(device)}
    return {field.name: _value(getattr(device, field.name)) for field in dataclasses.fields(device)}


def _value(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return [_value(entry) for entry in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


def _found_by(device: Any) -> str:
    from perflex import list_devices

    return next((info.found_by for info in list_devices() if info.device == device), "what was given")


def _output_feature(device: Any) -> str:
    from perflex.devices.wall_time import wall_time_identifier

    return wall_time_identifier(device)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as stream:  # noqa: PTH123
            return next((line.partition(":")[2].strip() for line in stream if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def _nvidia_smi() -> dict[str, str] | str:
    """Return what NVIDIA's tool reports of the first GPU; nothing is changed by asking."""
    tool = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path=_DRIVER_PROGRAMS)
    if tool is None:
        return "not installed"
    try:
        values = _asked(tool, _SMI_FIELDS)
        if len(values) == len(_SMI_FIELDS):
            return dict(zip(_SMI_FIELDS, values, strict=True))
        # A field that a driver does not know makes it answer none; one by one takes a second each.
        return {field: " ".join(found) for field in _SMI_FIELDS if (found := _asked(tool, (field,)))}
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"it gives no answer: {error}"


def _asked(tool: str, fields: Sequence[str]) -> list[str]:
    words = [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=_SMI_LIMIT_S, check=False)
    lines = done.stdout.strip().splitlines()
    return [value.strip() for value in lines[0].split(",")] if done.returncode == 0 and lines else []
