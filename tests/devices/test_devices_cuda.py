"""Devices that CUDA reaches: found, named, and used like those of OpenCL."""

import socket
import subprocess
import sys
from dataclasses import replace

import loopy as lp
import numpy as np
import pytest

import perflex.devices.listing as devices_module
from perflex import (
    Device,
    Model,
    TimingOptions,
    calibrate,
    find_device,
    gather_feature_values,
    load_machine,
    using_machine,
    using_store,
)
from perflex.calibration.calibrating import _facts
from perflex.devices import cuda, kept_verdicts, probing
from perflex.devices.cuda import CUDA_LIBRARY, load_cupy, properties_of
from perflex.devices.device import DeviceInfo, matching, short_names
from perflex.devices.listing import device_of, mark_default, wall_time_identifier
from perflex.errors import DeviceError, FeatureError
from perflex.features import SizedKernel, Target, kernel_feature_values, source_kernel
from perflex.features.values import feature_values
from perflex.machines.residency import Resources, most_of, resources_in_log
from perflex.timing.compiled_code import resource_use
from perflex.timing.key import measurement_key
from perflex.timing.results import MeasurementFailure
from support.cuda_for_tests import fake_cupy, fake_gpu

__all__ = ["fake_cupy", "fake_gpu"]

H100 = "NVIDIA H100 80GB HBM3"
THROUGH_OPENCL = Device("NVIDIA CUDA", "NVIDIA Corporation", H100, "580 (OpenCL 3.0 CUDA)", kind="gpu")
THROUGH_CUDA = Device("CUDA", "NVIDIA Corporation", H100, "CUDA 13.0 (NVRTC 13.0)", kind="gpu", api="cuda")
SECOND = replace(THROUGH_CUDA, ordinal=1)
CPU = Device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC", "1")
ALL = (CPU, THROUGH_OPENCL, THROUGH_CUDA, SECOND)
QUICK = TimingOptions(trials=2, min_trials=2, warmups=0)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        *(("cuda", [2, 3]), ("CUDA:0", [2]), ("cuda:1", [3]), ("cuda:2", []), ("cuda_h100_d1", [3])),
        *(("h100", [1]), ("nvidia_h100", [1]), ("opencl_h100", [1]), ("opencl_epyc", [0]), ("intel_epyc", [0])),
    ],
)
def test_cuda_in_front_says_how_a_device_is_reached(spec, expected):
    assert matching(spec, ALL) == expected


def test_without_opencl_that_works_names_mean_cuda():
    assert matching("h100", [CPU, THROUGH_CUDA]) == [1]
    assert matching("h100", ALL[:3], usable={0, 2}) == [2]
    assert short_names(ALL[:3]) == ["intel_epyc", "nvidia_h100", "cuda_h100"]
    names = short_names(ALL)
    assert [matching(name, ALL) for name in names] == [[0], [1], [2], [3]]


@pytest.fixture
def listed(monkeypatch):
    infos = mark_default([DeviceInfo(device, usable=True, reason="", found_by="x") for device in ALL[:3]])
    monkeypatch.setattr(devices_module, "_listed", lambda: (infos, ()))


def test_output_features_tell_opencl_and_cuda_apart(listed):
    for device, api, name in ((THROUGH_CUDA, "cuda", "h100"), (THROUGH_OPENCL, "cl", "nvidia_h100")):
        assert device_of(f"f_{api}_wall_time_nvidia_h100") is device_of(f"f_{api}_wall_time") is device
        assert wall_time_identifier(device) == f"f_{api}_wall_time_{name}"
    with pytest.raises(DeviceError, match="f_cuda_wall_time_intel"):
        device_of("f_cuda_wall_time_intel_epyc")


def test_no_cuda_says_what_is_missing():
    for ask in (lambda: find_device("cuda"), lambda: device_of("f_cuda_wall_time_h100")):
        with pytest.raises(DeviceError, match=r"CuPy is not installed \(pip install 'perflex\[cuda\]'\)") as caught:
            ask()
        assert "\n" not in caught.value.message


