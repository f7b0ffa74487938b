"""What benchmarks share: methods judged by measured times, printed and written as tables."""

from __future__ import annotations

import csv
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from perflex.studies.accuracy import Accuracy

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
    from pathlib import Path


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
    """Return a method's cells under `HEADINGS`."""
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
        ", ".join(
            percent(value) for value in (found.median, float(np.percentile(errors, 90)), found.rms, found.maximum)
        ),
        f"{found.pairs_right:.2f}",
        ", ".join(percent(value) for value in (found.loss_median, found.loss_p90, found.loss_worst)),
        percent(found.first_tenth),
        percent(float(np.mean(inside))) if inside else "-",
    ]


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = (headings, ["---"] * len(headings), *rows)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def judged(methods: Sequence[Method], measured: Mapping[Any, float], group: Callable[[Any], Hashable]) -> str:
    """Return a table of methods, and under it how many cases were refused why."""
    text = table(HEADINGS, [row_of(method, measured, group) for method in methods])
    for method in methods:
        for reason, count in Counter(method.refused.values()).most_common(8):
            text += f"\n* {method.name}: {count} cases without a prediction: {reason}"
    return text + "\n"


def by_part(methods: Sequence[Method], measured: Mapping[Any, float], part: Callable[[Any], str],
            group: Callable[[Any], Hashable]) -> str:  # fmt: skip
    """Return each method's factor, median and maximum error, pairs and mean loss by part, such as a family."""
    rows = []
    for name in sorted({part(case) for case in measured}):
        own = {case: seconds for case, seconds in measured.items() if part(case) == name}
        cells = []
        for method in methods:
            found = accuracy_of(method, own, group)
            cells.append(
                "-"
                if found is None
                else f"{found.factor:.2f}; {percent(found.median)}, {percent(found.maximum)}; {found.pairs_right:.2f}; "
                f"{percent(found.loss_mean)}"
            )
        rows.append([f"`{name}`", *cells])
    return table(["part", *(method.name for method in methods)], rows)


def percent(value: float) -> str:
    """Return a fraction as a percentage of two digits."""
    return "-" if np.isnan(value) else f"{100 * value:.1f} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"


def write_cases(path: Path, methods: Sequence[Method], measured: Mapping[Any, float]) -> None:
    """Write a line per method and case: predicted and measured seconds, or why there is no prediction."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["method", "knowledge", "case", "predicted_s", "measured_s", "refused"])
        for method in methods:
            for case in (case for case in measured if case in method.seconds or case in method.refused):
                predicted, reason = method.seconds.get(case, ""), method.refused.get(case, "")
                writer.writerow([method.name, method.knowledge, case, predicted, measured[case], reason])
