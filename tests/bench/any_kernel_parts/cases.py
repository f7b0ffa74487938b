"""Cases: a variant of a family at one of its sizes, and how times of them are read from files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from .families import HALVES, families

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from .family import Family


@dataclass(frozen=True, order=True)
class Case:
    """A variant of a family at one of its three sizes.

    Attributes
    ----------
    family, variant
        Their names.
    size
        Index of the size: 0, 1 or 2.
    """

    family: str
    variant: str
    size: int

    def __str__(self) -> str:
        """Return how messages name it, e.g. ``gemm_tn 16x16 at size 2``."""
        return f"{self.family} {self.variant} at size {self.size}"

    @property
    def smallest(self) -> Case:
        """The same variant at its family's smallest size."""
        return Case(self.family, self.variant, 0)


def cases_of(family: Family) -> Iterator[Case]:
    """Return all cases of a family."""
    return (Case(family.name, variant, size) for variant in family.variants for size in range(len(family.sizes)))


@cache
def _family_by_name() -> Mapping[str, Family]:
    return {family.name: family for half in HALVES for family in families(half)}


def family_of(case: Case) -> Family:
    """Return the family of a case."""
    return _family_by_name()[case.family]


@cache
def _made(family: str, variant: str) -> Any:
    return _family_by_name()[family].variants[variant]()


def kernel_of(case: Case) -> Any:
    """Return the loopy kernel of a case, made once per variant."""
    return _made(case.family, case.variant)


def sizes_of(case: Case) -> Mapping[str, int]:
    """Return the values of the size parameters of a case."""
    return family_of(case).sizes[case.size]


def read_rows(path: Path) -> dict[Case, dict[str, Any]]:
    """Return the rows of a recorded file by case; none if there is no such file.

    Raises
    ------
    ValueError
        A line is no such row, or a case has two.
    """
    rows: dict[Case, dict[str, Any]] = {}
    if not path.exists():
        return rows
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            row = json.loads(line)
            case = Case(row["family"], row["variant"], row["size"])
        except (ValueError, KeyError) as error:
            msg = f"{path}, line {number} is no recorded time ({error}); remove it"
            raise ValueError(msg) from error
        if case in rows:
            msg = f"{path}, line {number}: {case} has a time already; remove one"
            raise ValueError(msg)
        rows[case] = row
    return rows


def times_of_half(path: Path, half: str) -> tuple[str, dict[Case, float]]:
    """Return the device's label and the seconds of each case of a half.

    Raises
    ------
    ValueError
        The file has no rows, rows of several devices, or a case whose sizes are others than its family's now.
    """
    names = {family.name for family in families(half)}
    rows = {case: row for case, row in read_rows(path).items() if case.family in names}
    labels = {row["device"] for row in rows.values()}
    if len(labels) != 1:
        msg = f"{path} has times of {len(labels)} devices for the half {half!r}; record one device per file"
        raise ValueError(msg)
    for case, row in rows.items():
        if case.variant not in family_of(case).variants or row["sizes"] != dict(sizes_of(case)):
            msg = f"{path}: {case} was recorded before its family changed; record it again"
            raise ValueError(msg)
    return labels.pop(), {case: row["seconds"] for case, row in rows.items()}
