"""A benchmark of predictions for any kernel: families of kernels that no model was made for.

Families (`any_kernel_parts/families.py`) are tasks from public sources, each written in 6 to 12 ways at three sizes.
They are split by family: the half ``develop`` is for those who develop models, the half ``report`` is only looked at
for a report. Nothing here is tuned on either half. Use it so, on a machine that does nothing else::

    perflex calibrate general --device intel --out intel.yaml
    python tests/bench/any_kernel.py record --device intel --half report --out intel.jsonl
    python tests/bench/any_kernel.py judge --half report --times intel.jsonl --calibration general=intel.yaml --out DIR

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
import json
import math
import sys
import time
import warnings
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from any_kernel_parts.families import HALVES, families
from judging import Method, by_part, judged, write_cases

from perflex import Calibration, PerflexError, TimingOptions, find_device
from perflex.features.sized_kernel import SizedKernel, sized_kernels
from perflex.studies.evaluation.baselines import Peaks, copy_bandwidth, copy_kernel, distinct_bytes_of, scaled, work_of
from perflex.timing.measuring import measure
from perflex.timing.results import Timing
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from collections.abc import Callable

# Enough samples for a median known to a few percent, and little time for slow variants.
OPTIONS = TimingOptions(trials=41, min_trials=8, precision=0.015, budget_s=0.4, limit_s=10)
_MADD_TAGS = "flops_madd_pattern dtype:float32 lsize_0:64 lsize_1:1 groups_fit:True nelements:131072 m:64"


class Case(NamedTuple):
    """A variant of a family at one of its three sizes."""

    family: str
    variant: str
    size: int


@cache
def made(family: str, variant: str) -> Any:
    """Return a variant's kernel, made once."""
    return by_name()[family].variants[variant]()


@cache
def by_name() -> dict[str, Any]:
    """Return all families."""
    return {family.name: family for half in HALVES for family in families(half)}


def kernel_and_sizes(case: Case) -> tuple[Any, Any]:
    """Return the kernel of a case and its sizes."""
    return made(case.family, case.variant), by_name()[case.family].sizes[case.size]


def group(case: Case) -> tuple[str, int]:
    """Return what somebody chooses among: the variants of one family at one size."""
    return case.family, case.size


def measured_peaks(device: Any) -> Peaks:
    """Return a device's rates of multiply-adds and of copied bytes, from two measurement kernels."""
    kernels = [*KernelCollection(ALL_GENERATORS).generate_kernels(_MADD_TAGS.split()), copy_kernel()]
    arithmetic, copy = measure(sized_kernels(kernels), device)
    for outcome in (arithmetic, copy):
        if not isinstance(outcome, Timing):
            raise outcome.error
    return Peaks(work_of(kernels[0], kernels[0].sizes).operations / arithmetic.seconds, copy_bandwidth(copy.seconds))


def record(arguments: argparse.Namespace) -> int:
    """Time what the file does not hold."""
    device = find_device(arguments.device)
    peaks, known, _ = read(arguments.out)
    begun, missing = time.perf_counter(), []
    with arguments.out.open("a", encoding="utf-8") as stream:
        if peaks is None:
            stream.write(json.dumps({"peaks": vars(measured_peaks(device))}) + "\n")
        for family in chosen(arguments):
            cases = [Case(family.name, v, n) for v in family.variants for n in range(3)]
            cases = [case for case in cases if case not in known]
            jobs = [SizedKernel(*kernel_and_sizes(case), str(case), family.name) for case in cases]
            for case, outcome in zip(cases, measure(jobs, device, OPTIONS), strict=True):
                if isinstance(outcome, Timing):
                    row = {"sizes": dict(family.sizes[case.size]), "seconds": outcome.seconds}
                    stream.write(json.dumps(case._asdict() | row) + "\n")
                else:
                    missing.append(f"{case}: {outcome.reason}")
            stream.flush()
            print(f"{family.name}: {len(cases)} cases, {time.perf_counter() - begun:.0f} s", flush=True)
    print("\n".join(missing) if missing else "all cases have a time")
    return int(bool(missing))


def read(path: Path) -> tuple[Peaks | None, dict[Case, float], list[str]]:
    """Return a recording's peaks and times, and what is wrong with it."""
    peaks, times, wrong = None, {}, []
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        row = json.loads(line)
        if "peaks" in row:
            peaks = Peaks(**row["peaks"])
            continue
        case = Case(row["family"], row["variant"], row["size"])
        times[case] = row["seconds"]
        family = by_name().get(case.family)
        if family is None or case.variant not in family.variants or dict(family.sizes[case.size]) != row["sizes"]:
            wrong.append(f"{path}: {case} was recorded before its family changed; record it again")
    return peaks, times, wrong


