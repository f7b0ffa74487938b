"""Reference pages that are made from the code each time the documentation is built, so that they cannot go stale.

Pages are written to ``docs/reference/generated``: public names, features, generators, commands, models and machines.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sphinx.application import Sphinx

MODULES = (
    "perflex", "perflex.features", "perflex.models", "perflex.triton", "perflex.errors", "perflex.testing", "uipick",
)  # fmt: skip
# What public functions return, by names of perflex.
RESULTS = (
    "Prediction", "Ranking", "Ranked", "RankingCheck", "Tuning", "Accuracy", "Judgement", "Diagnosis", "FitResult",
    "Timing", "Volumes", "EcmEstimate", "BlockChoice",
)  # fmt: skip
# A field of a class, and a line of a comment above fields.
_FIELD = re.compile(r"    ([a-z]\w*): \w")
_COMMENT = "    # "


def setup(app: Sphinx) -> dict[str, bool]:
    """Have the pages written before Sphinx looks for pages."""
    app.connect("config-inited", lambda app, _config: write(Path(app.srcdir) / "reference" / "generated"))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def write(folder: Path) -> None:
    """Write all generated pages; a page that did not change keeps its date, so that it is not read again."""
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"api_{module.replace('.', '_')}": api_page(module) for module in MODULES}
    pages |= {
        "results": results_page(),
        "features": features_page(),
        "generators": generators_page(),
        "commands": commands_page(),
        "models": models_page(),
        "machines": machines_page(),
    }
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.md"):
        if path.stem not in pages:
            path.unlink()


def api_page(module: str) -> str:
    """Return the page of a module's public names."""
    import perflex

    loaded = importlib.import_module(module)
    lines = [f"# `{module}`", "", first_paragraph(loaded), ""]
    for name in public_names(loaded):
        if module == "perflex" and name in RESULTS:
            continue
        value = getattr(loaded, name)
        lines += [f"## `{name}`", ""]
        if module != "perflex" and getattr(perflex, name, None) is value:
            lines += [f"See {{py:obj}}`perflex.{name}`.", ""]
            continue
        lines += ["```{eval-rst}", *directive(module, name, value), "```", ""]
    return "\n".join(lines)


def results_page() -> str:
    """Return the page of the classes that public functions return."""
    lines = ["# Results", "", "What public functions return; each signature has all fields.", ""]
    perflex = importlib.import_module("perflex")
    for name in RESULTS:
        lines += [f"## `{name}`", "", "```{eval-rst}", *directive("perflex", name, getattr(perflex, name)), "```", ""]
    return "\n".join(lines)


def public_names(module: Any) -> list[str]:
    """Return the public names of a module that are not modules themselves."""
    names = getattr(module, "__all__", None)
    if names is None:
        own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
        names = sorted(name for name in own if not name.startswith("_"))
    return [name for name in names if not inspect.ismodule(getattr(module, name)) and not name.startswith("__")]


def directive(module: str, name: str, value: Any) -> list[str]:
    """Return what documents one public name."""
    if inspect.isclass(value):
        return [
            f".. autoclass:: {module}.{name}",
            "   :members:",
            "   :inherited-members: BaseException, tuple, str, list, Executor",
            *fields(value),
        ]
    if callable(value):
        return [f".. autofunction:: {module}.{name}"]
    return [f".. autodata:: {module}.{name}", "   :no-value:"]


def fields(value: type) -> list[str]:
    """Return what the comments above a class's fields say of them, unless its docstring names its attributes."""
    lines: list[str] = []
    names, comment = list[str](), list[str]()
    if not hasattr(value, "__annotations__") or "Attributes\n" in (inspect.getdoc(value) or ""):
        return lines
    for line in [*inspect.getsource(value).splitlines(), ""]:
        found = _FIELD.match(line)
        if names and not found:
            lines += ["", f"   {', '.join(names)}", f"      {' '.join(comment)}"]
        if found and comment:
            names.append(f"``{found[1]}``")
        elif line.startswith(_COMMENT):
            comment = [*comment, line.strip(" #")] if not names else [line.strip(" #")]
        if not found:
            names = []
            comment = comment if line.startswith(_COMMENT) else []
    return lines


