import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from perflex.devices.drivers import Driver, embedded_libraries, find_drivers, icd_folder, set_icd_folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "perflex" / "vendors"


def libraries(**environment):
    return [(d.library, d.found_by) for d in find_drivers(environment) if d.found_by != "embedded runtime"]


def test_vendor_files_of_a_named_folder_are_read(tmp_path):
    (tmp_path / "b.icd").write_text("libpocl.so.2\n")
    (tmp_path / "a.icd").write_text("/opt/driver/libgpu.so")
    (tmp_path / "empty.icd").write_text("\n")
    (tmp_path / "notes.txt").write_text("libother.so")
    found = libraries(OCL_ICD_VENDORS=str(tmp_path))
    assert [library for library, _ in found] == ["/opt/driver/libgpu.so", "libpocl.so.2"]
    assert str(tmp_path / "a.icd") in found[0][1]


def test_loader_variable_may_name_a_file_or_a_library(tmp_path):
    file = tmp_path / "one.icd"
    file.write_text("libone.so")
    assert [library for library, _ in libraries(OCL_ICD_VENDORS=str(file))] == ["libone.so"]
    assert libraries(OCL_ICD_VENDORS="libone.so.1") == [("libone.so.1", "OCL_ICD_VENDORS")]
    assert libraries(OCL_ICD_VENDORS=str(tmp_path / "absent")) == []


@pytest.mark.skipif(not embedded_libraries(), reason="the extra 'cpu' is not installed")
def test_embedded_library_named_by_the_system_appears_once(tmp_path):
    [library, *_] = embedded_libraries()
    (tmp_path / "link.so").symlink_to(library)
    (tmp_path / "intel.icd").write_text(str(tmp_path / "link.so"))
    drivers = find_drivers({"OCL_ICD_VENDORS": str(tmp_path)})
    assert len(drivers) == len(embedded_libraries())
    assert drivers[0].embedded
    assert "intel.icd" in drivers[0].found_by


def test_the_folder_names_exactly_the_drivers_in_order(cache):
    folder = icd_folder([Driver("libpocl.so.2", "x"), Driver("/opt/lib.so", "y")])
    assert folder.parent == cache
    assert [f.read_text() for f in sorted(folder.glob("*.icd"))] == ["libpocl.so.2\n", "/opt/lib.so\n"]
    assert icd_folder([Driver("libpocl.so.2", "z"), Driver("/opt/lib.so", "z")]) == folder
    assert icd_folder([Driver("libpocl.so.2", "x")]) != folder


def test_a_damaged_folder_is_not_used(cache):
    drivers = [Driver("liba.so", "x")]
    folder = icd_folder(drivers)
    (folder / "00.icd").write_text("libevil.so\n")
    other = icd_folder(drivers)
    assert other.parent != cache
    assert (other / "00.icd").read_text() == "liba.so\n"


def test_many_at_once_agree_on_one_folder(cache):
    drivers = [Driver(f"lib{i}.so", "x") for i in range(20)]
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(icd_folder, [drivers] * 32))
    assert len(folders) == 1
    assert len(list(folders.pop().glob("*.icd"))) == 20
    assert [path.name for path in cache.iterdir() if path.name.startswith(".draft")] == []


def test_unusable_cache_folder_is_replaced_by_a_temporary_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = icd_folder([Driver("liba.so", "x")])
    assert (folder / "00.icd").read_text() == "liba.so\n"
    assert tmp_path not in folder.parents


def test_children_start_from_the_original_variable(cache, monkeypatch, tmp_path):
    (tmp_path / "mine.icd").write_text("libmine.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("PERFLEX_ORIGINAL_ICD_VENDORS", str(tmp_path))
    before = find_drivers()
    set_icd_folder(before[:1])
    assert os.environ["OCL_ICD_VENDORS"] != str(tmp_path)
    assert find_drivers() == before
