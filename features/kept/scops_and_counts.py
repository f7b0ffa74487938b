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
from perflex.features.scop.text import content_hash, scop_from_text, scop_to_text
from perflex.store.rows import text_digest
from perflex.store.store import current_store
from perflex.version import __version__

if TYPE_CHECKING:
    from perflex.features.scop.scop import Scop
    from perflex.store.store import Store

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
    top = Path(__file__).parents[1]
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
    query = """
        SELECT kernels.key, digest, text, checksum FROM scops JOIN kernels ON scops.digest = kernels.scop
        WHERE kernels.key = ? AND checksum IS NOT NULL
    """
    for found, digest, text, checksum in store.read(query, (key,)):
        # A damaged file must not lead to wrong counts.
        if text_digest(text) != digest or text_digest(found, digest) != checksum or found != key:
            store.set_aside("a kernel's description has changed in it")
            return None
        return scop_from_text(text)
    return None


def keep_scop(key: str, scop: Scop) -> None:
    """Put a Scop into the store under a key (`scop_key`)."""
    store = current_store()
    if store is None:
        return
    digest = content_hash(scop)
    # Housekeeping first: rows of a version that is not listed as used would be deleted by other processes.
    store.write(
        [
            *_housekeeping(store),
            ("INSERT OR REPLACE INTO scops (digest, text) VALUES (?, ?)", (digest, scop_to_text(scop))),
            (
                "INSERT OR REPLACE INTO kernels (key, scop, version, checksum) VALUES (?, ?, ?, ?)",
                (key, digest, counting_version(), text_digest(key, digest)),
            ),
        ]
    )


def kept_counts(scop: Scop) -> dict[str, Any]:
    """Return the records of all that was counted of a Scop before, by name."""
    store = current_store()
    if store is None:
        return {}
    records: dict[str, Any] = {}
    # Every run adds a portion with what it counted anew.
    query = "SELECT scop, version, text, digest FROM counts WHERE scop = ? AND version = ? ORDER BY number"
    for *texts, digest in store.read(query, (content_hash(scop), counting_version())):
        if text_digest(*texts) != digest:
            store.set_aside("counts have changed in it")
            return {}
        records.update(json.loads(texts[-1]))
    return records


def keep_counts(scop: Scop, records: dict[str, Any]) -> None:
    """Add records of what was counted of a Scop to the store."""
    store = current_store()
    if store is None or not records:
        return
    text = json.dumps(records, separators=(",", ":"))
    place = (content_hash(scop), counting_version())
    row = (*place, text_digest(*place, text), text)
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
        # After the kernels: a description stays as long as one kernel refers to it.
        ("DELETE FROM scops WHERE digest NOT IN (SELECT scop FROM kernels)", ()),
    ]
