"""Commands that start processes end soon after an interrupt, with all of them, exit code 130 and one line."""

import random
import signal
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perflex import Calibration
from support.interrupts import TerminalCommand

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
PERFLEX = (sys.executable, "-m", "perflex")
MOMENTS = 2
# On an idle machine all end within 2 s; others may work beside the tests.
LIMIT_S = 6.0
LATEST_S = 8.0
EXAMPLES = ROOT / "examples"
SPACE = f"{EXAMPLES}/matmul_space.py:space n=512"
# Words of each command that starts processes.
COMMANDS = {
    "calibrate": "calibrate matmul_sq -o {out}/c.yaml --accept-noise -d {device}",
    "calibrate general": "calibrate general -o {out}/c.yaml --accept-noise -d {device}",
    "demo": "demo --out {out} --accept-noise --device {device}",
    "devices": "devices",
    "doctor": "doctor --device {device}",
    "evaluate": "evaluate all --out {out} --accept-noise --device {device}",
    "features --code": f"features {EXAMPLES}/stencil.py:star25 nx=640 ny=512 nz=512 --code {{device}}",
    "machine detect": "machine detect --out {out}/m.yaml --device {device}",
    "predict --time": f"predict {{out}}/own.yaml {EXAMPLES}/matmul.py:naive n=1024,2048 --time",
    "prune --measure": f"prune {{out}}/own.yaml {SPACE} --measure 8 --device {{device}}",
    "tune": f"tune {{out}}/own.yaml {SPACE} --device {{device}}",
    "volumes": f"volumes {EXAMPLES}/stencil.py:star25 --machine V100 nx=640 ny=512 nz=512",
}

POOL = """
import time
from perflex import guard

guard.start()
from perflex.child_process import process_pool

with process_pool(2) as pool:
    pool.submit(time.sleep, 60).result()
"""


def started(name, device, folder):
    """Start a command with a store and caches of its own."""
    words = [word.format(out=folder, device=device) for word in COMMANDS[name].split()]
    shipped = Calibration.load("matmul_sq_amd_epyc_4cores_intel_opencl")
    own = {"name": device.name, "platform": device.platform}
    replace(shipped, device={**shipped.device, **own}).save(folder / "own.yaml")
    caches = {"XDG_CACHE_HOME": "cache", "POCL_CACHE_DIR": "pocl", "PERFLEX_STORE": "store.sqlite"}
    return TerminalCommand([*PERFLEX, *words], {variable: str(folder / place) for variable, place in caches.items()})


def check(ending, number):
    """Require an end as it is promised."""
    assert not ending.left
    # Results may have been printed before.
    assert ending.lines[-1:] == (f"perflex: interrupted by {number.name}",)
    assert not [line for line in ending.lines[:-1] if line.startswith(("perflex:", "Traceback"))]
    assert ending.code == 130
    assert ending.seconds < LIMIT_S


def test_a_second_interrupt_while_workers_start():
    with closing(TerminalCommand([sys.executable, "-c", POOL], {})) as command:
        assert command.comes_to("multiprocessing.spawn")
        check(command.interrupt(signal.SIGINT, times=2), signal.SIGINT)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_end_at_any_moment(name, default_device, tmp_path):
    chance = random.Random(name)  # noqa: S311 - no secret
    latest, store = LATEST_S, tmp_path / "store.sqlite"
    # Moments count from when a command has its guard, or its workers where it takes long until then.
    begun = ("multiprocessing.spawn", 1) if name == "calibrate general" else ("-m perflex", 2)
    for number in (signal.SIGINT, signal.SIGTERM) * (MOMENTS // 2):
        while True:
            moment = chance.uniform(0, latest)
            with closing(started(name, default_device, tmp_path)) as command:
                assert command.comes_to(*begun), command.shown()
                if command.runs_for(moment):
                    check(command.interrupt(number), number)
                    break
                # Of the doctor: an unfit machine.
                assert command.code() in ((0, 1) if name == "doctor" else (0,)), command.shown()
            latest = moment
    if store.exists():
        assert subprocess.run([*PERFLEX, "store", "verify", "--store", str(store)], check=False).returncode == 0
