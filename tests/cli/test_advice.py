"""Options that messages name: a command has each of them."""

import ast
import re
from dataclasses import fields
from pathlib import Path

import typer

from perflex import TimingOptions
from perflex.cli.app import application

FOLDER = Path(__file__).parents[2] / "perflex"
# CSS variables begin like options.
OPTION = re.compile(r"(?<![\w-])--(?!perflex-)[a-z][a-z-]+")
# Of every command, and of other programs that messages name.
OTHERS = {"--help", "--debug", "--lock-gpu-clocks", "--cpus", "--resources"}


def options():
    """Return the options of the commands of each module, by its name."""
    found = {}
    left = [typer.main.get_command(application())]
    while left:
        command = left.pop()
        left += getattr(command, "commands", {}).values()
        own = found.setdefault(getattr(command.callback, "__module__", ""), set())
        own.update(word for option in command.params for word in (*option.opts, *option.secondary_opts))
    return found


OPTIONS = options()
ANY = set().union(*OPTIONS.values())


def messages(path):
    """Return the texts in a file that are sentences; docstrings are not for those who use commands."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in docs]
    return [text.value for text in texts if isinstance(text.value, str) and " " in text.value.strip()]


def test_options_in_messages_exist():
    parameters = {field.name for field in fields(TimingOptions)}
    for path in FOLDER.rglob("*.py"):
        own = OPTIONS.get(f"perflex.cli.{path.stem}") if path.parent.name == "cli" and path.stem != "app" else None
        for text in messages(path):
            if path.stem == "profilers" or re.search(r"\b(ncu|nsys) ", text):
                continue  # other tools' options
            # A command's messages speak of its own options, unless they show another command.
            shows_another = re.search(r"(perflex|calibrate) |KERNEL\.py", text)
            known = ANY if own is None or shows_another else own
            assert {word for word in OPTION.findall(text) if word not in OTHERS} <= known, (path, text)
            assert set(re.findall(r"TimingOptions\((\w+)=", text)) <= parameters, (path, text)
