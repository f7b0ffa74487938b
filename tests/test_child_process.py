import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from multiprocessing import get_context

import pytest

from perflex.child_process import AskedProcess, ChildLostError, ChildProcess, StreamReader, process_pool
from support.processes import gone

# A net: beside other work a process takes many times as long to begin.
LIMIT_S = 120
ANSWERING = """
import os, signal, subprocess, sys, time
from multiprocessing.connection import Connection

with Connection(int(sys.argv[1])) as connection:
    while True:
        try:
            request = connection.recv()
        except EOFError:
            break
        if request == "hang":
            helper = subprocess.Popen(["sleep", "60"])
            print(helper.pid, file=sys.stderr, flush=True)
            time.sleep(60)
        elif request == "crash":
            print("about to crash", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGSEGV)
        elif request == "write":
            print("some remark", file=sys.stderr, flush=True)
        connection.send(request)
"""


@pytest.fixture
def child():
    return AskedProcess(["-c", ANSWERING])


def test_requests_are_answered_until_the_end(child):
    assert [child.ask(request, LIMIT_S) for request in (1, "two", (3, None))] == [1, "two", (3, None)]
    assert child.alive
    child.end(at_once=False)
    assert not child.alive
    assert child.exit_code == 0
    child.end()


@pytest.mark.machine
def test_what_hangs_is_ended_with_what_it_started(child):
    child.ask(1, LIMIT_S)
    with pytest.raises(ChildLostError, match=r"^no end within 1 s$") as caught:
        child.ask("hang", 1)
    assert caught.value.kind == "hang"
    assert not child.alive
    assert gone(int(child.last_words()))


def test_a_crash_is_told_with_the_last_words_of_that_request(child):
    child.ask("write", LIMIT_S)
    with pytest.raises(ChildLostError, match=r"^SIGSEGV; its last output: about to crash$") as caught:
        child.ask("crash", LIMIT_S)
    assert caught.value.kind == "crash"


@pytest.mark.machine
def test_a_process_that_was_killed_may_have_run_out_of_memory(child):
    child.ask("write", LIMIT_S)
    threading.Timer(0.3, os.kill, (child._process.pid, signal.SIGKILL)).start()
    with pytest.raises(ChildLostError, match=r"^SIGKILL, as the system does when memory runs out; its last"):
        child.ask("hang", LIMIT_S)


@pytest.mark.machine
def test_an_interrupted_process_is_not_asked_again(child):
    child.ask(1, LIMIT_S)
    pid = child._process.pid
    threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        child.ask("hang", LIMIT_S)
    assert not child.alive
    assert gone(pid)


def test_a_process_that_does_not_start_is_told_with_its_words():
    child = AskedProcess(["-c", "raise SystemExit('no such module')"])
    with pytest.raises(ChildLostError, match=r"^exit code 1; its last output: no such module$"):
        child.ask(1, LIMIT_S)


@pytest.mark.machine
def test_output_and_end_of_a_process_that_is_not_asked():
    fine = ChildProcess(["-c", "import os; print(os.environ['SOME'])"], {"SOME": "value"}, keeps_output=True)
    assert fine.wait(LIMIT_S)
    assert (fine.exit_code, fine.output, fine.last_words()) == (0, b"value\n", "")
    failing = ChildProcess(["-c", "1 / 0"])
    assert failing.wait(LIMIT_S)
    assert (failing.exit_code, failing.last_words()) == (1, "ZeroDivisionError: division by zero")
    code = "import subprocess; print(subprocess.Popen(['sleep', '60']).pid, flush=True); input()"
    slow = ChildProcess(["-c", code], keeps_output=True)
    assert not slow.wait(1)
    assert slow.exit_code == -signal.SIGKILL
    assert gone(int(slow.output))


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
