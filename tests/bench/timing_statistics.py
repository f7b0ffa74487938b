"""Which statistic of a kernel's timings repeats best, quiet and beside other work: two steps.

    python tests/bench/timing_statistics.py record DEVICE --out FILE [--seconds N] [--kernels K] [--seed S]
    python tests/bench/timing_statistics.py report FILE... [--json]

``record`` times kernels in four conditions: quiet, beside a process that burns a processor for 50 ms and sleeps for
50 ms, quiet again, and beside one with 500 and 500 ms. It keeps every sample with what the operating system reported
of it. ``report`` prints by how much each statistic differs between two sets of samples of the same kernel, from all
samples and from the undisturbed ones (`perflex.timing.disturbance`). Run ``record`` on a machine that does nothing
else.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import math
import sys
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from burner import burning
from candidate_statistics import CANDIDATES, samples_needed

from perflex import TimingOptions, find_device
from perflex.calibration.device_speed import REFERENCE_RATE, multiply_add_rate
from perflex.features.sized_kernel import SizedKernel
from perflex.models import load_model
from perflex.models.kernel_sets import measurement_kernels
from perflex.store.records import Failure, MeasurementKey, Sample, SystemActivity
from perflex.studies.evaluation.studies import STUDIES
from perflex.text_table import table_lines
from perflex.timing.disturbance import disturbed, used_samples
from perflex.timing.measuring import measure
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from perflex.timing.launch.backend import TimedDevice
    from uipick import MeasurementKernel

# Time on and off of the process that disturbs, in seconds; None for a quiet condition.
CONDITIONS: dict[str, tuple[float, float] | None] = {
    "quiet 1": None,
    "burner 50 ms": (0.05, 0.05),
    "quiet 2": None,
    "burner 500 ms": (0.5, 0.5),
}
QUIET, BURNERS = ("quiet 1", "quiet 2"), ("burner 50 ms", "burner 500 ms")
# From where on, and each how many-th kernel of a model is taken. The thresholds of `perflex.timing.disturbance` were
# chosen with those of OTHERS and with the studies' variants at smaller sizes, which do not take part.
CHOSEN = {
    "matmul_sq": (1, 6),
    "dg_overlap": (4, 6),
    "fdiff_overlap": (3, 6),
    "dg_incore": (1, 5),
    "fdiff_incore": (2, 5),
}
OTHERS = {"matmul_sq": (0, 2), "dg_linear": (0, 6), "fdiff_linear": (0, 6)}
LONGEST_S = 0.1
TRIALS, FEWEST = 40, 20
SHORT_S = 2e-4
RESAMPLES = 1000


class Collector:
    """Keeps samples in memory under the kernels' labels; knows nothing of earlier ones."""

    def __init__(self) -> None:
        self.samples: defaultdict[str, list[Sample]] = defaultdict(list)

    def earlier(self, _key: MeasurementKey) -> tuple[Sample, ...]:
        return ()

    def failure(self, _key: MeasurementKey) -> Failure | None:
        return None

    def add(self, _key: MeasurementKey, sample: Sample, label: str = "") -> None:
        self.samples[label].append(sample)

    def fail(self, _key: MeasurementKey, failure: Failure, label: str = "") -> None:
        print(f"left out: {label}: {failure.message[:150]}", file=sys.stderr)


def candidates_for(scale: float) -> list[SizedKernel]:
    """Return measurement kernels of several models, and the studies' variants, for a device of a relative speed."""

    def of_models(parts: Mapping[str, tuple[int, int]]) -> list[MeasurementKernel]:
        found = []
        for model, (first, step) in parts.items():
            unique = {kernel.name: kernel for kernel in measurement_kernels(load_model(model), scale)}
            found += list(unique.values())[first::step]
        return found

    others = {kernel.name for kernel in of_models(OTHERS)}
    kernels = [kernel for kernel in of_models(CHOSEN) if kernel.name not in others]
    kernels += [
        study.kernel(variant, study.trial_sizes_for(scale)[1])
        for study in STUDIES.values()
        for variant in study.variants
    ]
    unique = {kernel.name: kernel for kernel in kernels}
    return [SizedKernel(kernel.kernel, kernel.sizes, kernel.name) for kernel in unique.values()]


