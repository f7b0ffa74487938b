"""One run for a GPU machine: everything that a GPU is needed for, within a budget of time.

    python tests/bench/gpu_study.py --out DIR --budget 25min [--device NAME] [--only STEP,...]

Each step is a command with a share of what is left of the budget. A step that outlasts its share is ended, and what it
wrote stays. Output goes to DIR/STEP.log, results to DIR, and DIR/report.md says how each step ended. Another run with
the same DIR goes on: steps that ended well are not repeated, samples are kept in DIR/store.sqlite. Nothing about the
device is changed.

On a GPU machine without network, prepare wheels where there is one, for that machine's Python: what pyproject.toml
needs (islpy-barvinok, not islpy) and perflex itself (``pip wheel --no-deps --wheel-dir WHEELS .``). Then::

    python3 -m pip install --no-index --no-deps --target SITE WHEELS/*.whl
    PYTHONPATH=SITE python3 tests/bench/gpu_study.py --out OUT --budget 25min
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
TOP = HERE.parents[1]
PERFLEX = (sys.executable, "-m", "perflex")
# Of a step's share, for its process to end by itself after a signal.
GRACE_S = 5.0


class Step(NamedTuple):
    """A command, its share of the time beside the shares of the later ones, and the steps whose results it needs."""

    name: str
    share: float
    command: tuple[str, ...]
    needs: tuple[str, ...] = ()


def steps(device: str) -> tuple[Step, ...]:
    own = ("--device", device)
    # Of the variants that are drawn and those that are kept, what was predicted and what was measured.
    space = (f"{TOP / 'examples' / 'matmul_space.py'}:space", "n=1024", "--keep", "20", "--measure", "30")
    record = (sys.executable, str(HERE / "any_kernel.py"))
    judged = ("--times", "families.jsonl", "--calibration", "general_gpu=general.yaml", "--out", "families")
    return (
        Step("devices", 1, (*PERFLEX, "devices")),
        Step("doctor", 2, (*PERFLEX, "doctor", *own)),
        Step("calibrate", 20, (*PERFLEX, "calibrate", "general", *own, "--out", "general.yaml")),
        Step("times", 1, (*PERFLEX, "diagnose", "general.yaml", "--out", "general_diagnosis"), ("calibrate",)),
        Step("demo", 8, (*PERFLEX, "demo", *own, "--out", "demo")),
        Step("space", 12, (*PERFLEX, "prune", "general.yaml", *space, *own, "--out", "space"), ("calibrate",)),
        Step("families", 25, (*record, "record", *own, "--out", "families.jsonl")),
        Step("judge", 6, (*record, "judge", *judged), ("calibrate", "families")),
        Step("evaluate", 20, (*PERFLEX, "evaluate", "all", *own, "--out", "evaluation")),
    )


def run(step: Step, folder: Path, seconds: float) -> str:
    """Run a step and return how it ended, ``"done"`` or why not."""
    environment = os.environ | {"PERFLEX_STORE": str(folder / "store.sqlite"), "PYTHONUNBUFFERED": "1"}
    with (folder / f"{step.name}.log").open("w", encoding="utf-8") as log:
        process = subprocess.Popen(
            step.command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            code = process.wait(max(seconds - GRACE_S, 1.0))
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_S)
            code = None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if code is None:
        return f"its {seconds:.0f} s were over"
    if code == 0:
        return "done"
    lines = (folder / f"{step.name}.log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return f"exit {code}: {lines[-1] if lines else 'no output'}"


def seconds_of(text: str) -> float:
    number = text.removesuffix("min").removesuffix("s")
    return float(number) * (60.0 if text.endswith("min") else 1.0)


def report(folder: Path, name: str, states: dict[str, str]) -> None:
    from judging import table

    (folder / "state.json").write_text(json.dumps(states, indent=2), encoding="utf-8")
    text = f"# GPU study of {name}\n\n{table(('step', 'how it ended'), states.items())}"
    (folder / "report.md").write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the results; made if it is not there")
    parser.add_argument("--budget", type=seconds_of, default=1500.0, help="time of the whole run, e.g. 25min")
    parser.add_argument("--device", help="parts of the device's name; by default the default device")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    arguments = parser.parse_args()
    name, folder, begun = arguments.device or default_device(), arguments.out.resolve(), time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    state_file = folder / "state.json"
    states: dict[str, str] = json.loads(state_file.read_text(encoding="utf-8")) if state_file.exists() else {}
    every = [step for step in steps(name) if not arguments.only or step.name in arguments.only]
    todo = [step for step in every if states.get(step.name) != "done"]
    for number, step in enumerate(todo):
        left = arguments.budget - (time.monotonic() - begun)
        share = left * step.share / sum(other.share for other in todo[number:])
        if missing := [needed for needed in step.needs if states.get(needed) != "done"]:
            states[step.name] = f"needs {', '.join(missing)}"
        elif share < 2 * GRACE_S:
            states[step.name] = "no time was left"
        else:
            print(f"{time.monotonic() - begun:6.0f} s  {step.name}: {share:.0f} s", flush=True)
            states[step.name] = run(step, folder, share)
        report(folder, name, states)
    print(f"{time.monotonic() - begun:6.0f} s  {folder / 'report.md'}")
    return 0 if all(states.get(step.name) == "done" for step in every) else 1


def default_device() -> str:
    from perflex import find_device

    return str(find_device().name)


if __name__ == "__main__":
    sys.exit(main())
