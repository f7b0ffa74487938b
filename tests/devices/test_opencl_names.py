"""Constants of pyopencl that the sources name: most are only reached on devices that a test machine lacks."""

import ast
import re
from pathlib import Path

import pyopencl as cl
import pytest

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


def test_some_are_found():
    assert len(constants()) >= 5


@pytest.mark.parametrize(("file", "group", "name"), constants())
def test_it_exists(file, group, name):
    assert hasattr(getattr(cl, group), name), file
