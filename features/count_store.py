"""Scops and counts in the store: by the kernel they were made from, and by what the Scop says.

Every row belongs to one state of this package's sources and of the packages that count with it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from importlib.metadata import version
from operator import attrgetter
from pathlib import Path
from sqlite3 import Connection
from typing import Any

import numpy as np

import perflex.isl
from perflex.features.scop.scop import Scop
from perflex.features.scop.scop_file import content_hash, scop_from_text, scop_to_text
from perflex.isl import align_parameters, isl
from perflex.store.rows import insert
from perflex.store.store import current_store
from perflex.version import __version__

_Writer = Callable[[Any], str]
# Counts of so many states of the package stay in the store.
_KEPT_VERSIONS = 8


def kernel_key(kernel: Any, options: str = "") -> str:
    """Return a digest of everything a loopy kernel's description depends on, equal in every process.

    loopy's own hash takes ten times as long, and differs between processes, since parameters of sets do in their order.
    """
    try:
        text = f"{options}|{_text(kernel)}"
    except ValueError as error:  # Python writes no integer of thousands of digits
        raise TypeError(str(error)) from error
    # Python's strings may hold lone surrogates, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Writers(dict[type, _Writer]):
    """How objects of each class are written: equal values as equal texts, and no others."""

    def __missing__(self, kind: type) -> _Writer:
        if is_dataclass(kind):
            self[kind] = _fields_writer(kind, frozenset(field.name for field in fields(kind)))
        else:
            by_base = _writers_by_base()
            self[kind] = next((by_base[base] for base in kind.__mro__ if base in by_base), by_base[object])
        return self[kind]


def _text(value: Any) -> str:
    return _WRITERS[type(value)](value)


def _sequence_text(value: Any) -> str:
    return f"({','.join([_WRITERS[type(item)](item) for item in value])})"


def _mapping_text(value: Any) -> str:
    return f"{{:{','.join(sorted([f'{_text(key)}:{_text(item)}' for key, item in value.items()]))}}}"


_WRITERS = _Writers(dict.fromkeys((str, int, float, bool, complex, bytes, type(None)), repr))
_WRITERS.update(dict.fromkeys((tuple, list), _sequence_text))
# Sets come in another order in each process.
_WRITERS.update(dict.fromkeys((set, frozenset), lambda value: f"{{{','.join(sorted(map(_text, value)))}}}"))


@lru_cache(maxsize=1)
def _writers_by_base() -> dict[Any, _Writer]:
    from loopy.target import TargetBase
    from loopy.tools import LoopyKeyBuilder, Optional
    from loopy.types import NumpyType
    from pytools import RecordWithoutPickling

    return {
        dict: _mapping_text,
        # What the parts of a kernel become when it crosses process borders.
        Mapping: _mapping_text,
        Sequence: _sequence_text,
        type: lambda value: f"<{value.__module__}.{value.__qualname__}>",
        Enum: lambda value: f"<{type(value).__qualname__}.{value.name}>",
        # A structure's str has its size only; descr has the fields.
        np.dtype: lru_cache(maxsize=256)(lambda value: f"<dtype {value.str} {value.descr if value.names else ''}>"),
        np.generic: lambda value: f"<{type(value).__name__} {value!r}>",
        isl.BasicSet: _points_text,
        isl.Set: _points_text,
        Optional: lambda value: f"<some {_text(value.value)}>" if value.has_value else "<none>",
        # Records of one class may differ in their fields, and a class lists those of all of them.
        RecordWithoutPickling: _record_text,
        TargetBase: _attributes_text,
        NumpyType: _attributes_text,
        object: lambda value: f"<{type(value).__qualname__} {LoopyKeyBuilder()(value)}>",
    }


def _record_text(value: Any) -> str:
    kind: type = type(value)
    return _fields_writer(kind, frozenset(vars(value).keys() & value.fields))(value)


@lru_cache(maxsize=1024)
def _fields_writer(kind: Any, there: frozenset[str]) -> _Writer:
    names = sorted(there)
    opening = f"<{kind.__module__}.{kind.__qualname__}({','.join(names)}) "
    # Of one name, attrgetter returns no tuple.
    values = attrgetter(*names) if len(names) > 1 else lambda value: [getattr(value, name) for name in names]
    return lambda value: f"{opening}{','.join([_WRITERS[type(item)](item) for item in values(value)])}>"


def _points_text(value: Any) -> str:
    # loopy collects the parameters of some sets in the order of a Python set, and every process has its own.
    names = value.get_var_names(isl.dim_type.param)
    if len(names) > 1:
        value = align_parameters(value, sorted(names))
    head, colon, conditions = str(value).partition(" : ")
    # The order of conditions says nothing within one conjunction; across "or", or in a quantifier's scope, it does.
    if "exists" not in conditions and " or " not in conditions:
        conditions = " and ".join(sorted(conditions.removesuffix(" }").split(" and ")))
    return f"<{type(value).__name__} {head}{colon}{conditions}>"


def _attributes_text(value: Any) -> str:
    return f"<{type(value).__qualname__} {_mapping_text({k: v for k, v in vars(value).items() if k[:1] != '_'})}>"


@lru_cache(maxsize=1)
def counting_version() -> str:
    """Return a digest of everything but the kernel that counts depend on: sources and versions."""
    from islpy.version import VERSION_TEXT as ISLPY

    # Loopy's own module would load all of it, which a kernel in C does without.
    digest = hashlib.sha256(f"{__version__} {version('loopy')} {ISLPY}".encode())
    top = Path(__file__).parent
    # All below features/. Files of one name stand in several folders: only the path from the top tells them apart.
    sources = sorted((path.relative_to(top).as_posix(), path) for path in top.rglob("*.py"))
    for name, source in (*sources, ("isl.py", Path(perflex.isl.__file__))):
        digest.update(f"\n{name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def stored_scop(kernel: Any, options: str, describe: Callable[[], Scop]) -> Scop:
    """Return the Scop of a loopy kernel that is counted so: from the store, or described and put into it."""
    if (store := current_store()) is None:
        return describe()
    try:
        key = kernel_key(kernel, f"{counting_version()} {options}")
    except (TypeError, AttributeError):  # something in it has no persistent hash: not a kernel to find again
        return describe()
    for _, digest, _, _ in store.read_made("kernels", "WHERE key = ?", (key,)):
        for _, text, _ in store.read_made("scops", "WHERE digest = ?", (digest,)):
            return scop_from_text(str(text))
    scop = describe()
    digest = content_hash(scop)
    _write({"scops": (digest, scop_to_text(scop)), "kernels": (key, digest, counting_version())})
    return scop


def kept_counts(scop: Scop) -> dict[str, Any]:
    """Return the records of all that was counted of a Scop before, by name."""
    records: dict[str, Any] = {}
    if (store := current_store()) is not None:
        # Every run adds a portion with what it counted anew.
        where = "WHERE scop = ? AND version = ? ORDER BY rowid"
        for _, _, text, _ in store.read_made("counts", where, (content_hash(scop), counting_version())):
            records.update(json.loads(text))
    return records


def keep_counts(scop: Scop, records: dict[str, Any]) -> None:
    """Add records of what was counted of a Scop to the store."""
    _write({"counts": (content_hash(scop), counting_version(), json.dumps(records, separators=(",", ":")))})


def _write(rows: dict[str, tuple[str, ...]]) -> None:
    """Add a row to each of some tables."""
    if (store := current_store()) is None:
        return
    version, first = counting_version(), store.first_time("counts")

    def write(connection: Connection) -> None:
        if first:
            # A process says that its version is in use before it writes, lest others delete its rows.
            newest = "SELECT version FROM versions ORDER BY used DESC LIMIT ?"
            connection.execute("INSERT OR REPLACE INTO versions VALUES (?, julianday('now'))", (version,))
            connection.execute(f"DELETE FROM versions WHERE version NOT IN ({newest})", (_KEPT_VERSIONS,))  # noqa: S608
            for table in ("kernels", "counts"):
                connection.execute(f"DELETE FROM {table} WHERE version NOT IN (SELECT version FROM versions)")  # noqa: S608
            # After the kernels: a description stays as long as one kernel refers to it.
            connection.execute("DELETE FROM scops WHERE digest NOT IN (SELECT scop FROM kernels)")
        for table, row in rows.items():
            insert(connection, table, row)

    store.write_made(write)
