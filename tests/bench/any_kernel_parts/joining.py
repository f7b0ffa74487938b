"""Judgements of some families or methods each, joined into one: pieces run one after the other, or side by side."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .cases import Case
from .methods import Predictions

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from perflex.studies.baselines import Knowledge

    from .methods import Times


@dataclass
class Judged:
    """A method whose predictions stand in files of judgements."""

    name: str
    knowledge: Knowledge
    order_only: bool
    known: Predictions = field(default_factory=Predictions)

    def predict(self, cases: Sequence[Case], seen: Times) -> Predictions:  # noqa: ARG002 - protocol
        """Return what the files say of all cases."""
        return self.known


def join(folders: Iterable[Path]) -> dict[str, tuple[list[Judged], dict[Case, float]]]:
    """Return methods and measured seconds by device, from ``cases.csv`` and ``summary.csv`` of judgements.

    Predictions of the same method for the same case are those of the last folder.
    """
    devices: dict[str, tuple[dict[str, Judged], dict[Case, float]]] = {}
    for folder in folders:
        costs = _rows(folder / "summary.csv")
        order_only = {(row["device"], row["method"]): row["factor"] == "" for row in costs}
        for row in _rows(folder / "cases.csv"):
            methods, times = devices.setdefault(row["device"], ({}, {}))
            case = Case(row["family"], row["variant"], int(row["size"]))
            ordered = order_only.get((row["device"], row["method"]), False)
            method = methods.setdefault(row["method"], Judged(row["method"], row["knowledge"], ordered))  # type: ignore[arg-type]
            times[case] = float(row["measured"])
            method.known.seconds.pop(case, None)
            method.known.refused.pop(case, None)
            if row["predicted"]:
                method.known.seconds[case] = float(row["predicted"])
            else:
                method.known.refused[case] = row["refused"]
        # One row per range of sizes has the same cost.
        for (device, name), cost in {(row["device"], row["method"]): float(row["cost_s"]) for row in costs}.items():
            devices[device][0][name].known.cost_s += cost
    return {device: (list(methods.values()), times) for device, (methods, times) in devices.items()}


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))
