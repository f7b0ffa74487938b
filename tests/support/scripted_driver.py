"""A driver as a child process sees it, which does what a variable of the environment says.

That is a JSON list with, for each device, its name and what happens when it is tried: ``"works"``, ``"wrong"``,
``"crash"`` or ``"hang"``. A file named by another variable gets a line for each child and each device that is tried.
"""

import json
import os
import signal
import time
from pathlib import Path

DEVICES, LOG = "SCRIPTED_DEVICES", "SCRIPTED_LOG"


def said(word):
    with Path(os.environ[LOG]).open("a", encoding="ascii") as file:
        file.write(f"{word}\n")


def devices():
    return json.loads(os.environ[DEVICES])


def happen(what):
    if what == "crash":
        os.write(2, b"cannot select\n")
        os.kill(os.getpid(), signal.SIGSEGV)
    if what == "hang":
        time.sleep(60)


def count(library):
    said(f"child {os.getpid()}")
    os.write(1, b"driver 1.0 [ok\n")
    if devices() == "crash":
        happen("crash")
    return len(devices()), "" if devices() else f"{library} offers no device"


def facts(number):
    return {
        "platform": "P", "vendor": "V", "name": devices()[number][0], "driver": "1", "kind": "gpu", "compute_units": 4,
        "local_memory_bytes": 1024, "global_memory_bytes": 1 << 20, "max_allocation_bytes": 1 << 18,
        "max_work_group_size": 256, "max_work_item_sizes": [256, 256, 64], "timer_resolution_ns": 1,
    }  # fmt: skip


def verdict(number):
    name, what = devices()[number]
    said(f"try {name}")
    happen(what)
    works = what == "works"
    return {"usable": works, "reason": "" if works else what, **({"sub_group_size": 8} if works else {})}
