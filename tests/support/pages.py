"""What users read: pages, their blocks of code, and the commands shown in them."""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^(?P<indent>[ >]*)(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_OPTION = re.compile(r"^:(?P<name>[\w-]+): *(?P<value>.*)$")
# Directives whose body is code. The bodies of all others may hold blocks of their own.
_CODE_DIRECTIVES = {"code-cell", "code-block", "code", "sourcecode"}
_PROMPT = re.compile(r"^\$ ")


@dataclass(frozen=True)
class Block:
    """A block of code on a page."""

    page: str
    line: int
    language: str
    rest: str
    code: str
    is_cell: bool
    caption: str = ""

    @property
    def place(self):
        return f"{self.page}:{self.line}"

    @property
    def marked(self):
        return self.rest.startswith("no-test")

    @property
    def for_triton(self):
        return self.marked and self.reason == "needs Triton"

    @property
    def untested(self):
        """Say whether no test runs it here: blocks for Triton are run where it is installed."""
        return self.marked and not (self.for_triton and find_spec("triton"))

    @property
    def reason(self):
        return self.rest.partition("no-test:")[2].strip()

    @property
    def file_name(self):
        """Return the file that the block shows: its caption, or a first line such as ``# kernel.py``."""
        first = re.match(r"# ([\w./-]+\.(?:py|ya?ml))\n", self.code)
        name = self.caption.strip("`") or (first[1] if first else "")
        return name if re.fullmatch(r"(?!/)(?!.*\.\.)[\w./-]+\.\w+", name) else ""


def pages():
    """Return README.md and all pages of docs/ that are kept in the repository."""
    made = {"_build", "generated", "jupyter_execute"}
    found = [path for path in sorted((TOP / "docs").rglob("*.md")) if not made & set(path.relative_to(TOP).parts)]
    return [TOP / "README.md", *found]


def is_notebook(page):
    return page.read_text(encoding="utf-8").startswith("---\nfile_format: mystnb")


def blocks(page):
    """Return the blocks of code of a page in their order; those within directives such as tabs, too."""
    name = str(page.relative_to(TOP)) if page.is_relative_to(TOP) else page.name
    lines = page.read_text(encoding="utf-8").splitlines()
    found = []
    around = []
    position = 0
    while position < len(lines):
        opening = _FENCE.match(lines[position])
        position += 1
        if opening is None:
            continue
        fence, info = opening["fence"], opening["info"].strip()
        directive = re.match(r"^\{([\w:-]+)\} *(.*)$", info)
        if not info and around and fence.startswith(around[-1]):
            around.pop()
        elif directive and directive[1] not in _CODE_DIRECTIVES:
            around.append(fence)
        else:
            end = position
            while end < len(lines) and not re.fullmatch(rf"[ >]*{fence[0]}{{{len(fence)},}} *", lines[end]):
                end += 1
            body = [line.removeprefix(opening["indent"]) for line in lines[position:end]]
            found.append(_block(name, position, info, directive, body))
            position = end + 1
    return found


def _block(page, line, info, directive, body):
    options = {}
    if directive:
        while body and (option := _OPTION.match(body[0])):
            options[option["name"]] = option["value"]
            body = body[1:]
    is_cell = directive is not None and directive[1] == "code-cell"
    words = directive[2] if directive else info
    language, _, rest = words.partition(" ")
    if is_cell:
        language, rest = "python", ""
    code = "\n".join(body) + "\n"
    return Block(page, line, language, rest.strip(), code, is_cell, options.get("caption", ""))


def python_source(block):
    """Return a block's Python without what only notebooks understand: magics and shell commands."""
    if re.match(r"\s*%%(?!time)", block.code):
        return ""
    return re.sub(r"(?m)^(\s*)[!%].*$", r"\1pass", block.code)


def commands(block):
    """Return the shell commands of a block: after prompts on consoles, after ``!`` in cells."""
    if block.is_cell:
        return re.findall(r"(?m)^\s*!(.+)$", block.code)
    if block.language != "console":
        return []
    found = []
    continued = False
    for line in block.code.splitlines():
        text = line.removeprefix("> ") if continued else _PROMPT.sub("", line)
        if continued:
            found[-1] += " " + text.strip().removesuffix("\\").strip()
        elif text != line:
            found.append(text.strip().removesuffix("\\").strip())
        else:
            continue
        continued = text.rstrip().endswith("\\")
    return found
