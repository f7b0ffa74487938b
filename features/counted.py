"""What the report of a kernel's features consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from perflex.html import shown_by

if TYPE_CHECKING:
    from perflex.features.counting.certainty import Certainty


@dataclass(frozen=True)
class CountedFeature:
    """A feature of one kernel.

    Attributes
    ----------
    identifier
        As in model strings.
    value
        At the given sizes; None where sizes are missing.
    expression
        The count as a function of the sizes, or what stands for it.
    unit
        What is counted.
    certainty
        Whether the count is exact, an upper bound (of what a data-dependent condition may skip, or of elements
        that are not known), or rests on what the user stated.
    note
        For accesses: what they are in the kernel, their access-to-footprint ratios, strides that do not exist.
    """

    identifier: str
    value: float | None
    expression: str
    unit: str
    certainty: Certainty
    note: str = ""

    def __str__(self) -> str:
        """Return one line: identifier, formula, and the value where there is one."""
        value = "" if self.value is None else f" = {self.value:g}"
        return f"{self.identifier}: {self.expression}{value}"

    @property
    def exact(self) -> bool:
        """Whether the count is exact."""
        return self.certainty.exact


class CountedFeatures(list[CountedFeature]):
    """Counted features: a list that notebooks show as a table."""

    _repr_html_ = shown_by("perflex.features.result_html:counted_html")


@dataclass(frozen=True)
class Quantity:
    """A number of the report that is no feature.

    Attributes
    ----------
    expression
        As a function of the sizes, or what stands for it.
    is_formula
        Whether `expression` is a function of the sizes.
    value
        At the given sizes; None where sizes are missing or it has none.
    relation
        How the true number relates to it: ``"="``, ``"<="``, ``">="``, or ``"~"`` where neither is certain.
    """

    expression: str
    is_formula: bool
    value: float | None
    relation: str


_NOTHING = Quantity("0", is_formula=True, value=None, relation="=")


@dataclass(frozen=True)
class CountedFootprint(CountedFeature):
    """A footprint feature: distinct elements, and what belongs to them.

    Attributes
    ----------
    elements
        The number of elements, as a formula that is shorter than `expression`.
    accesses
        Accesses of these elements, one per executing work-item and instance.
    bytes
        Size of the elements.
    afr
        Accesses per element (access-to-footprint ratio).
    """

    elements: Quantity = _NOTHING
    accesses: Quantity = _NOTHING
    bytes: Quantity = _NOTHING
    afr: Quantity = _NOTHING
