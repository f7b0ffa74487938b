"""What all benchmarks share: recording and timing cases, predicting them, judging methods, and tables."""

from __future__ import annotations

import csv
import json
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex import PerflexError, TimingOptions
from perflex.features.sized_kernel import sized_kernels
from perflex.search.accuracy import Accuracy
from perflex.studies.evaluation.baselines import Peaks, copy_bandwidth, copy_kernel, work_of
from perflex.timing.measuring import measure
from perflex.timing.results import Timing
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path

# Enough samples for a median known to a few percent, and little time for slow variants.
OPTIONS = TimingOptions(trials=41, min_trials=8, precision=0.015, budget_s=0.4, limit_s=10)
_MADD_TAGS = "flops_madd_pattern dtype:float32 lsize_0:64 lsize_1:1 groups_fit:True nelements:131072 m:64"


def record(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Append results to a file, a JSON document a line, so that a run that was ended early can go on."""
    with path.open("a", encoding="utf-8") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows)


def recorded(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def measured_peaks(device: Any) -> Peaks:
    """Return a device's rates of multiply-adds and of copied bytes, from two measurement kernels."""
    kernels = [*KernelCollection(ALL_GENERATORS).generate_kernels(_MADD_TAGS.split()), copy_kernel()]
    arithmetic, copy = measure(sized_kernels(kernels), device)
    for outcome in (arithmetic, copy):
        if not isinstance(outcome, Timing):
            raise outcome.error
    return Peaks(work_of(kernels[0], kernels[0].sizes).operations / arithmetic.seconds, copy_bandwidth(copy.seconds))


@dataclass
class Method:
    """A way to predict, and what it said of cases: times, ends of 95 % intervals, or why there is no prediction.

    `knowledge` is what it has seen of a predicted kernel: nothing, code, timing, ...
    """

    name: str
    knowledge: str
    seconds: dict[Any, float] = field(default_factory=dict)
    limits: dict[Any, tuple[float, float]] = field(default_factory=dict)
    refused: dict[Any, str] = field(default_factory=dict)


def predicted(name: str, knowledge: str, cases: Iterable[Any], predict: Callable[[Any], Any]) -> Method:
    """Return a method's predictions: times or intervals; of what perflex refuses the reason."""
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


HEADINGS = (
    "method", "knows", "cases", "factor", "error: median, p90, rms, max", "pairs right", "loss: median, p90, max",
    "first tenth", "inside 95 %",
)  # fmt: skip


def accuracy_of(method: Method, measured: Mapping[Any, float], group: Callable[[Any], Hashable]) -> Accuracy | None:
    """Return how well a method predicts the cases that it and `measured` have; None without any."""
    cases = [case for case in measured if case in method.seconds]
    if not cases:
        return None
    return Accuracy.of([method.seconds[c] for c in cases], [measured[c] for c in cases], [group(c) for c in cases])


def row_of(method: Method, measured: Mapping[Any, float], group: Callable[[Any], Hashable]) -> list[str]:
    found = accuracy_of(method, measured, group)
    if found is None:
        return [method.name, method.knowledge, "0", *["-"] * (len(HEADINGS) - 3)]
    errors = [abs(method.seconds[case] / measured[case] - 1) for case in measured if case in method.seconds]
    known = [(measured[case], *method.limits[case]) for case in measured if case in method.limits]
    inside = [low <= seconds <= high for seconds, low, high in known]
    return [
        method.name,
        method.knowledge,
        str(found.cases),
        f"{found.factor:.2f}",
        percents(found.median, float(np.percentile(errors, 90)), found.rms, found.maximum),
        f"{found.pairs_right:.2f}",
        percents(found.loss_median, found.loss_p90, found.loss_worst),
        percents(found.first_tenth),
        percents(float(np.mean(inside))) if inside else "-",
    ]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = (headings, ["---"] * len(headings), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def refusals(methods: Sequence[Method]) -> str:
    """Return a line for each reason why methods did not predict, the most frequent first."""
    return "\n".join(
        f"* {method.name}: {count} cases without a prediction: {reason}"
        for method in methods
        for reason, count in Counter(method.refused.values()).most_common(8)
    )


def judged(methods: Sequence[Method], measured: Mapping[Any, float], group: Callable[[Any], Hashable]) -> str:
    """Return a table of methods, and under it how many cases were refused why."""
    text = table(HEADINGS, [row_of(method, measured, group) for method in methods])
    return "\n".join(filter(None, (text, refusals(methods)))) + "\n"


def by_part(methods: Sequence[Method], measured: Mapping[Any, float], part: Callable[[Any], str],
            group: Callable[[Any], Hashable]) -> str:  # fmt: skip
    rows = []
    for name in sorted({part(case) for case in measured}):
        own = {case: seconds for case, seconds in measured.items() if part(case) == name}
        found = [accuracy_of(method, own, group) for method in methods]
        cells = (
            "-"
            if one is None
            else f"{one.factor:.2f}; {percents(one.median, one.maximum)}; {one.pairs_right:.2f}; "
            f"{percents(one.loss_mean)}"
            for one in found
        )
        rows.append([f"`{name}`", *cells])
    return table(["part", *(method.name for method in methods)], rows)


def percents(*values: float) -> str:
    """Return fractions as percentages of two digits."""
    shown = ("-" if np.isnan(v) else f"{100 * v:.1f} %" if abs(v) < 0.1 else f"{100 * v:.0f} %" for v in values)
    return ", ".join(shown)


def write_cases(path: Path, methods: Sequence[Method], measured: Mapping[Any, float]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["method", "knowledge", "case", "predicted_s", "measured_s", "refused"])
        for method in methods:
            for case in (case for case in measured if case in method.seconds or case in method.refused):
                seconds, reason = method.seconds.get(case, ""), method.refused.get(case, "")
                writer.writerow([method.name, method.knowledge, case, seconds, measured[case], reason])
