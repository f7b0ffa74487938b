"""Reading and writing perflex's YAML files: strict, with the line in every complaint, never running code."""

from __future__ import annotations

import math
import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from perflex.errors import FileFormatError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Section", "read_yaml", "write_yaml"]

_MAX_BYTES = 32 * 2**20


@dataclass
class Section:
    """A mapping of a YAML file that knows its place and which of its keys were read.

    Attributes
    ----------
    path
        The file.
    where
        Place within the file, e.g. ``"parameters.p_madd"``; empty at the top.
    entries
        The mapping; mappings below it are sections too.
    lines
        Line of each key, counted from 1.
    line
        Line where the mapping begins.
    """

    path: Path
    where: str
    entries: dict[str, Any]
    lines: dict[str, int]
    line: int
    _read: set[str] = field(default_factory=set)

    def error(self, cause: str, key: str = "") -> FileFormatError:
        """Return the error for a key of this section."""
        name = ".".join(part for part in (self.where, key) if part)
        line = self.lines.get(key, self.line)
        msg = f"{self.path}, line {line}, field {name or '(top)'}: {cause}"
        return FileFormatError(msg, path=self.path, line=line, field=name)

    def __contains__(self, key: str) -> bool:
        """Return whether the section has a key."""
        return key in self.entries

    def __iter__(self) -> Iterator[str]:
        """Iterate over the keys."""
        return iter(self.entries)

    def _take(self, key: str) -> Any:
        if key not in self.entries:
            msg = "it is missing; the file is incomplete"
            raise self.error(msg, key)
        self._read.add(key)
        return self.entries[key]

    def text(self, key: str) -> str:
        """Return a string."""
        value = self._take(key)
        if not isinstance(value, str):
            msg = f"a text must stand here, not {value!r}"
            raise self.error(msg, key)
        return value

    def flag(self, key: str) -> bool:
        """Return a truth value."""
        value = self._take(key)
        if not isinstance(value, bool):
            msg = f"true or false must stand here, not {value!r}"
            raise self.error(msg, key)
        return value

    def integer(self, key: str) -> int:
        """Return a whole number."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int):
            msg = f"a whole number must stand here, not {value!r}"
            raise self.error(msg, key)
        return value

    def number(self, key: str, *, finite: bool = True) -> float:
        """Return a number; nan and infinities only where they are allowed."""
        value = self._take(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            # YAML reads 1e-9 (no point in it) as a text.
            msg = f"a number such as 1.0e-9 must stand here, not {value!r}"
            raise self.error(msg, key)
        if finite and not math.isfinite(value):
            msg = f"a finite number must stand here, not {value!r}"
            raise self.error(msg, key)
        return float(value)

    def quantity(self, key: str, unit: str | None = None, *, finite: bool = True) -> float:
        """Return the value of a ``{value, unit}`` pair, checking the unit if one is given."""
        pair = self.section(key)
        value = pair.number("value", finite=finite)
        found = pair.text("unit")
        if unit is not None and found != unit:
            msg = f"the unit must be {unit!r}, not {found!r}"
            raise pair.error(msg, "unit")
        pair.finish()
        return value

    def items(self, key: str) -> list[Any]:
        """Return a list."""
        value = self._take(key)
        if not isinstance(value, list):
            msg = f"a list must stand here, not {value!r}"
            raise self.error(msg, key)
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of strings."""
        values = self.items(key)
        if not all(isinstance(value, str) for value in values):
            msg = "every entry must be a text"
            raise self.error(msg, key)
        return tuple(values)

    def section(self, key: str) -> Section:
        """Return a mapping."""
        value = self._take(key)
        if not isinstance(value, Section):
            msg = f"a mapping must stand here, not {value!r}"
            raise self.error(msg, key)
        return value

    def sections(self, key: str) -> list[Section]:
        """Return a list of mappings."""
        values = self.items(key)
        if not all(isinstance(value, Section) for value in values):
            msg = "every entry must be a mapping"
            raise self.error(msg, key)
        return values

    def skip(self, key: str) -> None:
        """Accept a key without looking at it."""
        self._take(key)

    def plain(self, key: str) -> dict[str, Any]:
        """Return a mapping of any keys as plain dictionaries and lists."""
        plain: dict[str, Any] = _plain(self.section(key))
        return plain

    def finish(self) -> None:
        """Refuse keys that nobody read."""
        unknown = [key for key in self.entries if key not in self._read]
        if unknown:
            msg = f"there is no such field; known here: {', '.join(sorted(self._read))}"
            raise self.error(msg, unknown[0])


