"""Parsing a source file with clang: its cursors, macros, headers that are missing, the kernel's function, errors."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from perflex.errors import EnvironmentSetupError, MissingExtraError, UnsupportedKernelError

Language: TypeAlias = Literal["opencl", "cuda"]
LANGUAGES: dict[str, Language] = {".cl": "opencl", ".ocl": "opencl", ".cu": "cuda", ".cuh": "cuda"}

# Unary operators by libclang's numbers; those above 2 of the increments stand before their operand.
_UNARY = {1: "x++", 2: "x--", 3: "++x", 4: "--x", 5: "&", 6: "*", 7: "+", 8: "-", 9: "~", 10: "!"}
_INTEGER = 1
_HERE = Path(__file__).parent
CUDA_HEADERS = _HERE / "cuda_headers.h"
_MISSING = re.compile(r"'(.*)' file not found")
# Headers of the host are not there; where clang's package has some, the last folder stands for them.
_OPTIONS = {
    "opencl": ("-x", "cl", "-cl-std=CL2.0", "-Dcl_khr_fp64=1", "-nostdlibinc"),
    "cuda": (
        "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-nostdinc", "-nostdinc++", "-nobuiltininc",
        "--cuda-gpu-arch=sm_70", "-std=c++17", "-D__CUDA_ARCH__=700", "-include", str(_HERE / "cuda_device.h"),
        "-idirafter", str(_HERE / "include"),
    ),
}  # fmt: skip
_MORE_OPTIONS = ("-w", "-ferror-limit=0", "-isystem", os.devnull)
# libclang's option to go on behind headers that are missing.
_KEEP_GOING = 0x200
# CUDA's headers that the run-time compiler lacks, with the beginnings of names that they declare.
TOOLKIT = {
    "cooperative_groups": "(multi_)?(grid|thread|cluster|coalesced)_(group|threads)$", "cub/": "cub", "cuda/": "cuda",
    "cuda_bf16": "__nv_bf|nv_bf", "cuda_fp16": "half2?$|__half|__h[a-z]|__float2half", "cuda_pipeline": "__pipeline",
    "curand_kernel": "curand", "mma.h": "nvcuda|wmma", "thrust/": "thrust",
}  # fmt: skip
# What clang calls wrong without the toolkit's headers, and counting does not need.
_HARMLESS = re.compile(r"reference to __host__ (variable|function)")

# There is one hook of the interpreter for all threads.
_CALLING = Lock()


@lru_cache(maxsize=1)
def clang() -> Any:
    """Return clang's Python interface with its library loaded; ``PERFLEX_LIBCLANG`` names another library."""
    try:
        from clang import cindex
    except ImportError as error:
        msg = "reading OpenCL C and CUDA C needs clang's library; install it with: pip install 'perflex[source]'"
        raise MissingExtraError(msg, extra="source") from error
    named = os.environ.get("PERFLEX_LIBCLANG")
    if named and not cindex.Config.loaded:
        cindex.Config.set_library_file(named)
    try:
        library = cindex.conf.lib
    except cindex.LibclangError as error:
        reason = str(error).splitlines()[0].split(". To provide")[0]
        msg = (
            f"clang's library cannot be loaded ({reason}); set PERFLEX_LIBCLANG to a libclang.so of version 19 or later"
        )
        raise EnvironmentSetupError(msg) from error
    library.clang_Cursor_Evaluate.restype = ctypes.c_void_p
    library.clang_Cursor_Evaluate.argtypes = [cindex.Cursor]
    library.clang_EvalResult_getKind.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
    library.clang_EvalResult_getAsLongLong.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_dispose.argtypes = [ctypes.c_void_p]
    return cindex


@contextmanager
def raising() -> Iterator[None]:
    """Raise what callbacks of C raise in the block, such as an interrupt: ctypes only prints it."""
    lost: list[Any] = []
    with _CALLING:
        kept = sys.unraisablehook
        try:
            sys.unraisablehook = lost.append
            yield
        finally:
            sys.unraisablehook = kept
    if lost:
        raise lost[0].exc_value


def fields_of(struct: Any) -> list[Any]:
    """Return the fields of clang's type of a struct."""
    with raising():
        return list(struct.get_fields())


