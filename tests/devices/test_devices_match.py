from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perflex import Device
from perflex.devices.device import anywhere, identity, matching, short_names


def device(platform, vendor, name, ordinal=0):
    return Device(platform=platform, vendor=vendor, name=name, driver="1", ordinal=ordinal)


INTEL_ON_AMD = device("Intel(R) OpenCL", "Intel(R) Corporation", "AMD EPYC 7763 64-Core Processor")
INTEL_ON_XEON = device("Intel(R) OpenCL", "Intel(R) Corporation", "Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz")
POCL_ON_AMD = device("Portable Computing Language", "The pocl project", "cpu-znver3-AMD EPYC 7763 64-Core Processor")
POCL_ON_XEON = device("Portable Computing Language", "The pocl project", "pthread-Intel(R) Xeon(R) CPU @ 2.20GHz")
GEFORCE = device("NVIDIA CUDA", "NVIDIA Corporation", "NVIDIA GeForce RTX 3090")
H100 = device("NVIDIA CUDA", "NVIDIA Corporation", "NVIDIA H100 80GB HBM3")
SECOND_H100 = device("NVIDIA CUDA", "NVIDIA Corporation", "NVIDIA H100 80GB HBM3", ordinal=1)
RADEON = device("AMD Accelerated Parallel Processing", "Advanced Micro Devices, Inc.", "gfx1030")
POCL_ON_HASWELL = device(
    "Portable Computing Language", "The pocl project", "cpu-haswell-Intel(R) Xeon(R) Platinum 8259CL CPU @ 2.50GHz"
)
POCL_ON_ARM = device("Portable Computing Language", "The pocl project", "cpu-neoverse-n1-ARM Neoverse-N1")
MALI = device("ARM Platform", "ARM", "Mali-G78 r1p1")
H100_OF_POCL = device("Portable Computing Language", "The pocl project", "NVIDIA H100 80GB HBM3")
ARC = device("rusticl", "Mesa/X.org", "Mesa Intel(R) Arc(tm) A770 Graphics (DG2)")
RADEON_OF_MESA = device("rusticl", "Mesa/X.org", "AMD Radeon RX 6600 (radeonsi, navi23)")


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (
            [INTEL_ON_AMD, POCL_ON_AMD, GEFORCE, RADEON],
            {
                "intel_epyc": [0], "INTEL_Epyc": [0], "intel": [0], "pocl": [1], "pocl_epyc": [1], "pocl:cpu": [1],
                "epyc": [0, 1], "nvidia_geforce": [2], "geforce rtx 3090": [2], "NVIDIA GeForce": [2], "nvidia": [2],
                "amd": [3], "amd_gfx1030": [3], "apple": [], "": [], "_": [],
            },
        ),
        # "intel" and "xeon" both occur in the name of PoCL's device, too.
        ([POCL_ON_XEON, INTEL_ON_XEON], {"intel_xeon": [1], "pocl_xeon": [0]}),
        # What the documentation writes, on an Intel machine with both runtimes.
        ([INTEL_ON_XEON, POCL_ON_HASWELL], {"intel": [0]}),
        ([POCL_ON_HASWELL, INTEL_ON_XEON], {"intel": [1], "pocl": [0], "xeon intel": [1], "xeon": [0, 1]}),
        ([POCL_ON_ARM, MALI], {"arm": [1], "pocl": [0]}),
        # Where no platform is called so, the devices' names are left.
        ([POCL_ON_HASWELL], {"intel": [0]}),
        ([POCL_ON_HASWELL, ARC], {"intel": [0, 1]}),
        ([POCL_ON_ARM], {"arm": [0]}),
        # Intel's runtime has no such device.
        ([INTEL_ON_XEON, ARC], {"intel_arc": [1], "intel": [0], "rusticl": [1]}),
        ([H100_OF_POCL, H100], {"nvidia": [1], "nvidia_h100": [1], "pocl_nvidia": [0], "h100": [0, 1]}),
        # Two GPUs of one platform; the words of the error must tell them apart.
        ([H100, GEFORCE], {"nvidia": [0, 1]}),
        ([ARC, RADEON_OF_MESA], {"rusticl": [0, 1]}),
        ([RADEON_OF_MESA, RADEON], {"radeon": [0]}),
        # Numbers are no parts of longer ones: an RTX 30 or an A7 are other devices.
        ([GEFORCE, ARC], {"rtx 30": [], "90": [], "rtx 3090": [0], "a7": [], "a770": [1], "770": [1], "geforce 0": []}),
        # Nor is CUDA's number, of which there are fewer.
        (
            [replace(H100, api="cuda"), replace(SECOND_H100, api="cuda")],
            {"cuda:0": [0], "cuda:1": [1], "cuda:2": [], "cuda:80": [], "cuda:100": [], "cuda_80gb": [0, 1]},
        ),
        # Namesakes are told apart by a counter.
        ([H100, SECOND_H100], {"nvidia_h100": [0, 1], "nvidia_h100_d1": [1]}),
    ],
)  # fmt: skip
def test_words_name_devices(devices, expected):
    assert {spec: matching(spec, devices) for spec in expected} == expected
    for index, name in enumerate(short_names(devices)):
        assert matching(name, devices) == [index]


def test_full_name_wins_over_parts():
    short = device("NVIDIA CUDA", "NVIDIA Corporation", "NVIDIA H100")
    assert matching("NVIDIA H100", [short, H100]) == [0]


def test_short_names_are_readable():
    devices = [INTEL_ON_AMD, POCL_ON_AMD, GEFORCE]
    assert short_names(devices) == ["intel_epyc", "pocl_epyc", "nvidia_geforce"]
    assert short_names([INTEL_ON_XEON, POCL_ON_XEON]) == ["intel_xeon", "pocl_xeon"]


ALL = (
    INTEL_ON_AMD, INTEL_ON_XEON, POCL_ON_AMD, POCL_ON_XEON, POCL_ON_HASWELL, POCL_ON_ARM,
    MALI, GEFORCE, H100, SECOND_H100, H100_OF_POCL, RADEON, ARC, RADEON_OF_MESA,
)  # fmt: skip


@given(st.lists(st.sampled_from(ALL), unique=True, max_size=8))
def test_each_short_name_singles_its_device_out(devices):
    for index, name in enumerate(short_names(devices)):
        assert matching(name, devices) == [index]


WORDS = st.lists(
    st.sampled_from(["AMD", "Intel(R)", "CPU", "Ryzen", "7", "@", "3.6GHz", "Xeon"]), min_size=1, max_size=5
)


@given(WORDS)
def test_any_cpu_name_gives_a_name_that_works(words):
    devices = [device("Intel(R) OpenCL", "Intel(R) Corporation", " ".join(words)), GEFORCE]
    assert matching(short_names(devices)[0], devices) == [0]


def test_equal_gpus_and_hosts_are_told_apart():
    device = Device("CUDA", "NVIDIA", "H100", "13", kind="gpu", pci_address="0000:17:00.0", host="node1")
    others = [replace(device, **one) for one in ({"pci_address": "0000:65:00.0"}, {"host": "node2"}, {"uuid": "1-2"})]
    assert len({identity(each) for each in (device, *others)}) == 4
    assert {identity(anywhere(each)) for each in (device, *others)} == {"CUDA / NVIDIA / H100 #0"}