def chosen(arguments: argparse.Namespace) -> list[Any]:
    """Return the families of a half, or those of them that are named."""
    found = families(arguments.half)
    wanted = {family.name for family in found} if arguments.families is None else set(arguments.families.split(","))
    if unknown := wanted - {family.name for family in found}:
        sys.exit(f"no such family in the half {arguments.half}: {', '.join(sorted(unknown))}")
    return [family for family in found if family.name in wanted]


def predicted(name: str, knowledge: str, cases: list[Case], predict: Callable[[Case], Any]) -> Method:
    """Return a method's predictions; those that perflex refuses are kept with the reason."""
    method = Method(name, knowledge)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for case in cases:
            try:
                value = predict(case)
            except PerflexError as error:
                method.refused[case] = f"{type(error).__name__}: {error}".splitlines()[0][:160]
                continue
            if not isinstance(value, float):
                method.limits[case] = value.low, value.high
                value = float(value.predicted)
            method.seconds[case] = value
    print(f"{name}: {len(method.seconds)} cases", flush=True)
    return method


def methods_for(peaks: Peaks | None, times: dict[Case, float], calibrations: dict[str, Calibration]) -> list[Method]:
    """Return all methods with their predictions."""
    cases = sorted(times)

    @cache
    def work(case: Case) -> Any:
        return work_of(*kernel_and_sizes(case))

    def by_smallest(case: Case) -> float:
        smallest = case._replace(size=0)
        return scaled(times[smallest], work(smallest), work(case), "operations") if smallest in times else math.nan

    found = []
    if peaks is not None:
        bytes_of = cache(lambda case: distinct_bytes_of(*kernel_and_sizes(case)))
        found.append(predicted("roofline", "nothing", cases, lambda c: float(peaks.roofline(work(c), bytes_of(c)))))
    for name, calibration in calibrations.items():
        knowledge = "code" if any("f_code_" in each for each in calibration.model.input_features()) else "nothing"
        found.append(
            predicted(name, knowledge, cases, lambda c, own=calibration: own.predict_interval(*kernel_and_sizes(c)))
        )
    larger = [case for case in cases if case.size and case._replace(size=0) in times]
    found.append(predicted("smallest size, scaled", "timing", larger, by_smallest))
    return found


def judge(arguments: argparse.Namespace) -> int:
    """Judge methods by a device's times."""
    peaks, times, wrong = read(arguments.times)
    if wrong:
        sys.exit("\n".join(wrong))
    names = {family.name for family in chosen(arguments)}
    times = {case: seconds for case, seconds in times.items() if case.family in names}
    given = dict(each.split("=", 1) for each in arguments.calibration)
    methods = methods_for(peaks, times, {name: Calibration.load(path) for name, path in given.items()})
    if arguments.second is not None:
        methods.append(Method("a second measurement", "timing", read(arguments.second)[1]))
    arguments.out.mkdir(parents=True, exist_ok=True)
    larger = {case: seconds for case, seconds in times.items() if case.size}
    text = f"# Any kernel: families of the half `{arguments.half}`, {arguments.times.name}\n"
    for title, part in (("all sizes", times), ("larger sizes", larger)):
        text += f"\n## {title.capitalize()}\n\n{judged(methods, part, group)}"
    text += "\n## By family\n\nFactor; error median, maximum; pairs right; mean loss\n\n"
    text += by_part(methods, times, lambda case: case.family, group)
    (arguments.out / "report.md").write_text(text, encoding="utf-8")
    write_cases(arguments.out / "cases.csv", methods, times)
    print(text[: text.index("\n## By family")])
    return 0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument("--half", choices=HALVES, required=True)
    shared.add_argument("--families", help="names, separated by commas; all if not given")
    shared.add_argument("--out", type=Path, required=True)
    recording = commands.add_parser("record", parents=[shared])
    recording.add_argument("--device", required=True)
    recording.set_defaults(run=record)
    judging = commands.add_parser("judge", parents=[shared])
    judging.add_argument("--times", type=Path, required=True)
    judging.add_argument("--second", type=Path)
    judging.add_argument("--calibration", action="append", default=[], metavar="TITLE=FILE")
    judging.set_defaults(run=judge)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


if __name__ == "__main__":
    main()
