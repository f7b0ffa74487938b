"""Ranking implementations of PIRK methods by the ECM model, without a fit (YaskSite, Sections VI and VII).

    python tests/bench/pirk_study.py MACHINE.yaml [--device NAME] [--sizes 64,96,128,160] [--out FOLDER]

MACHINE.yaml is what ``perflex machine detect`` writes. For each problem and grid size, variants are implementation A or
F with work-groups of one of several shapes; a time step is predicted as the sum of its launches (Equation 12, with the
time of an empty launch for the barriers), measured, and ranked. Prints the mean deviation and the performance loss of
the variant that is predicted to be fastest beside the paper's; writes a table and a picture. Run it on a machine that
does nothing else.
"""

from __future__ import annotations

import argparse
import csv
from itertools import product
from pathlib import Path

import numpy as np

from perflex import load_machine
from perflex._devices import find_device
from perflex._ecm import estimate_ecm
from perflex._ecm_model import compose, in_core_cycles, on_cores
from perflex._model import Model
from perflex._plot import COLOURS, new_figure
from perflex._timing import Timing, TimingOptions, measure
from perflex.features import extract_scop
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.pirk import PIRK_IMPLEMENTATIONS

PROBLEMS = {"Heat3D": ("heat3d", 1), "Wave3D r=2": ("wave3d", 2), "Wave3D r=4": ("wave3d", 4)}
SHAPES = ((32, 2), (32, 16))
KERNELS = sorted({name for launches in PIRK_IMPLEMENTATIONS.values() for name in launches})
# Mean deviation, largest and mean performance loss in percent (Table III).
PAPER = {
    "Heat3D": ((6.4, 9.8, 1.0), (9.9, 21.1, 3.6)),
    "Wave3D r=2": ((9.4, 9.8, 1.2), (10.0, 21.1, 4.4)),
    "Wave3D r=4": ((17.2, 5.8, 1.0), (16.3, 17.4, 2.2)),
}


def predicted(kernel, machine, cores: int) -> float:
    """Return the seconds of one launch: Equations 6 and 7 with volumes of the kernel's accesses."""
    scop = extract_scop(kernel.kernel)
    # The cores share one grid: what has to fit is the part of each.
    found = estimate_ecm(scop, kernel.sizes, machine, cores=cores, convention="paper")
    arithmetic = Model("f_cl_wall_time", in_core_cycles(machine, scop, sub_group_size=1))
    in_core = arithmetic.eval_with_kernel({}, scop, kernel.sizes, sub_group_size=1)
    times = {level.name.lower(): float(level.launch_cycles) for level in found.levels}
    memory = times.pop("memory")
    alone = memory + float(found.memory_penalty * found.iterations)
    single = compose(machine, float(in_core), times | {"mem": alone})
    return float(on_cores(machine, single, memory, cores)) / machine.need("clock_hz")


def jobs_of(sizes: list[int]) -> dict[tuple, object]:
    """Return the measurement kernel of each problem, kernel, shape and size."""
    collection = KernelCollection(ALL_GENERATORS)
    found = {}
    for (title, (problem, radius)), (x, y) in product(PROBLEMS.items(), SHAPES):
        for name, n in product(KERNELS, sizes):
            # Kernels without a stencil do not depend on the problem but for the width of halos.
            tags = [f"kernel:{name}", f"problem:{problem}", f"radius:{radius}", "dtype:float64", f"nx:{n}", f"ny:{n}"]
            tags += [f"nz:{n}", f"lsize_0:{x}", f"lsize_1:{y}", "groups_fit:True"]
            (found[title, name, (x, y), n],) = collection.generate_kernels(["pirk", *tags])
    return found


