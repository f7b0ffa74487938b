"""The guard ends a command and what it started soon after an interrupt, and ends as the command did otherwise."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.processes import gone

pytestmark = pytest.mark.machine

# A command that starts a child in a session of its own, says its own number and the child's, and goes on as the test
# wants.
COMMAND = """
import ctypes, os, signal, sys, time
from perflex import guard

guard.start()
from perflex.child_process import RemoteProcess

child = RemoteProcess()
print(os.getpid(), child._process.pid, flush=True)
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
# Its parent ends at once, it leads a session of its own, and it does not heed what it is asked.
DAEMON = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print(os.getpid(), flush=True)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep({seconds})
"""
BY_KEY = "perflex: interrupted by SIGINT\n"


@contextmanager
def begun(rest):
    """Start the command, and give what was started, which is its guard, and the number of the guarded process."""
    # As a command in a terminal; what runs a test may ignore interrupts and hangups.
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGHUP)}
    words = [sys.executable, "-c", COMMAND.format(rest=rest)]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe, text=True, start_new_session=True) as guard:
        for number, handler in before.items():
            signal.signal(number, handler)
        try:
            command, child = map(int, guard.stdout.readline().split())
            yield guard, command
            assert gone(command, 2)
            assert gone(child, 2)
        finally:
            guard.kill()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("rest", [IN_LIBRARY, LOST], ids=["a call of C", "a lost exception"])
def test_an_interrupt_ends_a_command_that_does_not_heed_it(rest, number):
    with begun(rest) as (guard, _):
        time.sleep(0.2)
        guard.send_signal(number)
        sent = time.monotonic()
        assert guard.communicate(timeout=20) == ("", f"perflex: interrupted by {number.name}\n")
        assert guard.returncode == 130
        assert 0.9 < time.monotonic() - sent < 5


# Sends the signal when the first module beside the guard is looked for.
EARLY = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "{module}":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


@pytest.mark.parametrize("module", ["lazy_loader", "perflex.__main__"])
@pytest.mark.parametrize(
    "words", [(sys.executable, "-m", "perflex"), (str(Path(sys.executable).with_name("perflex")),)]
)
def test_an_interrupt_while_perflex_is_imported_is_one_line(words, module, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(EARLY.format(module=module), encoding="utf-8")
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        own = os.environ | {"PYTHONPATH": str(tmp_path)}
        done = subprocess.run([*words, "devices"], env=own, capture_output=True, text=True, check=False, timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", BY_KEY)


def test_what_is_tidied_up_after_interrupts_gets_time():
    with begun(TIDY) as (guard, _):
        time.sleep(0.1)
        guard.send_signal(signal.SIGINT)
        time.sleep(0.1)
        guard.send_signal(signal.SIGTERM)
        assert guard.communicate(timeout=20) == ("tidied up\n", BY_KEY)
        assert guard.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_is_one_interrupt(number):
    with begun(TIDY) as (guard, _):
        time.sleep(0.1)
        os.killpg(guard.pid, number)
        assert guard.communicate(timeout=20) == ("tidied up\n", f"perflex: interrupted by {number.name}\n")
        assert guard.returncode == 130


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_children_end_with_a_guard_that_is_killed_and_a_hangup_is_passed_on(number):
    with begun(IN_LIBRARY) as (guard, _):
        guard.send_signal(number)
        assert guard.wait(20) == -number


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP, signal.SIGSEGV])
def test_a_command_that_a_signal_ends_ends_its_guard_in_the_same_way(number):
    with begun(IN_LIBRARY) as (guard, command):
        os.kill(command, number)
        assert guard.communicate(timeout=20) == ("", "")
        assert guard.returncode == -number


def test_a_command_that_ends_leaves_nobody_and_its_exit_code():
    with begun("sys.exit(7)") as (guard, _):
        guard.communicate(timeout=20)
        assert guard.returncode == 7


@pytest.mark.parametrize("seconds", [0, 60], ids=["at its end", "when interrupted"])
def test_processes_that_left_the_command_end_with_it(seconds):
    with begun(DAEMON.format(seconds=seconds)) as (guard, _):
        daemon = int(guard.stdout.readline())
        if seconds:
            guard.send_signal(signal.SIGINT)
        guard.communicate(timeout=20)
        assert guard.returncode == (130 if seconds else 0)
        assert gone(daemon, 2)


def test_interrupts_that_were_ignored_still_are():
    code = COMMAND.format(rest="child.end(); time.sleep(2)")
    words = ["sh", "-c", 'trap "" INT; exec "$0" -c "$1"', sys.executable, code]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as guard:
        guard.stdout.readline()
        guard.send_signal(signal.SIGINT)
        assert guard.communicate(timeout=20) == ("", "")
        assert guard.returncode == 0


def test_exit_codes_are_known_where_the_ends_of_children_are_ignored():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    code = "from perflex import guard; guard.start(); raise SystemExit(7)"
    with subprocess.Popen([sys.executable, "-c", code]) as guard:
        signal.signal(signal.SIGCHLD, before)
        assert guard.wait(20) == 7


def test_a_command_without_streams_is_guarded():
    code = "import os, time; from perflex import guard; guard.start(); os.kill(os.getppid(), 15); time.sleep(60)"
    words = ["sh", "-c", 'exec "$0" -c "$1" <&- >&- 2>&-', sys.executable, code]
    assert subprocess.run(words, check=False, timeout=30).returncode == 130
