"""Which variants perflex's counts, or its features of a CPU's caches, refuse."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from perflex import PerflexError, PerflexWarning, estimate_ecm, load_machine
from perflex.features import extract_scop
from perflex.studies.baselines import distinct_bytes_of, work_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .family import Family


def refusals(families: Sequence[Family], machine: str) -> list[str]:
    """Return a line for each variant that is refused at its largest size, with the reason."""
    facts = load_machine(machine)
    lines = []
    for family in families:
        for variant, make in family.variants.items():
            sizes = family.sizes[-1]
            for what in ("counts", "distinct bytes", "caches"):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", PerflexWarning)
                        if what == "counts":
                            work_of(make(), sizes)
                        elif what == "distinct bytes":
                            distinct_bytes_of(make(), sizes)
                        else:
                            estimate_ecm(extract_scop(make()), sizes, facts)
                except PerflexError as error:
                    lines.append(f"{family.name} {variant}, {what}: {type(error).__name__}: {error}")
    return lines
