"""A benchmark of predictions for any kernel: families of kernels that no model was made for.

Families (`any_kernel_parts/family.py`) are tasks from public sources, each written in 6 to 12 ways at three sizes.
They are split by family: the half ``develop`` is for those who develop models, the half ``report`` is only looked at
for a report. Nothing here is tuned on either half. Use it so, on a machine that does nothing else:

    python tests/bench/any_kernel.py record --device intel_xeon --label intel --half develop --out intel.jsonl
    python tests/bench/any_kernel.py record --device intel_xeon --label intel --half develop --out intel-again.jsonl
    python tests/bench/any_kernel.py peaks --device intel_xeon --label intel --out intel-peaks.json
    perflex calibrate MODEL --device intel_xeon --out intel.yaml
    python tests/bench/any_kernel.py judge --half develop --times intel.jsonl --second intel-again.jsonl \\
        --peaks intel-peaks.json --calibration intel:MODEL=intel.yaml --out FOLDER

``record`` times each variant at each size as ``perflex calibrate`` times its kernels (in rounds, in a process of its
own, medians of undisturbed samples) and appends them to the file, a family at a time; a run that was ended early, by
``--limit`` or otherwise, goes on where it ended. Cases that fail are named at the end, and the exit code is then 1.
About 7 s per family and device on two cores.

``judge`` compares methods by those times, for each device: in which order the variants are enumerated, a roofline of
two measured peaks, each calibration, one timing of each variant at the smallest size scaled by work-items or by
counted operations, and a second measurement. What a method has seen of a variant before stands beside it: ``nothing``
(its counts), its compiled ``code``, a ``short launch``, or a ``timing``. Methods that saw the times of the smallest
size are judged by the larger sizes, and the others by these and by all. The measures are those of
`perflex.studies.accuracy`. ``--calibration LABEL:TITLE=FILE`` may be given often; ``--ways plain,probe`` asks each
calibration for predictions with a short launch, too (it then runs kernels on the device). It writes ``report.md``,
which has a table by family for each method, ``summary.csv``, ``families.csv`` and ``cases.csv``. How to judge other
methods is said in `any_kernel_parts/methods.py`.

``join FOLDER...`` makes one judgement of several: of some families each (``--families``), or of other methods.
``count`` says which variants perflex's counts, those of distinct bytes, or its features of CPU caches refuse. That all
variants compute what they should is tested in ``tests/models/test_any_kernel_families.py``.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

from any_kernel_parts.cases import times_of_half
from any_kernel_parts.countable import refusals
from any_kernel_parts.families import HALVES, families
from any_kernel_parts.joining import join
from any_kernel_parts.judging import judge, write
from any_kernel_parts.methods import WAYS, methods_for
from any_kernel_parts.peaks import measure_peaks, read_peaks, write_peaks
from any_kernel_parts.recording import record

from perflex import Calibration, find_device


def chosen(half: str, names: str | None):
    """Return the families of a half, or those of them that are named, separated by commas."""
    found = families(half)
    wanted = {family.name for family in found} if names is None else set(names.split(","))
    if unknown := wanted - {family.name for family in found}:
        sys.exit(f"no such family in the half {half}: {', '.join(sorted(unknown))}")
    return [family for family in found if family.name in wanted]


def run_record(arguments: argparse.Namespace) -> int:
    """Time what has no time yet."""
    which = chosen(arguments.half, arguments.families)
    label = arguments.label or arguments.device
    missing = record(which, find_device(arguments.device), label, arguments.out, arguments.limit)
    print("\n".join(missing) if missing else "all cases have a time")
    return int(bool(missing))


def run_peaks(arguments: argparse.Namespace) -> int:
    """Measure the peaks of a device."""
    peaks = measure_peaks(find_device(arguments.device))
    print(f"{peaks.operations_per_s / 1e9:.1f} G multiply-adds/s, {peaks.bytes_per_s / 1e9:.1f} GB/s")
    write_peaks(arguments.out, arguments.label or arguments.device, peaks)
    return 0


def run_count(arguments: argparse.Namespace) -> int:
    """Say what perflex refuses."""
    refused = refusals(chosen(arguments.half, arguments.families), arguments.machine)
    print("\n".join(refused) if refused else "all variants are countable")
    return int(bool(refused))


def run_judge(arguments: argparse.Namespace) -> int:
    """Judge methods, device by device."""
    calibrations: dict[str, dict[str, Calibration]] = {}
    for given in arguments.calibration:
        name, _, path = given.partition("=")
        label, _, title = name.partition(":")
        if not (label and title and path):
            sys.exit(f"--calibration is LABEL:TITLE=FILE, not {given}")
        calibrations.setdefault(label, {})[title] = Calibration.load(path)
    peaks = dict(read_peaks(path) for path in arguments.peaks)
    second = dict(times_of_half(path, arguments.half) for path in arguments.second)
    names = {family.name for family in chosen(arguments.half, arguments.families)}
    rows, points = [], []
    for path in arguments.times:
        label, known = times_of_half(path, arguments.half)
        times = {case: seconds for case, seconds in known.items() if case.family in names}
        if not times:
            sys.exit(f"{path} has no times of {', '.join(sorted(names))}")
        ways = arguments.ways.split(",")
        methods = methods_for(calibrations.get(label, {}), ways, peaks.get(label), second.get(label))
        found = judge(label, methods, times)
        rows, points = rows + found[0], points + found[1]
    write(arguments.out, arguments.half, rows, points)
    print(f"{arguments.out / 'report.md'} is written")
    return 0


def run_join(arguments: argparse.Namespace) -> int:
    """Make one judgement of several."""
    rows, points = [], []
    for label, (methods, times) in join(arguments.folders).items():
        found = judge(label, methods, times)
        rows, points = rows + found[0], points + found[1]
    write(arguments.out, arguments.half, rows, points)
    print(f"{arguments.out / 'report.md'} is written")
    return 0


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    half = argparse.ArgumentParser(add_help=False)
    half.add_argument("--half", choices=HALVES, required=True)
    some = argparse.ArgumentParser(add_help=False)
    some.add_argument("--families", help="names, separated by commas; all if not given")
    device = argparse.ArgumentParser(add_help=False)
    device.add_argument("--device", required=True)
    device.add_argument("--label", help="what files call the device; its name if not given")
    device.add_argument("--out", type=Path, required=True)

    recording = commands.add_parser("record", parents=[half, some, device])
    recording.add_argument("--limit", type=float, default=math.inf, help="seconds after which no family is begun")
    recording.set_defaults(run=run_record)
    commands.add_parser("peaks", parents=[device]).set_defaults(run=run_peaks)
    counting = commands.add_parser("count", parents=[half, some])
    counting.add_argument("--machine", default="Gold-6248", help="whose caches are asked for")
    counting.set_defaults(run=run_count)
    judging = commands.add_parser("judge", parents=[half, some])
    judging.add_argument("--times", type=Path, nargs="+", required=True, help="recorded files, one per device")
    judging.add_argument("--second", type=Path, nargs="*", default=[], help="files of a second measurement")
    judging.add_argument("--peaks", type=Path, nargs="*", default=[])
    judging.add_argument("--calibration", action="append", default=[], metavar="LABEL:TITLE=FILE")
    judging.add_argument("--ways", default="plain", help=f"of asking calibrations: {', '.join(WAYS)}")
    judging.add_argument("--out", type=Path, required=True)
    judging.set_defaults(run=run_judge)
    joining = commands.add_parser("join", parents=[half])
    joining.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    joining.add_argument("--out", type=Path, required=True)
    joining.set_defaults(run=run_join)
    arguments = parser.parse_args()
    sys.exit(arguments.run(arguments))


if __name__ == "__main__":
    main()