class Node:
    """A cursor of clang, of which everything is asked once: loops that are walked through ask for it many times."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.cursor, name)
        found = self.__dict__[name] = Node(found) if isinstance(found, clang().Cursor) else found
        return found

    @cached_property
    def kind(self) -> str:
        """What it is, by clang's name."""
        return str(self.cursor.kind.name)

    @cached_property
    def key(self) -> Hashable:
        """By what a declared variable is known."""
        return (self.spelling, self.hash)

    @cached_property
    def is_expression(self) -> bool:
        """Whether it is an expression; libclang hides some."""
        return self.kind == "UNEXPOSED_EXPR" or bool(self.cursor.kind.is_expression())

    @cached_property
    def children(self) -> list[Node]:
        """The cursors below."""
        with raising():
            return list(map(Node, self.cursor.get_children()))

    def preorder(self) -> Iterator[Node]:
        """Yield the cursor and all below it, in the order of the source."""
        yield self
        for child in self.children:
            yield from child.preorder()

    @cached_property
    def operands(self) -> list[Node]:
        """The children that are expressions."""
        return [child for child in self.children if child.is_expression]

    @cached_property
    def arguments(self) -> list[Node]:
        """The arguments of a call."""
        return [Node(each) for each in self.cursor.get_arguments() if each is not None]

    @cached_property
    def parameters(self) -> list[Node]:
        """The parameters of a function."""
        return [child for child in self.children if child.kind == "PARM_DECL"]

    @cached_property
    def template_parameters(self) -> list[str]:
        """The names of a template's parameters."""
        wanted = {"TEMPLATE_TYPE_PARAMETER", "TEMPLATE_NON_TYPE_PARAMETER"}
        return [child.spelling for child in self.children if child.kind in wanted]

    @cached_property
    def body(self) -> Any:
        """A function's body; None if it is not there."""
        return next((child for child in reversed(self.children) if child.kind == "COMPOUND_STMT"), None)

    @cached_property
    def words(self) -> list[str]:
        """The words of the source."""
        unit, extent, cindex = self.cursor.translation_unit, self.cursor.extent, clang()
        if extent.start.file is None:  # of what clang adds by itself
            return []
        written = [token.spelling for token in self.cursor.get_tokens()] if extent.start != extent.end else []
        if written:
            return written
        # In a macro's argument, or begun by a macro: where it stands in its file.
        ends = (_offset(each) for each in (extent.start, extent.end))
        found = [cindex.SourceLocation.from_offset(unit, extent.start.file, end) for end in ends]
        return [token.spelling for token in unit.get_tokens(extent=cindex.SourceRange.from_locations(*found))]

    @cached_property
    def _end(self) -> int:
        return _offset(self.cursor.extent.end)

    @cached_property
    def definition(self) -> Node | None:
        """Where a declared function is defined."""
        found = self.cursor.get_definition()
        return None if found is None else Node(found)

    @cached_property
    def template(self) -> Node | None:
        """The template that a function is an instance of."""
        library = clang().conf.lib
        found = library.clang_getSpecializedCursorTemplate(self.cursor)
        if found is None or found == library.clang_getNullCursor():
            return None
        found._tu = self.cursor._tu  # noqa: SLF001 - the binding forgets it here
        return Node(found)

    @cached_property
    def sign(self) -> str:
        """A unary operator's sign; increments are ``++x`` and ``x++``."""
        return _UNARY.get(clang().conf.lib.clang_getCursorUnaryOperatorKind(self.cursor), "?")

    @cached_property
    def value(self) -> int | None:
        """The value of an integer constant expression; None if it is none."""
        library = clang().conf.lib
        result = library.clang_Cursor_Evaluate(self.cursor)
        if not result:
            return None
        known = library.clang_EvalResult_getKind(result) == _INTEGER
        value = int(library.clang_EvalResult_getAsLongLong(result)) if known else None
        library.clang_EvalResult_dispose(result)
        return value

    @cached_property
    def lane(self) -> str:
        """Which elements of a vector a hidden expression names: it ends behind its operand; empty for others."""
        if len(self.operands) != 1 or self._end <= self.operands[0]._end:  # noqa: SLF001 - another node
            return ""
        return self.words[-1] if len(self.words) > 1 and self.words[-2] in {".", "->"} else ""

    @cached_property
    def stripped(self) -> Node:
        """The expression without parentheses and conversions that change no value."""
        if self.kind not in {"PAREN_EXPR", "UNEXPOSED_EXPR"} or len(self.children) != 1:
            return self
        inner, own = self.children[0], self.type.get_canonical().kind
        if self.kind == "UNEXPOSED_EXPR" and self.lane:
            return self
        decays = own.name in {"POINTER", "BOOL", "FUNCTIONPROTO"}
        return inner.stripped if decays or own == inner.type.get_canonical().kind else self


def _offset(location: Any) -> int:
    """Return where something stands in its file; arguments of macros stand where they are written."""
    found = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    clang().conf.lib.clang_getFileLocation(location, *map(ctypes.byref, found))
    return found[-1].value


@dataclass(frozen=True)
class ParsedKernel:
    """A kernel's function in its parsed file; `unit` is clang's, `defines` are the macros that were given."""

    path: Path
    name: str
    language: Language
    lines: list[str]
    function: Node
    unit: Any
    root: Node
    defines: Mapping[str, Any]

    def text(self, line: int, file: str = "") -> str:
        """Return what stands in a line of the kernel's file or another, without what surrounds it."""
        lines = _lines(file) if file else self.lines
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""


