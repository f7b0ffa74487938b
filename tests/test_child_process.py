import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import get_context

import pytest

from perflex.child_process import ChildLostError, RemoteProcess, StreamReader, process_pool
from perflex.errors import MeasurementError
from support import called
from support.processes import gone

# A net: beside other work a process takes many times as long to begin.
LIMIT_S = 120


@pytest.fixture
def child():
    started = RemoteProcess({"SOME": "value"})
    yield started
    started.end()


def test_functions_are_called_until_the_end(child):
    assert [child.call(called.same, *given, limit_s=LIMIT_S) for given in ((1,), ("two", (3, None)))] == [
        (1,), ("two", (3, None)),
    ]  # fmt: skip
    assert child.call(os.getenv, "SOME", limit_s=LIMIT_S) == "value"
    child.call(called.write, limit_s=LIMIT_S)
    assert child.alive
    child.end(at_once=False)
    assert not child.alive
    assert child._process.returncode == 0
    child.end()


def test_errors_of_perflex_are_told_from_others(child):
    with pytest.raises(MeasurementError, match=r"^no such kernel$") as caught:
        child.call(called.refuse, limit_s=LIMIT_S)
    assert caught.value.context == {"kernel": "k"}
    assert child.alive
    # What neither a driver nor a kernel is to blame for ends the process.
    with pytest.raises(RuntimeError, match=r"(?s)failed, which is an error of perflex:.*answer_calls.*TypeError"):
        child.call(len, limit_s=LIMIT_S)
    assert not child.alive


def test_an_answer_that_cannot_be_sent_is_an_error_of_perflex(child):
    with pytest.raises(RuntimeError, match=r"(?s)an error of perflex:.*[pP]ickle"):
        child.call(called.not_sent, limit_s=LIMIT_S)


@pytest.mark.machine
def test_what_hangs_is_ended_with_what_it_started(child):
    child.call(called.same, limit_s=LIMIT_S)
    with pytest.raises(ChildLostError, match=r"^no end within 1 s$") as caught:
        child.call(called.hang, limit_s=1)
    assert caught.value.kind == "hang"
    assert not child.alive
    assert gone(int(child._errors.last_line()))


def test_a_crash_is_told_with_the_last_words_of_that_call(child):
    child.call(called.write, limit_s=LIMIT_S)
    with pytest.raises(ChildLostError, match=r"^SIGSEGV; its last output: about to crash$") as caught:
        child.call(called.crash, limit_s=LIMIT_S)
    assert caught.value.kind == "crash"


@pytest.mark.machine
def test_a_process_that_was_killed_may_have_run_out_of_memory(child):
    child.call(called.write, limit_s=LIMIT_S)
    threading.Timer(0.3, os.kill, (child._process.pid, signal.SIGKILL)).start()
    with pytest.raises(ChildLostError, match=r"^SIGKILL, as the system does when memory runs out"):
        child.call(time.sleep, 60, limit_s=LIMIT_S)


@pytest.mark.machine
def test_an_interrupted_process_is_not_asked_again(child):
    child.call(called.same, limit_s=LIMIT_S)
    pid = child._process.pid
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        child.call(called.hang, limit_s=LIMIT_S)
    assert not child.alive
    assert gone(pid)


def test_a_process_that_does_not_start_is_told_with_its_words(monkeypatch, tmp_path):
    program = tmp_path / "python"
    monkeypatch.setattr(sys, "executable", str(program))
    with pytest.raises(OSError, match="No such file"):
        RemoteProcess()
    program.write_text("#!/bin/sh\necho no such module >&2\nexit 1\n", encoding="ascii")
    program.chmod(0o755)
    with pytest.raises(ChildLostError, match=r"^exit code 1; its last output: no such module$"):
        RemoteProcess().call(called.same, limit_s=LIMIT_S)


def test_stack_dumps_are_no_last_words():
    dump = (
        b"LLVM ERROR: Cannot select: intrinsic\n"
        b"PLEASE submit a bug report to https://x.org and include the crash backtrace.\n"
        b"Stack dump:\n0.\tRunning pass 'X86 DAG->DAG'\n"
        b" #0 0x00007f33 llvm::sys::PrintStackTrace (/usr/lib/libLLVM.so+0xd4f4)\n"
        b"/lib/x86_64-linux-gnu/libc.so.6(+0x3c050)[0x7f2]\n"
    )
    read, write = os.pipe()
    with os.fdopen(read, "rb") as stream:
        words = StreamReader(stream)
        os.write(write, b"earlier\n")
        while words.count < 8:
            time.sleep(0.001)
        os.write(write, dump)
        os.close(write)
        words.finish()
        assert words.last_line(8) == "LLVM ERROR: Cannot select: intrinsic"
        assert words.last_line(words.count) == ""


@pytest.mark.machine
def test_an_interrupt_does_not_wait_for_a_pool():
    interrupt = threading.Timer(0.5, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    began = time.monotonic()
    interrupt.start()
    with pytest.raises(KeyboardInterrupt), process_pool(2) as pool:
        pool.submit(time.sleep, 60).result()
    assert time.monotonic() - began < 10


@pytest.mark.machine
def test_an_interrupt_ends_no_children_of_others():
    other = get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    try:
        with suppress(KeyboardInterrupt), process_pool(1) as pool:
            worker = pool.submit(os.getpid).result()
            raise KeyboardInterrupt
        assert gone(worker)
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


@pytest.mark.machine
def test_workers_of_a_pool_import_what_they_will_need():
    loaded = "'colorsys' in __import__('sys').modules"
    for module, there in (("", False), ("colorsys", True)):
        with process_pool(1, importing=module) as pool:
            assert pool.submit(eval, loaded).result() == there


POOL = """
import os, time
from perflex.child_process import process_pool

with process_pool(2) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 60).result()
"""


@pytest.mark.machine
def test_workers_of_a_pool_end_with_a_process_that_is_killed():
    words = [sys.executable, "-c", POOL]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as parent:
        worker = int(parent.stdout.readline())
        parent.kill()
        # All of its processes have to end before its streams do.
        assert parent.communicate(timeout=LIMIT_S) == ("", "")
    assert gone(worker)