def chosen_kernels(device: TimedDevice, count: int) -> list[tuple[SizedKernel, float]]:
    """Return kernels that spread evenly over the logarithm of their times, and their times in seconds."""
    candidates = candidates_for(multiply_add_rate(device) / REFERENCE_RATE)
    once = measure(candidates, device, TimingOptions(trials=2, min_trials=1, warmups=0, precision=0, budget_s=0.2))
    times = {timing.label: min(timing.samples) for timing in once.timings}
    fit = [(job, times[job.label]) for job in candidates if times.get(job.label, np.inf) <= LONGEST_S]
    fit.sort(key=lambda pair: pair[1])
    # Each time, of the two neighbours that are closest to each other, the shorter one is left out.
    while len(fit) > count:
        gaps = np.diff(np.log([seconds for _, seconds in fit]))
        fit.pop(int(np.argmin(gaps)))
    return fit


def budget_for(times: Sequence[float], seconds: float) -> float:
    """Return the device time for each kernel with which all together take so many seconds, warm-ups included."""
    wanted = 2 * TRIALS * np.array(times)
    low, high = 0.0, float(wanted.max())
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if np.minimum(wanted, middle).sum() < seconds else (low, middle)
    return high


def record(name: str, out: Path, seconds: float, count: int, seed: int) -> None:
    """Time kernels in all conditions and write their samples."""
    device = find_device(name)
    chosen = chosen_kernels(device, count)
    budget = budget_for([time for _, time in chosen], seconds)
    print(f"{len(chosen)} kernels of {chosen[0][1]:.2g} to {chosen[-1][1]:.2g} s on {device}; {budget:.2f} s for each")
    with out.open("w", encoding="utf-8") as stream:
        head = {"device": str(device), "driver": device.driver, "perflex": __version__, "seed": seed}
        print(json.dumps(head), file=stream)
        for number, (condition, burner) in enumerate(CONDITIONS.items()):
            collector = Collector()
            options = TimingOptions(
                trials=TRIALS, min_trials=min(FEWEST, TRIALS), precision=0, budget_s=budget, seed=seed + number
            )
            with burning(*burner) if burner else contextlib.nullcontext():
                measure([job for job, _ in chosen], device, options, recorder=collector)
            for label, samples in collector.samples.items():
                for sample in samples:
                    row = {"condition": condition, "kernel": label, **dataclasses.asdict(sample)}
                    print(json.dumps(row), file=stream)
            stream.flush()
            print(f"{condition}: {sum(map(len, collector.samples.values()))} samples", flush=True)


@dataclasses.dataclass(frozen=True)
class Recording:
    """The samples of one file: of each condition, those of each kernel in the order taken."""

    device: str
    samples: dict[str, dict[str, list[Sample]]]

    def kernels(self) -> list[str]:
        """Return the kernels with samples enough in every condition."""
        return [
            name
            for name in self.samples[QUIET[0]]
            if all(len(self.samples[each].get(name, ())) >= FEWEST for each in CONDITIONS)
        ]


def read_recording(path: Path) -> Recording:
    """Read what `record` wrote."""
    head, *rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    samples: dict[str, dict[str, list[Sample]]] = {condition: defaultdict(list) for condition in CONDITIONS}
    for row in rows:
        condition, kernel, activity = row.pop("condition"), row.pop("kernel"), row.pop("activity")
        known = None if activity is None else SystemActivity(**activity)
        samples[condition][kernel].append(Sample(**row, activity=known))
    return Recording(head["device"], samples)


def seconds_of(samples: Sequence[Sample], *, undisturbed: bool) -> NDArray[np.float64]:
    """Return the samples' times, all or those that timing would use."""
    # Without other kernels in view, processors that all samples lacked cannot be told.
    used = used_samples(samples, math.nan)[0] if undisturbed else samples
    return np.array([sample.seconds for sample in used])


def _rounds(rest: int) -> Callable[[list[Sample]], list[Sample]]:
    return lambda samples: [sample for sample in samples if sample.round % 2 == rest]


_TENS = (lambda samples: samples[:10], lambda samples: samples[10:20])
_HALVES = (_rounds(0), _rounds(1))
# What is compared: pairs of conditions and of parts of their samples; those of one comparison count alike.
COMPARISONS: dict[str, list[tuple[str, str, Any, Any]]] = {
    "quiet, again": [(*QUIET, list, list)],
    "10/10 quiet": [(each, each, *_TENS) for each in QUIET],
    "10/10 disturbed": [(each, each, *_TENS) for each in BURNERS],
    "halves quiet": [(each, each, *_HALVES) for each in QUIET],
    "halves disturbed": [(each, each, *_HALVES) for each in BURNERS],
    "quiet, 50 ms": [(QUIET[0], BURNERS[0], list, list)],
    "quiet, 500 ms": [(QUIET[1], BURNERS[1], list, list)],
}


