"""Judging methods by recorded times: rows per method, device and range of sizes; per family; and files of all of it."""

from __future__ import annotations

import csv
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from perflex.studies.accuracy import Accuracy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from .cases import Case
    from .methods import Method, Predictions, Times

# Which cases a row is over. Methods that saw the times of the smallest size are judged by the larger ones only.
LARGER, ALL = "larger sizes", "all sizes"
# What says nothing of a method that predicts an order and no seconds.
_ERRORS = ("geometric_mean", "median", "rms", "maximum", "factor")
_ACCURACY = tuple(entry.name for entry in fields(Accuracy))


@dataclass(frozen=True)
class Row:
    """How well a method predicts a device's cases.

    Attributes
    ----------
    device, method, knowledge
        Which.
    sizes
        `ALL` or `LARGER`.
    refused
        How many of the cases have no prediction.
    cost_s
        Seconds for all cases of all sizes.
    worst, worst_factor
        The family with the largest typical factor (for orders: with the largest mean loss), and that number.
    accuracy
        Over all families.
    families
        The same for each family.
    order_only
        Whether errors say nothing.
    """

    device: str
    method: str
    knowledge: str
    sizes: str
    refused: int
    cost_s: float
    worst: str
    worst_factor: float
    accuracy: Accuracy
    families: Mapping[str, Accuracy]
    order_only: bool

    def cells(self) -> dict[str, Any]:
        """Return a line of the summary's CSV file."""
        names = ("device", "method", "knowledge", "sizes", "refused", "cost_s")
        found = {name: getattr(self, name) for name in names} | self.measures(self.accuracy)
        return found | {"worst_family": self.worst, "worst_value": self.worst_factor}

    def measures(self, accuracy: Accuracy) -> dict[str, Any]:
        """Return all measures; errors are empty where they say nothing."""
        return {n: "" if self.order_only and n in _ERRORS else v for n, v in asdict(accuracy).items()}


def judge(device: str, methods: Iterable[Method], times: Times) -> tuple[list[Row], list[dict[str, Any]]]:
    """Judge methods by a device's times.

    Parameters
    ----------
    device
        Its label.
    methods
        What to judge.
    times
        Measured seconds by case.

    Returns
    -------
    rows
        One per method and range of sizes that it can be judged by.
    points
        A line per method and case: predicted and measured seconds, or why there is no prediction.
    """
    smallest = {case: seconds for case, seconds in times.items() if case.size == 0}
    rows: list[Row] = []
    points: list[dict[str, Any]] = []
    for method in methods:
        seen = smallest if method.knowledge == "timing" else {}
        found = method.predict(sorted(times), seen)
        points += [_point(device, method, case, found, times[case]) for case in sorted(times)]
        for sizes in (LARGER, ALL):
            # A second measurement saw none of the first one's times.
            blind = sizes == LARGER or method.knowledge != "timing" or method.name == "a second measurement"
            chosen = [case for case in sorted(found.seconds) if blind and (sizes == ALL or case.size > 0)]
            if chosen:
                rows.append(_row(device, method, sizes, found, {case: times[case] for case in chosen}))
        print(f"{device}: {method.name}, {len(found.seconds)} cases, {found.cost_s:.1f} s", flush=True)
    return rows, points


def _row(device: str, method: Method, sizes: str, found: Predictions, measured: Times) -> Row:
    by_family = {
        family: _accuracy(found.seconds, {case: s for case, s in measured.items() if case.family == family})
        for family in dict.fromkeys(case.family for case in measured)
    }
    badness = {name: own.loss_mean if method.order_only else own.factor for name, own in by_family.items()}
    worst = max(badness, key=lambda name: badness[name])
    refused = sum(1 for case in found.refused if sizes == ALL or case.size > 0)
    accuracy = _accuracy(found.seconds, measured)
    who = (device, method.name, method.knowledge, sizes)
    return Row(*who, refused, found.cost_s, worst, badness[worst], accuracy, by_family, method.order_only)


def _accuracy(predicted: Times, measured: Times) -> Accuracy:
    groups = [(case.family, case.size) for case in measured]
    return Accuracy.of([predicted[case] for case in measured], list(measured.values()), groups)


def _point(device: str, method: Method, case: Case, found: Predictions, measured: float) -> dict[str, Any]:
    return {
        "device": device,
        "method": method.name,
        "knowledge": method.knowledge,
        "family": case.family,
        "variant": case.variant,
        "size": case.size,
        "predicted": found.seconds.get(case, ""),
        "measured": measured,
        "refused": found.refused.get(case, ""),
    }


def write(out: Path, half: str, rows: Sequence[Row], points: Sequence[Mapping[str, Any]]) -> None:
    """Write ``summary.csv``, ``families.csv``, ``cases.csv`` and ``report.md`` into a folder."""
    out.mkdir(parents=True, exist_ok=True)
    own = [
        {"device": row.device, "method": row.method, "sizes": row.sizes, "family": name} | row.measures(accuracy)
        for row in rows
        for name, accuracy in row.families.items()
    ]
    _write_csv(out / "summary.csv", [row.cells() for row in rows])
    _write_csv(out / "families.csv", own)
    _write_csv(out / "cases.csv", points)
    (out / "report.md").write_text(report(half, rows, points), encoding="utf-8")


