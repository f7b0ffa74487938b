"""Machine code is built in processes that an interrupt ends at once, and kept as long as somebody asks for it."""

import os
import time
from threading import Event

import pytest

from perflex.features import SizedKernel
from perflex.timing import compiled_code as building
from perflex.timing.launch import kept_code
from sample_kernels import matmul

CODE = (building.CompiledProgram("matmul", "intel", (building.Function("matmul", 0, b"\xc3", ()),), (), None),)


class Instant:
    """Builds at once."""

    def __init__(self, *_):
        pass

    def code(self, _):
        return CODE

    def close(self):
        pass


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_OWN_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    kernel = matmul(prefetch=False)
    return [SizedKernel(kernel, {"n": 16 * n}, f"n={16 * n}") for n in range(1, 9)]


def test_an_interrupt_ends_what_is_being_built(jobs, default_device, monkeypatch):
    class Slow(Instant):
        def __init__(self, *_):
            self.killed = Event()

        def code(self, request):
            if request.sizes["n"] > 64:
                begun.set()
                ended.append(self.killed.wait(20))
            else:
                begun.wait(20)
            return CODE

        def kill(self):
            self.killed.set()

    def interrupt(*_):
        raise KeyboardInterrupt

    begun, ended = Event(), []
    monkeypatch.setattr(building, "IsolatedBackend", Slow)
    monkeypatch.setattr(building, "_keep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        building.compiled_code(jobs, default_device)
    assert ended == [True]


def test_code_that_nobody_asks_for_is_removed(jobs, default_device, monkeypatch, tmp_path):
    monkeypatch.setattr(building, "IsolatedBackend", Instant)
    assert building.compiled_code(jobs[:2], default_device) == [CODE, CODE]
    old = time.time() - 31 * 86400
    for path in tmp_path.rglob("*.json"):
        os.utime(path, (old, old))
    kept_code._remove_unused.cache_clear()
    # The first is asked for; the third is new, and its file makes the second's go.
    assert building.compiled_code(jobs[::2], default_device) == [CODE] * 4
    found = {job.label: building._place(job, default_device, building.TimingOptions()).exists() for job in jobs[:3]}
    assert found == {"n=16": True, "n=32": False, "n=48": True}


def test_code_is_that_of_the_drivers_variables(jobs, default_device, monkeypatch):
    monkeypatch.setattr(building, "IsolatedBackend", Instant)
    building.compiled_code(jobs[:1], default_device)
    assert building._kept(jobs[0], default_device, building.TimingOptions()) == CODE
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7-avx")
    assert building._kept(jobs[0], default_device, building.TimingOptions()) is None
