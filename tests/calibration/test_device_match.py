"""A calibration is used on the device that it belongs to, and on no other."""

from dataclasses import replace

import numpy as np
import pytest

from perflex import Calibration, Device, Model, calibrate, source_kernel
from perflex.calibration import device_match
from perflex.calibration.built_target import built_target
from perflex.calibration.device_match import device_of_calibration, timing_device
from perflex.devices.device import DeviceInfo
from perflex.errors import DeviceError, FeatureError, MissingSizeError
from perflex.features import Target
from perflex.machines.files import load_machine
from perflex.testing import FakeDevice
from sample_kernels import pointwise
from uipick import ALL_GENERATORS, KernelCollection

HERE = Device("PoCL", "pocl", "cpu-8", "1")
OTHER = replace(HERE, platform="Intel(R) OpenCL", name="Intel(R) Xeon(R)")
BROKEN = replace(HERE, name="cpu-9")


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    infos = [
        DeviceInfo(HERE, usable=True, reason="", found_by="a test", default=True),
        DeviceInfo(replace(OTHER, ordinal=1), usable=True, reason="", found_by="a test"),
        DeviceInfo(BROKEN, usable=False, reason="no answer", found_by="a test"),
    ]
    monkeypatch.setattr(device_match, "list_devices", lambda: infos)
    monkeypatch.setattr(device_match, "device_of", lambda output: OTHER if "xeon" in output else HERE)


def facts(device):
    return {"name": device.name, "platform": device.platform, "api": device.api, "driver": "an older one"}


def test_an_output_for_any_device_is_that_of_the_calibrations_device():
    assert device_of_calibration("f_cl_wall_time", facts(HERE)) == HERE
    assert device_of_calibration("f_cl_wall_time", facts(OTHER)).name == OTHER.name
    # What does not say where it was made goes by its output.
    assert device_of_calibration("f_cl_wall_time_xeon", {}) == OTHER


@pytest.mark.parametrize("output", ["f_cl_wall_time", "f_cl_wall_time_xeon"])
@pytest.mark.parametrize(
    "device", [replace(OTHER, name="Intel(R) Xeon(R) Gold"), replace(HERE, platform="another"), BROKEN]
)
def test_no_other_device_stands_in(output, device):
    with pytest.raises(DeviceError, match=r"the calibration is of .*, which is not among the devices that work here: "):
        device_of_calibration(output, facts(device))


def test_kernels_are_timed_on_the_machine_that_is_named_through_their_own_interface(monkeypatch):
    gpu = Device("NVIDIA CUDA", "NVIDIA", "NVIDIA H100 80GB HBM3", "1", kind="gpu")
    through_cuda = replace(gpu, platform="CUDA", api="cuda")
    calibration = Calibration.load("general_gpu")
    code = {"cuda": "__global__ void k(float *a) {}\n", "opencl": "kernel void k(global float *a) {}\n"}
    kernels = {api: source_kernel(text, "k", local=32, groups=1) for api, text in code.items()}
    with pytest.raises(DeviceError, match=r"no device that works here is a H100-SXM: .*; predict without timing"):
        timing_device(calibration, machine="H100-SXM")
    infos = [DeviceInfo(each, usable=True, reason="", found_by="a test") for each in (HERE, gpu, through_cuda)]
    monkeypatch.setattr(device_match, "list_devices", lambda: infos)
    assert timing_device(calibration, machine="H100-SXM") == gpu
    assert timing_device(calibration, machine="H100-SXM", kernels=[kernels["cuda"]]) == through_cuda
    assert timing_device(calibration, machine="H100-SXM", kernels=[kernels["opencl"]]) == gpu
    assert timing_device(calibration, machine="H100-SXM", kernels=list(kernels.values())) == gpu
    # Interfaces may count cards in different orders.
    near, far = (replace(gpu, ordinal=n, pci_address=f"0000:{n}7:00.0") for n in (0, 1))
    turned = [replace(through_cuda, ordinal=n, pci_address=each.pci_address) for n, each in enumerate((far, near))]
    several = [DeviceInfo(each, usable=True, reason="", found_by="a test") for each in (near, far, *turned)]
    monkeypatch.setattr(device_match, "list_devices", lambda: several)
    assert timing_device(calibration, near, kernels=[kernels["cuda"]]) == near
    assert timing_device(calibration, machine="H100-SXM", kernels=[kernels["cuda"]]) == turned[1]
    # Of several cards of one name it is the same one, and a machine of the user's own file has names, too.
    cards = [DeviceInfo(replace(gpu, ordinal=1), usable=True, reason="", found_by="a test"), *infos]
    monkeypatch.setattr(device_match, "list_devices", lambda: cards)
    own = replace(load_machine("H100-SXM"), name="mine")
    assert timing_device(calibration, machine=own, kernels=[kernels["cuda"]]) == replace(gpu, ordinal=1)


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_neither_launches_nor_builds_go_elsewhere():
    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "ngroups:16,64"])
    model = Model("f_cl_wall_time", "p_group * f_thread_groups")
    fake = FakeDevice(lambda _, sizes: 1e-6 * sizes["ngroups"])
    calibration = calibrate(model, kernels, device=fake)
    with pytest.raises(DeviceError, match="the calibration is of fake device"):
        timing_device(calibration)
    assert timing_device(calibration, fake) is fake
    # Reading the compiled code builds the kernel.
    with pytest.raises(Exception, match="the calibration is of fake device"):
        built_target(["f_code_instructions"], kernels[0], {}, Target(), model.output_feature, calibration.device)


def test_code_is_of_one_value_of_each_size_and_built_where_it_counts_only():
    kernel, target = pointwise("x[i] * 2"), Target()
    for sizes, error, message in (
        ({"n": np.array([64, 128])}, FeatureError, "f_code_instructions is of the code for one value of each size"),
        ({}, MissingSizeError, "no value for size parameter n"),
    ):
        with pytest.raises(error, match=message):
            built_target(["f_code_instructions"], kernel, sizes, target, "f_cl_wall_time")
    assert built_target(["f_op_float32_mul"], kernel, {}, target, "f_cl_wall_time_of_no_device") is target
