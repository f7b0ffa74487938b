"""What the doctor reads of made-up systems, and what it says of them."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from perflex.errors import PerflexWarning
from perflex.studies.doctor import (
    Finding,
    Interference,
    ReportedSystem,
    observe_system,
    system_findings,
    verdict,
    warn_before_measuring,
)

QUIET = ReportedSystem(
    usable=4,
    quota=math.inf,
    governors=("performance",),
    clock_limits=(0.8e9, 3.5e9),
    idle=Interference(busy=0.02, processors=4, stolen=0.0),
)


def put(root, path, text):
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n", encoding="utf-8")


def put_times(root, rows):
    """Write /proc/stat: by processor the ticks that it was busy, idle and stolen."""
    # user nice system idle iowait irq softirq steal guest guest_nice; guests' time is a part of the user's.
    lines = [f"cpu{n} {b - 3} 0 1 {i} 0 1 1 {s} {b - 3} 0" for n, (b, i, s) in rows.items()]
    put(root, "proc/stat", "\n".join(["cpu 9 9 9 9 9 9 9 9 9 9", *lines, "intr 12 34"]))


@pytest.fixture
def root(tmp_path):
    """Four processors; cgroup version 2 with a quota on the outer group."""
    put(tmp_path, "sys/devices/system/cpu/online", "0-3")
    put(tmp_path, "proc/self/cgroup", "0::/outer/inner")
    put(tmp_path, "sys/fs/cgroup/outer/cpu.max", "150000 100000")
    put(tmp_path, "sys/fs/cgroup/outer/inner/cpu.max", "max 100000")
    put_times(tmp_path, dict.fromkeys(range(4), (1000, 5000, 10)))
    for cpu in range(4):
        folder = f"sys/devices/system/cpu/cpu{cpu}"
        put(tmp_path, f"{folder}/cpufreq/scaling_governor", "powersave")
        put(tmp_path, f"{folder}/cpufreq/scaling_min_freq", "800000")
        put(tmp_path, f"{folder}/cpufreq/scaling_max_freq", "3500000")
    return tmp_path


def one_second(root):
    """A second goes by: processor 0 is busy half of it, 1 is stolen for a quarter, 3 works all the time."""
    put_times(root, {0: (1050, 5050, 10), 1: (1000, 5075, 35), 2: (1000, 5100, 10), 3: (1100, 5000, 10)})


@pytest.mark.parametrize(
    ("usable", "clock", "busy", "processors", "stolen"),
    [
        # Processor 3 is not ours: what it does is no matter. A container numbers its processors anew.
        ((0, 1, 2), (("powersave",), (0.8e9, 3.5e9)), 0.5, 3, 0.25 / 3),
        ((6, 7), ((), None), 1.5, 4, 0.25 / 4),
    ],
)
def test_what_the_system_reports(root, usable, clock, busy, processors, stolen):
    found = observe_system(root, usable=usable, sleep=lambda _: one_second(root))
    assert (found.usable, found.quota) == (len(usable), pytest.approx(1.5))
    assert (found.governors, found.clock_limits) == clock
    assert (found.idle.busy, found.idle.processors, found.idle.stolen) == pytest.approx((busy, processors, stolen))


@pytest.mark.parametrize(("quota", "expected"), [("50000", 0.5), ("-1", math.inf)])
def test_the_first_version_of_cgroups(root, quota, expected):
    # Inside a container the group's name is that of the host, and its files lie at the top.
    put(root, "proc/self/cgroup", "5:memory:/docker/1\n4:cpuacct,cpu:/docker/1")
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota)
    put(root, "sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000")
    assert observe_system(root, usable=(0,), window_s=0).quota == expected


def test_a_system_that_reports_nothing_is_no_error(tmp_path):
    found = observe_system(tmp_path, usable=(), window_s=0)
    assert found == ReportedSystem()
    findings = system_findings(found)
    assert {finding.state for finding in findings} == {"unknown"}
    assert all("does not report" in finding.found for finding in findings)
    assert verdict(findings) == "fit to measure on"


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/stat", "cpu0 a b c d e f g h"),
        ("sys/fs/cgroup/outer/cpu.max", "many few"),
        ("sys/devices/system/cpu/cpu0/cpufreq/scaling_min_freq", "<unknown>"),
        ("sys/devices/system/cpu/online", "all"),
    ],
)
def test_files_that_say_something_else_are_as_good_as_none(root, path, text):
    put(root, path, text)
    assert system_findings(observe_system(root, usable=(0,), window_s=0))


def idle(**changed):
    return replace(QUIET, idle=replace(QUIET.idle, **changed))


@pytest.mark.parametrize(
    ("system", "check", "state", "words"),
    [
        (idle(busy=0.09), "other load", "good", "0.09 of 4 processors"),
        (idle(busy=0.9), "other load", "poor", "other processes use 0.9 of 4 processors"),
        (idle(busy=2.0), "other load", "bad", "2.0 of 4 processors"),
        # Half of a single processor is half of the machine.
        (idle(busy=0.5, processors=1), "other load", "bad", "0.5 of 1"),
        (idle(stolen=0.04), "steal", "poor", "the hypervisor takes 4.0 % of the processors' time"),
        (idle(stolen=0.2), "steal", "bad", "takes 20 %"),
        (replace(QUIET, quota=1.5, usable=2), "quota", "poor", "the cgroup may use 1.5 processors of 2"),
        (replace(QUIET, quota=0.5), "quota", "bad", "0.5 processors"),
        (replace(QUIET, quota=4.0), "quota", "good", "4 processors of 4"),
        (replace(QUIET, usable=1), "processors", "poor", "1 usable"),
        (replace(QUIET, governors=("powersave",)), "clock", "poor", "governor powersave"),
        (replace(QUIET, governors=("powersave",), clock_limits=(2e9, 2e9)), "clock", "good", "2 to 2 GHz"),
    ],
)
def test_what_is_said_of_made_up_machines(system, check, state, words):
    findings = {finding.check: finding for finding in system_findings(system)}
    found = findings.pop(check)
    # Whoever is told that something is wrong is told what to do.
    assert (found.state, bool(found.advice)) == (state, state in {"poor", "bad"})
    assert words in found.found
    assert [(other.state, bool(other.advice)) for other in findings.values()] == [("good", False)] * 4


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ((), "fit to measure on"),
        (("good", "unknown"), "fit to measure on"),
        (("good", "poor", "unknown"), "measure with care"),
        (("poor", "bad", "good"), "not fit"),
    ],
)
def test_the_verdict_is_that_of_the_worst_finding(states, expected):
    assert verdict(Finding("check", state, "found") for state in states) == expected


def test_warnings_before_measuring(monkeypatch):
    busy = replace(idle(busy=0.9, stolen=0.04), quota=1.5, usable=2, governors=("powersave",))
    seen = []

    def observe(*, window_s):
        seen.append(window_s)
        return busy

    monkeypatch.setattr("perflex.studies.doctor.observe_system", observe)
    with pytest.warns(PerflexWarning) as found:
        warn_before_measuring(SimpleNamespace(kind="cpu", is_simulator=False))
    assert [str(one.message).split(":")[0] for one in found] == [
        "other processes use 0.9 of 4 processors",
        "the hypervisor takes 4.0 % of the processors' time",
        "the cgroup may use 1.5 processors of 2",
    ]
    assert all("perflex doctor" in str(one.message) for one in found)
    assert max(seen) < 1.0
    # The host's processors say little of a GPU's times, and nothing of devices that run nothing.
    others = [SimpleNamespace(kind=kind, is_simulator=kind == "cpu") for kind in ("gpu", "cpu")]
    for device in (*others, object(), None):
        warn_before_measuring(device)
    assert len(seen) == 1
