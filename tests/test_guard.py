"""The guard ends a command and what it started soon after an interrupt, and is gone when the command is."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

# A command that starts a child, says their numbers and its guard's, and goes on as the test wants.
COMMAND = """
import ctypes, os, sys, time
from perflex import guard

guard.start()
from perflex.child_process import ChildProcess

child = ChildProcess(["-c", "import time; time.sleep(60)"])
children = open(f"/proc/self/task/{{os.getpid()}}/children").read().split()
print(child._process.pid, *[pid for pid in children if int(pid) != child._process.pid], flush=True)
{rest}
"""
# PyDLL keeps the interpreter's lock during the call, which does not end.
IN_LIBRARY = """
import threading
lock = ctypes.create_string_buffer(64)
library = ctypes.PyDLL(None)
library.pthread_mutex_init(lock, None)
library.pthread_mutex_lock(lock)
library.pthread_mutex_lock(lock)
"""
LOST = """
class Lost:
    def __del__(self):
        time.sleep(60)
Lost()
time.sleep(60)
"""
TIDY = """
try:
    time.sleep(60)
finally:
    time.sleep(0.4)
    print("tidied up", flush=True)
"""


def gone(pid: int, within_s: float) -> bool:
    """Return whether a process ends in time; one that nobody waits for has ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            if Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.01)
    return False


@contextmanager
def begun(rest: str) -> Iterator[tuple[subprocess.Popen[str], int, int]]:
    """Start the command, and give it with the numbers of its child and its guard."""
    # As a command in a terminal; what runs a test may ignore interrupts.
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    words = [sys.executable, "-c", COMMAND.format(rest=rest)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as command:
        signal.signal(signal.SIGINT, handler)
        try:
            assert command.stdout is not None
            child, guard = map(int, command.stdout.readline().split())
            yield command, child, guard
            assert gone(child, 2)
            assert gone(guard, 2)
        finally:
            command.kill()


@pytest.mark.parametrize("rest", [IN_LIBRARY, LOST], ids=["a call of C", "a lost exception"])
def test_an_interrupt_ends_a_command_that_does_not_heed_it(rest: str) -> None:
    with begun(rest) as (command, _, _):
        time.sleep(0.2)
        command.send_signal(signal.SIGINT)
        sent = time.monotonic()
        assert command.wait(20) == -signal.SIGTERM
        assert 0.9 < time.monotonic() - sent < 5


def test_what_is_tidied_up_after_an_interrupt_gets_time() -> None:
    with begun(TIDY) as (command, _, _):
        time.sleep(0.1)
        command.send_signal(signal.SIGINT)
        output, complaint = command.communicate(timeout=20)
        assert output == "tidied up\n"
        assert "KeyboardInterrupt" in complaint
        assert command.returncode == -signal.SIGINT


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_children_end_with_a_command_that_is_ended(number: signal.Signals) -> None:
    with begun(IN_LIBRARY) as (command, _, _):
        command.send_signal(number)
        assert command.wait(20) == -number


def test_a_signal_to_the_whole_group_does_not_end_the_guard_first() -> None:
    with begun(IN_LIBRARY) as (command, _, _):
        time.sleep(0.1)
        subprocess.run(["kill", "-INT", "--", f"-{command.pid}"], check=True)
        assert command.wait(20) == -signal.SIGTERM


def test_a_command_that_ends_leaves_nobody_and_its_output_ends_with_it() -> None:
    with begun("child.kill(); child.wait(1)") as (command, child, guard):
        # Would wait for the guard's end, too, had it kept the pipes.
        command.communicate(timeout=20)
        assert command.returncode == 0
        # Its exit code was taken: not even a zombie is left.
        assert not Path(f"/proc/{guard}").exists()
        assert not Path(f"/proc/{child}").exists()


def test_a_forked_process_does_not_keep_the_guard() -> None:
    with begun("pid = os.fork()\nif pid == 0: time.sleep(15); os._exit(0)") as (command, _, _):
        # Before the forked process ends: that takes 15 s.
        assert command.wait(12) == 0


PRINTING = """
import ctypes, os, signal, time
from contextlib import suppress
from perflex import guard

guard.start()
with suppress(OSError):
    os.write(1, bytes([2, 2]))
time.sleep(1.5)
signal.signal(signal.SIGINT, lambda *_: None)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(60)
"""


def test_what_goes_to_a_closed_stream_is_no_interrupt() -> None:
    words = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, PRINTING]
    began = time.monotonic()
    assert subprocess.run(words, check=False, timeout=30).returncode == -signal.SIGTERM
    # A second after the interrupt, which came after one and a half.
    assert time.monotonic() - began > 2.5
