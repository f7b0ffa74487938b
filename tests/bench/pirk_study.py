"""Ranking implementations of PIRK methods by the ECM model, as it is and calibrated (YaskSite, Sections VI and VII).

    python tests/bench/pirk_study.py MACHINE.yaml [--device NAME] [--sizes 64,96,128,160] [--out FOLDER]

MACHINE.yaml is what ``perflex machine detect`` writes. For each problem and grid size, variants are implementation A or
F with work-groups of one of several shapes; a time step is predicted as the sum of its launches, measured, and ranked.
Predicted twice: without a fit (Equations 6, 7 and 12, with the time of an empty launch for the barriers), and by a
model that adds accesses, work-groups and the cache volumes of the same estimate, with costs fitted to the kernels on
grids of other sizes, none of them a cube. Prints the mean deviation and the performance loss of the variant that is
predicted to be fastest beside the paper's, whose model is not fitted; writes tables and a picture. Run it on a machine
that does nothing else.
"""

from __future__ import annotations

import argparse
import csv
import sys
from itertools import product
from pathlib import Path

import numpy as np

from perflex import (
    FeatureTable,
    Model,
    TimingOptions,
    estimate_ecm,
    find_device,
    fit_model,
    gather_feature_values,
    in_core_cycles,
    load_machine,
    scale_features_by_output,
)
from perflex.features import extract_scop
from perflex.pictures import COLOURS, new_figure
from uipick import ALL_GENERATORS, KernelCollection
from uipick.generators.pirk import PIRK_IMPLEMENTATIONS

sys.path.append(str(Path(__file__).parents[1]))

from support.ecm_composition import compose, on_cores

PROBLEMS = {"Heat3D": ("heat3d", 1), "Wave3D r=2": ("wave3d", 2), "Wave3D r=4": ("wave3d", 4)}
SHAPES = ((32, 2), (32, 16))
CALIBRATION_GRIDS = ((32, 32, 48), (128, 64, 80), (192, 128, 112))
MODEL = Model(
    "f_cl_wall_time",
    "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_item * f_thread_items"
    " + p_load * f_mem_access_global_float64_load + p_store * f_mem_access_global_float64_store"
    " + p_l2 * f_ecm_vol_l2 + p_l3 * f_ecm_vol_l3 + p_mem * f_ecm_vol_mem",
)
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


def kernels_of(grids: list[tuple[int, int, int]]) -> dict[tuple, object]:
    """Return the measurement kernel of each problem, kernel, shape and grid."""
    collection = KernelCollection(ALL_GENERATORS)
    found = {}
    for (title, (problem, radius)), (x, y) in product(PROBLEMS.items(), SHAPES):
        for name, grid in product(KERNELS, grids):
            # Kernels without a stencil do not depend on the problem but for the width of halos.
            tags = [f"kernel:{name}", f"problem:{problem}", f"radius:{radius}", "dtype:float64", f"nx:{grid[0]}"]
            tags += [f"ny:{grid[1]}", f"nz:{grid[2]}", f"lsize_0:{x}", f"lsize_1:{y}", "groups_fit:True"]
            (found[title, name, (x, y), grid],) = collection.generate_kernels(["pirk", *tags])
    return found


def measured(kernels: list, device, path: Path) -> FeatureTable:
    """Return features and times of all kernels."""
    timing = TimingOptions(trials=15, min_trials=5, budget_s=0.25, precision=0.02)
    features = MODEL.all_features()
    return gather_feature_values(features, kernels, device=device, machine=path, timing=timing, store="off")


def calibrated(table: FeatureTable, known: set[str]) -> dict[str, float]:
    """Return the predicted seconds of each kernel, from a fit to those that are known."""
    rows = np.array([label in known for label in table.kernels])
    labels = tuple(label for label in table.kernels if label in known)
    part = FeatureTable(table.output, table.features, labels, table.values[rows])
    fit = fit_model(MODEL, scale_features_by_output(part), nonnegative=True, on_undetermined="warn")
    print("  " + ", ".join(f"{name} {value:.3g}" for name, value in dict(fit).items()))
    columns = {feature: table.values[:, place] for place, feature in enumerate(table.features)}
    return dict(zip(table.kernels, np.asarray(MODEL.evaluate(fit, columns)).tolist(), strict=True))


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
    kernels = kernels_of([(n, n, n) for n in sizes])
    known = kernels_of(list(CALIBRATION_GRIDS))
    (empty,) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:32", "lsize_1:2", "ngroups:16"])
    table = measured([*kernels.values(), *known.values(), empty], device, arguments.machine)
    times = dict(zip(table.kernels, table.values[:, table.features.index(MODEL.output_feature)], strict=True))
    fitted = calibrated(table, {kernel.name for kernel in known.values()} | {empty.name})
    keys = {key: kernel for key, kernel in kernels.items() if kernel.name in times}
    cores, launch = int(machine.need("cores")), times[empty.name]
    plain = {key: predicted(kernel, machine, cores) + launch for key, kernel in keys.items()}
    arguments.out.mkdir(parents=True, exist_ok=True)
    where = f"{device}, {machine.cores} cores, launch {1e6 * launch:.1f} us"
    seconds = {key: times[kernel.name] for key, kernel in keys.items()}
    for title, expected in (("plain", plain), ("calibrated", {key: fitted[k.name] for key, k in keys.items()})):
        rows = steps(sizes, expected, seconds)
        report(rows, f"{title}: {where}")
        write(arguments.out / f"pirk_study_{title}.csv", ["problem", "n", "variant"], rows)
        own = [(*key[:2], "x".join(map(str, key[2])), key[3][0], expected[key], seconds[key]) for key in seconds]
        write(arguments.out / f"pirk_kernels_{title}.csv", ["problem", "kernel", "shape", "n"], own)
        draw(rows, arguments.out / f"pirk_study_{title}.png")


def steps(sizes: list[int], expected: dict[tuple, float], seconds: dict[tuple, float]) -> list[tuple]:
    """Return a row per time step of each variant all of whose kernels were measured."""
    rows = []
    for title, n, shape, (name, launches) in product(PROBLEMS, sizes, SHAPES, PIRK_IMPLEMENTATIONS.items()):
        keys = {(title, kernel, shape, (n, n, n)): count for kernel, count in launches.items()}
        if keys.keys() <= seconds.keys():
            sums = [sum(count * which[key] for key, count in keys.items()) for which in (expected, seconds)]
            rows.append((title, n, f"{name} {shape[0]}x{shape[1]}", *sums))
    return rows


def write(path: Path, names: list[str], rows: list[tuple]) -> None:
    """Write rows that end in a predicted and a measured time."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*names, "predicted_s", "measured_s"])
        writer.writerows(rows)


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
