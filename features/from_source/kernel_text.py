"""The text that a compiler needs for one kernel: directives, headers in the place of their include, and no host code.

NVIDIA's run-time compiler has neither host code nor headers. So of CUDA C++ only those declarations are left that the
kernel needs: those of the names in it, of the names in these, and so on. Lines keep their numbers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path

from perflex.features.from_source.kernel_function import is_ours
from perflex.features.from_source.parsing import CUDA_HEADERS, INCLUDE, TOOLKIT, Node, declares
from perflex.features.from_source.source import SourceKernel

_COMMENT = re.compile(r"//(?:\\\r?\n|[^\n])*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(\w+)((?:\\\r?\n|[^\n])*)", re.MULTILINE)
_INCLUDED = re.compile(r"\s*([<\"])([^>\"]+)[>\"]")
_CONDITIONS = {"if", "ifdef", "ifndef", "elif", "else", "endif", "undef"}
_WORD = re.compile(r"[A-Za-z_]\w*")
# What may follow a declaration: others that share its type.
_END = re.compile(r"\s*(?:__attribute__\s*\(\(.*?\)\)\s*)?(?:;|,[^;]*;|__cuda_body[^\n]*)", re.DOTALL)
_BLOCKS = {"NAMESPACE", "LINKAGE_SPEC", "UNEXPOSED_DECL"}
_CLASSES = {"STRUCT_DECL", "CLASS_DECL", "CLASS_TEMPLATE"}
_TYPES = {
    *_CLASSES, "UNION_DECL", "ENUM_DECL", "CLASS_TEMPLATE_PARTIAL_SPECIALIZATION", "TYPEDEF_DECL", "TYPE_ALIAS_DECL",
    "TYPE_ALIAS_TEMPLATE_DECL", "NAMESPACE_ALIAS", "USING_DECLARATION",
}  # fmt: skip
# Words of types that no operator is for.
_PLAIN = {
    "const", "volatile", "struct", "class", "unsigned", "signed", "bool", "char", "short", "int", "long", "float",
    "double",
}  # fmt: skip
_ON_DEVICE = {"CUDADEVICE_ATTR", "CUDAGLOBAL_ATTR", "CUDACONSTANT_ATTR", "CUDASHARED_ATTR"}


@dataclass(eq=False)
class _File:
    """A source file without comments; its characters are bytes, by which clang counts."""

    path: Path
    text: str
    kept: bytearray  # By character
    # Begin and end of directives that include headers, the names, and the headers' files; None if they are not read.
    headers: list[tuple[int, int, str, Path | None]] = field(default_factory=list)
    macros: list[tuple[int, int, str]] = field(default_factory=list)  # Begin and end of a definition, and the name

    @property
    def line(self) -> str:
        """The name of the file as a directive writes it."""
        return f'"{self.path.name}"'.encode().decode("latin-1")

    def keep(self, start: int, end: int) -> None:
        self.kept[start:end] = b"\1" * (end - start)

    def part(self, start: int, end: int) -> str:
        pairs = zip(self.text[start:end], self.kept[start:end], strict=True)
        return "".join(char if kept or char == "\n" else " " for char, kept in pairs)


@dataclass(eq=False)
class _Part:
    """A declaration, or what stands around some: head and closing brace of a namespace."""

    nodes: list[Node]  # Those that share this text
    file: _File
    spans: list[tuple[int, int]]
    names: set[str]
    blocks: tuple[_Part, ...]  # Around it

    @property
    def words(self) -> set[str]:
        return {word for span in self.spans for word in _WORD.findall(self.file.text, *span)}

    def keep(self) -> None:
        for span in self.spans:
            self.file.keep(*span)
        for block in self.blocks:
            block.keep()


@lru_cache(maxsize=8)
def kernel_text(kernel: SourceKernel) -> str:
    """Return the text, with the macros that the kernel is given."""
    return _KernelText(kernel).text()


class _KernelText:
    def __init__(self, kernel: SourceKernel) -> None:
        self._kernel = kernel
        self._parsed = kernel.parsed()
        self._folders = [kernel.path.parent, *map(Path, kernel.folders), INCLUDE]
        self._files: dict[Path, _File] = {}
        self._path = cache(lambda name: Path(name).resolve())
        self._declarations: list[_Part] = []
        self._words: set[str] = set()  # Those of all that the kernel needs
        # The names in macros.
        self._macros = {name: set(_WORD.findall(str(value))) for name, value in kernel.defines.items()}
        self._pastes = False
        self._tested: set[str] = set()
        # Headers, and the places where clang enters them: not where they or conditions forbid it.
        self._entered: set[Path | tuple[Path, int]] = set()
        for each in self._parsed.unit.get_includes():
            if each.location.file is not None:
                place = (self._path(each.location.file.name), each.location.line)
                self._entered |= {self._path(each.include.name), place}

    def text(self) -> str:
        own = self._kernel
        # What the compiler sets by itself for the device that it compiles for.
        given = {name: value for name, value in own.defines.items() if name != "__CUDA_ARCH__"}
        macros = [f"#define {name} {value}".encode().decode("latin-1") for name, value in given.items()]
        main = self._read(own.path, own.source.encode("utf-8", "replace"))
        lacking = self._reduced() if self._parsed.language != "opencl" else []
        # Declarations stand before macros, which would change them.
        before = [] if all(line.startswith("#") for line in lacking) else lacking
        after = [] if before else lacking
        text = "\n".join([*before, *macros, *after, f"#line 1 {main.line}", self._emitted(main, ())])
        return re.sub(r"[ \t\r]+$", "", text, flags=re.MULTILINE).encode("latin-1").decode("utf-8", "replace")

    # Files

    def _read(self, path: Path, content: bytes) -> _File:
        """Read a file and the headers that it includes; keep its directives."""
        text = without_comments(content.decode("latin-1"))
        # Of OpenCL C everything is kept.
        kept = bytearray([self._parsed.language == "opencl"]) * len(text)
        file = self._files[path.resolve()] = _File(path, text, kept)
        for found in _DIRECTIVE.finditer(text):
            word, rest = found[1], found[2]
            if word == "include" and (named := _INCLUDED.match(rest)):
                beside = [path.parent] if named[1] == '"' else []
                self._include(file, found.span(), named[2], [*beside, *self._folders])
            elif word == "define" and (names := _WORD.findall(rest)):
                file.macros.append((*found.span(), names[0]))
                self._macros.setdefault(names[0], set()).update(names[1:])
                self._pastes |= "##" in rest
            elif word in _CONDITIONS:
                file.keep(*found.span())
                self._tested.update(_WORD.findall(rest))
            elif word == "pragma" and rest.strip() != "once":
                file.keep(*found.span())
        return file

    def _include(self, file: _File, place: tuple[int, int], name: str, folders: list[Path]) -> None:
        path = next((each.resolve() for folder in folders if (each := folder / name).is_file()), None)
        here = (file.path.resolve(), file.text.count("\n", 0, place[0]) + 1)
        if name.startswith(tuple(TOOLKIT)) or (path in self._entered and here not in self._entered):
            path = None
        file.headers.append((*place, name, path))
        if path is not None and path not in self._files:
            self._read(path, path.read_bytes())

    def _emitted(self, file: _File, outer: tuple[_File, ...]) -> str:
        """Return what is kept of a file, with its headers."""
        parts, place = [], 0
        for start, end, name, path in file.headers:
            parts.append(file.part(place, start))
            place = end
            header = None if path is None else self._files[path]
            if header is None and declares(name, self._words):
                parts.append(file.text[start:end])
            elif header is not None and header not in (file, *outer):
                inner = self._emitted(header, (*outer, file))
                if inner.strip():
                    line = file.text.count("\n", 0, place) + 2
                    parts.append(f"#line 1 {header.line}\n{inner}\n#line {line} {file.line}")
        return "".join([*parts, file.part(place, len(file.text))])

    # Declarations of CUDA C++

    def _reduced(self) -> list[str]:
        """Keep what the kernel needs; return the lines of what it needs of headers that the compiler lacks."""
        own, files, pastes = set(self._macros), list(self._files.values()), self._pastes
        lacking = self._read(CUDA_HEADERS, CUDA_HEADERS.read_bytes())
        self._pastes = pastes
        self._declare(self._parsed.root, ())
        words, blocks = self._words, self._closure()
        for each in self._declarations:
            if each.nodes[0].kind == "USING_DIRECTIVE" and each.words & blocks:
                each.keep()
        for file in self._files.values():
            for start, end, name in file.macros:
                # Which macros others make by pasting is not known.
                if name in words or self._pastes if file in files else name in words - own:
                    file.keep(start, end)
        return [line for line in self._emitted(lacking, ()).splitlines() if line.strip()]

    def _closure(self) -> set[str]:
        """Keep the declarations that the kernel needs; return the names of the namespaces around them."""
        declared: dict[str, list[_Part]] = {}
        for each in self._declarations:
            for name in each.names:
                declared.setdefault(name, []).append(each)
        declared.pop("", None)
        words, kept = self._words, set[_Part]()
        bound = _WORD.findall(" ".join(self._kernel.template_arguments))
        pending = [self._kernel.name, *bound, *(self._tested & set(self._macros))]
        while pending:
            word = pending.pop()
            if word in words:
                continue
            words.add(word)
            pending += self._macros.get(word, ())
            for each in declared.get(word, ()):
                if each not in kept:
                    kept.add(each)
                    each.keep()
                    pending += each.words
                    if self._pastes:  # Names that macros make are no words of the text.
                        below = (inner for node in each.nodes for inner in node.preorder())
                        pending += {inner.spelling for inner in below} & set(declared)
        return {name for each in kept for block in each.blocks for name in block.names}

    def _declare(self, inside: Node, blocks: tuple[_Part, ...]) -> None:
        """Find the declarations in files that were read."""
        for node in inside.children:
            place, start, end = node.extent.start.file, node.extent.start.offset, node.extent.end.offset
            file = None if place is None else self._files.get(self._path(place.name))
            if file is None:
                continue
            brace = file.text.find("{", start, end)
            inner = node.children if node.kind in _BLOCKS else []
            if node.kind == "NAMESPACE" or (inner and 0 <= brace < inner[0].extent.start.offset):
                block = _Part([node], file, [(start, brace + 1), (end - 1, end)], {node.spelling}, blocks)
                self._declare(node, (*blocks, block))
                continue
            head = set(_WORD.findall(file.text, start, brace if brace >= 0 else end))
            names = {name for each in inner or [node] for name in _names(each, head)}
            # A template of variables; in programs, what clang does not understand may look like one.
            names |= {str(node.spelling)} if node.kind == "UNEXPOSED_DECL" and is_ours(place.name) else set()
            following = _END.match(file.text, end)
            end = following.end() if following else end
            last = self._declarations[-1] if self._declarations else None
            if last is None or file is not last.file or start >= last.spans[0][1]:
                self._declarations.append(_Part([node], file, [(start, end)], names, blocks))
            else:
                last.nodes.append(node)
                last.names |= names
                last.spans = [(min(start, last.spans[0][0]), max(end, last.spans[0][1]))]


def without_comments(text: str) -> str:
    """Return C's text with spaces in the place of comments."""
    return _COMMENT.sub(_without_comment, text)


def _without_comment(found: re.Match[str]) -> str:
    return re.sub(r"[^\n]", " ", found[0]) if found[0][0] == "/" else found[0]


def _names(node: Node, head: set[str]) -> set[str]:
    """Return the names by which code on the device needs a declaration; none for the host's functions and variables."""
    on_device = {child.kind for child in node.children} & _ON_DEVICE or head & {"constexpr", "__managed__"}
    constant = re.match(r"const [^*]*$", node.type.get_canonical().spelling)
    if node.kind not in _TYPES and not on_device and not (node.kind == "VAR_DECL" and constant):
        return set()
    names = {str(node.spelling)}
    if node.kind == "ENUM_DECL":
        names |= {str(child.spelling) for child in node.children}
    if node.semantic_parent.kind in _CLASSES:
        names.add(str(node.semantic_parent.spelling))
    if node.spelling.startswith("operator"):
        words = {word for each in node.parameters for word in _WORD.findall(each.type.spelling)}
        names |= words - set(node.template_parameters) - _PLAIN
    return names
