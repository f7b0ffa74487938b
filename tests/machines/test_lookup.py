"""What it costs to look up a machine."""

from __future__ import annotations

import subprocess
import sys

LOOK_UP = """
import sys
from perflex.machines.files import load_machine, machine_names, machine_of_device
assert load_machine(machine_names()[0])
assert machine_of_device("no such device") is None
print(*sorted(name for name in sys.modules if name.startswith(("perflex.", "loopy", "islpy", "sympy", "scipy"))))
"""


def test_looking_up_a_machine_loads_nothing_of_calibration() -> None:
    done = subprocess.run([sys.executable, "-c", LOOK_UP], check=True, capture_output=True, text=True)
    rooms = {name.split(".")[1] for name in done.stdout.split() if name.startswith("perflex.")}
    assert rooms <= {"machines", "calib_data", "caches", "errors", "file_io", "guard", "html", "version", "yaml_file"}
    assert not [name for name in done.stdout.split() if not name.startswith("perflex.")]
