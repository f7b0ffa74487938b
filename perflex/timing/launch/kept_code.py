"""What compilers made, kept in the store by all that it follows from; what nobody asks for is removed."""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar

import msgspec

from perflex.store.rows import insert
from perflex.store.store import current_store

if TYPE_CHECKING:
    from sqlite3 import Connection

_Made = TypeVar("_Made")

# Part of every key: counts what changes in how code is read or kept.
_SCHEME = 6
_DAY_S = 86400
_KEPT_S = 30 * _DAY_S
_REPLACE = """
    ON CONFLICT (digest) DO UPDATE
    SET used = excluded.used, content = excluded.content, checksum = excluded.checksum
"""


def key_of(*parts: object) -> str:
    """Return the key of what follows from these."""
    return hashlib.sha256(repr((_SCHEME, *parts)).encode("utf-8", "surrogatepass")).hexdigest()


def kept(key: str, kind: type[_Made]) -> _Made | None:
    """Return what was kept, of dataclasses that msgspec knows; None where there is nothing that can be read."""
    if not key or (store := current_store()) is None:
        return None
    for _, used, content, _ in store.read_made("code", "WHERE digest = ?", (key,)):
        with suppress(msgspec.DecodeError):
            made = msgspec.msgpack.decode(content, type=kind)
            if time.time() - used > _DAY_S:
                keep(key, made)
            return made
    return None


def keep(key: str, made: object) -> None:
    """Keep what was made; nothing happens where the key is empty, or the store is switched off."""
    if not key or (store := current_store()) is None:
        return
    now, first, content = time.time(), store.first_time("code"), msgspec.msgpack.encode(made)

    def write(connection: Connection) -> None:
        insert(connection, "code", (key, now, content), _REPLACE)
        if first:
            connection.execute("DELETE FROM code WHERE used < ?", (now - _KEPT_S,))

    store.write_made(write)
