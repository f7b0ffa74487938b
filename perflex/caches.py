"""Caches on disk of the packages that perflex uses: in a place that can be written, and without entries of the past.

loopy cannot be imported, pyopencl builds no kernel and PoCL offers no device where their caches cannot be written, as
in containers and on clusters whose home folder is missing or read-only. `use_writable_caches` names another place to
this process and its children, before any of these packages looks. loopy's entries are pickles, which name modules and
classes of other versions; `repair_pytools_cache` has those that cannot be read made again.
"""

from __future__ import annotations

import atexit
import os
import stat
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.errors import EnvironmentSetupError, warn

if TYPE_CHECKING:
    from collections.abc import Collection

_CACHE_HOME = "XDG_CACHE_HOME"
_POCL = "POCL_CACHE_DIR"
# Where perflex's own files go. The first process decides, its children inherit that.
_OWN = "PERFLEX_OWN_CACHE"
# Folders below the cache home.
_SHARED = ("pytools", "pyopencl", "pocl")
# Variables of packages that keep things elsewhere, and where. Nobody misses these, so that nothing is said of them.
_ELSEWHERE = {"MPLCONFIGDIR": ".config/matplotlib", "CUPY_CACHE_DIR": ".cupy/kernel_cache"}

# What is to be said once somebody uses a cache: importing perflex alone is no reason for a warning.
_notice = ""
_refusal = ""


def use_writable_caches() -> None:
    """Have packages whose caches cannot be written use a private temporary folder; does nothing where all can."""
    global _notice, _refusal  # noqa: PLW0603 - said once in a process
    home, pocl, own = _cache_home(), os.environ.get(_POCL), os.environ.get(_OWN)
    shared = (_obstacle(home / name) for name in _SHARED if not (pocl and name == "pocl"))
    unmade = next(filter(None, shared), "") or _made(home)
    # The variables that have to change, and why.
    reasons = {
        _CACHE_HOME: unmade,
        _POCL: _obstacle(Path(pocl)) if pocl else "",
        _OWN: _obstacle(Path(own) if own else home / "perflex") or ("" if own or home.is_dir() else unmade),
    }
    reasons |= {name: _obstacle(Path(os.environ.get(name) or _home() / place)) for name, place in _ELSEWHERE.items()}
    changed = {name for name, reason in reasons.items() if reason}
    if not changed:
        return
    told = next((reason for name, reason in reasons.items() if reason and name not in _ELSEWHERE), "")
    try:
        place = _private_folder()
    except OSError:
        _refusal = f"{told}, and no temporary folder either; set XDG_CACHE_HOME to a folder of yours" if told else ""
        return
    if _CACHE_HOME in changed and not own:
        # perflex's own files stay where they can.
        os.environ[_OWN] = str(cache_folder())
    os.environ.update({name: str(place / name.lower()) for name in changed})
    if told:
        _notice = (
            f"{told}; caches of {_owners(changed)} are in {place}, which may not last; set HOME or XDG_CACHE_HOME to a "
            "folder that can be written"
        )


def _owners(changed: Collection[str]) -> str:
    owners = {_CACHE_HOME: "loopy, pyopencl and PoCL", _POCL: "PoCL", _OWN: "perflex (its store, too)"}
    return ", ".join(owner for name, owner in owners.items() if name in changed)


def warn_of_moved_caches() -> None:
    """Warn, once, where caches are in another place than they should be; an error where there is no place at all."""
    global _notice
    if _refusal:
        raise EnvironmentSetupError(_refusal)
    if _notice:
        text, _notice = _notice, ""
        warn(text)


def cache_folder() -> Path:
    """Return the folder of perflex's own caches, which need not be there yet."""
    if place := os.environ.get(_OWN):
        return Path(place)
    from platformdirs import user_cache_path

    return user_cache_path("perflex")


def _cache_home() -> Path:
    """Return where packages keep their caches, by the rules of platformdirs."""
    given = os.environ.get(_CACHE_HOME, "").strip()
    return Path(given) if given else _home() / ("Library/Caches" if sys.platform == "darwin" else ".cache")


def _home() -> Path:
    # "~" where HOME is not set and the system does not know the user.
    return Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home raises there


def _obstacle(folder: Path) -> str:
    """Return why a folder cannot be written or made, nothing where it can; nothing is tried, for that leaves traces."""
    if not folder.is_absolute():
        return f"the cache folder {folder} is not absolute (is HOME set?)"
    home = _home()
    # Whoever has no home is given one that does not exist: nobody's is /nonexistent. It is not perflex's to make.
    if folder.is_relative_to(home) and not _is_folder(home):
        return f"the home folder {home} does not exist"
    existing = next((place for place in (folder, *folder.parents) if os.path.lexists(place)), Path(folder.anchor))
    if not _is_folder(existing):
        return f"the cache folder {folder} cannot be made: {existing} is no folder"
    # What a package wrote before, as another user, say.
    files = folder.glob("*.sqlite") if existing == folder else ()
    closed = next((place for place in (existing, *files) if not os.access(place, os.W_OK)), None)
    return "" if closed is None else f"{closed} cannot be written"


def _made(home: Path) -> str:
    """Make the cache home, as whichever package comes first would; return why that cannot be done, if so."""
    # Rights do not tell all: root may write to /proc, where nothing can be made.
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"the cache folder {home} cannot be made ({error.strerror})"
    return ""


def _is_folder(path: Path) -> bool:
    with suppress(OSError):
        return stat.S_ISDIR(path.stat().st_mode)
    return False


@lru_cache(maxsize=1)
def _private_folder() -> Path:
    """Return a folder that is this user's alone, the same one next time if possible."""
    import shutil
    import tempfile

    folder = Path(tempfile.gettempdir(), f"perflex-{os.geteuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    # Anybody may have made it before. Pickles lie in it, which must be our own.
    found = folder.lstat()
    if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077:
        return folder
    private = Path(tempfile.mkdtemp(prefix="perflex-"))
    atexit.register(shutil.rmtree, private, ignore_errors=True)
    return private


@lru_cache(maxsize=1)
def repair_pytools_cache() -> None:
    """Have pytools, with which loopy and pyopencl keep what they made, make again what cannot be read."""
    import pickle
    import sqlite3

    from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict

    fetch, store = WriteOncePersistentDict.fetch, WriteOncePersistentDict.store_if_not_present

    def fetch_readable(cache: Any, key: Any) -> Any:
        try:
            return fetch(cache, key)
        except KeyError:
            raise
        # Unpickling runs code of whatever module an entry names: any exception may come out.
        except Exception as error:
            number = cache.key_builder(key)
            # Entries are written once: where one stands, no other is kept.
            with suppress(sqlite3.Error):
                cache._exec_sql("DELETE FROM dict WHERE keyhash=?", (number,))  # noqa: SLF001
            raise NoSuchEntryError(key) from error

    def store_if_possible(cache: Any, key: Any, value: Any) -> None:
        # A full disk, a file that is damaged, or a kernel with what cannot be pickled, such as a user's class within
        # a function (AttributeError) or an open file (TypeError): nothing is kept then.
        with suppress(sqlite3.Error, pickle.PicklingError, AttributeError, TypeError):
            store(cache, key, value)

    WriteOncePersistentDict.fetch = fetch_readable
    WriteOncePersistentDict.store_if_not_present = store_if_possible
