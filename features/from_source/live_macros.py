"""Macros that a kernel's text depends on: variants of one source that differ in others alone are the same kernel.

clang says which text its conditions leave out. What else names a macro, or a macro that names it, is taken to use it:
kernels of equal keys are the same to a compiler, while those of other keys may be, too.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perflex.features.from_source.kernel_text import without_comments
from perflex.features.from_source.parsing import clang, parsed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perflex.features.from_source.source import SourceKernel

_HERE = Path(__file__).parent
_WORD = re.compile(r"[A-Za-z_]\w*")
# Conditions are read where clang leaves them out, too: its ranges begin with them.
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(define|if|elif)\b((?:\\\r?\n|[^\n])*)", re.MULTILINE)
# They ask whether there is a macro, not for its value.
_ASKING = re.compile(r"^[ \t]*#[ \t]*ifn?def\b.*$", re.MULTILINE)


def source_key(kernel: SourceKernel) -> str:
    """Return a digest of what is compiled of a kernel, equal in every process; paths of headers stand for these."""
    live = _live(kernel)
    values = [(name, str(value) if name in live else None) for name, value in sorted(kernel.defines.items())]
    stated = [sorted((name, str(value)) for name, value in each.items()) for each in (kernel.trips, kernel.shapes)]
    launch = kernel.name, kernel.template_arguments, kernel.local, kernel.groups, kernel.language
    given = str(kernel.path), kernel.source, kernel.folders, values, stated, sorted(kernel.stand_ins.items())
    return hashlib.sha256(repr((launch, given)).encode("utf-8", "surrogatepass")).hexdigest()


def _live(kernel: SourceKernel) -> set[str]:
    """Return the words that are compiled, and of macros in their place."""
    unit, _ = parsed(kernel.path, kernel.source, kernel.defines, kernel.folders, kernel.language, recorded=True)
    source = kernel.source.encode("utf-8", "replace").decode("latin-1")
    text = without_comments(source)
    headers = [without_comments(name.read_bytes().decode("latin-1")) for name in _headers(unit, kernel)]
    macros: dict[str, set[str]] = {name: set(_WORD.findall(str(value))) for name, value in kernel.defines.items()}
    # The names in formulas of the launch are macros, too.
    waiting = _WORD.findall(" ".join((*kernel.template_arguments, *kernel.groups, *kernel.shapes.values())))
    for each in (text, *headers):
        if "##" in each:  # makes names that are no words of the text
            return set(macros)
        for found in _DIRECTIVE.finditer(each):
            words = _WORD.findall(found[2])
            if found[1] != "define":
                waiting += words
            elif words:
                macros.setdefault(words[0], set()).update(words[1:])
    kept = list(text)
    for start, end in _left_out(unit, str(kernel.path)):
        kept[start:end] = " " * (end - start)
    for each in ("".join(kept), *headers):
        waiting += _WORD.findall(_DIRECTIVE.sub("", _ASKING.sub("", each)))
    live: set[str] = set()
    while waiting:
        word = waiting.pop()
        if word not in live:
            live.add(word)
            waiting += macros.get(word, ())
    return live


def _headers(unit: Any, kernel: SourceKernel) -> list[Path]:
    """Return the program's headers; perflex's stand for a toolkit's, which read no macros of programs."""
    names = dict.fromkeys(str(each.include.name) for each in unit.get_includes())
    found = [path for path in map(Path, names) if path.is_file() and path != kernel.path]
    return [path for path in found if not path.is_relative_to(_HERE)]


def _left_out(unit: Any, name: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of a file that conditions leave out, by bytes."""
    cindex = clang()

    class Ranges(ctypes.Structure):
        _fields_ = (("count", ctypes.c_uint), ("ranges", ctypes.POINTER(cindex.SourceRange)))

    library = cindex.conf.lib
    library.clang_getSkippedRanges.argtypes = [cindex.TranslationUnit, cindex.File]
    library.clang_getSkippedRanges.restype = ctypes.POINTER(Ranges)
    library.clang_disposeSourceRangeList.argtypes = [ctypes.POINTER(Ranges)]
    found = library.clang_getSkippedRanges(unit, unit.get_file(name))
    for number in range(found.contents.count):
        each = found.contents.ranges[number]
        yield each.start.offset, each.end.offset
    library.clang_disposeSourceRangeList(found)
