"""Findings as compilers write warnings, and as SARIF 2.1.0, which code hosts read."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from perflex.analysis.finding import MEANINGS
from perflex.tables import time_text
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perflex.analysis.explanation import Explanation
    from perflex.analysis.finding import Finding

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


# Times that differ by less are the same.
_NOTHING = 0.995


@dataclass(frozen=True)
class Message:
    """A finding with its place.

    Attributes
    ----------
    file, line, column
        Where it is; of the launch, the kernel's name.
    text
        What was found, and what the cure saves.
    finding, of
        What it is of.
    """

    file: str
    line: int
    column: int
    text: str
    finding: Finding
    of: Explanation

    def __str__(self) -> str:
        """Return a line as GCC writes it."""
        return f"{self.file}:{self.line}:{self.column}: warning: {self.text} [{self.finding.kind}]"


def messages(of: Explanation, file: str, name: str) -> list[Message]:
    """Return the findings of a kernel of a file; `name` is that of its function."""
    made = []
    for one in of.findings:
        where, _, line = one.line.rpartition(":")
        place = (int(line), one.column) if line else function_place("" if of.kernel is None else of.kernel.source, name)
        made.append(Message(where or file, *place, f"{one.what}; {saving_text(of, one)}", one, of))
    return made


def function_place(source: str, name: str) -> tuple[int, int]:
    """Return line and column of a function's name in a source; of the first letter where it is not there."""
    found = re.search(rf"\b{re.escape(name.partition('<')[0])}\s*\(", source)
    before = source[: found.start()] if found else ""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def saving_text(of: Explanation, one: Finding) -> str:
    """Return what the cure of a finding saves, or why that is not known."""
    if one.change is None:
        return f"saving not known: {one.reason}"
    whole = float(of.prediction.seconds)
    now, mended, low, high = (time_text(whole * x, 3) for x in (1.0, one.change.ratio, one.change.low, one.change.high))
    if one.change.ratio > _NOTHING:
        return f"saves nothing: {now} with the cure, too, for other costs hide it"
    return f"{mended} with the cure instead of {now} ({low} to {high})"


def sarif(found: Iterable[Message]) -> dict[str, Any]:
    """Return messages as a SARIF 2.1.0 log with one run."""
    found = list(found)
    kinds = [kind for kind in MEANINGS if any(one.finding.kind == kind for one in found)]
    rules = [{"id": kind, "shortDescription": {"text": MEANINGS[kind]}} for kind in kinds]
    driver = {"name": "perflex", "version": __version__, "rules": rules}
    run = {"tool": {"driver": driver}, "results": list(map(_result, found))}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _uri(file: str) -> str:
    """Return a file as SARIF names it: relative to the folder of work, if it is below it."""
    path = Path(file)
    if path.is_absolute() and not path.is_relative_to(Path.cwd()):
        return path.as_uri()
    return quote((path.relative_to(Path.cwd()) if path.is_absolute() else path).as_posix())


def _result(one: Message) -> dict[str, Any]:
    change, region = one.finding.change, {"startLine": one.line, "startColumn": one.column}
    return {
        "ruleId": one.finding.kind,
        "level": "warning",
        "message": {"text": f"{one.text}. Cure: {one.finding.cure}."},
        "locations": [{"physicalLocation": {"artifactLocation": {"uri": _uri(one.file)}, "region": region}}],
        "properties": {
            "found": one.finding.found,
            "mended": one.finding.mended,
            "ratio": None if change is None else change.ratio,
            "sizes": dict(one.of.prediction.sizes),
        },
    }
