"""Reading what commands are given: ``KERNEL.py:function`` and ``name=value``."""

from __future__ import annotations

import importlib.util
import inspect
import math
import os
import re
import sys
import traceback
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING

from perflex.errors import PerflexError
from perflex.file_io import require_writable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    import loopy as lp

    from perflex.features import AnnotatedKernel, Scop

_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|h|)")


_SECONDS = {"": 1.0, "s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0}


class ArgumentError(PerflexError):
    """A word of the command line cannot be understood, or names something that is not there."""


def read_sizes(words: Iterable[str]) -> dict[str, int]:
    """Read sizes given as ``name=value`` with integer values.

    Raises
    ------
    ArgumentError
        A word has another form, or a name comes twice.
    """
    sizes: dict[str, int] = {}
    for word in words:
        name, equals, text = (part.strip() for part in word.partition("="))
        if not equals or not name.isidentifier():
            msg = f"cannot read size {word!r}; write name=value, such as n=1024"
            raise ArgumentError(msg, word=word)
        if name in sizes:
            msg = f"size {name!r} is given twice; give it once"
            raise ArgumentError(msg, word=word)
        try:
            sizes[name] = int(text)
        except ValueError:
            msg = f"size {name!r} must be an integer, not {text!r}"
            raise ArgumentError(msg, word=word) from None
    return sizes


def read_pairs(words: Iterable[str], option: str, example: str) -> dict[str, str]:
    """Read an option's values of the form ``key=value``.

    Raises
    ------
    ArgumentError
        A word has another form.
    """
    pairs: dict[str, str] = {}
    for word in words:
        key, equals, value = (part.strip() for part in word.partition("="))
        if not equals or not key or not value:
            msg = f"cannot read {option} {word!r}; write e.g. {example}"
            raise ArgumentError(msg, word=word)
        pairs[key] = value
    return pairs


def read_seconds(word: str, option: str) -> float:
    """Read a duration such as ``30``, ``30s``, ``500ms``, ``2min`` or ``1h``; return it in seconds.

    Raises
    ------
    ArgumentError
        The word has another form, or the duration is zero.
    """
    found = _DURATION.fullmatch(word.strip())
    seconds = float(found[1]) * _SECONDS[found[2]] if found else 0.0
    # A number of hundreds of digits reads as infinity.
    if not 0 < seconds < math.inf:
        msg = f"cannot read {option} {word!r}; write a positive duration such as 30s, 500ms, 2min or 1h"
        raise ArgumentError(msg, word=word)
    return seconds


def load_kernel(reference: str) -> lp.TranslationUnit | AnnotatedKernel | Scop:
    """Return the kernel that a function in a Python file makes, or that a Scop's YAML file describes.

    The file is executed, as ``python FILE`` would; modules beside it can be imported.

    Parameters
    ----------
    reference
        ``KERNEL.py:function``; the function takes no arguments and returns a loopy translation unit, one with
        annotations (`perflex.annotate`), a measurement kernel, or a `Scop`. Or ``KERNEL.yaml``, a Scop.

    Raises
    ------
    FileFormatError, UnsupportedKernelError
        The YAML file describes no kernel.
    ArgumentError
        There is no such file or function, the file is no valid Python, the function needs arguments, raises
        an error of its own or returns something else.
    """
    if reference.endswith((".yaml", ".yml")):
        return _described(reference)
    with _executed(reference) as (module, function_name, path):
        make = _function(module, function_name, path)
        with _own_errors(path, function_name):
            kernel = make()
    import loopy as lp

    from perflex.features import AnnotatedKernel, Scop

    kernel = getattr(kernel, "kernel", kernel)  # of a measurement kernel
    if not isinstance(kernel, (lp.TranslationUnit, AnnotatedKernel, Scop)):
        msg = f"{function_name} in {path} returns a {type(kernel).__name__}; it must return a loopy TranslationUnit"
        raise ArgumentError(msg, path=path)
    return kernel


def load_object(reference: str) -> object:
    """Return what a name in a Python file stands for; the file is executed, as ``python FILE`` would.

    Parameters
    ----------
    reference
        ``FILE.py:name``.

    Raises
    ------
    ArgumentError
        There is no such file or name, or the file is no valid Python.
    """
    with _executed(reference) as (module, name, path):
        if not hasattr(module, name):
            there = ", ".join(key for key in vars(module) if key[:1] != "_") or "nothing"
            msg = f"{path} has no {name!r}; it has {there}"
            raise ArgumentError(msg, path=path)
        found: object = getattr(module, name)
    return found


def load_kernels(place: str) -> dict[str, object]:
    """Return the functions of a Python file, or the Scop of a YAML file, by name; a Python file is executed.

    Raises
    ------
    FileFormatError, UnsupportedKernelError
        The YAML file describes no kernel.
    ArgumentError
        There is no such file, it is no valid Python, or has no functions.
    """
    if place.endswith((".yaml", ".yml")):
        scop = _described(place)
        return {scop.name: scop}
    # Any name that can stand behind the colon: the whole module is looked at.
    with _executed(f"{place}:all") as (module, _, path):
        # Neither what the file imports nor what it keeps to itself: a table names what is called.
        own = {
            name: value
            for name, value in vars(module).items()
            if inspect.isfunction(value) and value.__module__ == module.__name__ and name[:1] != "_"
        }
    if not own:
        msg = f"{path} has no function; it must have one for each kernel, which returns it"
        raise ArgumentError(msg, path=path)
    return dict(own)


@contextmanager
def _executed(reference: str) -> Iterator[tuple[ModuleType, str, Path]]:
    """Yield the module of ``FILE.py:name``, the name, and the file; modules beside it can be imported meanwhile."""
    name, colon, inside = reference.rpartition(":")
    if not colon or not name or not inside.isidentifier():
        msg = f"cannot read {reference!r}; write KERNEL.py:function, a Python file and a function in it"
        raise ArgumentError(msg, word=reference)
    path = Path(name).resolve()
    # Not of Path: in Python 3.11 that fails at names that are too long.
    if not os.path.isfile(path):  # noqa: PTH113
        msg = f"there is no file {name}"
        raise ArgumentError(msg, path=path)
    folder = str(path.parent)
    # At the end of the path, so that a file beside the kernel hides no installed module.
    sys.path.append(folder)
    try:
        yield _module(path), inside, path
    finally:
        sys.path.remove(folder)


def _described(name: str) -> Scop:
    from perflex.features.scop.yaml import read_scop

    path = Path(name)
    if not os.path.exists(path):  # noqa: PTH110 - as above
        msg = f"there is no file {name}"
        raise ArgumentError(msg, path=path)
    return read_scop(path)


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"perflex_user_{path.stem}", path)
    if spec is None or spec.loader is None:
        msg = f"{path} is no Python file; its name must end in .py"
        raise ArgumentError(msg, path=path)
    module = importlib.util.module_from_spec(spec)
    # Known while it runs, as dataclasses and pickles defined in it expect.
    sys.modules[spec.name] = module
    try:
        with _own_errors(path, ""):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        msg = f"{error.filename or path}, line {error.lineno}: {error.msg}"
        raise ArgumentError(msg, path=path) from error
    return module


