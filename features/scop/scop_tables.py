"""What a description says, as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.tables import Table, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.features.scop.scop import Scop


_STATEMENT = ("statement", "line", "loops", "domain", "accesses", "operations")


def scop_tables(scop: Scop) -> list[Table]:
    """Return launches, arrays and statements."""
    launches = [(number, _by(one.groups), _by(one.items)) for number, one in enumerate(scop.launches, 1)]
    arrays = [(a.name, a.space, a.dtype, _by(a.shape), [str(one) for one in a.strides]) for a in scop.arrays]
    statements = [
        (
            s.name, s.line, ", ".join(loop.name for loop in scop.loops_of(s)), str(s.domain),
            [f"{one.direction} {one.text}" for one in s.accesses],
            [f"{one.count} {one.kind} {one.dtype}" for one in s.operations],
        )
        for s in scop.statements
    ]  # fmt: skip
    return [
        Table(
            "Launches", [text("launch"), text("groups", "work-groups"), text("items", "work-items of each")], launches
        ),
        Table("Arrays", [text(name) for name in ("array", "memory", "type", "shape", "strides")], arrays),
        Table("Statements", [text(name, code=name == "domain") for name in _STATEMENT], statements),
    ]


def _by(extents: Iterable[object]) -> str:
    return " x ".join(map(str, extents))
