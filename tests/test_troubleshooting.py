"""The page of error messages: every title is a message that the code still has."""

import ast
import re
from functools import cache
from pathlib import Path

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


def test_each_title_is_a_message():
    assert len(set(TITLES)) == len(TITLES) >= 25
    patterns = {title: ".*".join(re.escape(part) for part in title.split("...")) for title in TITLES}
    texts = messages()
    found = [title for title, one in patterns.items() if any(re.fullmatch(one, text, re.DOTALL) for text in texts)]
    assert found == TITLES
