import json
import pickle
from dataclasses import replace

import pytest

import perflex.devices.listing as devices_module
from perflex import Device, find_device, list_devices
from perflex.devices.device import DeviceInfo
from perflex.devices.drivers import embedded_libraries
from perflex.devices.listing import default_device, device_of, is_wall_time, mark_default, wall_time_identifier
from perflex.errors import DeviceError


def info(name, platform="Some", *, kind="cpu", usable=True, embedded=False):
    device = Device(platform=platform, vendor="Maker", name=name, driver="1", kind=kind)
    return DeviceInfo(
        device, usable=usable, reason="" if usable else "unknown target CPU", found_by="x", embedded=embedded
    )


GPU, BROKEN_GPU = info("gpu", kind="gpu"), info("gpu", kind="gpu", usable=False)


@pytest.mark.parametrize(
    ("infos", "expected"),
    [
        ([info("cpu", embedded=True), GPU], "gpu"),
        # Without a working GPU, the embedded runtime; any working device is better than none.
        ([info("other"), BROKEN_GPU, info("own", embedded=True)], "own"),
        ([info("own", embedded=True, usable=False), info("other")], "other"),
        ([info("Oclgrind Simulator", "Oclgrind", kind="gpu")], None),
        # Only one of equal GPUs.
        ([GPU, replace(GPU, device=replace(GPU.device, ordinal=1))], "gpu"),
    ],
)
def test_which_device_is_the_default(infos, expected):
    marked = [i.device.name for i in mark_default(infos) if i.default]
    assert marked == ([] if expected is None else [expected])


@pytest.fixture
def machine(monkeypatch):
    """A machine with made-up devices, one of them broken."""
    infos = mark_default(
        [
            info("AMD EPYC", "Intel(R) OpenCL", embedded=True),
            info("pthread-AMD EPYC", "pocl"),
            info("Broken EPYC", "Old", usable=False),
        ]
    )
    monkeypatch.setattr(devices_module, "_listed", lambda: (infos, ("driver libx.so: no such file",)))
    return infos


def test_devices_are_found_by_parts_of_their_names(machine):
    for place, spec, feature in (
        *((0, "intel_epyc", "_intel_epyc"), (0, None, ""), (0, "Intel_AMD_EPYC", "_Intel_AMD_EPYC")),
        *((1, "POCL", "_pocl_epyc"), (1, machine[1].device, "_pocl")),
    ):
        assert find_device(spec) is device_of(f"f_cl_wall_time{feature}") is machine[place].device
    for entry in machine[:2]:
        assert device_of(wall_time_identifier(entry.device)) is entry.device
    assert wall_time_identifier(machine[0].device) == "f_cl_wall_time_intel_epyc"


@pytest.mark.parametrize(
    ("find", "spec", "message"),
    [
        (find_device, "epyc", r"'epyc' fits 2 devices, name one of them: intel_epyc, pocl_epyc"),
        (find_device, "old_broken", r"Broken EPYC .* does not work: unknown target CPU"),
        *(
            (device_of, name, name)
            for name in ("f_cl_wall_time_epyc", "f_cl_wall_time_nvidia_geforce", "f_op_float32_add")
        ),
    ],
)
def test_names_that_mean_no_device(machine, find, spec, message):
    with pytest.raises(DeviceError, match=message):
        find(spec)


def test_intel_means_the_runtime_though_pocl_names_an_intel_processor_too(monkeypatch):
    infos = mark_default(
        [
            info("cpu-haswell-Intel(R) Xeon(R) CPU @ 2.20GHz", "Portable Computing Language (pocl)"),
            info("Intel(R) Xeon(R) CPU @ 2.20GHz", "Intel(R) OpenCL", embedded=True),
        ]
    )
    monkeypatch.setattr(devices_module, "_listed", lambda: (infos, ()))
    for spec in ("intel", "INTEL_xeon"):
        assert find_device(spec) is device_of(f"f_cl_wall_time_{spec}") is infos[1].device
    assert find_device("pocl") is device_of("f_cl_wall_time_pocl_xeon") is infos[0].device
    with pytest.raises(DeviceError, match=r"'xeon' fits 2 devices, name one of them: pocl_haswell, intel_xeon"):
        find_device("xeon")


def test_specification_that_fits_nothing_lists_devices_and_problems(machine):
    with pytest.raises(DeviceError) as caught:
        find_device("geforce")
    words = ("'geforce'", "AMD EPYC", "pocl_epyc", "unknown target CPU", "libx.so")
    assert [word for word in words if word not in caught.value.message] == []
    assert "\n" not in caught.value.message


def test_no_usable_device_says_how_to_get_one(monkeypatch):
    monkeypatch.setattr(devices_module, "_listed", lambda: ((info("x", usable=False),), ()))
    with pytest.raises(DeviceError, match=r"unknown target CPU.*perflex\[cpu\]"):
        default_device()


def test_wall_time_identifiers_are_recognised():
    assert is_wall_time("f_cl_wall_time")
    assert is_wall_time("f_cl_wall_time_intel_epyc")
    assert not is_wall_time("f_cl_wall_timer")
    assert not is_wall_time("f_op_float32_madd")


@pytest.mark.machine
def test_this_machines_devices_are_described():
    infos = list_devices()
    assert sum(i.default for i in infos) == int(any(i.usable and not i.device.is_simulator for i in infos))
    for entry in infos:
        assert entry.usable == (entry.reason == "")
        assert entry.found_by
        if entry.usable:
            assert entry.device.sub_group_size >= 1
            assert entry.device.local_memory_bytes > 0
            assert device_of(wall_time_identifier(entry.device)) == entry.device
    json.dumps([i.as_dict() for i in infos])


@pytest.mark.skipif(not embedded_libraries(), reason="the extra 'cpu' is not installed")
def test_embedded_runtime_is_found_beside_the_systems_drivers():
    embedded = [i for i in list_devices() if i.embedded]
    assert embedded
    assert all(i.usable and i.found_by for i in embedded)


def test_device_survives_pickling(default_device):
    copy = pickle.loads(pickle.dumps(default_device))
    assert copy == default_device
    assert hash(copy) == hash(default_device)