def parsed_kernel(
    path: Path, source: str, name: str, defines: Mapping[str, Any], folders: Sequence[str] = ()
) -> ParsedKernel:
    """Return a kernel's function, parsed with macros; headers are looked for beside `path` and in `folders`."""
    unit, root = _parsed(path, source, defines, folders)
    named = list(functions(root))
    found = [each for each in named if each.spelling == name]
    if not found:
        errors = [each.spelling for each in _errors(unit)]
        there = ", ".join(dict.fromkeys(each.spelling for each in named if _is_kernel(each))) or "none"
        first = f"; its first error: {errors[0]}" if errors else ""
        msg = f"{path.name} has no kernel {name!r}; it has {there}{first}"
        raise UnsupportedKernelError(msg, kernel=name)
    language = language_of(path, source)
    kernel = ParsedKernel(path, name, language, source.splitlines(), found[-1], unit, root, defines)
    _require_sound(kernel)
    return kernel


def kernels_in(path: Path, source: str, defines: Mapping[str, Any], folders: Sequence[str] = ()) -> list[Node]:
    """Return the functions of a source that can be launched, templates included."""
    return [function for function in functions(_parsed(path, source, defines, folders)[1]) if _is_kernel(function)]


def functions(cursor: Node) -> Iterator[Node]:
    """Yield all functions that have bodies, templates included."""
    for child in cursor.children:
        if child.kind in {"FUNCTION_DECL", "FUNCTION_TEMPLATE"}:
            if child.body is not None:
                yield child
        elif child.kind in {"NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"}:
            yield from functions(child)


def _is_kernel(function: Node) -> bool:
    """Return whether a function can be launched."""
    head = set(takewhile(lambda word: word != "{", function.words))
    attributes = {child.kind for child in function.children}
    return "CUDAGLOBAL_ATTR" in attributes or bool(head & {"__kernel", "kernel", "__global__"})


@lru_cache(maxsize=16)
def _lines(file: str) -> list[str]:
    return Path(file).read_text(encoding="utf-8", errors="replace").splitlines()


def language_of(path: Path, source: str) -> Language:
    """Return what a file is written in: its suffix says so, else its text."""
    return LANGUAGES.get(path.suffix, "cuda" if "__global__" in source else "opencl")


def _parsed(path: Path, source: str, defines: Mapping[str, Any], folders: Sequence[str]) -> tuple[Any, Node]:
    macros = tuple(f"-D{key}={value}" for key, value in sorted(defines.items()))
    return _unit(path, source, (*macros, *(f"-I{folder}" for folder in (path.parent.resolve(), *folders))))


@lru_cache(maxsize=8)
def _unit(path: Path, source: str, options: tuple[str, ...]) -> tuple[Any, Node]:
    """Parse a file; return clang's unit and its root. Headers that are not there are taken for empty."""
    cindex, language = clang(), language_of(path, source)
    arguments = [*_OPTIONS[language], *options, *_MORE_OPTIONS]
    try:
        unit = cindex.Index.create().parse(str(path), arguments, [(str(path), source)], _KEEP_GOING)
    except cindex.TranslationUnitLoadError as error:
        msg = f"clang cannot parse {path.name}; see whether it is {language} source code"
        raise UnsupportedKernelError(msg) from error
    return unit, Node(unit.cursor)


# Before the interpreter takes down clang's interface, which frees what is parsed.
atexit.register(_unit.cache_clear)


def declares(header: str, words: Iterable[str]) -> bool:
    """Return whether a header of CUDA's toolkit declares one of the words."""
    begins = [each for name, each in TOOLKIT.items() if header.startswith(name)]
    return any(re.match(each, word) for each in begins for word in words)


def _errors(unit: Any) -> Iterator[Any]:
    """Yield what clang calls wrong, but for headers that are missing."""
    return (each for each in unit.diagnostics if each.severity >= 3 and not _MISSING.match(each.spelling))


def _require_sound(kernel: ParsedKernel) -> None:
    """Stop where the kernel's own lines have errors: clang leaves out what it does not understand."""
    extent = kernel.function.extent
    for each in _errors(kernel.unit):
        file = each.location.file
        if file is None or _HARMLESS.search(each.spelling) or file.name != extent.start.file.name:
            continue
        if extent.start.line <= each.location.line <= extent.end.line:
            headers = (found[1] for other in kernel.unit.diagnostics if (found := _MISSING.match(other.spelling)))
            missing = [name for name in headers if declares(name, re.findall(r"\w+", each.spelling))]
            cause = each.spelling + (f" ({', '.join(missing)} is not there)" if missing else "")
            msg = (
                f"{Path(file.name).name}:{each.location.line}: {cause}; state macros that the host program "
                "sets with -D NAME=VALUE (defines=...), and folders of headers with -I FOLDER (folders=...)"
            )
            raise UnsupportedKernelError(msg, kernel=kernel.name, line=each.location.line)
