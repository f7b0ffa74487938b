"""Findings as compilers write warnings, and as SARIF 2.1.0, which code hosts read."""

from __future__ import annotations

import os
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


def messages(of: Explanation, file: str, name: str, at: str = "") -> list[Message]:
    """Return the findings of a kernel of a file; `name` is its function's, `at` are sizes where there are several."""
    made = []
    for one in of.findings:
        header, _, line = one.line.rpartition(":")
        place = (int(line), one.column) if line else _function_place(of, file, name)
        words = f"{one.what}{at and f' at {at}'}; {saving_text(of, one)}"
        made.append(Message(_header(of, header) if header else file, *place, words, one, of))
    return made


def _function_place(of: Explanation, file: str, name: str) -> tuple[int, int]:
    """Return line and column of the name of a kernel's function, or of the Python function that makes it."""
    if of.case is not None and of.case.kernel is not None:
        place = of.case.kernel.parsed().function.location
        return place.line, place.column
    text = Path(file).read_text(encoding="utf-8", errors="replace") if file.endswith(".py") else ""
    found = re.search(rf"(?<=\bdef ){re.escape(name)}\b", text)
    before = text[: found.start()] if found else ""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def _header(of: Explanation, name: str) -> str:
    """Return where a header lies: beside the kernel's file or in its folders."""
    kernel = None if of.case is None else of.case.kernel
    folders = [] if kernel is None else [kernel.path.parent, *map(Path, kernel.folders)]
    found = next((folder / name for folder in folders if (folder / name).is_file()), Path(name))
    return os.path.relpath(found) if found.is_absolute() and found.is_relative_to(Path.cwd()) else str(found)


def saving_text(of: Explanation, one: Finding) -> str:
    """Return what the cure of a finding saves, or why that is not known."""
    if one.change is None:
        return f"saving not known: {one.reason}"
    whole = float(of.prediction.seconds)
    now, mended, low, high = (time_text(whole * x, 3) for x in (1.0, one.change.ratio, one.change.low, one.change.high))
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
