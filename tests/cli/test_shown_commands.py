"""Commands that the documentation shows are there, and so are their options."""

import re
import shlex
from itertools import takewhile

import pytest
import typer

from perflex.cli.app import application
from support.pages import TOP, blocks, commands, pages

COMMAND_LINE = typer.main.get_command(application())
OF_ALL_COMMANDS = {"--help", "--quiet", "-q", "--debug"}


def unknown_words(command):
    """Return what a ``perflex`` command names that is not there: a command, or an option of it."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|>;&")
    lexer.whitespace_split = True
    words = list(takewhile(lambda word: not set(word) <= set("|>;&"), lexer))[1:]
    group = COMMAND_LINE
    while words and hasattr(group, "commands"):
        if words[0].startswith("-"):
            words.pop(0)
            continue
        name = words.pop(0)
        if name not in group.commands:
            return [name]
        group = group.commands[name]
    known = {option for parameter in group.params for option in (*parameter.opts, *parameter.secondary_opts)}
    known |= OF_ALL_COMMANDS
    given = [word.partition("=")[0] for word in words if re.match(r"--?[A-Za-z]", word)]
    return [word for word in given if word not in known and word[:2] not in known]


def test_commands_and_options_are_there():
    wrong = {
        f"{block.place}: {command}": unknown
        for page in pages()
        for block in blocks(page)
        for command in commands(block)
        if command.startswith("perflex") and (unknown := unknown_words(command))
    }
    assert wrong == {}


def test_commands_in_sentences_are_there():
    known = set(COMMAND_LINE.commands)
    wrong = {
        f"{page.relative_to(TOP)}: perflex {name}"
        for page in pages()
        for name in re.findall(r"`perflex ([a-z][a-z-]*)", page.read_text(encoding="utf-8"))
        if name not in known
    }
    assert wrong == set()


@pytest.mark.parametrize(
    ("command", "unknown"),
    [
        ("perflex predict here.yaml k.py:f n=1024 --confidence 0.95", []),
        ("perflex -q list machines | head", []),
        ("perflex rank -m V100 'k.cu:f<<<n/64, 64>>>' n=64 > out.txt", []),
        ("perflex foretell here.yaml", ["foretell"]),
        ("perflex predict here.yaml k.py:f --certainty=1", ["--certainty"]),
        ("perflex machine invent", ["invent"]),
    ],
)
def test_unknown_words_are_found(command, unknown):
    assert unknown_words(command) == unknown