def differences(recording: Recording, candidate: str, *, undisturbed: bool) -> dict[str, NDArray[np.float64]]:
    """Return by how much a statistic differs between two sets of samples.

    Returns
    -------
    dict
        For each of `COMPARISONS` the logarithm of the ratio without its sign, shape ``(kernels, pairs)``.
    """
    statistic = CANDIDATES[candidate]

    def logarithm(condition: str, kernel: str, part: Callable[[list[Sample]], list[Sample]]) -> float:
        return float(np.log(statistic(seconds_of(part(recording.samples[condition][kernel]), undisturbed=undisturbed))))

    return {
        name: np.array(
            [
                [abs(logarithm(first, kernel, a) - logarithm(second, kernel, b)) for first, second, a, b in pairs]
                for kernel in recording.kernels()
            ]
        )
        for name, pairs in COMPARISONS.items()
    }


def worst(found: Mapping[str, NDArray[np.float64]], kernels: NDArray[np.intp] | slice, quantile: float) -> float:
    """Return the largest over the comparisons of a quantile over kernels."""
    return max(float(np.quantile(values[kernels], quantile)) for values in found.values())


def best_of(
    found: Mapping[str, Sequence[Mapping[str, NDArray[np.float64]]]], chosen: Sequence[NDArray[np.intp] | slice]
) -> str:
    """Return the best candidate by the criterion that `CRITERION` states.

    Parameters
    ----------
    found
        For each candidate the `differences` of each recording.
    chosen
        Which kernels of each recording count.
    """

    def score(name: str, quantile: float) -> float:
        return max(worst(each, kernels, quantile) for each, kernels in zip(found[name], chosen, strict=True))

    scores = {name: score(name, 0.9) for name in found}
    equal = [name for name in scores if scores[name] <= 1.1 * min(scores.values())]
    return min(equal, key=lambda name: score(name, 0.5))


CRITERION = (
    "Criterion: the largest over the comparisons of the 90th percentile over kernels; of those within a tenth of the "
    "least, the one with the least median."
)


def shares_of_wins(found: Mapping[str, Sequence[Mapping[str, NDArray[np.float64]]]]) -> dict[str, float]:
    """Return in which share of resamples of the kernels each candidate is the best: how sure the choice is."""
    random = np.random.default_rng(0)
    counts = [len(next(iter(each.values()))) for each in next(iter(found.values()))]
    wins = [best_of(found, [random.integers(0, n, n) for n in counts]) for _ in range(RESAMPLES)]
    return {name: wins.count(name) / RESAMPLES for name in found}


def report(recordings: Sequence[Recording]) -> dict[str, Any]:
    """Return everything that is printed, as plain data: fractions, not percentages."""
    result: dict[str, Any] = {"criterion": CRITERION, "devices": [], "samples_needed": samples_needed()}
    sets: dict[str, dict[str, list[dict[str, NDArray[np.float64]]]]] = {"all": {}, "undisturbed": {}}
    for rule, found in sets.items():
        for name in CANDIDATES:
            found[name] = [differences(each, name, undisturbed=rule == "undisturbed") for each in recordings]
    for number, recording in enumerate(recordings):
        quiet = recording.samples[QUIET[0]]
        times = np.array([np.median([s.seconds for s in quiet[name]]) for name in recording.kernels()])
        groups = {"all kernels": times > 0, "below 0.2 ms": times < SHORT_S, "from 0.2 ms on": times >= SHORT_S}
        result["devices"].append({"device": recording.device, "groups": {}})
        for group, kernels in groups.items():
            if kernels.any():
                result["devices"][-1]["groups"][group] = {
                    "kernels": int(kernels.sum()),
                    "seconds": [float(times[kernels].min()), float(times[kernels].max())],
                    "retaken": {name: _retaken(recording, kernels, name) for name in CANDIDATES},
                    "disturbed": _disturbed_shares(recording, kernels),
                    **{rule: _cells(found, number, kernels) for rule, found in sets.items()},
                }
    result["best"] = {
        rule: {"name": best_of(found, [slice(None)] * len(recordings)), "wins": shares_of_wins(found)}
        for rule, found in sets.items()
    }
    return result


