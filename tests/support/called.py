"""Functions that tests have other processes call."""

import os
import signal
import subprocess
import time

from perflex.errors import MeasurementError


def same(*values):
    return values


def hang():
    helper = subprocess.Popen(["/bin/sleep", "60"])
    os.write(2, f"{helper.pid}\n".encode())
    time.sleep(60)


def crash():
    os.write(2, b"about to crash\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def write():
    os.write(1, b"printed\n")
    os.write(2, b"some remark\n")


def refuse():
    msg = "no such kernel"
    raise MeasurementError(msg, kernel="k")


def not_sent():
    return lambda: 0