def probed(monkeypatch):
    monkeypatch.setattr(probing, "find_drivers", tuple)
    monkeypatch.setattr(probing, "set_icd_folder", lambda _: None)
    # The simulation's variables are none of a driver's.
    monkeypatch.setattr(kept_verdicts, "kept", lambda *_: None)
    monkeypatch.setattr(kept_verdicts, "keep", lambda *_: None)
    return probing.probe_drivers()


def test_a_driver_without_cupy_is_a_remark(monkeypatch):
    monkeypatch.setattr(probing, "cupy_is_installed", lambda: False)
    monkeypatch.setattr(probing, "find_library", lambda _: "/usr/local/nvidia/lib64/libcuda.so.1")
    infos, (problem,) = probed(monkeypatch)
    assert infos == ()
    assert "pip install 'perflex[cuda]'" in problem


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("FAKE_CUDA_DRIVER", "12040", ["is made for CUDA 13.0, the driver supports CUDA 12.4"]),
        (
            "FAKE_CUDA_NVRTC",
            "0",
            ['finds no compiler, NVRTC (Failure finding "libnvrtc.so.13"', "pip install nvidia-cuda-nvrtc,"],
        ),
    ],
)
def test_what_does_not_fit_is_a_remark(fake_cupy, monkeypatch, variable, value, words):
    monkeypatch.setenv(variable, value)
    infos, (problem,) = probed(monkeypatch)
    assert infos == ()
    assert all(each in problem for each in words)


def test_a_script_for_cuda_is_the_one_for_opencl(fake_cupy, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    infos, problems = probed(monkeypatch)
    assert not problems
    assert [(info.device.ordinal, info.usable, info.reason) for info in infos] == [(0, True, ""), (1, True, "")]
    device = infos[0].device
    facts = (device.api, device.sub_group_size, device.compute_units, device.compute_capability)
    assert facts == ("cuda", 32, 132, "9.0")
    assert [info.device.pci_address for info in infos] == ["0000:01:00.0", "0000:02:00.0"]
    assert {info.device.host for info in infos} == {socket.gethostname()}
    assert infos[0].found_by.startswith("CuPy")
    monkeypatch.setattr(devices_module, "_listed", lambda: (infos, ()))
    assert find_device("cuda:1") == infos[1].device

    model = Model("f_cuda_wall_time_h100_d0", "p_load * f_mem_access_global_float32_load")
    kernels = [(vector(), {"n": n}) for n in (256, 512)]
    with using_store("off"):
        calibration = calibrate(model, kernels, timing=QUICK)
    assert calibration.params["p_load"] > 0
    assert calibration.device["api"] == "cuda"


_DRIVER = """
extern "C" int cuInit(unsigned) { return 0; }
extern "C" int cuDeviceGet(int *device, int number) { *device = number; return 0; }
extern "C" int cuDeviceGetUuid_v2(unsigned char *uuid, int device)
{
  for (int i = 0; i < 16; ++i) uuid[i] = 16 * i + device;
  return device > 1;
}
"""


def test_the_driver_tells_instances_apart(fake_cupy, tmp_path, monkeypatch):
    (tmp_path / "driver.cc").write_text(_DRIVER)
    library = tmp_path / CUDA_LIBRARY
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "driver.cc"], check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setenv("FAKE_CUDA_DEVICES", "2")
    infos, _ = probed(monkeypatch)
    assert [info.device.uuid for info in infos] == [
        "00102030-4050-6070-8090-a0b0c0d0e0f0",
        "01112131-4151-6171-8191-a1b1c1d1e1f1",
    ]
    # An error, and a driver that is too old.
    assert properties_of(load_cupy(), 2)["uuid"] == ""
    monkeypatch.setattr(cuda, "CUDA_LIBRARY", "libc.so.6")
    assert properties_of(load_cupy(), 0)["uuid"] == ""


def vector(body="b[i] = 2*a[i]"):
    kernel = lp.make_kernel("{[i]: 0<=i<n}", body, assumptions="n>=1", lang_version=(2018, 2), name="vector")
    kernel = lp.add_dtypes(kernel, {"a": np.float32, "b": np.float32})
    return lp.split_iname(kernel, "i", 64, outer_tag="g.0", inner_tag="l.0")