def _cells(found: Mapping[str, Any], number: int, kernels: NDArray[np.bool_]) -> dict[str, dict[str, list[float]]]:
    """Return median, 90th percentile and maximum over kernels, of each candidate and comparison."""
    return {
        name: {
            comparison: [float(value) for value in np.quantile(values[kernels], (0.5, 0.9, 1))]
            for comparison, values in devices[number].items()
        }
        for name, devices in found.items()
    }


def _retaken(recording: Recording, kernels: NDArray[np.bool_], candidate: str) -> dict[str, Any]:
    """Compare ten undisturbed samples with the next ten beside burners, as where disturbed ones are taken again."""
    statistic = CANDIDATES[candidate]
    found = []
    for name in np.array(recording.kernels())[kernels]:
        for condition in BURNERS:
            samples = recording.samples[condition][name]
            clean = np.array([sample.seconds for sample in samples])[~disturbed(samples)]
            if len(clean) >= 20:
                found.append(abs(float(np.log(statistic(clean[:10]) / statistic(clean[10:20])))))
    return {"series": len(found), "cell": [float(value) for value in np.quantile(found or [np.nan], (0.5, 0.9, 1))]}


def _disturbed_shares(recording: Recording, kernels: NDArray[np.bool_]) -> dict[str, float]:
    names = [name for name, counts in zip(recording.kernels(), kernels, strict=True) if counts]
    return {
        condition: float(np.mean(np.concatenate([disturbed(samples[name]) for name in names])))
        for condition, samples in recording.samples.items()
    }


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """Return the tables and the conclusion as text."""
    lines = []
    for device in result["devices"]:
        lines += [device["device"], ""]
        for group, found in device["groups"].items():
            low, high = found["seconds"]
            lines.append(f"{group}: {found['kernels']} (of {low:.2g} to {high:.2g} s); median / 90th / most, in %")
            rows = [["samples", "statistic", *COMPARISONS]]
            rows += [
                [rule, name, *("/".join(_percent(value) for value in cell) for cell in cells.values())]
                for rule in ("all", "undisturbed")
                for name, cells in found[rule].items()
            ]
            shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in found["disturbed"].items())
            retaken = ", ".join(
                f"{name} {'/'.join(map(_percent, each['cell']))}" for name, each in found["retaken"].items()
            )
            series = found["retaken"]["median"]["series"]
            lines += table_lines(rows, left=(0, 1))
            lines.append(f"marked as disturbed: {shares}")
            lines.append(f"ten undisturbed to the next ten beside burners ({series} series; no criterion): {retaken}")
            lines.append("")
    lines.append(CRITERION)
    for rule, best in result["best"].items():
        wins = sorted(((share, name) for name, share in best["wins"].items() if share >= 0.05), reverse=True)
        chances = ", ".join(f"{name} {100 * share:.0f} %" for share, name in wins)
        needed = result["samples_needed"][best["name"]]
        lines.append(
            f"Of {'all' if rule == 'all' else 'the undisturbed'} samples the best is: {best['name']} (best in so many "
            f"of {RESAMPLES} resamples of the kernels: {chances}). Its 95 % interval needs "
            + (f"{needed[0]} samples, {needed[1]} where it is looked at six times." if needed else "a bootstrap.")
        )
    return lines


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f}" if fraction < 0.1 else f"{100 * fraction:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recorder = commands.add_parser("record", help="time kernels in all conditions")
    recorder.add_argument("device", help="part of the device's name")
    recorder.add_argument("--out", type=Path, required=True, help="file of JSON lines to write")
    recorder.add_argument("--seconds", type=float, default=60.0, help="device time of each condition (default 60)")
    recorder.add_argument("--kernels", type=int, default=60, help="how many kernels (default 60)")
    recorder.add_argument("--seed", type=int, default=1800, help="of the order within rounds (default 1800)")
    reporter = commands.add_parser("report", help="print how well each statistic repeats")
    reporter.add_argument("files", type=Path, nargs="+", help="what `record` wrote, a file for each device")
    reporter.add_argument("--json", action="store_true", help="print everything as JSON")
    arguments = parser.parse_args()
    if arguments.command == "record":
        record(arguments.device, arguments.out, arguments.seconds, arguments.kernels, arguments.seed)
        return
    result = report([read_recording(path) for path in arguments.files])
    print(json.dumps(result, indent=1) if arguments.json else "\n".join(lines_of(result)))


if __name__ == "__main__":
    main()
