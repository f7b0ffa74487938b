"""Reading and writing perflex's YAML files: strict, with the line in every complaint, never running code."""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import yaml
from msgspec import Meta, inspect

from perflex.errors import FileFormatError
from perflex.file_io import read_text, saving

if TYPE_CHECKING:
    from collections.abc import Mapping

_Schema = TypeVar("_Schema", bound=msgspec.Struct)
# Makes what a field has of a class that msgspec does not know; a ValueError says in lower case what is wrong.
_Hook = Callable[[type, Any], Any]

# YAML has numbers that are none.
Finite = Annotated[float, Meta(ge=-sys.float_info.max, le=sys.float_info.max)]
Positive = Annotated[float, Meta(gt=0, le=sys.float_info.max)]

# Bits of a whole number: those of the largest double. Python's own limit holds for decimal digits alone.
_MAX_BITS = 1024
_TOO_LONG = "a whole number of more than 308 digits"
# Letters in which a file says what it is; comments may stand before.
_BEGINNING = 1000
# Characters of a wrong value that a message shows.
_SHOWN = 80


class Fields(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A mapping whose keys are the class's fields, and no others: the schema of a file consists of such classes."""


@dataclass
class Section:
    """A mapping of a YAML file that knows its place; mappings below it are sections, too."""

    # Or what messages call a text that is from no file.
    path: Path | str
    # Place within the file, e.g. "parameters.p_madd"; empty at the top.
    where: str
    entries: dict[str, Any]
    # Of each key, and where the mapping begins, counted from 1.
    lines: dict[str, int]
    line: int

    def read(self, schema: type[_Schema], hook: _Hook | None = None) -> _Schema:
        """Return the content as an object of a class, whose fields say which keys there are, and what may be there."""
        try:
            return msgspec.convert(_plain(self), schema, dec_hook=hook)
        except msgspec.ValidationError as error:
            raise self._misfit(schema, str(error)) from None

    def error(self, cause: str, *steps: str | int) -> FileFormatError:
        """Return the error for a place below this section: the keys, and numbers in lists, that lead there."""
        where, line = self.where, self.line
        value: Any = self
        for step in steps:
            if isinstance(step, int):
                where = f"{where}[{step}]"
                value = value[step] if isinstance(value, list) else None
                line = value.line if isinstance(value, Section) else line
            else:
                where = f"{where}.{step}" if where else step
                line = value.lines.get(step, value.line) if isinstance(value, Section) else line
                value = value.entries.get(step) if isinstance(value, Section) else None
        msg = f"{self.path}, line {line}, field {where or '(top)'}: {cause}"
        return FileFormatError(msg, path=self.path, line=line, field=where)

    def _misfit(self, schema: type[msgspec.Struct], error: str) -> FileFormatError:
        """Return the error for what msgspec says of the content, at the line where it says it."""
        # msgspec ends its messages with the place: Expected `int`, got `str` - at `$.parameters[0].value`.
        message, _, place = error.partition(" - at `$")
        kind: Any = inspect.type_info(schema)
        value: Any = self
        steps: list[str | int] = []
        for name, index in _STEPS.findall(place):
            step = name or index
            # msgspec writes an entry of a mapping with free keys as [...], without its key.
            if index == "...":
                step = self._culprit(value, schema, error)
            elif index:
                step = int(index)
            steps.append(step)
            value = value[step] if isinstance(value, list) else value.entries[step]
            kind = _kind_below(kind, name, step)
        key = _KEY.fullmatch(message)
        if key is None:
            return self.error(_wrong_value(message, kind, value), *steps)
        if key["missing"]:
            return self.error("it is missing; the file is incomplete", *steps, key["missing"])
        known = sorted(known.encode_name for known in _structs(kind)[0].fields)
        return self.error(f"there is no such field; known here: {', '.join(known)}", *steps, key["unknown"])

    def _culprit(self, section: Section, schema: type[msgspec.Struct], message: str) -> str:
        """Return the key of a mapping that msgspec found fault with, which it does not name; the others are removed."""
        entries = section.entries
        for key in entries:
            section.entries = {key: entries[key]}
            try:
                msgspec.convert(_plain(self), schema)
            except msgspec.ValidationError as error:
                if str(error) == message:
                    break
        return key


_STEPS = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_KEY = re.compile(r"Object (missing required field `(?P<missing>.*)`|contains unknown field `(?P<unknown>.*)`)")
_EXPECTED = re.compile(r"Expected `([a-z |]+)`( [<>]=? )?(.*)")
_KINDS = {
    "str": "a text",
    "int": "a whole number",
    # YAML reads 1e-9 (no point in it) as a text.
    "float": "a number such as 1.0e-9",
    "bool": "true or false",
    "array": "a list",
    "object": "a mapping",
}


def _structs(kind: Any) -> list[Any]:
    """Return the classes that a mapping may be read as."""
    kinds = kind.types if isinstance(kind, inspect.UnionType) else [kind]
    return [kind for kind in kinds if isinstance(kind, inspect.StructType)]


def _kind_below(kind: Any, field: str, step: str | int) -> Any:
    """Return the type of a field, or without one that of the entries of a list or mapping, or of one in a tuple."""
    if field:
        return next(known.type for known in _structs(kind)[0].fields if known.encode_name == field)
    for part in kind.types if isinstance(kind, inspect.UnionType) else [kind]:
        if isinstance(part, inspect.TupleType) and isinstance(step, int):
            return part.item_types[step]
        for name in ("item_type", "value_type"):
            if hasattr(part, name):
                return getattr(part, name)
    return None


def _wrong_value(message: str, kind: Any, value: Any) -> str:
    shown = "a mapping" if isinstance(value, Section) else "a list" if isinstance(value, list) else repr(value)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
    if isinstance(kind, inspect.LiteralType):
        return f"it must be {'one of ' * (len(kind.values) > 1)}{', '.join(map(repr, kind.values))}, not {shown}"
    found = _EXPECTED.match(message)
    if found is None:
        return message if message[:1].islower() else f"{message}, not {shown}"
    wanted, comparison, bound = found.groups()
    # inf and nan fail the bounds of Finite, and 1.8e308 in a message would puzzle its reader.
    if comparison and isinstance(value, float) and not math.isfinite(value):
        return f"a finite number must stand here, not {shown}"
    if comparison:
        return f"it must be a number{comparison}{bound}, not {shown}"
    words = " or ".join(_KINDS[word] for word in wanted.split(" | ") if word in _KINDS)
    return f"{words} must stand here, not {shown}"


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return {key: _plain(entry) for key, entry in value.entries.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def read_yaml(path: Path | str, schema: str) -> Section:
    """Return the content of a YAML file of a given schema, such as ``"perflex-calibration/1"``, without that field.

    Tags and aliases are refused.
    """
    return parse_yaml(read_text(path), schema, Path(path))


def parse_yaml(text: str, schema: str, path: Path | str) -> Section:
    """Return the content of a YAML text as `read_yaml`; `path` is its file, or what else messages are to call it."""
    top = _parse(text, path)
    if not isinstance(top, Section):
        msg = f"{path}, line 1: no mapping with a field 'schema'; it is damaged or foreign"
        raise FileFormatError(msg, path=path, line=1)
    _check_schema(top, schema)
    del top.entries["schema"]
    return top


def _loader() -> Any:
    """Return what composes YAML: LibYAML reads ten times as fast, where PyYAML was built with it."""
    if not yaml.__with_libyaml__:
        return yaml.SafeLoader

    # The levels of a file are descended into in Python all the same, which bounds them.
    class Loader(yaml.composer.Composer, yaml.CSafeLoader):
        def __init__(self, text: str) -> None:
            yaml.CSafeLoader.__init__(self, text)
            yaml.composer.Composer.__init__(self)

    return Loader


_Loader = _loader()


def _parse(text: str, path: Path | str) -> Any:
    try:
        # Composed, not loaded: nodes know their lines, and no tag constructs an object.
        # An alias needs an anchor, so that without any "&" the search for aliases is spared.
        node = yaml.compose(text, Loader=_Loader) if "&" not in text else _compose_without_aliases(text)
        return _build(node, path, "") if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        msg = f"{path}, line {line}: {error.problem or error.context}; the file is damaged or foreign"
        raise FileFormatError(msg, path=path, line=line) from error
    # A text from elsewhere than a file may hold halves of characters.
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        msg = f"{path} is no YAML: {' '.join(str(error).split())}; it is damaged or foreign"
        raise FileFormatError(msg, path=path) from error
    # PyYAML and `_build` descend into each level by a call.
    except RecursionError as error:
        msg = f"{path} is nested too deeply; it is not a file of perflex"
        raise FileFormatError(msg, path=path) from error


def _compose_without_aliases(text: str) -> Any:
    # Aliases can make a small file expand without end; no file of perflex has any.
    for event in yaml.parse(text, Loader=_Loader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            mark = event.start_mark
            problem = f"anchors and aliases are refused (line {mark.line + 1})" if mark is not None else ""
            raise yaml.YAMLError(problem)
    return yaml.compose(text, Loader=_Loader)


def _build(node: yaml.Node, path: Path | str, where: str) -> Any:
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        section = Section(path, where, {}, {}, node.start_mark.line + 1)
        for key_node, value_node in node.value:
            # As written: YAML itself would read the key `on` as true, and 1 as a number.
            key = key_node.value
            line = key_node.start_mark.line + 1
            # YAML's parsers silently take the last of two equal keys.
            if not isinstance(key, str) or key in section.entries:
                problem = f"the field {key!r} stands here twice" if isinstance(key, str) else "a name must stand here"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            section.lines[key] = line
            section.entries[key] = _build(value_node, path, f"{where}.{key}" if where else key)
        return section
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_build(entry, path, f"{where}[{index}]") for index, entry in enumerate(node.value)]
    # Mappings and lists with a tag of their own are refused there, too.
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if not isinstance(node, yaml.ScalarNode) or kind not in {"str", "int", "float", "bool", "null", "timestamp"}:
        problem = f"the tag {node.tag!r} is refused"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    # A date is a text of whoever wrote it.
    if kind in {"str", "timestamp"}:
        return node.value
    if kind == "int" and len(node.value) > _MAX_BITS:  # Python converts no more than 4300 digits
        raise yaml.MarkedYAMLError(problem=_TOO_LONG, problem_mark=node.start_mark)
    try:
        value = yaml.constructor.SafeConstructor().construct_object(node)
    # One that no double holds.
    except (ValueError, OverflowError) as error:
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error
    except (KeyError, IndexError) as error:
        problem = f"the text {node.value[:40]!r} does not fit its tag {node.tag!r}"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark) from error
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        raise yaml.MarkedYAMLError(problem=_TOO_LONG, problem_mark=node.start_mark)
    return value


def schema_of(path: str) -> str:
    """Return the schema that a file's beginning names; empty where there is none, or it cannot be read."""
    # Neither a pipe, which has an end for one reader only, nor a device without any.
    if not os.path.isfile(path):  # noqa: PTH113 - as below
        return ""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as stream:
            found = re.search(r"^schema:\s*(\S+)", stream.read(_BEGINNING), re.MULTILINE)
    except OSError:
        return ""
    return found[1] if found else ""


def _check_schema(top: Section, schema: str) -> None:
    name, _, version = schema.partition("/")
    if "schema" not in top.entries:
        msg = f"{top.path}, line {top.line}: there is no field 'schema'; this is no {name} file"
        raise FileFormatError(msg, path=top.path, line=top.line, field="schema")
    found = top.entries["schema"]
    if not isinstance(found, str):
        msg = f"a text must stand here, not {found!r}"
        raise top.error(msg, "schema")
    found_name, _, found_version = found.partition("/")
    if found_name != name:
        msg = f"this is a {found_name!r} file, not {name!r}"
        raise top.error(msg, "schema")
    if found_version != version:
        # Not all digits: Python refuses to convert thousands of them.
        newer = found_version.isdecimal() and int(found_version[:9]) > int(version)
        fix = "update perflex to read it" if newer else "make the file again"
        msg = f"version {found_version!r} of {name} is not version {version}; {fix}"
        raise top.error(msg, "schema")


def write_yaml(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a YAML file in one step: it is either there completely or as it was before (`perflex.file_io.writing`)."""
    # ASCII with escapes: written raw, some Unicode line breaks come back as blanks.
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=False, width=110)
    with saving(path) as stream:
        stream.write(text)