@contextmanager
def _own_errors(path: Path, function: str) -> Iterator[None]:
    """Name the line of the user's file where its code raised an error; what has a message of its own passes."""
    try:
        yield
    except Exception as error:
        from sqlite3 import OperationalError

        # The last two are said of full disks and of loopy's caches, too.
        if isinstance(error, (PerflexError, SyntaxError, OSError, OperationalError)):
            raise
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        place = f"{path}, line {lines[-1]}" if lines else str(path)
        within = f" in {function}" if function else ""
        reason = " ".join(str(error).split())
        msg = f"{place}{within}: {type(error).__name__}: {reason}; mend the file (--debug shows the traceback)"
        raise ArgumentError(msg, path=path) from error


def _function(module: ModuleType, name: str, path: Path) -> Callable[[], object]:
    found = getattr(module, name, None)
    if not callable(found):
        own = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
        msg = f"{path} has no function {name!r}; it has {', '.join(own) or 'none'}"
        raise ArgumentError(msg, path=path)
    needed = [
        parameter.name
        for parameter in inspect.signature(found).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in {parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD}
    ]
    if needed:
        msg = f"{name} in {path} needs arguments ({', '.join(needed)}); give them defaults or wrap it in a function"
        raise ArgumentError(msg, path=path)
    function: Callable[[], object] = found
    return function


def require_writable_folder(folder: Path) -> None:
    """Make the folder if it is not there, and make sure that files can be made in it; leaves none behind.

    Raises
    ------
    ArgumentError
        Files cannot be made there.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Only making a file shows what permissions, read-only mounts and quotas allow.
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        msg = f"cannot write to {folder}: {error.strerror or error}; name another folder with --out"
        raise ArgumentError(msg, path=folder) from error


def require_writable_file(path: Path) -> None:
    """Make sure that a file can be made or replaced; leaves nothing behind.

    Raises
    ------
    ArgumentError
        The path is a folder, or its folder is missing or takes no files.
    """
    try:
        require_writable(path)
    except IsADirectoryError:
        msg = f"cannot write {path}: it is a folder; name a file with --out"
        raise ArgumentError(msg, path=path) from None
    # ValueError: a name with a zero byte.
    except (OSError, ValueError) as error:
        msg = f"cannot write {path}: {getattr(error, 'strerror', None) or error}; name another file with --out"
        raise ArgumentError(msg, path=path) from error
