"""Parsing a source file with clang: its cursors, macros, headers that are missing, the kernel's function, errors."""

from __future__ import annotations

import atexit
import ctypes
import os
import re
import sys
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from itertools import takewhile
from pathlib import Path
from threading import Lock
from typing import Any, Literal, TypeAlias

from perflex.errors import EnvironmentSetupError, MissingExtraError, UnsupportedKernelError
from perflex.isl import computed_once

Language: TypeAlias = Literal["opencl", "cuda", "hip"]
LANGUAGES: dict[str, Language] = {
    ".cl": "opencl", ".ocl": "opencl", ".cu": "cuda", ".cuh": "cuda", ".hip": "hip",
}  # fmt: skip

# Unary operators by libclang's numbers; those above 2 of the increments stand before their operand.
_UNARY = {1: "x++", 2: "x--", 3: "++x", 4: "--x", 5: "&", 6: "*", 7: "+", 8: "-", 9: "~", 10: "!"}
# Types of numbers, some of them.
_SCALARS = {"INT", "UINT", "LONG", "ULONG", "FLOAT", "DOUBLE", "BOOL"}
# What clang evaluates to, by its numbers.
_INTEGER, _FLOAT = 1, 2
# That of OpenCL's kernels, which libclang has no name for.
_OTHER_CONVENTION = 200
# The kind of no cursor, by its number.
_NONE = 70
# What clang is to visit behind a cursor: the next one, or those below it.
_NEXT, _BELOW = 1, 2
_HERE = Path(__file__).parent
CUDA_HEADERS = _HERE / "cuda_headers.h"
# Headers that programs include, for those that have none of their own.
INCLUDE = _HERE / "include"
# Headers of the host are not there; where clang's package has some, the last folder stands for them.
_CUDA = (
    "-x", "cuda", "--cuda-device-only", "-nocudainc", "-nocudalib", "-nostdinc", "-nostdinc++", "-nobuiltininc",
    "--cuda-gpu-arch=sm_70", "-std=c++17", "-Dregister=", "-include", str(_HERE / "cuda_device.h"),
    "-idirafter", str(INCLUDE),
)  # fmt: skip
_OPTIONS = {
    "opencl": ("-x", "cl", "-cl-std=CL2.0", "-Dcl_khr_fp64=1", "-nostdlibinc"),
    "cuda": (*_CUDA, "-D__CUDA_ARCH__=700", "-D__NVCC__=1", "-U__clang__"),
    # HIP as for AMD's GPUs, where a sub-group has 64 work-items unless this macro says another number.
    "hip": (*_CUDA, "-U__CUDA_ARCH__", "-D__AMDGCN_WAVEFRONT_SIZE=64", "-include", str(_HERE / "hip_device.h")),
}
# No file: it is given to clang.
_MACROS = str(_HERE / "macros.h")
_MORE_OPTIONS = ("-w", "-ferror-limit=0", "-isystem", os.devnull)
# libclang's option to go on behind headers that are missing.
_KEEP_GOING = 0x200
# And to keep what its preprocessor did.
_RECORDED = 0x1
# CUDA's headers that the run-time compiler lacks, with the beginnings of names that they declare.
TOOLKIT = {
    "cooperative_groups": "(multi_)?(grid|cluster|coalesced)_(group|threads)$", "cub/": "cub", "cuda/": "cuda",
    "cuda_bf16": "__nv_bf|nv_bf", "cuda_fp16": "half2?$|__half|__h[a-z]|__float2half", "cuda_pipeline": "__pipeline",
    "curand_kernel": "curand", "mma.h": "nvcuda|wmma", "thrust/": "thrust",
}  # fmt: skip
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
    library.clang_getFunctionTypeCallingConv.argtypes = [cindex.Type]
    library.clang_Cursor_Evaluate.restype = ctypes.c_void_p
    library.clang_Cursor_Evaluate.argtypes = [cindex.Cursor]
    library.clang_EvalResult_getKind.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsLongLong.restype = ctypes.c_longlong
    library.clang_EvalResult_getAsLongLong.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_isUnsignedInt.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsUnsigned.restype = ctypes.c_ulonglong
    library.clang_EvalResult_getAsUnsigned.argtypes = [ctypes.c_void_p]
    library.clang_EvalResult_getAsDouble.restype = ctypes.c_double
    library.clang_EvalResult_getAsDouble.argtypes = [ctypes.c_void_p]
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


