"""What compilers make: built in processes that an interrupt ends at once, kept as long as somebody asks for it."""

import os
import time
from contextlib import nullcontext
from threading import Event
from typing import ClassVar

import pytest

from perflex import using_store
from perflex.errors import PerflexWarning
from perflex.features import SizedKernel
from perflex.timing import compiled_code as building
from perflex.timing.compiled_code import compiled_code
from perflex.timing.launch import kept_code
from sample_kernels import matmul

CODE = (building.CompiledProgram("matmul", "intel", (building.Function("matmul", 0, b"\xc3", ()),), (), None),)
RESOURCES = building.Resources(registers=17, local_bytes=64)
FORMS = {"code": (building.compiled_code, CODE), "resources": (building.resource_use, RESOURCES)}


class Instant:
    """Builds at once, and tells of each kernel."""

    built: ClassVar[list[int]] = []
    resources = RESOURCES

    def __init__(self, *_):
        pass

    def code(self, request):
        self.built.append(request.sizes["n"])
        return CODE

    def build(self, request):
        self.built.append(request.sizes["n"])
        return self

    def close(self):
        pass


@pytest.fixture
def jobs(monkeypatch, tmp_path):
    monkeypatch.setenv("PERFLEX_STORE", str(tmp_path / "store.sqlite"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(building, "_idle", {})
    monkeypatch.setattr(building, "IsolatedBackend", Instant)
    monkeypatch.setattr(Instant, "built", [])
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
    monkeypatch.setattr(building, "keep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        building.compiled_code(jobs, default_device)
    assert ended == [True]


@pytest.mark.parametrize("form", FORMS)
def test_what_was_built_is_not_built_again(jobs, default_device, form):
    ask, outcome = FORMS[form]
    assert ask(jobs[:5], default_device) == [outcome] * 5
    told = []
    assert ask(jobs, default_device, progress=lambda *what: told.append(what)) == [outcome] * 8
    assert sorted(Instant.built) == [16 * n for n in range(1, 9)]
    assert [done for done, _, _ in told] == [5, 6, 7]
    with using_store("off"):
        assert ask(jobs[:1], default_device) == [outcome]
    assert Instant.built[-1] == 16


def test_code_and_resources_are_kept_apart(jobs, default_device):
    for ask, outcome in (*FORMS.values(), *FORMS.values()):
        assert ask(jobs[:1], default_device) == [outcome]
    assert Instant.built == [16, 16]


@pytest.mark.parametrize("content", [b"\xc1", b"\x91\x80", b"\x01"])
def test_what_is_of_another_form_is_built_again(jobs, default_device, content):
    building.compiled_code(jobs[:1], default_device)
    store = kept_code.current_store()
    ((digest, _, before, _),) = store.read_made("code", "", ())
    store.write_made(
        lambda connection: kept_code.insert(connection, "code", (digest, time.time(), content), kept_code._REPLACE)
    )
    assert building.compiled_code(jobs[:1], default_device) == [CODE]
    assert store.read_made("code", "", ())[0][2] == before


def test_where_nothing_can_be_kept_it_is_built(jobs, default_device, tmp_path):
    (tmp_path / "file").touch()
    for told in (pytest.warns(PerflexWarning, match="keeps no counts and no machine code"), nullcontext()):
        with told, using_store(tmp_path / "file" / "store.sqlite"):
            assert building.compiled_code(jobs[:2], default_device) == [CODE] * 2
    assert len(Instant.built) == 4


def test_code_that_nobody_asks_for_is_removed(jobs, default_device, monkeypatch, tmp_path):
    now = time.time()
    monkeypatch.setattr(kept_code.time, "time", lambda: now - 31 * 86400)
    building.compiled_code(jobs[:2], default_device)
    monkeypatch.undo()
    monkeypatch.setattr(building, "_idle", {})
    monkeypatch.setattr(building, "IsolatedBackend", Instant)
    # The first is asked for; the third is new, and makes the second go.
    with using_store(type(kept_code.current_store())(tmp_path / "store.sqlite")):
        building.compiled_code(jobs[:1], default_device)
        building.compiled_code(jobs[2:3], default_device)
        found = [key_of(job, default_device) for job in jobs[:3]]
        assert [kept_code.kept(key, object) is None for key in found] == [False, True, False]


def key_of(job, device):
    return building._key(job, device, "code", building.TimingOptions())


def test_code_is_that_of_the_drivers_variables(jobs, default_device, monkeypatch):
    before = key_of(jobs[0], default_device)
    assert before == key_of(jobs[0], default_device)
    monkeypatch.setenv("CL_CONFIG_CPU_TARGET_ARCH", "corei7-avx")
    assert key_of(jobs[0], default_device) != before


def test_one_process_waits_for_the_next_kernels(jobs, default_device, monkeypatch):
    started, ended = [], []
    monkeypatch.setattr(Instant, "__init__", lambda self, *_: started.append(self))

    def close(self):
        ended.append(self)

    monkeypatch.setattr(Instant, "close", close)
    with using_store("off"):
        for job in jobs[:3]:
            compiled_code([job], default_device)
        assert len(started) == 1
        compiled_code(jobs, default_device)  # by several
    assert len(building._idle) == 1
    assert len(ended) == len(started) - 1
    building._end_idle()
    assert len(ended) == len(started)
