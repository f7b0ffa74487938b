"""How far a count can be relied on: exact, an upper bound, or as the user stated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perflex.features.scop.scop import Statement


@dataclass(frozen=True)
class Certainty:
    """What a count rests on; certainties of the parts of a sum are joined with ``|``.

    Attributes
    ----------
    bound
        Whether it is an upper bound, because a data-dependent condition may skip instances or because it is
        not known which elements are touched.
    stated
        Whether it rests on what the user stated, e.g. an average trip count or the place of an indirect access.
    estimated
        Whether it is an estimate, such as cycles of machine code.
    """

    bound: bool = False
    stated: bool = False
    estimated: bool = False

    @property
    def exact(self) -> bool:
        """Whether the count is exact."""
        return not self.bound and not self.stated and not self.estimated

    @property
    def relation(self) -> str:
        """How the true number relates to the count: ``"="``, ``"<="``, or ``"~"`` where neither is certain."""
        # What was stated may be too low: with it, not even an upper bound is one.
        return "~" if self.stated or self.estimated else "<=" if self.bound else "="

    def __or__(self, other: Certainty) -> Certainty:
        return Certainty(self.bound or other.bound, self.stated or other.stated, self.estimated or other.estimated)

    def __str__(self) -> str:
        if self.exact:
            return "exact"
        words = (("upper bound", self.bound), ("as stated", self.stated), ("estimated", self.estimated))
        return " ".join(word for word, holds in words if holds)


def certainty_of_statement(statement: Statement) -> Certainty:
    """Return what the number of a statement's instances rests on."""
    return Certainty(bound=statement.guarded, stated=bool(statement.stated))
