import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import perflex.devices.survey as survey_module
from perflex.devices.survey import Vendor, embedded_libraries, find_vendors, show_to_loader, vendor_folder


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "perflex" / "vendors"


def libraries(**environment):
    return [(v.library, v.found_by) for v in find_vendors(environment) if v.found_by != "embedded runtime"]


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
    vendors = find_vendors({"OCL_ICD_VENDORS": str(tmp_path)})
    assert len(vendors) == len(embedded_libraries())
    assert vendors[0].embedded
    assert "intel.icd" in vendors[0].found_by


def test_vendor_folder_names_exactly_the_drivers_in_order(cache):
    folder = vendor_folder([Vendor("libpocl.so.2", "x"), Vendor("/opt/lib.so", "y")])
    assert folder.parent == cache
    assert [f.read_text() for f in sorted(folder.glob("*.icd"))] == ["libpocl.so.2\n", "/opt/lib.so\n"]
    assert vendor_folder([Vendor("libpocl.so.2", "z"), Vendor("/opt/lib.so", "z")]) == folder
    assert vendor_folder([Vendor("libpocl.so.2", "x")]) != folder


def test_damaged_vendor_folder_is_not_used(cache):
    vendors = [Vendor("liba.so", "x")]
    folder = vendor_folder(vendors)
    (folder / "00.icd").write_text("libevil.so\n")
    other = vendor_folder(vendors)
    assert other.parent != cache
    assert (other / "00.icd").read_text() == "liba.so\n"


def test_many_at_once_agree_on_one_folder(cache):
    vendors = [Vendor(f"lib{i}.so", "x") for i in range(20)]
    with ThreadPoolExecutor(8) as pool:
        folders = set(pool.map(vendor_folder, [vendors] * 32))
    assert len(folders) == 1
    assert len(list(folders.pop().glob("*.icd"))) == 20
    assert [path.name for path in cache.iterdir() if path.name.startswith(".draft")] == []


def test_unusable_cache_folder_is_replaced_by_a_temporary_one(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    folder = vendor_folder([Vendor("liba.so", "x")])
    assert (folder / "00.icd").read_text() == "liba.so\n"
    assert tmp_path not in folder.parents


def test_children_start_from_the_original_variable(cache, monkeypatch, tmp_path):
    (tmp_path / "mine.icd").write_text("libmine.so")
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    monkeypatch.setenv("PERFLEX_ORIGINAL_ICD_VENDORS", str(tmp_path))
    before = find_vendors()
    show_to_loader(before[:1])
    assert os.environ["OCL_ICD_VENDORS"] != str(tmp_path)
    assert find_vendors() == before


def fake_child(tmp_path, monkeypatch, script):
    """Put a shell script in the place of the probing child; ``$*`` are the child's words."""
    file = tmp_path / "child.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(sys, "executable", str(file))


def listed(*names):
    facts = {
        "platform": "P", "vendor": "V", "driver": "1", "kind": "gpu", "compute_units": 4, "local_memory_bytes": 1024,
        "global_memory_bytes": 1 << 20, "max_allocation_bytes": 1 << 18, "max_work_group_size": 256,
        "max_work_item_sizes": [256, 256, 64], "timer_resolution_ns": 1,
    }  # fmt: skip
    return "\n".join(f"echo '{json.dumps({'device': {'name': name, **facts}})}'" for name in names)


GOOD = """echo '{"trying": %d}'; echo '{"verdict": %d, "usable": true, "reason": "", "sub_group_size": 8}'"""


def surveyed(monkeypatch):
    monkeypatch.setattr(survey_module, "find_vendors", lambda: (Vendor("libx.so", "somewhere"),))
    monkeypatch.setattr(survey_module, "show_to_loader", lambda _: None)
    return survey_module.survey()


def test_crash_in_a_probe_costs_that_device_only(cache, tmp_path, monkeypatch):
    # The first child dies while trying device 0; the second one is told to leave it out.
    script = f"""{listed("bad", "good")}
case "$*" in *libx.so) echo '{{"trying": 0}}'; kill -SEGV $$;; esac
{GOOD % (1, 1)}"""
    fake_child(tmp_path, monkeypatch, script)
    (bad, good), problems = surveyed(monkeypatch)
    assert (bad.device.name, bad.usable, good.device.name, good.usable) == ("bad", False, "good", True)
    assert "SIGSEGV" in bad.reason
    assert (good.reason, problems) == ("", ())


def test_crash_while_loading_is_reported(cache, tmp_path, monkeypatch):
    fake_child(tmp_path, monkeypatch, "kill -ABRT $$")
    infos, (problem,) = surveyed(monkeypatch)
    assert infos == ()
    assert "libx.so (somewhere): the driver crashed (SIGABRT)" in problem


@pytest.mark.machine
def test_hanging_driver_is_given_up(cache, tmp_path, monkeypatch):
    fake_child(tmp_path, monkeypatch, f"{listed('slow')}\necho '{{\"trying\": 0}}'\nexec sleep 30")
    monkeypatch.setattr(survey_module, "_TIME_LIMIT_S", 0.3)
    ((slow,), _) = surveyed(monkeypatch)
    assert (slow.device.name, slow.usable) == ("slow", False)
    assert "no answer within 0.3 s" in slow.reason


@pytest.mark.machine
def test_an_interrupted_survey_ends_its_children(cache, tmp_path, monkeypatch):
    pids = tmp_path / "pids"
    # A child that is killed while it tries a device is followed by another one, unless the survey is over.
    fake_child(tmp_path, monkeypatch, f"echo $$ >> {pids}\n{listed('slow')}\necho '{{\"trying\": 0}}'\nexec sleep 60")
    interrupt = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        surveyed(monkeypatch)
    assert time.monotonic() - began < 8  # a child may take 20 s
    (pid,) = pids.read_text().split()
    assert not Path(f"/proc/{pid}").exists()


def test_chatter_of_drivers_is_ignored_and_namesakes_are_counted(cache, tmp_path, monkeypatch):
    fake_child(tmp_path, monkeypatch, f"echo 'driver 1.0 [ok'\n{listed('a', 'a')}\n{GOOD % (0, 0)}\n{GOOD % (1, 1)}")
    infos, _ = surveyed(monkeypatch)
    assert [(i.device.ordinal, i.device.sub_group_size, i.usable) for i in infos] == [(0, 8, True), (1, 8, True)]


def test_library_that_does_not_load_is_named_with_the_linkers_reason(tmp_path, cache):
    broken = tmp_path / "libbroken.so"
    broken.write_text("not a library")
    report = survey_module._interrogate(
        survey_module._Children(), survey_module._opencl_probe(Vendor(str(broken), "test"))
    )
    assert report.devices == []
    assert "libbroken.so" in report.problem


@pytest.mark.machine
def test_probe_prints_a_verdict_for_every_device():
    vendors = find_vendors()
    if not vendors:
        pytest.skip("no OpenCL driver")
    environment = {**os.environ, "OCL_ICD_VENDORS": str(vendor_folder(vendors[-1:]))}
    words = [sys.executable, "-m", "perflex.devices.probe_opencl", vendors[-1].library]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True, timeout=60)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    devices = [line for line in lines if "device" in line]
    verdicts = [line for line in lines if "verdict" in line]
    assert len(devices) == len(verdicts) >= 1
    skipping = subprocess.run([*words, "0"], env=environment, capture_output=True, text=True, check=True, timeout=60)
    assert '"verdict": 0' not in skipping.stdout
