"""Volumes of uneven grids against enumeration of every work-group and every wave, on all GPUs with known facts.

Run: python tests/bench/uneven_grids.py [--machines NAME ...] [--units N] [--only TEXT] [--truth FILE] [--out FILE.csv]

Kernels are those of `tests/support/uneven_kernels.py`: ragged edges in one to three dimensions, triangular guards and
loops, halves with different arrays, borders, checkerboards, strided grids, one work-group, less than a wave. The truth
lists all addresses (`tests/features/gpu/enumerated_waves.py`) and goes through the same rules. The baseline looks at
one wave at the grid's high end, as rules for even grids do; where it divides by zero it fails. Each machine is taken as
it is, and with `--units` compute units and as much less of L2, so that small grids have many waves.

`--truth FILE` writes the truths, or, where the file is there, reads them, so that another version can be compared with
the same truths. DRAM volumes are those of cold caches; a version that knows no such choice is taken as it is.
"""

from __future__ import annotations

import argparse
import csv
import inspect
import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from unittest.mock import patch

import numpy as np

TOP = Path(__file__).resolve().parents[2]
# The tests have a folder called uipick, too: the package must come first.
sys.path[:0] = [str(TOP)]
sys.path += [str(TOP / "tests"), str(TOP / "tests" / "features" / "gpu")]

from perflex import estimate_volumes, load_machine, machine_names  # noqa: E402
from perflex.errors import MachineError, UnsupportedKernelError  # noqa: E402
from perflex.features.gpu.geometry import launch_residency  # noqa: E402
from perflex.features.gpu.l1_rules import l1_cycles  # noqa: E402
from support.uneven_kernels import uneven_kernels  # noqa: E402

QUANTITIES = (
    "l1_wavefronts",
    "l1_load",
    "l2_l1_compulsory",
    "l2_l1_load",
    "l2_l1_store",
    "wave_load",
    "wave_store",
    "dram_load",
    "dram_store",
)
REGISTERS = 32
Errors = dict[tuple[str, str], list[float | None]]
KNOWS_CACHES = "caches" in inspect.signature(estimate_volumes).parameters


def estimated(scop, machine) -> dict[str, float]:
    options = {"caches": "cold"} if KNOWS_CACHES else {}
    total = estimate_volumes(scop, {}, machine, registers=REGISTERS, **options).total
    return {name: float(getattr(total, name)) for name in QUANTITIES}


def truth_of(kernel, machine, known: dict) -> dict[str, float]:
    from enumerated_waves import enumerated, true_parts

    lines = tuple(int(machine.need(name)) for name in ("sub_group_size", "sector_bytes", "line_bytes"))
    key = (kernel.name, machine.need_l1_rules(), *lines)
    if key not in known:
        lanes, sector, line = lines
        known[key] = enumerated(kernel, l1_cycles(machine), lanes=lanes, sector=sector, line=line, granule=2 * sector)
    resident = launch_residency(kernel.scop(), 0, {}, machine, REGISTERS).wave_groups
    with true_parts(known[key], resident):
        return estimated(kernel.scop(), machine)


def by_one_wave(scop, machine) -> dict[str, float]:
    """The baseline: one wave at the grid's high end, whatever the grid."""
    from perflex.features.gpu.geometry import filled_groups, wave_of
    from perflex.features.gpu.wave_sampling import Waves

    def one_wave(launch, resident, *, full_y_set, **_):
        wave = wave_of(launch.groups, filled_groups(launch), resident, full_y_set=full_y_set)
        return Waves(((wave, 1.0),), (1.0, 1.0, 1.0))

    with patch("perflex.features.gpu.rules_current.waves_of", one_wave):
        return estimated(scop, machine)


def report(what: str, deviations: list[float], failures: int) -> None:
    values = 100 * np.asarray(deviations)
    spread = f"median {np.median(values):8.3f} %, 90th percentile {np.percentile(values, 90):8.2f} %"
    worst = f"worst {values.max():9.2f} %, rms {np.sqrt(np.mean(values**2)):8.2f} %"
    print(f"  {what:<18s} {spread}, {worst} ({len(values)} rows, {failures} failures)")


def deviation(here: float, there: float) -> float:
    return abs(here - there) / there if there else float(here != 0)


def machines_of(names: list[str], units: int) -> list:
    found = []
    for name in names:
        machine = load_machine(name)
        if machine.kind != "gpu":
            continue
        small = replace(
            machine,
            name=f"{name} with {units} units",
            compute_units=units,
            l2_effective_bytes=int(machine.need("l2_effective_bytes") * units / machine.need("compute_units")),
        )
        found += [machine, small]
    return found


def compare(kernel, machine, truth: dict[str, float], errors: Errors, write) -> None:
    kinds = {"perflex": estimated} | ({"one wave": by_one_wave} if KNOWS_CACHES else {})
    for kind, estimate in kinds.items():
        try:
            found = estimate(kernel.scop(), machine)
        except (ZeroDivisionError, UnsupportedKernelError):
            found = {}
        for name in QUANTITIES:
            good = errors.setdefault((kind, name), [])
            if name not in found:
                good.append(None)
                continue
            good.append(deviation(found[name], truth[name]))
            write.writerow([machine.name, kernel.name, kind, name, found[name], truth[name]])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", nargs="*", default=list(machine_names()))
    parser.add_argument("--units", type=int, default=4)
    parser.add_argument("--only", default="", help="kernels whose name contains this")
    parser.add_argument("--truth", type=Path, help="JSON file of truths, written where it is not there")
    parser.add_argument("--out", type=Path, default=Path("uneven_grids.csv"))
    arguments = parser.parse_args()
    truths = json.loads(arguments.truth.read_text()) if arguments.truth and arguments.truth.exists() else {}
    read, known, errors = bool(truths), {}, {}
    chosen = [kernel for kernel in uneven_kernels() if arguments.only in kernel.name]
    with arguments.out.open("w", newline="") as file:
        write = csv.writer(file)
        write.writerow(["machine", "kernel", "estimate", "quantity", "value", "truth"])
        for kernel, machine in product(chosen, machines_of(arguments.machines, arguments.units)):
            key = f"{kernel.name} on {machine.name}"
            try:
                if not read:
                    truths[key] = truth_of(kernel, machine, known)
                if key in truths:
                    compare(kernel, machine, truths[key], errors, write)
            except MachineError as error:
                print(f"{key}: {error}")
    for (kind, name), found in errors.items():
        if name == QUANTITIES[0]:
            print(kind)
        report(name, [value for value in found if value is not None], found.count(None))
    if arguments.truth and not read:
        arguments.truth.write_text(json.dumps(truths))


if __name__ == "__main__":
    main()
