"""A benchmark of predictions for any kernel: families of kernels that no model was made for.

Families (`any_kernel_parts/families.py`) are tasks from public sources, each written in 6 to 12 ways at three sizes.
They are looked at for a report alone: nothing here is tuned on them. Use them on a machine that does nothing else::

    perflex calibrate general --device intel --out intel.yaml
    python tests/bench/any_kernel.py record --device intel --out intel.jsonl
    python tests/bench/any_kernel.py judge --times intel.jsonl --calibration general=intel.yaml --out DIR

``record`` times each variant at each size by the rules of `perflex calibrate`, and the two peaks of a roofline, and
appends them to the file, a family at a time; a run that was ended early goes on where it ended. Cases that fail are
named at the end, and the exit code is then 1. About 7 s per family on two cores.

``judge`` compares, by those times: the roofline, each calibration, one timing of each variant at the smallest size
scaled by its operations, and a second recording (``--second``). It writes ``report.md`` and ``cases.csv``. Methods that
saw the times of the smallest size are judged by the larger sizes. That all variants compute what they should is tested
in ``tests/models/test_any_kernel_families.py``.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from any_kernel_parts.families import families
from judging import OPTIONS, Method, by_part, judged, measured_peaks, predicted, record, recorded, write_cases

from perflex import Calibration, find_device, using_machine
from perflex.features.sized_kernel import SizedKernel
from perflex.studies.evaluation.baselines import Peaks, distinct_bytes_of, scaled, work_of
from perflex.timing.measuring import measure
from perflex.timing.results import Timing

if TYPE_CHECKING:
    from collections.abc import Mapping


class Case(NamedTuple):
    """A variant of a family at one of its three sizes."""

    family: str
    variant: str
    size: int


@cache
def made(family: str, variant: str) -> Any:
    return families()[family].variants[variant]()


def kernel_and_sizes(case: Case) -> tuple[Any, Mapping[str, int]]:
    return made(case.family, case.variant), families()[case.family].sizes[case.size]


def group(case: Case) -> tuple[str, int]:
    """Return what somebody chooses among: the variants of one family at one size."""
    return case.family, case.size


def run_record(arguments: argparse.Namespace) -> int:
    device = find_device(arguments.device)
    peaks, known = read(arguments.out)
    if peaks is None:
        record(arguments.out, [{"peaks": vars(measured_peaks(device))}])
    begun, missing = time.perf_counter(), []
    for family in chosen(arguments):
        every = [Case(family, variant, size) for variant in families()[family].variants for size in range(3)]
        cases = [case for case in every if case not in known]
        jobs = [SizedKernel(*kernel_and_sizes(case), str(case), family) for case in cases]
        outcomes = dict(zip(cases, measure(jobs, device, OPTIONS), strict=True))
        missing += [f"{case}: {each.reason}" for case, each in outcomes.items() if not isinstance(each, Timing)]
        record(
            arguments.out,
            (
                case._asdict() | {"sizes": dict(kernel_and_sizes(case)[1]), "seconds": timing.seconds}
                for case, timing in outcomes.items()
                if isinstance(timing, Timing)
            ),
        )
        print(f"{family}: {len(cases)} cases, {time.perf_counter() - begun:.0f} s", flush=True)
    print("\n".join(missing) if missing else "all cases have a time")
    return int(bool(missing))


def read(path: Path) -> tuple[Peaks | None, dict[Case, float]]:
    """Return a recording's peaks and times; the program ends if a family has changed since."""
    rows = recorded(path)
    times = {Case(row["family"], row["variant"], row["size"]): row for row in rows if "family" in row}
    for case, row in times.items():
        family = families().get(case.family)
        if family is None or case.variant not in family.variants or family.sizes[case.size] != row["sizes"]:
            sys.exit(f"{path}: {case} was recorded before its family changed; record it again")
    peaks = next((Peaks(**row["peaks"]) for row in rows if "peaks" in row), None)
    return peaks, {case: row["seconds"] for case, row in times.items()}


def chosen(arguments: argparse.Namespace) -> list[str]:
    names = list(families()) if arguments.families is None else arguments.families.split(",")
    if unknown := set(names) - set(families()):
        sys.exit(f"no family is called {', '.join(sorted(unknown))}; there are {', '.join(families())}")
    return names


def methods_for(peaks: Peaks | None, times: Mapping[Case, float], calibrations: Mapping[str, Path]) -> list[Method]:
    cases, found = sorted(times), []
    work = cache(lambda case: work_of(*kernel_and_sizes(case)))
    if peaks is not None:

        def roofline(case: Case) -> float:
            return float(peaks.roofline(work(case), distinct_bytes_of(*kernel_and_sizes(case))))

        found.append(predicted("roofline", "nothing", cases, roofline))
    for name, path in calibrations.items():
        calibration = Calibration.load(path)
        knowledge = "code" if any("f_code_" in each for each in calibration.model.input_features()) else "nothing"
        found.append(
            predicted(name, knowledge, cases, lambda c, own=calibration: own.predict_interval(*kernel_and_sizes(c)))
        )

    def by_smallest(case: Case) -> float:
        smallest = case._replace(size=0)
        return scaled(times[smallest], work(smallest), work(case), "operations")

    larger = [case for case in cases if case.size and case._replace(size=0) in times]
    return [*found, predicted("smallest size, scaled", "timing", larger, by_smallest)]


def run_judge(arguments: argparse.Namespace) -> int:
    peaks, times = read(arguments.times)
    names = set(chosen(arguments))
    times = {case: seconds for case, seconds in times.items() if case.family in names}
    with using_machine(arguments.machine):
        methods = methods_for(peaks, times, dict(each.split("=", 1) for each in arguments.calibration))
    if arguments.second is not None:
        methods.append(Method("a second measurement", "timing", read(arguments.second)[1]))
    larger = {case: seconds for case, seconds in times.items() if case.size}
    text = f"# Any kernel: {arguments.times.name}\n"
    for title, part in (("All sizes", times), ("Larger sizes", larger)):
        text += f"\n## {title}\n\n{judged(methods, part, group)}"
    print(text)
    text += "\n## By family\n\nFactor; error median, maximum; pairs right; mean loss\n\n"
    text += by_part(methods, times, lambda case: case.family, group)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "report.md").write_text(text, encoding="utf-8")
    write_cases(arguments.out / "cases.csv", methods, times)
    return 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--families", help="names, separated by commas; all if not given")
    shared.add_argument("--out", type=Path, required=True)
    recording = commands.add_parser("record", parents=[shared])
    recording.add_argument("--device", required=True)
    recording.set_defaults(run=run_record)
    judging = commands.add_parser("judge", parents=[shared])
    judging.add_argument("--times", type=Path, required=True)
    judging.add_argument("--second", type=Path)
    judging.add_argument("--calibration", action="append", default=[], metavar="TITLE=FILE")
    judging.add_argument("--machine", help="facts for features that need a machine, if not the calibration's own")
    judging.set_defaults(run=run_judge)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


if __name__ == "__main__":
    main()
