"""How well counts tell the time of OpenCL C kernels of public suites, beside a roofline and another timing.

Run on a machine that does nothing else::

    python tests/bench/source_times.py DEVICE --data DIR --calibration here.yaml --out FILE

The kernels are those of the suites of `source_suites.py`, all integers 512, 256 or 64 on one, two or three axes; those
of PolyBench, which use no local memory, with three shapes of work-groups. Each case is timed twice. Cases both timings
of which differ by more than 8 % were not steady; they are left out and counted. A results file that is there is gone on
with; ``--show`` only reads it.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from any_kernel import OPTIONS, measured_peaks
from judging import Method, judged
from source_suites import SIZES, SUITES, launch_of
from source_suites import jobs_of as jobs_of_suite

from perflex import Calibration, PerflexError, find_device, source_kernel
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.evaluation.baselines import distinct_bytes_of, work_of
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]
# Work-groups, and work-items along each axis of the grid, by the number of axes.
SHAPES = {1: ((256,), (64,), (32,)), 2: ((32, 8), (16, 16), (64, 1)), 3: ((8, 8, 4),)}
EXTENTS = {1: 512, 2: 256, 3: 64}
STEADY = 1.08


def cases_of(data: Path) -> Iterator[tuple[str, list[tuple[str, SizedKernel]]]]:
    """Yield the name of each kernel of the suites that is understood, with the shapes of its work-groups."""
    for suite in (name for name in SUITES if "OpenCL" in name or "S3D" in name):
        for job in jobs_of_suite(data, suite, ""):
            found, axes = [], job["axes"]
            for shape in SHAPES[axes] if "PolyBench" in suite else [launch_of(job, small=False)[0]]:
                text, extent = "x".join(map(str, shape)), EXTENTS[axes]
                kernel = source_kernel(
                    Path(job["path"]), job["name"], local=shape, global_size=[extent] * len(shape),
                    defines=job["defines"], folders=job["headers"],
                )  # fmt: skip
                try:
                    sizes = {name: SIZES.get(name, extent) for name in kernel.sizes}
                    if not {each.matter for each in kernel.unstated(sizes)} & {"trip count", "subscript"}:
                        found.append((text, SizedKernel(kernel, sizes, f"{job['name']} {text}")))
                except PerflexError as error:
                    print(error)
            if found:
                yield f"{suite}: {Path(job['path']).stem} {job['name']}", found


def record(arguments: argparse.Namespace) -> None:
    """Time and predict the kernels that the results file does not hold."""
    device = find_device(arguments.device)
    calibration, peaks = Calibration.load(arguments.calibration), measured_peaks(device)
    known = {row["family"] for row in read(arguments.out)}
    for name, cases in cases_of(arguments.data):
        if name in known:
            continue
        before, after = (measure([job for _, job in cases], device, OPTIONS) for _ in range(2))
        with arguments.out.open("a", encoding="utf-8") as file:
            for (variant, job), *timings in zip(cases, before, after, strict=True):
                row: Row = {"family": name, "variant": variant, "counts_s": predicted(job, calibration)}
                row["before_s"], row["after_s"] = (
                    each.seconds if isinstance(each, Timing) else math.nan for each in timings
                )
                work = work_of(job.kernel, job.sizes)
                row["roofline_s"] = float(peaks.roofline(work, distinct_bytes_of(job.kernel, job.sizes)))
                file.write(json.dumps(row) + "\n")
        print(f"{name}: {len(cases)} cases", flush=True)


def predicted(job: SizedKernel, calibration: Calibration) -> float:
    """Return what counts say of a case in seconds; nan where they say nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(calibration.predict(job.kernel, job.sizes))
        except PerflexError as error:
            print(error)
            return math.nan


def read(path: Path) -> list[Row]:
    """Return the rows of a results file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(rows: list[Row]) -> None:
    """Print the accuracy of counts, a roofline and the first timing, judged by the second."""
    measured = {(row["family"], row["variant"]): row["after_s"] for row in rows}
    methods = [Method("counts", "nothing"), Method("roofline", "nothing"), Method("timed", "timing")]
    for case, row in zip(measured, rows, strict=True):
        for method, column in zip(methods, ("counts_s", "roofline_s", "before_s"), strict=True):
            if row[column] > 0:
                method.seconds[case] = row[column]
    print(f"\n{judged(methods, measured, lambda case: case[:1])}")


def main() -> None:
    """Record, and show the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True, help="folder of the suites")
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    if not arguments.show:
        record(arguments)
    every = read(arguments.out)
    timed = [row for row in every if row["before_s"] > 0 and row["after_s"] > 0]
    steady = [row for row in timed if 1 / STEADY < row["before_s"] / row["after_s"] < STEADY]
    print(f"{len(timed) - len(steady)} of {len(every)} cases were not steady, {len(every) - len(timed)} failed")
    if steady:
        show(steady)


if __name__ == "__main__":
    main()