def _write_csv(path: Path, lines: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(lines[0]))
        writer.writeheader()
        writer.writerows(lines)


_HEADINGS = (
    "method", "knowledge", "cases", "refused", "cost", "geom. mean", "median", "rms", "maximum", "factor", "Spearman",
    "pairs right", "loss median", "mean", "p90", "worst", "best found", "first tenth", "worst family",
)  # fmt: skip


def report(half: str, rows: Sequence[Row], points: Sequence[Mapping[str, Any]]) -> str:
    """Return tables in Markdown: per device and range of sizes, per family, and what was refused why."""
    lines = [f"# Any kernel: families of the half `{half}`", "", *_EXPLAINED, ""]
    for device, sizes in dict.fromkeys((row.device, row.sizes) for row in rows):
        chosen = [_cells(row) for row in rows if (row.device, row.sizes) == (device, sizes)]
        lines += [f"## {device}, {sizes}", "", *_table(_HEADINGS, chosen), ""]
    for device in dict.fromkeys(row.device for row in rows):
        lines += [
            f"## {device}: typical factor (pairs right) by family, {LARGER}",
            "",
            *_family_table(rows, device),
            "",
        ]
        for row in _widest(rows, device):
            lines += [f"## {device}: {row.method} by family, {row.sizes}", "", *_method_table(rows, row), ""]
    refused: dict[tuple[str, str, str, str], int] = {}
    for point in points:
        if point["refused"]:
            key = (point["device"], point["method"], point["family"], point["refused"])
            refused[key] = refused.get(key, 0) + 1
    if refused:
        lines += ["## No prediction", ""]
        lines += [f"- {d}, {m}, {f}: {count} cases, {why}" for (d, m, f, why), count in refused.items()]
    return "\n".join(lines).rstrip() + "\n"


_EXPLAINED = (
    "Errors are relative; factor is exp(mean |ln(predicted/measured)|); pairs are those of one family and size",
    "that differ by over 7 %; loss is of the predicted best per family and size; the last columns but one say in",
    "which share of groups one within 5 % of the best is the first, or in the first tenth (rounded up), of the",
    "predicted order. The worst family has the largest typical factor. Cost is seconds for all cases together,",
    "without calibrating.",
)


def _table(headings: Sequence[str], body: Iterable[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(line) + " |" for line in (headings, ["---"] * len(headings), *body)]


def _cells(row: Row) -> list[str]:
    a = row.accuracy
    errors = ["-"] * 5 if row.order_only else [_percent(v) for v in (a.geometric_mean, a.median, a.rms, a.maximum)]
    if not row.order_only:
        errors.append(f"{a.factor:.2f}")
    losses = [_percent(value) for value in (a.loss_median, a.loss_mean, a.loss_p90, a.loss_worst)]
    worst = f"{row.worst} ({_percent(row.worst_factor) if row.order_only else f'{row.worst_factor:.2f}'})"
    return [
        row.method, row.knowledge, str(a.cases), str(row.refused), f"{row.cost_s:.1f} s", *errors, f"{a.spearman:.2f}",
        f"{a.pairs_right:.2f}", *losses, _percent(a.best_found), _percent(a.first_tenth), worst,
    ]  # fmt: skip


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %" if value < 0.1 else f"{100 * value:.0f} %"


def _family_table(rows: Sequence[Row], device: str) -> list[str]:
    chosen = [row for row in rows if (row.device, row.sizes) == (device, LARGER)]
    names = sorted({name for row in chosen for name in row.families})
    body = []
    for name in names:
        cells = [row.families.get(name) for row in chosen]
        shown = [
            "-" if own is None else f"{'' if row.order_only else f'{own.factor:.2f} '}({own.pairs_right:.2f})"
            for row, own in zip(chosen, cells, strict=True)
        ]
        body.append([name, *shown])
    return _table(["family", *(row.method for row in chosen)], body)


def _widest(rows: Sequence[Row], device: str) -> list[Row]:
    """Return the row of each method that predicts times, over as many sizes as it can be judged by."""
    known = {row.method: row for row in rows if row.device == device and not row.order_only}
    return [
        next((row for row in rows if (row.device, row.method, row.sizes) == (device, method, ALL)), last)
        for method, last in known.items()
    ]


_FAMILY_HEADINGS = ("family", "factor", "median", "maximum", "pairs right", "loss", "roofline: factor")


def _method_table(rows: Sequence[Row], row: Row) -> list[str]:
    """Return errors, order and mean loss of a method by family, and beside them a roofline's factor at these sizes."""
    same = (other for other in rows if (other.device, other.sizes, other.method) == (row.device, row.sizes, "roofline"))
    roofline = next((other.families for other in same), {})
    body = [
        [
            f"`{name}`", f"{own.factor:.2f}", _percent(own.median), _percent(own.maximum), f"{own.pairs_right:.2f}",
            _percent(own.loss_mean), f"{roofline[name].factor:.2f}" if name in roofline else "-",
        ]
        for name, own in sorted(row.families.items())
    ]  # fmt: skip
    return _table(_FAMILY_HEADINGS, body)
