"""Attributes that docstrings describe together (``low, high``) keep all of their names in the reference.

Sphinx reads a field's first word as a type, and would show "high (low,)".
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

# Breaks a line where it has to, and is no space to Sphinx.
BREAK = "\u200b"


def setup(app: Sphinx) -> dict[str, bool]:
    """Change docstrings after napoleon, whose handler has the priority 500."""
    app.connect("autodoc-process-docstring", lambda *arguments: join(arguments[-1]), priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def join(lines: list[str]) -> None:
    """Take the spaces out of the names of fields of attributes, in place."""
    for number, line in enumerate(lines):
        field = re.match(r":ivar ([^:]+, [^:]+):", line)
        if field:
            lines[number] = f":ivar {field[1].replace(', ', ',' + BREAK)}:{line[field.end() :]}"
