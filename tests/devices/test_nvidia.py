"""NVIDIA's libraries are found where no vendor file and no dynamic linker knows of them."""

from pathlib import Path

import pytest

from perflex.devices import cuda as _nvidia
from perflex.devices.cuda import CUDA_LIBRARY, OPENCL_LIBRARY, find_library
from perflex.devices.drivers import find_drivers


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """A machine without NVIDIA's driver, but for what a test puts into the folder."""
    folder = tmp_path / "nvidia" / "lib64"
    folder.mkdir(parents=True)
    (tmp_path / "vendors").mkdir()
    monkeypatch.setattr(_nvidia, "DRIVER_FOLDERS", (tmp_path / "absent", folder))
    monkeypatch.setattr(_nvidia, "linker_cache", dict)
    return folder


def nvidia(folder, **environment):
    environment = {"OCL_ICD_VENDORS": str(folder.parents[1] / "vendors"), **environment}
    return [(v.library, v.found_by) for v in find_drivers(environment) if "nvidia" in v.library]


def test_opencl_without_a_vendor_file_is_used(machine):
    assert find_library(CUDA_LIBRARY, {}) is None
    assert nvidia(machine) == []
    (machine / OPENCL_LIBRARY).touch()
    whole = str(machine / OPENCL_LIBRARY)
    assert nvidia(machine) == [(whole, f"NVIDIA's library in {machine}, which no vendor file names")]
    # A vendor file that works is enough; a bare name that the linker does not find is helped.
    file = machine.parents[1] / "vendors" / "nvidia.icd"
    for named, paths in ((whole, [whole]), (OPENCL_LIBRARY, [OPENCL_LIBRARY, whole])):
        file.write_text(f"{named}\n")
        (first, *_) = found = nvidia(machine)
        assert [path for path, _ in found] == paths
        assert "nvidia.icd" in first[1]


def test_a_driver_without_the_short_names_is_found_by_its_version(machine):
    for version in ("580.82.07", "580.9", "535.183.06", "78"):
        (machine / f"libcuda.so.{version}").touch()
    found = find_library(CUDA_LIBRARY, {})
    assert found is not None
    assert (found.path, found.on_path) == (str(machine / "libcuda.so.580.82.07"), False)


def test_a_bare_name_that_the_linker_finds_is_enough(machine, tmp_path, monkeypatch):
    (tmp_path / "vendors" / "nvidia.icd").write_text(f"{OPENCL_LIBRARY}\n")
    monkeypatch.setattr(_nvidia, "linker_cache", lambda: {OPENCL_LIBRARY: f"/usr/lib/{OPENCL_LIBRARY}"})
    assert [path for path, _ in nvidia(machine)] == [OPENCL_LIBRARY]
    monkeypatch.setattr(_nvidia, "linker_cache", dict)
    (machine / OPENCL_LIBRARY).touch()
    assert [path for path, _ in nvidia(machine, LD_LIBRARY_PATH=f"/absent:{machine}")] == [OPENCL_LIBRARY]


LINKER_CACHE = _nvidia.linker_cache


@pytest.mark.machine
def test_linkers_own_list_is_read():
    found = LINKER_CACHE()
    assert all(name in Path(path).name or Path(path).exists() for name, path in [*found.items()][:50])
