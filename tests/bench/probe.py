"""How well probes tell a kernel's time, beside its counts, and what they cost on the device.

Run with the families of ``any_kernel_parts`` on a machine that does nothing else::

    python tests/bench/probe.py DEVICE --half report --out quiet.jsonl [--burner] [--calibration here.yaml]

A family's variants are timed as `any_kernel.py record` does, probed, and timed again. Cases both timings of which
differ by more than 8 % were not steady; they are left out and counted. With ``--burner`` another process takes half of
a processor while kernels are probed, and none while they are timed. Beside the probes stand the predictions of a
calibration (counts alone), if one is given. A results file that is there is gone on with; ``--show`` only reads it.

With ``--data DIR`` the kernels are the OpenCL C kernels of the suites of `source_suites.py`, all integers 512,
256 or 64 on one, two or three axes; those of PolyBench, which use no local memory, with three shapes of work-groups.
Beside them stands a roofline of two measured peaks.
"""

from __future__ import annotations

import argparse
import json
import math
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from any_kernel import OPTIONS, measured_peaks
from any_kernel_parts.families import families
from burner import burning
from judging import Method, judged
from source_suites import SIZES, SUITES, launch_of
from source_suites import jobs_of as jobs_of_suite

from perflex import Calibration, PerflexError, find_device, source_kernel
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.evaluation.baselines import distinct_bytes_of, work_of
from perflex.timing.measuring import measure
from perflex.timing.probe import Probe, probe_kernels
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Iterator

Row = dict[str, Any]
# Work-groups, and work-items along each axis of the grid, by the number of axes.
SHAPES = {1: ((256,), (64,), (32,)), 2: ((32, 8), (16, 16), (64, 1)), 3: ((8, 8, 4),)}
EXTENTS = {1: 512, 2: 256, 3: 64}
STEADY = 1.08
# Half a processor, in turns that are shorter than most samples and longer than what the system calls waking up.
BURNER = (0.005, 0.005)


def jobs_of(family: Any, every: int) -> list[tuple[str, int, SizedKernel]]:
    """Return variant, index of the size, and the kernel with sizes."""
    found = []
    for variant, make in list(family.variants.items())[::every]:
        kernel = make()
        found += [
            (variant, index, SizedKernel(kernel, sizes, f"{family.name} {variant} {index}"))
            for index, sizes in enumerate(family.sizes)
        ]
    return found


def source_cases(data: Path) -> Iterator[tuple[str, list[tuple[str, int, SizedKernel]]]]:
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
                        found.append((text, 0, SizedKernel(kernel, sizes, f"{job['name']} {text}")))
                except PerflexError as error:
                    print(error)
            if found:
                yield f"{suite}: {Path(job['path']).stem} {job['name']}", found


def record(arguments: argparse.Namespace) -> None:
    """Time and probe the families or kernels that the results file does not hold."""
    device = find_device(arguments.device)
    calibration = Calibration.load(arguments.calibration) if arguments.calibration else None
    known = {row["family"] for row in read(arguments.out)}
    own = ((family.name, jobs_of(family, arguments.every)) for family in families(arguments.half))
    peaks = measured_peaks(device) if arguments.data else None
    for name, cases in source_cases(arguments.data) if arguments.data else own:
        if name in known or (arguments.families and name not in arguments.families.split(",")):
            continue
        jobs = [job for *_, job in cases]
        before = measure(jobs, device, OPTIONS)
        with burning(*BURNER) if arguments.burner else nullcontext():
            probes = probe_kernels(jobs, device)
        after = measure(jobs, device, OPTIONS)
        with arguments.out.open("a", encoding="utf-8") as file:
            for (variant, index, job), one, probe, two in zip(cases, before, probes, after, strict=True):
                row = {"family": name, "variant": variant, "size": index, "roofline_s": math.nan}
                if peaks is not None:
                    work = work_of(job.kernel, job.sizes)
                    row["roofline_s"] = float(peaks.roofline(work, distinct_bytes_of(job.kernel, job.sizes)))
                file.write(json.dumps(row | compared(one, probe, two, job, calibration)) + "\n")
        print(f"{name}: {len(cases)} cases", flush=True)


def compared(one: Any, probe: Any, two: Any, job: SizedKernel, calibration: Calibration | None) -> Row:
    """Return what is known of a case; nan where it is not."""
    times = [each.seconds if isinstance(each, Timing) else math.nan for each in (one, two)]
    counts = math.nan
    if calibration is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                counts = float(calibration.predict(job.kernel, job.sizes))
            except PerflexError as error:
                print(error)
    row = {"before_s": times[0], "after_s": times[1], "counts_s": counts}
    if isinstance(probe, Probe):
        return row | {name: getattr(probe, name) for name in ("seconds", "deviation", "device_s")}
    return row | {"seconds": math.nan, "deviation": math.nan, "device_s": 0.0, "failure": probe.reason}


def read(path: Path) -> list[Row]:
    """Return the rows of a results file."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def show(rows: list[Row]) -> None:
    """Print the accuracy of probes and counts, and the device time."""
    measured = {(row["family"], row["size"], row["variant"]): (row["before_s"] + row["after_s"]) / 2 for row in rows}
    probes, counts, roofline = Method("probe", "timing"), Method("counts", "nothing"), Method("roofline", "nothing")
    for case, row in zip(measured, rows, strict=True):
        probes.seconds[case] = row["seconds"]
        spread = math.exp(1.96 * row["deviation"])
        probes.limits[case] = row["seconds"] / spread, row["seconds"] * spread
        if row["counts_s"] > 0:
            counts.seconds[case] = row["counts_s"]
        if row.get("roofline_s", 0) > 0:
            roofline.seconds[case] = row["roofline_s"]
    print(f"\n{judged([probes, counts, roofline], measured, lambda case: case[:2])}")
    shares = [row["device_s"] / seconds for row, seconds in zip(rows, measured.values(), strict=True)]
    print(f"device time {np.median(shares):.2f} launches (median), {sum(row['device_s'] for row in rows):.1f} s in all")


def main() -> None:
    """Record, and show the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("device")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--half", choices=("develop", "report"), default="develop")
    parser.add_argument("--families", help="names, separated by commas; all if not given")
    parser.add_argument("--every", type=int, default=1, help="take every so manyth variant")
    parser.add_argument("--data", type=Path, help="folder of the suites, instead of the families")
    parser.add_argument("--burner", action="store_true")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    if not arguments.show:
        record(arguments)
    every = read(arguments.out)
    steady = [
        row
        for row in every
        if max(row["before_s"], row["after_s"]) < STEADY * min(row["before_s"], row["after_s"]) and row["seconds"] > 0
    ]
    failed = sum(not row["seconds"] > 0 for row in every)
    print(f"{len(every) - len(steady) - failed} of {len(every)} cases were not steady, {failed} failed")
    if steady:
        show(steady)


if __name__ == "__main__":
    main()
