"""Reading what ``--json`` printed: of a known kind and version, with one-line errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from perflex.errors import FileFormatError
from perflex.file_io import read_text

if TYPE_CHECKING:
    from pathlib import Path

_Schema = TypeVar("_Schema")


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What every such file begins with."""

    schema: str
    perflex: str
    date: str


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises
    ------
    FileFormatError
        It cannot be read, or is no JSON.
    """
    try:
        return msgspec.json.decode(read_text(path).encode())
    except msgspec.DecodeError as error:
        msg = f"{path} is damaged: {error}; make it again"
        raise FileFormatError(msg, path=path) from error


def schema_of(content: Any) -> str:
    """Return what a file says it is, or an empty text."""
    found = content.get("schema", "") if isinstance(content, dict) else ""
    return found if isinstance(found, str) else ""


def convert(content: Any, kind: type[_Schema], path: Path, form: str, command: str) -> _Schema:
    """Return the content of a JSON file as an object.

    Parameters
    ----------
    content
        From `read_json`.
    kind
        Its fields say what must stand there.
    path, form, command
        The file, its name and version such as ``"perflex-pruning/1"``, and the command that makes it.

    Raises
    ------
    FileFormatError
        It is of another version, or something is missing or wrong.
    """
    name, _, version = form.partition("/")
    found = schema_of(content).partition("/")[2]
    if found != version:
        newer = found.isdecimal() and int(found[:9]) > int(version)
        fix = "update perflex to read it" if newer else f"make it again with {command}"
        msg = f"{path}: version {found!r} of {name} is not version {version}; {fix}"
        raise FileFormatError(msg, path=path, field="schema")
    try:
        return msgspec.convert(content, kind)
    except msgspec.ValidationError as error:
        msg = f"{path} is damaged: {str(error).replace('`$', '`(top)')}; make it again with {command}"
        raise FileFormatError(msg, path=path) from error
