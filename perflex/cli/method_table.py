"""The table that sets models beside trivial baselines, of ``perflex demo`` and ``perflex evaluate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.cli.columns import Column, fitted_table

if TYPE_CHECKING:
    from perflex.studies.evaluation.result import StudyResult

# What a narrow terminal leaves out, the first ones first.
_SPARE = ("factor", "rank correlation", "worst loss", "pairs right", "geometric mean", "beats baselines")
_WORDS = ("predicted by", "information used")


def method_lines(result: StudyResult, width: int | None, *, indent: str, more: str) -> list[str]:
    """Return the table of a study's models and baselines; parameters as of `fitted_table`."""
    from perflex.studies.evaluation.measures import METHOD_HEADINGS, method_rows

    columns = [
        Column(
            heading,
            left=heading in _WORDS,
            wraps=heading in _WORDS,
            spare=_SPARE.index(heading) + 1 if heading in _SPARE else 0,
        )
        for heading in METHOD_HEADINGS
    ]
    return fitted_table(columns, method_rows(result), width, indent=indent, more=more)