def _collect(child: Any, _: Any, found: list[Any]) -> int:
    found.append(child)
    return _NEXT


def _select(child: Any, _: Any, found: tuple[list[Any], Container[int]]) -> int:
    if child._kind_id in found[1]:  # noqa: SLF001 - clang's interface asks its library first
        found[0].append(child)
    return _BELOW


@cache
def _visitor(function: Callable[[Any, Any, Any], int]) -> Any:
    """Return a function that clang calls with cursors; clang's interface makes one anew for each cursor."""
    cursor = clang().Cursor
    return ctypes.CFUNCTYPE(ctypes.c_int, cursor, cursor, ctypes.py_object)(function)


def numbers_of(kinds: Iterable[str]) -> frozenset[int]:
    """Return clang's numbers of kinds of cursors."""
    return frozenset(clang().CursorKind[kind].value for kind in kinds)


@cache
def _kind_name(number: int) -> str:
    return str(clang().CursorKind.from_id(number).name)


@cache
def _type_kind(number: int) -> str:
    return str(clang().TypeKind.from_id(number).name)


def kind_of(kind: Any) -> str:
    """Return what a type of clang is, by clang's name."""
    return _type_kind(kind._kind_id)  # noqa: SLF001 - clang's interface makes an object of it first


@cache
def _is_expression(number: int) -> bool:
    return _kind_name(number) == "UNEXPOSED_EXPR" or bool(clang().CursorKind.from_id(number).is_expression())


