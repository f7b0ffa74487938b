"""The page of error messages: every title is a message that the code still has."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TOP = Path(__file__).parents[1]
TITLES = re.findall(
    r"^## (.+)$", (TOP / "docs" / "howto" / "troubleshooting.md").read_text(encoding="utf-8"), re.MULTILINE
)


@cache
def messages():
    """Return all texts of the code, with ``...`` for what is filled in."""
    found = []
    for folder in ("perflex", "features", "models", "uipick"):
        for path in (TOP / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.JoinedStr):
                    found.append("".join(str(p.value) if isinstance(p, ast.Constant) else "..." for p in node.values))
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
    return tuple(found)


def test_the_page_has_titles():
    assert len(TITLES) >= 25
    assert len(set(TITLES)) == len(TITLES)


@pytest.mark.parametrize("title", TITLES)
def test_a_title_is_a_message(title):
    parts = [re.escape(part) for part in title.split("...")]
    pattern = re.compile(".*".join(parts), re.DOTALL)
    assert any(pattern.fullmatch(text) for text in messages()), title


def test_a_text_that_no_code_has_is_no_message():
    pattern = re.compile(re.escape("no such message is anywhere in ") + ".*")
    assert not any(pattern.fullmatch(text) for text in messages())
