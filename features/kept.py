"""Scops and counts in the store: by the kernel they were made from, and by what the Scop says.

Every row belongs to one state of this package's sources and of the packages that count with it: whoever edits them
reads nothing that was counted before.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

import perflex.isl
from perflex.features.polynomials.late_values import align_parameters
from perflex.features.polynomials.quasipolynomial import QuasiPolynomial, polynomial_from_record, polynomial_record
from perflex.features.scop.text import content_hash, scop_from_text, scop_to_text
from perflex.isl import ISL_LOCK, isl
from perflex.store.records import insert
from perflex.store.store import current_store
from perflex.version import __version__

if TYPE_CHECKING:
    import sqlite3

    from perflex.features.scop.scop import Scop
    from perflex.store.store import Store

_Writer = Callable[[Any], str]


def kernel_key(kernel: Any, options: str = "") -> str:
    """Return a digest of everything a loopy kernel's description depends on, equal in every process.

    loopy's own hash takes ten times as long, and differs between processes, since parameters of sets do in their order.
    """
    try:
        text = f"{options}|{_WRITERS[type(kernel)](kernel)}"
    except ValueError as error:  # Python writes no integer of thousands of digits
        raise TypeError(str(error)) from error
    # Python's strings may hold lone surrogates, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Writers(dict[type, _Writer]):
    """How objects of each class are written, as texts that are equal for equal objects and for no others."""

    def __missing__(self, kind: type) -> _Writer:
        writer = self[kind] = _writer_for(kind)
        return writer


def _writer_for(kind: type) -> _Writer:
    """Choose how objects of a class are written."""
    if is_dataclass(kind):
        return _fields_writer(kind, tuple(field.name for field in fields(kind)))
    by_base = _writers_by_base()
    return next((by_base[base] for base in kind.__mro__ if base in by_base), _text_by_loopy)


@lru_cache(maxsize=1)
def _writers_by_base() -> dict[Any, _Writer]:
    from loopy.target import TargetBase
    from loopy.tools import Optional
    from loopy.types import NumpyType
    from pytools import RecordWithoutPickling

    return {
        dict: _mapping_text,
        # What the parts of a kernel become when it crosses process borders.
        Mapping: _mapping_text,
        Sequence: _sequence_text,
        type: lambda value: f"<{value.__module__}.{value.__qualname__}>",
        Enum: lambda value: f"<{type(value).__qualname__}.{value.name}>",
        np.dtype: _dtype_text,
        np.generic: lambda value: f"<{type(value).__name__} {value!r}>",
        isl.BasicSet: _points_text,
        isl.Set: _points_text,
        Optional: lambda value: f"<some {_WRITERS[type(value.value)](value.value)}>" if value.has_value else "<none>",
        RecordWithoutPickling: _record_text,
        TargetBase: _attributes_text,
        NumpyType: _attributes_text,
    }


def _sequence_text(value: Any) -> str:
    return f"({','.join([_WRITERS[type(item)](item) for item in value])})" if value else "()"


def _set_text(value: Any) -> str:
    # Sets come in another order in each process.
    return f"{{{','.join(sorted([_WRITERS[type(item)](item) for item in value]))}}}" if value else "{}"


def _mapping_text(value: Any) -> str:
    if not value:
        return "{:}"
    items = [f"{_WRITERS[type(key)](key)}:{_WRITERS[type(item)](item)}" for key, item in value.items()]
    return f"{{{','.join(sorted(items))}}}"


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


@lru_cache(maxsize=256)
def _dtype_text(dtype: np.dtype[Any]) -> str:
    # A structure's str has its size only; descr has the fields.
    return f"<dtype {dtype.str} {dtype.descr if dtype.names else ''}>"


def _record_text(value: Any) -> str:
    # Records of one class may differ in their fields, and a class lists those of all of them.
    key = type(value), frozenset(value.__dict__.keys() & value.fields)
    writer = _RECORDS.get(key)
    if writer is None:
        writer = _RECORDS[key] = _fields_writer(key[0], tuple(sorted(key[1])))
    return writer(value)


def _fields_writer(kind: type, names: tuple[str, ...]) -> _Writer:
    """Return what writes the fields of one class."""
    opening = f"<{kind.__module__}.{kind.__qualname__}({','.join(names)}) "
    if len(names) == 1:
        (only,) = names

        def write_one(value: Any) -> str:
            item = getattr(value, only)
            return f"{opening}{_WRITERS[type(item)](item)}>"

        return write_one
    all_of = attrgetter(*names) if names else lambda _: ()

    def write(value: Any) -> str:
        return f"{opening}{','.join([_WRITERS[type(item)](item) for item in all_of(value)])}>"

    return write


def _attributes_text(value: Any) -> str:
    return f"<{type(value).__qualname__} {_mapping_text({k: v for k, v in vars(value).items() if k[:1] != '_'})}>"


def _text_by_loopy(value: Any) -> str:
    from loopy.tools import LoopyKeyBuilder

    return f"<{type(value).__qualname__} {LoopyKeyBuilder()(value)}>"


_RECORDS: dict[tuple[type, frozenset[str]], _Writer] = {}
_WRITERS = _Writers()
_WRITERS.update(dict.fromkeys((str, int, float, bool, complex, bytes, type(None)), repr))
_WRITERS.update(dict.fromkeys((tuple, list), _sequence_text))
_WRITERS.update(dict.fromkeys((set, frozenset), _set_text))


# Counts of so many states of the package stay in the store.
_KEPT_VERSIONS = 8


@lru_cache(maxsize=1)
def counting_version() -> str:
    """Return a digest of everything but the kernel that counts depend on: sources and versions."""
    from islpy.version import VERSION_TEXT as ISLPY
    from loopy.version import VERSION_TEXT as LOOPY

    digest = hashlib.sha256(f"{__version__} {LOOPY} {ISLPY}".encode())
    for name, source in _sources():
        digest.update(f"\n{name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources() -> list[tuple[str, Path]]:
    """Return names and paths of the files that decide how kernels are counted: all below features/, and isl.py."""
    top = Path(__file__).parent
    # Files of one name stand in several folders: only the path from the top tells them apart.
    own = sorted((path.relative_to(top).as_posix(), path) for path in top.rglob("*.py"))
    return [*own, ("isl.py", Path(perflex.isl.__file__))]


def scop_key(kernel: Any, options: str = "") -> str | None:
    """Return the key under which the store has the Scop of a loopy kernel counted so; None where it can have none."""
    from loopy import TranslationUnit

    # Of anything else, extraction says what is wrong.
    if current_store() is None or not isinstance(kernel, TranslationUnit):
        return None
    try:
        return kernel_key(kernel, f"{counting_version()} {options}")
    except (TypeError, AttributeError):  # something in it has no persistent hash: not a kernel to find again
        return None


def kept_scop(key: str) -> Scop | None:
    """Return the Scop that the store has under a key (`scop_key`), if any."""
    store = current_store()
    if store is None:
        return None
    for _, digest, _, _ in store.read_counts("kernels", "WHERE key = ?", (key,)):
        for _, text, _ in store.read_counts("scops", "WHERE digest = ?", (digest,)):
            return scop_from_text(str(text))
    return None


def keep_scop(key: str, scop: Scop) -> None:
    """Put a Scop into the store under a key (`scop_key`)."""
    store = current_store()
    if store is None:
        return
    digest, text = content_hash(scop), scop_to_text(scop)

    def write(connection: sqlite3.Connection) -> None:
        _housekeep(connection, store)
        insert(connection, "scops", (digest, text))
        insert(connection, "kernels", (key, digest, counting_version()))

    store.write_counts(write)


def kept_counts(scop: Scop) -> dict[str, Any]:
    """Return the records of all that was counted of a Scop before, by name."""
    store = current_store()
    if store is None:
        return {}
    records: dict[str, Any] = {}
    # Every run adds a portion with what it counted anew.
    where = "WHERE scop = ? AND version = ? ORDER BY rowid"
    for _, _, text, _ in store.read_counts("counts", where, (content_hash(scop), counting_version())):
        records.update(json.loads(text))
    return records


def keep_counts(scop: Scop, records: dict[str, Any]) -> None:
    """Add records of what was counted of a Scop to the store."""
    store = current_store()
    if store is None or not records:
        return
    row = (content_hash(scop), counting_version(), json.dumps(records, separators=(",", ":")))

    def write(connection: sqlite3.Connection) -> None:
        _housekeep(connection, store)
        insert(connection, "counts", row)

    store.write_counts(write)


def _housekeep(connection: sqlite3.Connection, store: Store) -> None:
    """Say that a process's version is in use before it writes, lest others delete its rows; forget the oldest ones."""
    if not store.first_time("counts"):
        return
    version = counting_version()
    newest = "SELECT version FROM versions ORDER BY used DESC LIMIT ?"
    connection.execute("INSERT OR REPLACE INTO versions VALUES (?, julianday('now'))", (version,))
    connection.execute(f"DELETE FROM versions WHERE version NOT IN ({newest})", (_KEPT_VERSIONS,))  # noqa: S608
    connection.execute("DELETE FROM kernels WHERE version NOT IN (SELECT version FROM versions)")
    connection.execute("DELETE FROM counts WHERE version NOT IN (SELECT version FROM versions)")
    # After the kernels: a description stays as long as one kernel refers to it.
    connection.execute("DELETE FROM scops WHERE digest NOT IN (SELECT scop FROM kernels)")


