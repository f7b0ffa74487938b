"""Constants of pyopencl that the sources name: most are only reached on devices that a test machine lacks."""

import ast
import re
from pathlib import Path

import pyopencl as cl

FOLDER = Path(__file__).parents[2] / "perflex"


def constants():
    """Return file, group and name of each ``cl.group.NAME`` in the sources."""
    found = []
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        # Few files name any; taking all of them apart takes a second at every collection.
        for node in ast.walk(ast.parse(text)) if re.search(r"\bcl\s*\.", text) else ():
            match node:
                case ast.Attribute(value=ast.Attribute(value=ast.Name(id="cl"), attr=group), attr=name):
                    found.append((path.name, group, name))
    return found


def test_names_exist():
    found = constants()
    assert len(found) >= 5
    assert [entry for entry in found if not hasattr(getattr(cl, entry[1]), entry[2])] == []
