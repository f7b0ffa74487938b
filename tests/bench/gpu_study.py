"""One run for a GPU machine: everything that a GPU is needed for, within a budget of time.

    python tests/bench/gpu_study.py --out DIR --budget 8min [--device NAME] [--only PART,...] [--machine NAME]

Parts, in this order: `device` (facts), `launch` (timer, cost of a launch), `ceilings` (bandwidths and arithmetic rates
against calibrated parameters), `evaluation` (the paper's three studies), `stencil` (25-point stencil in 168 work-group
shapes and foldings), `matmul` (a space of more than 300 tiled matrix multiplications). Each has a share of the budget;
what one leaves over the next ones have. Results are CSV and YAML files in DIR, each row on disk as soon as it is known;
`report.md` says what was run, what was not and why, with goals beside results. The run ends by itself: a part whose
time is up keeps what it has; SIGTERM, or the end of the budget, ends it within seconds, status 124; a driver that hangs
does not keep it. Samples are kept in DIR/store.sqlite, so that another run with the same DIR goes on with an evaluation
that was cut. Nothing about the device is changed.

On a GPU machine without network
--------------------------------
Wheels are prepared where there is a network, for the GPU machine's Python (3.11 or 3.12): loopy, islpy-barvinok (not
islpy), pyopencl, what these need (Mako is easily forgotten), and whatever else of pyproject.toml is missing there; for
perflex itself `pip wheel --no-deps --wheel-dir WHEELS .` in the top folder. Then::

    python3 -m pip install --no-index --no-deps --target SITE WHEELS/*.whl
    PYTHONPATH=SITE python3 tests/bench/gpu_study.py --out OUT --budget 8min

The device is chosen by name (`--device cuda`, `--device nvidia`, ...), through OpenCL where the driver offers it and
CUDA where it does not; by default it is the first GPU that works. `python3 -m perflex devices` says which there are.
With cores to spare, code is generated in other processes (`--workers`).

On a CPU device all parts run with small sizes, `--budget 3min`, as a test of this program; one machine's volumes stand
in for the volumes that a CPU does not have, and that part's prediction means nothing there.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from gpu_parts.budget import Budget, CutShortError, parse_seconds
from gpu_parts.ceilings import ceilings
from gpu_parts.ending import CUT_STATUS, ends_by_itself
from gpu_parts.evaluations import evaluations
from gpu_parts.facts import device_facts
from gpu_parts.keeping import set_earlier_aside, write_text
from gpu_parts.launch_cost import launch_cost
from gpu_parts.matmul import matmul_space
from gpu_parts.needs import missing
from gpu_parts.parts import Part, Setting, run_parts
from gpu_parts.report import report_text
from gpu_parts.stencil import stencil_shapes
from gpu_parts.workers import default_workers

from perflex.errors import PerflexError, PerflexWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpu_parts.parts import PartRun

PARTS = (
    Part("device", "Device", 1, device_facts),
    Part("launch", "Timer and launches", 3, launch_cost),
    Part("ceilings", "Ceilings and calibrated rates", 14, ceilings),
    Part("evaluation", "Evaluation", 36, evaluations),
    Part("stencil", "25-point stencil over work-group shapes", 22, stencil_shapes),
    Part("matmul", "Space of tiled matrix multiplications", 24, matmul_space),
)
# Of the end of the budget, for the report and for what a part needs to stop.
RESERVE = 0.03
GRACE_S = 8.0
STAND_IN = "V100"


def main() -> int:
    """Run the parts; 0 if all that were wanted ran to their end, 1 if not, 124 if the run was cut."""
    arguments = _arguments()
    if absent := missing():
        print(f"error: {'; '.join(absent)}; install what pyproject.toml and its packages ask for", file=sys.stderr)
        return 1
    folder = arguments.out
    folder.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("PERFLEX_STORE", str(folder / "store.sqlite"))
    set_earlier_aside(folder / "report.md")
    budget = Budget(arguments.budget, reserve=RESERVE * arguments.budget)
    runs: Sequence[PartRun] = []
    name = arguments.device or "the default device"

    def changed(now: Sequence[PartRun], ended: str = "") -> None:
        nonlocal runs
        runs = now
        text = report_text(name, now, budget_s=budget.seconds, used_s=budget.used, ended=ended, folder=folder)
        write_text(folder / "report.md", text)
        for part in now:
            if part.state == "begun":
                print(f"{budget.used:6.0f} s  {part.name}: {part.allotted:.0f} s", flush=True)

    try:
        with ends_by_itself(budget.seconds, GRACE_S, lambda reason: changed(runs, reason)), warnings.catch_warnings():
            warnings.simplefilter("ignore", PerflexWarning)  # kernels that are left out are told in the results
            setting = _setting(arguments)
            name = str(setting.device)
            wanted = [part for part in PARTS if not arguments.only or part.name in arguments.only]
            run_parts(wanted, setting, budget, changed)
            changed(runs)
    except CutShortError as error:
        changed(runs, str(error))
        print(f"ended early: {error}; {folder / 'report.md'}", file=sys.stderr)
        return CUT_STATUS
    except PerflexError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1
    print(f"{budget.used:6.0f} s  {folder / 'report.md'}")
    return 0 if all(part.state == "done" for part in runs) else 1


def _setting(arguments: argparse.Namespace) -> Setting:
    from perflex import find_device
    from perflex.machines.lookup import machine_of_device

    device = find_device(arguments.device)
    own = machine_of_device(device.name)
    on_gpu = device.kind == "gpu"
    machine = arguments.machine or (own.name if own is not None else None if on_gpu else STAND_IN)
    workers = default_workers(on_gpu=on_gpu) if arguments.workers is None else arguments.workers
    is_own = bool(arguments.machine) if own is None else machine == own.name
    return Setting(device, arguments.out.resolve(), machine, own_machine=is_own, workers=workers, small=arguments.small)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results; made if it is not there")
    parser.add_argument("--budget", type=parse_seconds, default=480.0, help="time of the whole run, e.g. 8min")
    parser.add_argument("--device", help="parts of the device's name; by default the first GPU that works")
    parser.add_argument("--only", type=_part_names, default=(), help=f"of {','.join(part.name for part in PARTS)}")
    parser.add_argument("--machine", help="machine file or name for volumes; by default the device's own")
    parser.add_argument("--workers", type=int, help="processes that generate code; by default 0 on CPU devices")
    parser.add_argument("--small", action="store_true", help="sizes of a CPU device on a GPU, to try this program")
    return parser.parse_args()


def _part_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    known = [part.name for part in PARTS]
    unknown = [name for name in names if name not in known]
    if unknown:
        msg = f"no part is called {', '.join(unknown)}; there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(msg)
    return names


if __name__ == "__main__":
    sys.exit(main())
