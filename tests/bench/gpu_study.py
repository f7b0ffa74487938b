"""One run for a GPU machine: everything that a GPU is needed for, within a budget of time.

    python tests/bench/gpu_study.py --out DIR --budget 25min [--device NAME] [--only STEP,...]

Each step is a command with a share of what is left of the budget; what one leaves over the next ones have. A step that
outlasts its share is ended, and what it wrote stays. Output goes to DIR/STEP.log, results to DIR, and DIR/report.md
says of each step how it ended. Another run with the same DIR goes on: steps that ended well are not repeated, samples
are kept in DIR/store.sqlite. Nothing about the device is changed.

On a GPU machine without network, prepare wheels where there is one, for that machine's Python: loopy, islpy-barvinok
(not islpy), pyopencl, what these need, whatever else of pyproject.toml is missing there, and perflex itself
(``pip wheel --no-deps --wheel-dir WHEELS .``). Then::

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
    """Return the steps; paths are relative to the folder of results."""
    own = ("--device", device)
    record = (sys.executable, str(HERE / "any_kernel.py"))
    judged = ("--times", "families.jsonl", "--calibration", "general_gpu=general.yaml", "--out", "families")
    return (
        Step("devices", 1, (*PERFLEX, "devices")),
        Step("doctor", 2, (*PERFLEX, "doctor", *own)),
        Step("calibrate", 20, (*PERFLEX, "calibrate", "general", *own, "--out", "general.yaml")),
        Step("times", 1, (*PERFLEX, "export-times", "general.yaml", "--out", "general_times.csv"), ("calibrate",)),
        Step("demo", 8, (*PERFLEX, "demo", *own, "--out", "demo")),
        Step("space", 12, (sys.executable, str(Path(__file__)), "--space", device), ("calibrate",)),
        Step("families", 25, (*record, "record", *own, "--out", "families.jsonl")),
        Step("judge", 6, (*record, "judge", *judged), ("calibrate", "families")),
        Step("evaluate", 20, (*PERFLEX, "evaluate", *own, "--out", "evaluation")),
    )


def run(step: Step, folder: Path, seconds: float) -> str:
    """Run a step and return how it ended, ``"done"`` or why not."""
    environment = os.environ | {"PERFLEX_STORE": str(folder / "store.sqlite"), "PYTHONUNBUFFERED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(TOP), *filter(None, [os.environ.get("PYTHONPATH")])])
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


def space(device: str) -> None:
    """Predict a space of tiled matrix multiplications by `general.yaml`, then time it until SIGINT, and judge."""
    from judging import judged, predicted, write_cases

    from perflex import Calibration, TimingOptions, find_device
    from perflex.features.sized_kernel import sized_kernels
    from perflex.timing.measuring import measure
    from perflex.timing.results import Timing
    from uipick import ALL_GENERATORS, KernelCollection

    where, calibration = find_device(device), Calibration.load("general.yaml")
    n = 2048 if where.kind == "gpu" else 256
    tags = f"matmul_rb dtype:float32 rows:1,2,4,8 columns:1,2,4,8 lsize:4,8,16 groups_fit:True n:{n}".split()
    kernels = {kernel.name: kernel for kernel in KernelCollection(ALL_GENERATORS).generate_kernels(tags)}
    method = predicted(
        "general", "nothing", kernels, lambda name: calibration.predict_interval(kernels[name], kernels[name].sizes)
    )
    measured = {}
    try:
        for name, kernel in kernels.items():
            [timing] = measure(sized_kernels([kernel]), where, TimingOptions(budget_s=0.1))
            if isinstance(timing, Timing):
                measured[name] = timing.seconds
    except KeyboardInterrupt:
        print("cut short")
    print(judged([method], measured, lambda _: "space"))
    write_cases(Path("space.csv"), [method], measured)


def seconds_of(text: str) -> float:
    """Return the seconds that ``90``, ``90s`` or ``25min`` stand for."""
    number = text.removesuffix("min").removesuffix("s")
    return float(number) * (60.0 if text.endswith("min") else 1.0)


def main() -> int:
    """Run the steps; 0 if all ended well."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder of the results; made if it is not there")
    parser.add_argument("--budget", type=seconds_of, default=1500.0, help="time of the whole run, e.g. 25min")
    parser.add_argument("--device", default="", help="parts of the device's name; by default the default device")
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--space", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.space is not None:
        space(arguments.space)
        return 0
    folder = arguments.out.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    state_file = folder / "state.json"
    states: dict[str, str] = json.loads(state_file.read_text(encoding="utf-8")) if state_file.exists() else {}
    begun = time.monotonic()
    name = arguments.device
    if not name:
        from perflex import find_device

        name = str(find_device().name)
    every = [step for step in steps(name) if not arguments.only or step.name in arguments.only]
    for number, step in enumerate(every):
        left = arguments.budget - (time.monotonic() - begun)
        if states.get(step.name) == "done":
            continue
        missing = [needed for needed in step.needs if states.get(needed) != "done"]
        share = left * step.share / sum(other.share for other in every[number:] if states.get(other.name) != "done")
        if missing:
            states[step.name] = f"needs {', '.join(missing)}"
        elif share < 2 * GRACE_S:
            states[step.name] = "no time was left"
        else:
            print(f"{time.monotonic() - begun:6.0f} s  {step.name}: {share:.0f} s", flush=True)
            states[step.name] = run(step, folder, share)
        state_file.write_text(json.dumps(states, indent=2), encoding="utf-8")
        rows = "".join(f"| {each} | {state} |\n" for each, state in states.items())
        report = f"# GPU study of {name}\n\n| step | how it ended |\n| --- | --- |\n{rows}"
        (folder / "report.md").write_text(report, encoding="utf-8")
    print(f"{time.monotonic() - begun:6.0f} s  {folder / 'report.md'}")
    return 0 if all(states.get(step.name) == "done" for step in every) else 1


if __name__ == "__main__":
    sys.exit(main())
