"""Machines: hardware facts of devices, each with its unit and source, and what follows from them.

>>> machine = load_machine("A100-40GB")          # a shipped one, or a file of one's own
>>> machine.l2_bytes, machine.sources["l2_bytes"]
"""

from __future__ import annotations

from perflex.machines.levels import CacheLevel, MemoryStream
from perflex.machines.lookup import load_machine, machine_names, machine_of_device
from perflex.machines.machine import Machine
from perflex.machines.residency import Residency, residency
from perflex.machines.target import Target, resolve_target, using_machine
from perflex.machines.units import Source

__all__ = [
    "CacheLevel",
    "Machine",
    "MemoryStream",
    "Residency",
    "Source",
    "Target",
    "load_machine",
    "machine_names",
    "machine_of_device",
    "residency",
    "resolve_target",
    "using_machine",
]
