"""Scops as YAML, for kernels described by hand."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import yaml

from perflex.errors import UnsupportedKernelError
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial
from perflex.features.scop.read_yaml import SCHEMA, ScopReader
from perflex.features.scop.scop import Barrier, Scop, Statement
from perflex.file_io import read_text
from perflex.yaml_file import parse_yaml


def scop_to_yaml(scop: Scop) -> str:
    """Return the Scop as YAML text; `scop_from_yaml` restores an equal Scop."""
    # Wide: PyYAML folds at 80 columns, in the middle of isl's sets.
    return yaml.safe_dump(scop_document(scop), sort_keys=False, width=1_000_000)


def scop_document(scop: Scop) -> dict[str, Any]:
    """Return the Scop as nested dicts and lists of texts and numbers, its fields in their order."""
    return {"schema": SCHEMA, **_document(scop)}


def _document(value: Any) -> Any:
    if isinstance(value, QuasiPolynomial):
        return value.text
    if is_dataclass(value) and not isinstance(value, type):
        document = {field.name: _document(getattr(value, field.name)) for field in fields(value)}
        if isinstance(value, (Statement, Barrier)):
            # Neither YAML nor JSON has fractions: 5/6 goes as text.
            document["averages"] = {loop: str(average) for loop, average in value.averages}
        return document
    if isinstance(value, tuple):
        return [_document(item) for item in value]
    return value if value is None or isinstance(value, (str, int)) else str(value)


def scop_from_yaml(text: str) -> Scop:
    """Read a Scop; extents and strides may be plain numbers or expressions in the parameters.

    Parameters
    ----------
    text
        YAML with ``schema: perflex-scop/1``. Domains and relations are isl strings; extents, strides and
        repeats are numbers, isl strings, or expressions such as ``"16*n"`` or ``"floor(n/16)"``.

    Raises
    ------
    FileFormatError
        The text is no such document; the field is named with its line.
    UnsupportedKernelError
        The description contradicts itself.
    """
    return _scop(text, "the Scop description")


def read_scop(path: Path | str) -> Scop:
    """Read a Scop from a YAML file, as `scop_from_yaml`; messages name the file.

    Raises
    ------
    FileFormatError
        It cannot be read, or is no such document.
    UnsupportedKernelError
        The description contradicts itself.
    """
    return _scop(read_text(path), Path(path))


def _scop(text: str, place: Path | str) -> Scop:
    values = ScopReader(parse_yaml(text, SCHEMA, place)).values()
    try:
        return Scop(**values)
    except UnsupportedKernelError as error:
        if isinstance(place, Path):
            error.message = f"{place}: {error.message}"
        raise
