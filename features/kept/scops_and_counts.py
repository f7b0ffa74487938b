"""Scops and counts in the store: by the kernel they were made from, and by what the Scop says.

Every row belongs to one state of this package's sources and of the packages that count with it: whoever edits them
reads nothing that was counted before.
"""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import perflex.isl
from perflex.features.kept.kernel_key import kernel_key
from perflex.isl import ISL_LOCK
from perflex.store.store import current_store
from perflex.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable

    from perflex.features.scop.scop import Scop
    from perflex.store.store import Store

__all__ = ["counting_version", "keep_counts", "kept_counts", "kept_scop"]

# Counts of so many states of the package stay in the store.
_KEPT_VERSIONS = 8


@lru_cache(maxsize=1)
def counting_version() -> str:
    """Return a digest of everything but the kernel that counts depend on: sources and versions."""
    from islpy.version import VERSION_TEXT as ISLPY
    from loopy.version import VERSION_TEXT as LOOPY

    digest = hashlib.sha256(f"{__version__} {LOOPY} {ISLPY}".encode())
    for source in _sources():
        digest.update(f"\n{source.name}\n".encode())
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _sources() -> list[Path]:
    own = sorted(Path(__file__).parents[1].rglob("*.py"), key=lambda path: path.name)
    return [*own, Path(perflex.isl.__file__)]


def kept_scop(kernel: Any, extract: Callable[[], Scop], options: str = "") -> Scop:
    """Return the Scop of a kernel from the store, or extract it and put it there.

    Parameters
    ----------
    kernel
        A loopy ``TranslationUnit``.
    extract
        Makes the Scop.
    options
        What else the Scop depends on, as text.
    """
    store = current_store()
    key = None if store is None else _key(kernel, options)
    if store is None or key is None:
        with ISL_LOCK:
            return extract()
    found = _read_scop(store, key)
    if found is not None:
        return found
    with ISL_LOCK:
        scop = extract()
    _write_scop(store, key, scop)
    return scop


def _key(kernel: Any, options: str) -> str | None:
    from loopy import TranslationUnit

    if not isinstance(kernel, TranslationUnit):  # extraction says what is wrong
        return None
    try:
        return kernel_key(kernel, f"{counting_version()} {options}")
    except (TypeError, AttributeError):  # something in it has no persistent hash: not a kernel to find again
        return None


def _read_scop(store: Store, key: str) -> Scop | None:
    from perflex.features.scop.text import scop_from_text, text_hash

    query = "SELECT digest, text FROM scops JOIN kernels ON scops.digest = kernels.scop WHERE kernels.key = ?"
    for digest, text in store.read(query, (key,)):
        if text_hash(text) != digest:
            store.set_aside("a kernel's description has changed in it")
            return None
        scop = scop_from_text(text)
        scop.__dict__["_text_hash"] = digest
        return scop
    return None


def _write_scop(store: Store, key: str, scop: Scop) -> None:
    from perflex.features.scop.text import scop_to_text

    digest = _hash_of(scop)
    store.write(
        [
            *_housekeeping(store),
            ("INSERT OR REPLACE INTO scops (digest, text) VALUES (?, ?)", (digest, scop_to_text(scop))),
            (
                "INSERT OR REPLACE INTO kernels (key, scop, version) VALUES (?, ?, ?)",
                (key, digest, counting_version()),
            ),
        ]
    )


def _hash_of(scop: Scop) -> str:
    from perflex.features.scop.text import content_hash

    digest: str | None = scop.__dict__.get("_text_hash")
    if digest is None:
        digest = scop.__dict__["_text_hash"] = content_hash(scop)
    return digest


def kept_counts(scop: Scop) -> dict[str, Any]:
    """Return the records of all that was counted of a Scop before, by name."""
    from perflex.features.scop.text import text_hash

    store = current_store()
    if store is None:
        return {}
    records: dict[str, Any] = {}
    query = "SELECT digest, text FROM counts WHERE scop = ? AND version = ? ORDER BY number"
    for digest, text in store.read(query, (_hash_of(scop), counting_version())):
        if text_hash(text) != digest:
            store.set_aside("counts have changed in it")
            return {}
        records.update(json.loads(text))
    return records


def keep_counts(scop: Scop, records: dict[str, Any]) -> None:
    """Add records of what was counted of a Scop to the store."""
    from perflex.features.scop.text import text_hash

    store = current_store()
    if store is None or not records:
        return
    text = json.dumps(records, separators=(",", ":"))
    row = (_hash_of(scop), counting_version(), text_hash(text), text)
    store.write(
        [
            *_housekeeping(store),
            ("INSERT INTO counts (scop, version, digest, text) VALUES (?, ?, ?, ?)", row),
        ]
    )


def _housekeeping(store: Store) -> list[tuple[str, tuple[Any, ...]]]:
    """Return what a process does when it first writes: say that its version is in use, and forget the oldest ones."""
    if not store.first_time("counts"):
        return []
    version = counting_version()
    return [
        ("INSERT OR REPLACE INTO versions (version, used) VALUES (?, julianday('now'))", (version,)),
        (
            "DELETE FROM versions WHERE version NOT IN (SELECT version FROM versions ORDER BY used DESC LIMIT ?)",
            (_KEPT_VERSIONS,),
        ),
        ("DELETE FROM kernels WHERE version NOT IN (SELECT version FROM versions)", ()),
        ("DELETE FROM counts WHERE version NOT IN (SELECT version FROM versions)", ()),
        ("DELETE FROM scops WHERE digest NOT IN (SELECT scop FROM kernels)", ()),
    ]