def _plain(value: Any) -> Any:
    if isinstance(value, Section):
        return {key: _plain(entry) for key, entry in value.entries.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value


def read_yaml(path: Path | str, schema: str) -> Section:
    """Read a YAML file of a given schema.

    Parameters
    ----------
    path
        The file.
    schema
        Name and version, e.g. ``"perflex-calibration/1"``; must stand in the file's field ``schema``.

    Raises
    ------
    FileFormatError
        The file cannot be read, is no YAML, uses tags or aliases, or is of another schema.
    """
    path = Path(path)
    try:
        if path.stat().st_size > _MAX_BYTES:
            msg = f"{path} is larger than {_MAX_BYTES} bytes; it is not a file of perflex"
            raise FileFormatError(msg, path=path)
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror or error}"
        raise FileFormatError(msg, path=path) from error
    except UnicodeDecodeError as error:
        msg = f"{path} is not a text file: byte {error.start} is no UTF-8; it is damaged or foreign"
        raise FileFormatError(msg, path=path) from error
    top = _parse(text, path)
    if not isinstance(top, Section):
        msg = f"{path}, line 1: no mapping with a field 'schema'; it is damaged or foreign"
        raise FileFormatError(msg, path=path, line=1)
    _check_schema(top, schema)
    return top


def _parse(text: str, path: Path) -> Any:
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader) if "&" not in text else _compose_without_aliases(text)
        return _build(node, path, "") if node is not None else None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 1 if mark is not None else 1
        msg = f"{path}, line {line}: {error.problem or error.context}; the file is damaged or foreign"
        raise FileFormatError(msg, path=path, line=line) from error
    except yaml.YAMLError as error:
        msg = f"{path} is no YAML: {' '.join(str(error).split())}; it is damaged or foreign"
        raise FileFormatError(msg, path=path) from error
    except RecursionError as error:
        msg = f"{path} is nested too deeply; it is not a file of perflex"
        raise FileFormatError(msg, path=path) from error


def _compose_without_aliases(text: str) -> Any:
    # Aliases can make a small file expand without end; no file of perflex has any.
    for event in yaml.parse(text, Loader=yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
            mark = event.start_mark
            problem = f"anchors and aliases are refused (line {mark.line + 1})" if mark is not None else ""
            raise yaml.YAMLError(problem)
    return yaml.compose(text, Loader=yaml.SafeLoader)


def _build(node: yaml.Node, path: Path, where: str) -> Any:
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        section = Section(path, where, {}, {}, node.start_mark.line + 1)
        for key_node, value_node in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if not isinstance(key, str) or key in section.entries:
                problem = f"the field {key!r} stands here twice" if isinstance(key, str) else "a name must stand here"
                raise yaml.MarkedYAMLError(problem=problem, problem_mark=key_node.start_mark)
            section.lines[key] = line
            section.entries[key] = _build(value_node, path, f"{where}.{key}" if where else key)
        return section
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_build(entry, path, f"{where}[{index}]") for index, entry in enumerate(node.value)]
    return _scalar(node)


def _scalar(node: yaml.Node) -> Any:
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if not isinstance(node, yaml.ScalarNode) or kind not in {"str", "int", "float", "bool", "null", "timestamp"}:
        problem = f"the tag {node.tag!r} is refused"
        raise yaml.MarkedYAMLError(problem=problem, problem_mark=node.start_mark)
    if kind in {"str", "timestamp"}:
        return node.value
    try:
        return yaml.constructor.SafeConstructor().construct_object(node)
    except ValueError as error:
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error


def _check_schema(top: Section, schema: str) -> None:
    name, _, version = schema.partition("/")
    if "schema" not in top:
        msg = f"{top.path}, line {top.line}: there is no field 'schema'; this is no {name} file"
        raise FileFormatError(msg, path=top.path, line=top.line, field="schema")
    found_name, _, found_version = top.text("schema").partition("/")
    if found_name != name:
        msg = f"this is a {found_name!r} file, not {name!r}"
        raise top.error(msg, "schema")
    if found_version != version:
        newer = found_version.isdecimal() and int(found_version[:9]) > int(version)
        fix = "update perflex to read it" if newer else "the file is damaged; make it again"
        msg = f"version {found_version!r} of {name} is not version {version}; {fix}"
        raise top.error(msg, "schema")


def write_yaml(path: Path | str, content: Mapping[str, Any]) -> None:
    """Write a YAML file in one step: it is either there completely or as it was before.

    Raises
    ------
    FileFormatError
        The file cannot be written; the cause is named.
    """
    path = Path(path)
    # ASCII with escapes: written raw, some Unicode line breaks come back as blanks.
    text = yaml.safe_dump(dict(content), sort_keys=False, allow_unicode=False, width=110)
    temporary = ""
    try:
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as stream:
            temporary = stream.name
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        Path(temporary).chmod(mode)
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        msg = f"cannot write {path}: {error.strerror or error}"
        raise FileFormatError(msg, path=path) from error
