"""The table of footprints that ``perflex features`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.cli.columns import Column, table_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.features import CountedFootprint, Quantity

HEADING = "footprints of global arrays: distinct elements touched (AFR: accesses per element)"
_COLUMNS = ("accesses", "elements", "bytes", "AFR")
# Longer formulas have lines of their own.
_WIDEST, _NARROWEST = 26, 8
_LEGEND = {
    "<=": "<= upper bound: a condition on data may skip some, or the elements touched are not known",
    ">=": ">= lower bound: there may be fewer elements",
    "~": "~ rests on what the user stated, or is the ratio of two upper bounds",
}


def footprint_lines(entries: Sequence[CountedFootprint], *, with_sizes: bool, width: int | None = None) -> list[str]:
    """Return the table as lines: formulas, below them values where sizes are given; `width` as of `fitted_table`."""
    # The longest formulas that leave the table narrow enough stay in it.
    for widest in range(_WIDEST, _NARROWEST, -2):
        blocks, notes = _table(entries, with_sizes, widest, width)
        if width is None or max(len(line) for block in blocks for line in block) <= width:
            break
    lines = []
    for number, block in enumerate(blocks):
        lines += [*block, *notes.get(number, ())]
    relations = {q.relation for entry in entries for q in (entry.accesses, entry.elements, entry.bytes, entry.afr)}
    return lines + [f"  {text}" for relation, text in _LEGEND.items() if relation in relations]


def _table(
    entries: Sequence[CountedFootprint], with_sizes: bool, widest: int, width: int | None
) -> tuple[list[list[str]], dict[int, list[str]]]:
    """Return the lines of each row, headings first, and the notes below some of them, by the row's number."""
    rows: list[tuple[str, ...]] = []
    notes: dict[int, list[str]] = {}
    for entry in entries:
        if entry.note:
            notes.setdefault(len(rows), []).append(f"  {entry.identifier}  {entry.note}")
            continue
        quantities = (entry.accesses, entry.elements, entry.bytes, entry.afr)
        formulas = [_formula(quantity) for quantity in quantities]
        values = [_value(name, quantity) for name, quantity in zip(_COLUMNS, quantities, strict=True)]
        certainty = _certainty(quantities)
        shown = [
            text if len(text) <= widest and quantity.is_formula else "..."
            for text, quantity in zip(formulas, quantities, strict=True)
        ]
        if with_sizes and formulas[1:] == values[1:]:
            rows.append((entry.identifier, *values, certainty))
            continue
        rows.append((entry.identifier, *shown, certainty))
        if with_sizes:
            rows.append(("", *values, ""))
        notes[len(rows)] = [
            f"      {name} {text}" + ("" if quantity.is_formula else "; give sizes")
            for name, text, quantity in zip(_COLUMNS, formulas, quantities, strict=True)
            if (len(text) > widest if quantity.is_formula else not with_sizes)
        ]
    columns = [Column("", left=True, wraps=True), *map(Column, _COLUMNS), Column("", left=True)]
    return table_blocks(columns, rows, width, indent="  ")[0], notes


def _formula(quantity: Quantity) -> str:
    return _related(quantity, quantity.expression)


def _value(name: str, quantity: Quantity) -> str:
    if quantity.value is None:
        return "-"
    if name == "bytes":
        return _related(quantity, _bytes(quantity.value))
    return _related(quantity, f"{quantity.value:.6g}" if name == "AFR" else f"{quantity.value:.17g}")


def _bytes(value: float) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if value >= 1024**power:
            return f"{value / 1024**power:.4g} {unit}"
    return f"{value:.17g} B"


def _related(quantity: Quantity, text: str) -> str:
    return text if quantity.relation == "=" else f"{quantity.relation} {text}"


def _certainty(quantities: Sequence[Quantity]) -> str:
    relations = {quantity.relation for quantity in quantities[:-1]}
    return "as stated" if "~" in relations else "exact" if relations == {"="} else "upper bound"