_Value = TypeVar("_Value")


class CountMemory:
    """Counted values by name; each is computed when first asked for, unless it was kept."""

    def __init__(self, load: Callable[[], dict[str, Any]]) -> None:
        self._load = load
        self._values: dict[str, Any] = {}
        self._kept: dict[str, Any] | None = None
        self._fresh: list[str] = []
        self._polynomials: dict[str, QuasiPolynomial] = {}

    def get(self, name: str, compute: Callable[[], _Value]) -> _Value:
        """Return the value of that name: a quasi-polynomial, text, number, truth value, None, or tuples of those."""
        # Reading a dict is atomic in CPython: values that are there do not wait for isl.
        try:
            return self._values[name]  # type: ignore[no-any-return]
        except KeyError:
            pass
        # isl counts operations and stops at a limit per process, not per thread.
        with ISL_LOCK:
            if name not in self._values:
                self._values[name] = self._find(name, compute)
            return self._values[name]  # type: ignore[no-any-return]

    def _find(self, name: str, compute: Callable[[], _Value]) -> Any:
        if self._kept is None:
            self._kept = self._load()
        if name in self._kept:
            return self._from_record(self._kept[name])
        value = compute()
        self._fresh.append(name)
        return value

    def _from_record(self, record: Any) -> Any:
        if isinstance(record, dict):
            return self._polynomial(record["polynomial"])
        if isinstance(record, list):
            return tuple([self._from_record(item) for item in record])
        return record

    def _polynomial(self, record: list[Any]) -> QuasiPolynomial:
        # The text says nothing of deferred parts: polynomials that have some are not shared by it.
        text, _, _, deferred = record
        if deferred:
            return polynomial_from_record(record)
        # Most are strides of 0 and 1.
        if text not in self._polynomials:
            self._polynomials[text] = polynomial_from_record(record)
        return self._polynomials[text]

    @property
    def has_fresh(self) -> bool:
        """Whether something was computed since `take_fresh`."""
        return bool(self._fresh)

    def take_fresh(self) -> dict[str, Any]:
        """Return the records of what was computed since the last call."""
        with ISL_LOCK:
            names, self._fresh = self._fresh, []
            return {name: _record(self._values[name]) for name in names}


def _record(value: Any) -> Any:
    if isinstance(value, QuasiPolynomial):
        return {"polynomial": polynomial_record(value)}
    if isinstance(value, tuple):
        return [_record(item) for item in value]
    return value