class Node:
    """A cursor of clang, of which everything is asked once: loops that are walked through ask for it many times."""

    def __init__(self, cursor: Any) -> None:
        self.cursor = cursor

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.cursor, name)
        found = self.__dict__[name] = Node(found) if isinstance(found, clang().Cursor) else found
        return found

    @computed_once
    def kind(self) -> str:
        """What it is, by clang's name."""
        return _kind_name(self.cursor._kind_id)  # noqa: SLF001 - clang's interface asks its library first

    @computed_once
    def key(self) -> Hashable:
        """By what a declared variable is known."""
        return (self.spelling, self.hash)

    @computed_once
    def is_expression(self) -> bool:
        """Whether it is an expression; libclang hides some."""
        return _is_expression(self.cursor._kind_id)  # noqa: SLF001

    @computed_once
    def children(self) -> list[Node]:
        """The cursors below."""
        found: list[Any] = []
        return self._visited(_collect, found, found)

    def below(self, kinds: Container[int]) -> list[Node]:
        """Return the cursors below it of some kinds, by clang's numbers; much faster than to look at all."""
        found: list[Any] = []
        return self._visited(_select, (found, kinds), found)

    def _visited(self, visitor: Callable[[Any, Any, Any], int], given: Any, found: list[Any]) -> list[Node]:
        with raising():
            clang().conf.lib.clang_visitChildren(self.cursor, _visitor(visitor), given)
        for each in found:
            each._tu = self.cursor._tu  # noqa: SLF001 - the binding does so, too
        return list(map(Node, found))

    def preorder(self) -> Iterator[Node]:
        """Yield the cursor and all below it, in the order of the source."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += reversed(node.children)

    @computed_once
    def operands(self) -> list[Node]:
        """The children that are expressions."""
        return [child for child in self.children if child.is_expression]

    @computed_once
    def arguments(self) -> list[Node]:
        """The arguments of a call."""
        return [Node(each) for each in self.cursor.get_arguments() if each is not None]

    @computed_once
    def parameters(self) -> list[Node]:
        """The parameters of a function."""
        return [child for child in self.children if child.kind == "PARM_DECL"]

    @computed_once
    def template_parameters(self) -> list[str]:
        """The names of a template's parameters."""
        wanted = {"TEMPLATE_TYPE_PARAMETER", "TEMPLATE_NON_TYPE_PARAMETER"}
        return [child.spelling for child in self.children if child.kind in wanted]

    @computed_once
    def is_kernel(self) -> bool:
        """Whether a function can be launched."""
        if any(child.kind == "CUDAGLOBAL_ATTR" for child in self.children):
            return True
        # Macros of the command line are no words of the file, of which some functions have thousands.
        if clang().conf.lib.clang_getFunctionTypeCallingConv(self.cursor.type) == _OTHER_CONVENTION:
            return True
        head = takewhile(lambda word: word != "{", (token.spelling for token in self._tokens()))
        return not {"__kernel", "kernel", "__global__"}.isdisjoint(head)

    @computed_once
    def qualified(self) -> str:
        """A function's name with the namespaces around it; some have no name, nor has linkage."""
        names, owner = [str(self.spelling)], self.semantic_parent
        while owner is not None and owner.kind != "TRANSLATION_UNIT":
            names[:0] = [owner.spelling] if owner.kind == "NAMESPACE" and owner.spelling else []
            owner = owner.semantic_parent
        return "::".join(names)

    @computed_once
    def body(self) -> Any:
        """A function's body; None if it is not there."""
        return next((child for child in reversed(self.children) if child.kind == "COMPOUND_STMT"), None)

    @computed_once
    def words(self) -> list[str]:
        """The words of the source."""
        return [token.spelling for token in self._tokens()]

    @computed_once
    def word(self) -> str:
        """The first word of the source, where macros may have many."""
        return next((str(token.spelling) for token in self._tokens()), "")

    def _tokens(self) -> list[Any]:
        unit, extent, cindex = self.cursor.translation_unit, self.cursor.extent, clang()
        if extent.start.file is None:  # of what clang adds by itself
            return []
        written = list(self.cursor.get_tokens()) if extent.start != extent.end else []
        if written:
            return written
        # In a macro's argument, or begun by a macro: where it stands in its file.
        ends = (_offset(each) for each in (extent.start, extent.end))
        found = [cindex.SourceLocation.from_offset(unit, extent.start.file, end) for end in ends]
        return list(unit.get_tokens(extent=cindex.SourceRange.from_locations(*found)))

    @computed_once
    def _end(self) -> int:
        return _offset(self.cursor.extent.end)

    def _other(self, function: str) -> Node | None:
        """Return the cursor that a function of clang's library gives of this one; None if there is none."""
        found = getattr(clang().conf.lib, function)(self.cursor)
        if found is None or found._kind_id == _NONE:  # noqa: SLF001 - asking the library takes longer
            return None
        found._tu = self.cursor._tu  # noqa: SLF001 - the binding does so, too
        return Node(found)

    @computed_once
    def definition(self) -> Node | None:
        """Where a declared function is defined."""
        return self._other("clang_getCursorDefinition")

    @computed_once
    def referenced(self) -> Any:
        """What a reference refers to; None if clang does not know it."""
        return self._other("clang_getCursorReferenced")

    @computed_once
    def template(self) -> Node | None:
        """The template that a function is an instance of."""
        return self._other("clang_getSpecializedCursorTemplate")

    @computed_once
    def type(self) -> Any:
        """Its type, as clang's interface has it."""
        found = clang().conf.lib.clang_getCursorType(self.cursor)
        found._tu = self.cursor._tu  # noqa: SLF001 - the binding does so, too
        return found

    @computed_once
    def sign(self) -> str:
        """A unary operator's sign; increments are ``++x`` and ``x++``."""
        return _UNARY.get(clang().conf.lib.clang_getCursorUnaryOperatorKind(self.cursor), "?")

    @computed_once
    def value(self) -> int | None:
        """The value of an integer constant expression; None if it is none."""
        return self.number if isinstance(self.number, int) else None

    @computed_once
    def number(self) -> int | float | None:
        """The value of a constant expression; None if it is none."""
        library = clang().conf.lib
        result = library.clang_Cursor_Evaluate(self.cursor)
        if not result:
            return None
        kind = library.clang_EvalResult_getKind(result)
        found: int | float | None = None
        if kind == _INTEGER and library.clang_EvalResult_isUnsignedInt(result):
            found = int(library.clang_EvalResult_getAsUnsigned(result))
        elif kind == _INTEGER:
            found = int(library.clang_EvalResult_getAsLongLong(result))
        elif kind == _FLOAT:
            found = float(library.clang_EvalResult_getAsDouble(result))
        library.clang_EvalResult_dispose(result)
        return found

    @computed_once
    def form(self) -> str:
        """What its type is without other names for it, by clang's name."""
        return kind_of(self.type.get_canonical())

    @computed_once
    def place(self) -> tuple[str, int]:
        """The file that it is in and the line; no file for what clang adds."""
        found = self.location
        return ("" if found.file is None else str(found.file.name)), found.line

    @computed_once
    def lane(self) -> str:
        """Which elements of a vector a hidden expression names: it ends behind its operand; empty for others."""
        if len(self.operands) != 1 or self.operands[0].form in _SCALARS:
            return ""
        if self._end <= self.operands[0]._end:  # noqa: SLF001 - another node
            return ""
        return self.words[-1] if len(self.words) > 1 and self.words[-2] in {".", "->"} else ""

    @computed_once
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