def first_paragraph(value: Any) -> str:
    """Return the first paragraph of a docstring, with its code in single backticks as Markdown has it."""
    text = inspect.getdoc(value) or ""
    return text.split("\n\n", maxsplit=1)[0].replace("``", "`").replace("\n", " ")


def cell(text: object) -> str:
    """Return text for a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| " + " | ".join(head) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows:
        yield "| " + " | ".join(cell(one) for one in row) + " |"
    yield ""


def features_page() -> str:
    """Return all families of features with examples and units."""
    from perflex.features import parse_feature
    from perflex.features.families.registry import _families

    lines = ["# All features", "", "Examples of every family; [what they mean](../features.md).", ""]
    for family in _families:
        rows = [(f"`{one}`", parse_feature(one).unit) for one in family.examples]
        lines += [f"## `{family.examples[0]}` and others", "", f"{family.title}.", ""]
        lines += table(("identifier", "unit"), rows)
    return "\n".join(lines)


def generators_page() -> str:
    """Return all generators of measurement kernels with tags and arguments."""
    from uipick import ALL_GENERATORS

    lines = ["# All generators", "", "What `perflex list generators` lists; sorted by name.", ""]
    for one in sorted(ALL_GENERATORS, key=lambda generator: generator.name):
        rows = [(f"`{a.name}`", a.allowed_text, ", ".join(map(str, a.values)), a.meaning) for a in one.arguments]
        tags = ", ".join(f"`{tag}`" for tag in sorted(one.tags - {one.name}))
        lines += [f"## `{one.name}`", "", one.summary, ""]
        lines += [f"Tags: {tags}", ""] if tags else []
        lines += table(("argument", "allowed", "default", "meaning"), rows)
        lines += [f"* where `{each.description}`" for each in one.constraints if each.formula]
        lines += [f"* where {each.description}" for each in one.constraints if not each.formula] + [""]
    return "\n".join(lines)


def commands_page() -> str:
    """Return the help of all commands, as they print it in 80 columns."""
    os.environ |= {"COLUMNS": "80", "TERM": "dumb", "NO_COLOR": "1"}
    from typer.main import get_command
    from typer.testing import CliRunner

    from perflex.cli.app import application

    command = get_command(application())
    lines = ["# All commands", "", "What each prints with `--help`.", ""]
    for words in ((), *command_words(command)):
        done = CliRunner().invoke(application(), [*words, "--help"], prog_name="perflex")
        text = "\n".join(line.rstrip() for line in done.output.splitlines()).strip("\n")
        lines += [f"## `{' '.join(('perflex', *words))}`", "", "```text", text, "```", ""]
    return "\n".join(lines)


def command_words(command: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the words of every command, groups expanded."""
    for name, one in command.commands.items():
        if hasattr(one, "commands"):
            yield from command_words(one, (*before, name))
        else:
            yield (*before, name)


def models_page() -> str:
    """Return the models that come with perflex."""
    from perflex import load_model
    from perflex.models import model_names

    lines = ["# All models", "", "`load_model(NAME)`, `perflex calibrate NAME`.", ""]
    for name in model_names():
        model = load_model(name)
        rows = [(f"`{one}`", about.unit, about.meaning) for one, about in model.parameters.items()]
        lines += [f"## `{name}`", "", " ".join(model.description.split()), "", "```text"]
        lines += [wrapped(str(model.expression)), "```", "", *table(("parameter", "unit", "meaning"), rows)]
    return "\n".join(lines)


def wrapped(text: str) -> str:
    """Return a formula in lines of at most 100 characters."""
    import textwrap

    return textwrap.fill(" ".join(text.split()), 100, break_long_words=False, break_on_hyphens=False)


def machines_page() -> str:
    """Return the machines that come with perflex."""
    from perflex import load_machine, machine_names

    machines = [(name, load_machine(name)) for name in machine_names()]
    rows = [(f"`{name}`", one.kind, ", ".join(one.aliases)) for name, one in machines]
    lines = ["# All machines", "", "`perflex machine show NAME` prints every fact with its unit and source.", ""]
    return "\n".join([*lines, *table(("name", "kind", "also known as"), rows)])
