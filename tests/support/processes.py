"""Whether processes are still there."""

import time
from pathlib import Path


def gone(pid, within_s=5.0):
    """Return whether a process ends in time; one that nobody waits for has ended."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False