def main() -> None:
    """Predict, measure, rank."""
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", type=Path)
    parser.add_argument("--device", default=None)
    parser.add_argument("--sizes", default="64,96,128,160")
    parser.add_argument("--out", type=Path, default=Path("pirk-study"))
    arguments = parser.parse_args()
    device, machine = find_device(arguments.device), load_machine(arguments.machine)
    sizes = [int(word) for word in arguments.sizes.split(",")]
    kernels = jobs_of(sizes)
    (empty,) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:32", "lsize_1:2", "ngroups:16"])
    jobs = [(kernel.kernel, kernel.sizes, " ".join(map(str, key))) for key, kernel in kernels.items()]
    options = TimingOptions(trials=9, min_trials=4, budget_s=0.15, precision=0.02, statistic="minimum")
    *outcomes, launch = measure([*jobs, (empty.kernel, empty.sizes, "empty")], device, options)
    assert isinstance(launch, Timing)
    seconds = {key: o.seconds for key, o in zip(kernels, outcomes, strict=True) if isinstance(o, Timing)}
    expected = {key: predicted(kernels[key], machine, int(machine.need("cores"))) + launch.seconds for key in seconds}
    rows = []
    for title, n, shape, (name, launches) in product(PROBLEMS, sizes, SHAPES, PIRK_IMPLEMENTATIONS.items()):
        keys = {(title, kernel, shape, n): count for kernel, count in launches.items()}
        if keys.keys() <= seconds.keys():
            times = [sum(count * which[key] for key, count in keys.items()) for which in (expected, seconds)]
            rows.append((title, n, f"{name} {shape[0]}x{shape[1]}", *times))
    report(rows, f"{device}, {machine.cores} cores, launch {1e6 * launch.seconds:.1f} us")
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (arguments.out / "pirk_study.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["problem", "n", "variant", "predicted_s", "measured_s"])
        writer.writerows(rows)
    with (arguments.out / "pirk_kernels.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["problem", "kernel", "shape", "n", "predicted_s", "measured_s"])
        writer.writerows([*key, expected[key], seconds[key]] for key in seconds)
    draw(rows, arguments.out / "pirk_study.png")


def report(rows: list[tuple], where: str) -> None:
    """Print deviation and loss per problem, and the ranking per size."""
    print(where)
    for title in PROBLEMS:
        own = [row for row in rows if row[0] == title]
        deviations = [abs(row[3] / row[4] - 1) for row in own]
        losses = []
        for n in dict.fromkeys(row[1] for row in own):
            of_size = [row for row in own if row[1] == n]
            select, best = min(of_size, key=lambda row: row[3]), min(of_size, key=lambda row: row[4])
            losses.append(100 * (select[4] / best[4] - 1))
            print(f"  {title} n={n}: " + ", ".join(f"{v} {1e3 * p:.2f}/{1e3 * m:.2f} ms" for _, _, v, p, m in of_size))
            print(f"    selected {select[2]}, best {best[2]}, loss {losses[-1]:.1f} %")
        clx, rome = PAPER[title]
        print(
            f"{title}: mean deviation {100 * np.mean(deviations):.1f} % (paper: CLX {clx[0]}, ROME {rome[0]}); "
            f"performance loss largest {max(losses):.1f} % (CLX {clx[1]}, ROME {rome[1]}), "
            f"mean {np.mean(losses):.1f} % (CLX {clx[2]}, ROME {rome[2]})",
            flush=True,
        )


def draw(rows: list[tuple], path: Path) -> None:
    """Draw lattice updates per second, measured and predicted, over the grid size."""
    figure = new_figure(4.2 * len(PROBLEMS), 3.8)
    for axes, title in zip(figure.subplots(1, len(PROBLEMS), squeeze=False)[0], PROBLEMS, strict=True):
        for variant, colour in zip(dict.fromkeys(row[2] for row in rows), COLOURS, strict=False):
            own = [row for row in rows if row[0] == title and row[2] == variant]
            n = [row[1] for row in own]
            axes.plot(n, [row[1] ** 3 / row[4] / 1e6 for row in own], "o-", color=colour, label=f"{variant}, measured")
            axes.plot(n, [row[1] ** 3 / row[3] / 1e6 for row in own], "--", color=colour, label="predicted")
        axes.set_title(title, fontsize=9)
        axes.set_xlabel("points along each axis")
        axes.set_ylabel("million updates per second")
        axes.set_ylim(bottom=0)
        axes.grid(visible=True, linewidth=0.4, alpha=0.6)
        axes.legend(frameon=False, fontsize=7)
    figure.savefig(path)


if __name__ == "__main__":
    main()