def spelled(node: Node) -> int:
    """Return where the first word of an expression is written in its file, which may be in a macro."""
    found = ctypes.c_void_p(), ctypes.c_uint(), ctypes.c_uint(), ctypes.c_uint()
    clang().conf.lib.clang_getSpellingLocation(node.extent.start, *map(ctypes.byref, found))
    return found[-1].value


def language_of(path: Path, source: str) -> Language:
    """Return what a file is written in: its suffix says so, else its text."""
    if path.suffix in LANGUAGES:
        return LANGUAGES[path.suffix]
    if "__global__" in source:
        return "hip" if re.search(r"#\s*include\s*[<\"]hip/", source) else "cuda"
    if re.search(r"\b(__)?kernel\b", source):
        return "opencl"
    cause = "is in OpenCL C, CUDA C or HIP is not known"
    msg = f"whether {path.name} {cause}; give language='cuda', say, --language cuda on the command line"
    raise UnsupportedKernelError(msg, path=path)


def parsed(
    path: Path,
    source: str,
    defines: Mapping[str, Any],
    folders: Sequence[str],
    language: Language | None = None,
    *,
    recorded: bool = False,
) -> tuple[Any, Node]:
    """Parse a file with macros; return clang's unit and its root. `recorded`: what conditions leave out is known."""
    language = language or language_of(path, source)
    # What perflex's headers read stands before them; a program's own macros, such as N, would change them.
    first = [key for key in sorted(defines) if language == "opencl" or key.startswith("__")]
    macros = "".join(f"#define {key} {defines[key]}\n" for key in sorted(defines) if key not in first)
    options = tuple(f"-D{key}={defines[key]}" for key in first)
    looked = tuple(f"-I{folder}" for folder in (path.parent.resolve(), *folders))
    return _unit(path, source, language, (*options, *looked), macros, _RECORDED if recorded else 0)


@lru_cache(maxsize=8)
def _unit(
    path: Path, source: str, language: Language, options: tuple[str, ...], macros: str, more: int
) -> tuple[Any, Node]:
    """Parse a file; return clang's unit and its root. Headers that are not there are taken for empty."""
    cindex = clang()
    stated = ["-include", _MACROS] if macros else []
    arguments = [*_OPTIONS[language], *stated, *options, *_MORE_OPTIONS]
    files = [(str(path), source), (_MACROS, macros)]
    try:
        unit = cindex.Index.create().parse(str(path), arguments, files, _KEEP_GOING | more)
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