def test_samples_of_one_gpu_are_kept_apart_by_interface():
    keys = {measurement_key(SizedKernel(vector(), {"n": 64}, "x"), device, TimingOptions()) for device in ALL}
    assert len(keys) == len(ALL)
    assert _facts(THROUGH_CUDA)["api"] == "cuda"


LOG = """
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 16 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Function properties for __internal_division
    0 bytes stack frame, 99 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers
"""


def test_compilers_log_tells_registers_and_spills():
    found = resources_in_log(LOG)
    assert found == {"first": Resources(255, None, 12), "second": Resources(40, None, 0)}
    assert most_of(found.values()) == Resources(255, None, 12)
    assert most_of([Resources(1), Resources()]) == Resources()
    assert resources_in_log("warning: nothing of the kind") == {}


def test_registers_are_features_of_built_kernels(fake_gpu, monkeypatch):
    monkeypatch.setenv("FAKE_CUDA_REGISTERS", "96")
    monkeypatch.setenv("FAKE_CUDA_PRIVATE", "24")
    monkeypatch.setenv("FAKE_CUDA_SPILLS", "16")
    names = ["f_registers", "f_private_bytes", "f_spill_bytes", "f_occupancy", "f_waves"]
    kernels = [(vector(), {"n": 64 * 132})]
    with using_store("off"), using_machine("H100-SXM"):
        table = gather_feature_values(["f_cuda_wall_time_h100", *names], kernels, device=fake_gpu, timing=QUICK)
    registers, private, spilt, occupancy, _ = table.values[0, 1:]
    assert (registers, private, spilt) == (96, 24, 16)
    # 64K registers in four parts: each holds 5 sub-groups of 32 * 96, of 16 that could be resident.
    assert occupancy == pytest.approx(5 / 16)
    assert kernel_feature_values(["f_occupancy"], *kernels[0], machine="H100-SXM")["f_occupancy"] == 1.0
    [resources] = resource_use([SizedKernel(*kernels[0], "x")], fake_gpu, TimingOptions(isolate=False))
    values = feature_values(names[:4], *kernels[0], Target(machine=load_machine("H100-SXM"), resources=resources))
    assert values == {"f_registers": 96, "f_private_bytes": 24, "f_spill_bytes": 16, "f_occupancy": 5 / 16}


def test_spills_are_those_of_a_template_by_the_name_that_it_has_in_machine_code(fake_gpu, monkeypatch):
    text = "template <class T> __global__ void twice(T *x) { x[threadIdx.x] *= 2; }"
    job = SizedKernel(source_kernel(text, "twice<float>", local=32, groups=1), {}, "x")
    monkeypatch.setenv("FAKE_CUDA_SPILLS", "16")
    monkeypatch.setenv("FAKE_CUDA_PRIVATE", "24")
    with using_store("off"):
        assert resource_use([job], fake_gpu, TimingOptions(isolate=False)) == [Resources(32, 24, 16, 0)]
    assert not sys.modules["cupy._compiler"].PROGRAMS


def test_registers_of_a_kernel_that_was_not_built_are_an_error():
    with pytest.raises(FeatureError, match=r"f_registers of kernel 'vector' is known only of kernels built"):
        kernel_feature_values(["f_registers"], vector(), {"n": 64})
    with pytest.raises(FeatureError, match="is not reported by the device's driver"):
        feature_values(["f_spill_bytes"], vector(), {"n": 64}, Target(resources=Resources()))


def test_opencl_drivers_tell_private_memory(default_device):
    jobs = [SizedKernel(vector(), {"n": 64}, "fine"), SizedKernel(vector("b[i] = 2*a[j]"), {"n": 64}, "bad")]
    for isolate in (True, False):
        fine, bad = resource_use(jobs, default_device, TimingOptions(isolate=isolate))
        assert isinstance(fine, Resources)
        assert fine.private_bytes is not None
        assert fine.registers is None
        assert isinstance(bad, MeasurementFailure)
