"""The one writer of JSON: what ``--json`` of any command prints."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Real
from pathlib import PurePath
from typing import Any

import typer


def as_json(value: Any) -> Any:
    """Return dictionaries, lists, texts and numbers that say what a record, mapping, sequence, array or number does.

    What is not a finite number becomes None, for JSON knows neither nan nor infinity.
    """
    if is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    elif hasattr(value, "__struct_fields__"):  # one of msgspec's, which takes a tenth of a second to import
        value = {name: getattr(value, name) for name in value.__struct_fields__}
    elif hasattr(value, "tolist"):  # arrays and numbers of numpy, which need not be imported to be recognised
        value = value.tolist()
    if isinstance(value, Mapping):
        return {key: as_json(entry) for key, entry in value.items()}
    if isinstance(value, (str, PurePath)):
        return str(value)
    # True and False are ints, and stay what they are.
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    return [as_json(entry) for entry in value]


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return some attributes of an object by name, properties as well as fields."""
    return {name: getattr(value, name) for name in names}


def stamped(schema: str, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is printed behind what it is, and when and by what it was made."""
    from datetime import UTC, datetime

    from perflex.version import __version__

    made = {"schema": schema, "perflex": __version__, "date": datetime.now(UTC).isoformat(timespec="seconds")}
    return {**made, **content}


def print_series(series: Sequence[Mapping[str, int]], found: Sequence[Any], name: str = "") -> None:
    """Print what was found at each of some sizes: a list with the sizes beside it, which has a name if it is no object.

    What was found at the only sizes is printed alone.
    """
    if len(series) == 1:
        print_json(found[0])
    else:
        pairs = zip(series, found, strict=True)
        print_json([{"sizes": sizes, **({name: one} if name else one)} for sizes, one in pairs])


def print_json(value: Any) -> None:
    """Print an object on standard output as `as_json` gives it."""
    typer.echo(json.dumps(as_json(value), indent=2))
