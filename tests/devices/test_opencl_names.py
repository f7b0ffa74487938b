"""What is only reached on devices that a test machine lacks: constants of pyopencl in the sources, queries."""

import ast
import re
from pathlib import Path
from types import SimpleNamespace

import pyopencl as cl
import pytest

from perflex.devices.device import opencl_devices
from perflex.devices.probe_opencl import _pci_address, _uuid

FOLDER = Path(__file__).parents[2] / "perflex"


def constants():
    """Return file, group and name of each ``cl.group.NAME`` in the sources."""
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Few files name any; taking all of them apart takes a second at every collection.
        for node in ast.walk(ast.parse(text)) if re.search(r"\bcl\s*\.", text) else ():
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="cl"), attr=group), attr=name):
                    found.append((path.name, group, name))
    return found


def test_names_exist():
    found = constants()
    assert len(found) >= 5
    assert [entry for entry in found if not hasattr(getattr(cl, entry[1]), entry[2])] == []


class Refusing:
    """A device of another vendor: its driver knows the query, and refuses it."""

    def __getattr__(self, name):
        raise cl.LogicError if name.startswith(("pci_", "topology_")) else AttributeError


@pytest.mark.parametrize(
    ("device", "address"),
    [
        (SimpleNamespace(pci_domain_id_nv=0, pci_bus_id_nv=0x17, pci_slot_id_nv=0), "0000:17:00.0"),
        (SimpleNamespace(pci_domain_id_nv=1, pci_bus_id_nv=0, pci_slot_id_nv=5 << 3 | 1), "0001:00:05.1"),
        (SimpleNamespace(topology_amd=SimpleNamespace(bus=-61, device=0, function=0)), "0000:c3:00.0"),
        (SimpleNamespace(), ""),
        (Refusing(), ""),
    ],
)
def test_places_on_the_pci_bus(device, address):
    assert _pci_address(cl, device) == address


def test_uuids_are_asked_of_drivers_that_tell_them(default_device):
    device = next(opencl_devices(cl))
    uuid = _uuid(cl, device)
    assert bool(uuid) == ("cl_khr_device_uuid" in device.extensions.split())
    assert not _uuid(cl, SimpleNamespace(extensions="cl_khr_fp64"))
