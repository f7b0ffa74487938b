import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from perflex.devices import kept_verdicts, probe_opencl, probing
from perflex.devices.drivers import Driver, find_drivers
from perflex.devices.probing import Probe, Report, probe_drivers, tried
from support import scripted_driver


@pytest.fixture
def log(tmp_path, monkeypatch):
    """The file in which children write; all caches are empty."""
    monkeypatch.setenv("PERFLEX_OWN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv(scripted_driver.LOG, str(tmp_path / "log"))
    monkeypatch.setattr(probing, "find_drivers", lambda: (Driver("libx.so", "somewhere"),))
    monkeypatch.setattr(probing, "set_icd_folder", lambda _: None)
    monkeypatch.setattr(probing, "probe_opencl", scripted_driver)
    return tmp_path / "log"


def with_devices(monkeypatch, *devices):
    monkeypatch.setenv(scripted_driver.DEVICES, json.dumps(devices))
    return probe_drivers()


def test_a_crash_in_a_probe_costs_that_device_only(log, monkeypatch):
    (bad, good), problems = with_devices(monkeypatch, ("bad", "crash"), ("good", "works"))
    assert (bad.device.name, bad.usable, good.device.name, good.usable) == ("bad", False, "good", True)
    assert bad.reason == "the probe kernel: the driver crashed (SIGSEGV; its last output: cannot select)"
    assert (good.reason, good.device.sub_group_size, problems) == ("", 8, ())
    assert [line for line in log.read_text().splitlines() if "child" not in line] == ["try bad", "try good"]


def test_a_crash_while_loading_is_reported(log, monkeypatch):
    monkeypatch.setenv(scripted_driver.DEVICES, '"crash"')
    infos, (problem,) = probe_drivers()
    assert infos == ()
    assert problem.startswith("driver libx.so (somewhere): the driver crashed (SIGSEGV")
    assert with_devices(monkeypatch)[1] == ("driver libx.so (somewhere): libx.so offers no device",)


def test_namesakes_are_counted_and_what_works_is_not_tried_again(log, monkeypatch):
    devices = ("a", "works"), ("a", "works")
    first, _ = with_devices(monkeypatch, *devices)
    assert [(one.device.ordinal, one.device.sub_group_size, one.usable) for one in first] == [
        (0, 8, True),
        (1, 8, True),
    ]
    tries = log.read_text()
    assert with_devices(monkeypatch, *devices) == (first, ())
    assert log.read_text() == tries
    # Another share of the machine, other settings of drivers, another day, and who asks for it.
    monkeypatch.setenv("POCL_DEVICES", "cpu")
    assert with_devices(monkeypatch, ("b", "works"))[0][0].device.name == "b"
    (file, *_) = sorted((Path(os.environ["PERFLEX_OWN_CACHE"]) / "drivers").glob("*.json"), key=os.path.getmtime)[1:]
    os.utime(file, (time.time() - 90_000,) * 2)
    assert with_devices(monkeypatch, ("c", "works"))[0][0].device.name == "c"
    kept_verdicts.forget()
    assert with_devices(monkeypatch, ("d", "works"))[0][0].device.name == "d"
    file.write_text("{")
    assert with_devices(monkeypatch, ("e", "works"))[0][0].device.name == "e"


def test_a_driver_that_was_updated_is_tried_again(log, monkeypatch, tmp_path):
    """Its file is named without a folder."""
    library = tmp_path / "libx.so"
    library.touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    for content, name in (("", "old"), ("new", "new")):
        library.write_text(content)
        assert with_devices(monkeypatch, (name, "works"))[0][0].device.name == name
        assert with_devices(monkeypatch, ("other", "works"))[0][0].device.name == name


def test_what_does_not_work_is_tried_again(log, monkeypatch):
    (one, other), _ = with_devices(monkeypatch, ("a", "wrong"), ("b", "works"))
    assert (one.usable, one.reason, other.usable) == (False, "wrong", True)
    assert all(info.usable for info in with_devices(monkeypatch, ("a", "works"), ("b", "works"))[0])


@pytest.mark.machine
def test_a_hanging_driver_is_given_up(log, monkeypatch):
    monkeypatch.setattr(probing, "_TIME_LIMIT_S", 2)
    ((slow,), _) = with_devices(monkeypatch, ("slow", "hang"))
    assert (slow.device.name, slow.usable) == ("slow", False)
    assert slow.reason == "the probe kernel: the driver gave no answer within 2 s"


@pytest.mark.machine
def test_an_interrupt_ends_the_children(log, monkeypatch):
    # A child that is killed while it tries a device is followed by another one, unless all is over.
    interrupt = threading.Timer(1.0, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    interrupt.start()
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        with_devices(monkeypatch, ("slow", "hang"))
    assert time.monotonic() - began < 8  # a child may take 20 s
    (pid,) = [line.split()[1] for line in log.read_text().splitlines() if "child" in line]
    assert not Path(f"/proc/{pid}").exists()


def asked(driver):
    return tried(probing._Children(), Probe(probe_opencl, driver.library, driver.found_by, driver.library, driver))


def test_a_library_that_does_not_load_is_named_with_the_linkers_reason(tmp_path):
    broken = tmp_path / "libbroken.so"
    broken.write_text("not a library")
    report = asked(Driver(str(broken), "test"))
    assert report == Report(problem=report.problem)
    assert "libbroken.so" in report.problem


@pytest.mark.machine
def test_each_device_of_a_driver_has_a_verdict():
    drivers = find_drivers()
    if not drivers:
        pytest.skip("no OpenCL driver")
    report = asked(drivers[-1])
    assert len(report.devices) == len(report.verdicts) >= 1
    assert report.verdicts[0]["usable"]
