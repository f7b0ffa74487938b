"""A kernel in OpenCL C as CUDA C++, for NVIDIA's compiler: to see what it makes of it, not to be launched.

A header of ours defines OpenCL C's types, words and functions. What C++ reads in another way is written anew, where
clang says what it is: memory of variables, local memory that the host gives, and vectors made of elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.arguments import pointed_space
from perflex.features.from_source.kernel_function import parsed_kernel, required_work_group
from perflex.features.from_source.kernel_text import kernel_text
from perflex.features.from_source.parsing import Node, spelled
from perflex.features.from_source.source import SourceKernel

_HEADER = Path(__file__).parent / "opencl_device.h"
_DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\r?\n|[^\n])*", re.MULTILINE)
_ATTRIBUTE = re.compile(r"__attribute__\s*\(\(\s*(?:__)?(\w+?)(?:__)?\s*(\((?:[^()]|\([^()]*\))*\))?\s*\)\)")
# Characters before a cast that are looked at.
_NEAR = 80
_LANES = (2, 3, 4, 8, 16)
# Members that are several elements of a vector, or one that C++ has no name for.
_PART = re.compile(r"\.\s*([xyzw]{2,4}|s[0-9a-fA-F]{2,16}|lo|hi|even|odd)\b")
_NUMBERS = "char|uchar|short|ushort|int|uint|long|ulong|float|double"
_CONVERSION = re.compile(rf"\b(convert|as)_((?:{_NUMBERS})(?:2|3|4|8|16)?)((?:_sat)?(?:_rt[eznp])?)\b")
_VECTOR = re.compile(rf"(?:{_NUMBERS})(?:2|3|4|8|16)")
# A name in parentheses, and the parenthesis behind it.
_CAST = re.compile(r"\(\s*(\w+)\s*\)\s*\(")
# What may stand before a cast; behind other names it is a call.
_BEFORE = re.compile(r"(?:\b(?:return|else|case)|[^\w)\]\s]|^|#[ \t]*define[ \t]+\w+(?:\([^()]*\))?[ \t])\s*\Z")
# Strings, and words that C++ does not take as they are.
_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|\b[A-Za-z_]\w*\b')
# What is a word of C++ and may be a name in C.
# fmt: off
CPP_WORDS = frozenset((
    "alignas", "alignof", "and", "and_eq", "asm", "bitand", "bitor", "catch", "class", "compl", "const_cast",
    "constexpr", "decltype", "delete", "dynamic_cast", "explicit", "export", "friend", "mutable", "namespace", "new",
    "noexcept", "not", "not_eq", "nullptr", "operator", "or", "or_eq", "private", "protected", "public",
    "reinterpret_cast", "static_assert", "static_cast", "template", "this", "thread_local", "throw", "try", "typeid",
    "typename", "using", "virtual", "wchar_t", "xor", "xor_eq",
))
# fmt: on
_SPACES = {f"{sign}{name}" for sign in ("", "__") for name in ("global", "local", "constant", "private", "generic")}
_MEMORIES = {"__local": "__shared__", "__constant": "__constant__"}
# Parts of vectors with names of their own.
_HALVES: Mapping[str, Callable[[int], range]] = {
    "lo": lambda lanes: range(lanes // 2),
    "hi": lambda lanes: range(lanes // 2, lanes),
    "even": lambda lanes: range(0, lanes, 2),
    "odd": lambda lanes: range(1, lanes, 2),
}  # fmt: skip


def cuda_text(kernel: SourceKernel) -> str:
    """Return a kernel in OpenCL C as CUDA C++; an UnsupportedKernelError where that is not known to be the same."""
    return _Translation(kernel).text()


class _Translation:
    def __init__(self, kernel: SourceKernel) -> None:
        self._kernel = kernel
        # What macros and headers make of it stands in the text.
        written = kernel_text(kernel)
        self._parsed = parsed_kernel(kernel.path, written, kernel.name, (), {}, (), "opencl")
        # Clang counts bytes.
        self._text = written.encode("utf-8", "replace").decode("latin-1")
        # Where something is put, how many characters are left out there, and what is put.
        self._edits: list[tuple[int, int, str]] = []
        # CUDA's words for the memory of variables, by where their declaration begins.
        self._words: dict[int, set[str]] = {}
        self._begun = 0
        # Where vectors are made of elements, which C++ would take for the last one.
        self._made: set[int] = set()

    def text(self) -> str:
        self._vectors()
        called = self._called()
        for node in self._parsed.root.children:
            if node.location.file is None or node.location.file.name != str(self._kernel.path):
                continue
            if node.kind == "FUNCTION_DECL" and node.spelling not in called:
                self._leave_out(node)
            elif node.kind == "FUNCTION_DECL":
                self._function(node)
            elif node.kind == "VAR_DECL":
                self._variable(node, inside=False)
        for where, words in self._words.items():
            if len(words) > 1:
                line = self._text[where:].split("\n", 1)[0].strip()
                raise self._refuse(f"{line:.60} declares pointers together with what they may point to")
            self._edits.append((where, 0, "".join(f"{word} " for word in words if word)))
        parts, place = [], 0
        for start, length, put in sorted(self._edits):
            # What is written anew may lie in a function that is left out.
            if start >= place:
                parts += [self._text[place:start], put]
                place = start + length
        text = _as_cpp("".join([*parts, self._text[place:]]))
        defined = [f"#define CL_PARTS_{lanes} {_parts(text, lanes)}" for lanes in _LANES]
        head = [*defined, *self._sides(), _header(), *_conversions(text)]
        return "\n".join([*head, text.encode("latin-1").decode("utf-8", "replace")])

    def _refuse(self, what: str) -> UnsupportedKernelError:
        name = self._kernel.name
        msg = f"{self._kernel.path.name}: kernel {name!r} cannot be compiled for NVIDIA's GPUs: {what}; write it apart"
        return UnsupportedKernelError(msg, kernel=name)

    def _sides(self) -> list[str]:
        """Define the sides of work-groups that the kernel states, which its compiler may use."""
        own = self._kernel
        stated = required_work_group(own.path, own.source, own.name, own.defines, own.folders, own.language)
        return [f"#define CL_SIDE_{axis} {side}u" for axis, side in zip("XYZ", stated or (), strict=False)]

    def _called(self) -> set[str]:
        """Return the names of the functions that the kernel needs; what others use may have no word in CUDA C++."""
        bodies = {each.spelling: each.body for each in self._parsed.root.children if each.body is not None}
        found, pending = set[str](), [self._kernel.name]
        while pending:
            name = pending.pop()
            if name not in found and name in bodies:
                found.add(name)
                pending += [each.spelling for each in bodies[name].preorder() if each.kind == "CALL_EXPR"]
        return found

    def _leave_out(self, node: Node) -> None:
        """Leave out a function, but for directives, between which others may lie."""
        start, end = node.extent.start.offset, node.extent.end.offset
        kept = "\n".join(found[0] for found in _DIRECTIVE.finditer(self._text, start, end))
        lines = "\n" * (self._text.count("\n", start, end) - kept.count("\n") - 2 * bool(kept))
        self._edits.append((start, end - start, f"\n{kept}\n{lines}" if kept else lines))

    def _function(self, node: Node) -> None:
        if node.is_kernel:
            for parameter in node.parameters:
                self._parameter(node, parameter)
        if node.body is not None:
            for each in node.body.preorder():
                if each.kind == "DECL_STMT":
                    self._begun = each.extent.start.offset
                elif each.kind == "VAR_DECL":
                    self._variable(each, inside=True)
                elif each.kind == "COMPOUND_LITERAL_EXPR" and "VECTOR" in each.form and spelled(each) not in self._made:
                    raise self._refuse("a macro makes a vector of its elements")

    def _parameter(self, node: Node, parameter: Node) -> None:
        """Give a pointer to local memory as the place where it begins; constant memory is not written by anybody."""
        if "POINTER" not in parameter.type.get_canonical().kind.name:
            return
        space, start = pointed_space(parameter), parameter.extent.start.offset
        if space == "local":
            self._require_written(parameter)
            end = parameter.extent.end.offset
            self._edits.append((start, end - start, f"uint cl_{parameter.spelling}"))
            if node.body is not None:
                declared = f"{self._text[start:end]} = cl_local{{cl_{parameter.spelling}}};"
                self._edits.append((node.body.extent.start.offset + 1, 0, f" {declared}"))
        elif space == "constant":
            self._require_written(parameter)
            if not parameter.type.get_canonical().get_pointee().is_const_qualified():
                self._edits.append((start, 0, "const "))
            self._edits.append((parameter.location.offset, 0, "__restrict__ "))

    def _vectors(self) -> None:
        """Write vectors that are made of elements as calls."""
        for cast in _CAST.finditer(self._text):
            start, inside = cast.span()
            begun = self._text[max(0, start - _NEAR) : start]
            if _VECTOR.fullmatch(cast[1]) or (_BEFORE.search(begun) and _has_comma(self._text, inside)):
                self._made.add(start)
                self._edits.append((start, inside - start, f"cl_make<{cast[1]}>("))

    def _variable(self, node: Node, *, inside: bool) -> None:
        """Note in which memory a variable lies, and that it is declared so."""
        kind = node.type.get_canonical()
        element = kind
        while "ARRAY" in element.kind.name:
            element = element.element_type
        is_pointer = element.kind.name == "POINTER"
        of = kind.spelling.rpartition("*")[2] if is_pointer else kind.spelling
        word = next((put for name, put in _MEMORIES.items() if name in of), "")
        start = node.extent.start.offset
        # Outside of functions, the next one of a declaration begins behind a comma.
        if not inside and not self._text[max(0, start - _NEAR) : start].rstrip(" \t\n*(").endswith(","):
            self._begun = start
        if word == "__constant__" and inside and not self._text.startswith("static", self._begun):
            word = f"static {word}"
        self._words.setdefault(self._begun, set()).add(word)
        if word:
            self._require_written(node)

    def _require_written(self, node: Node) -> None:
        """Stop where a declaration does not stand in the text: a macro makes it."""
        if not self._text.startswith(str(node.spelling), node.location.offset):
            raise self._refuse(f"a macro declares {node.spelling!r}")


def _as_cpp(text: str) -> str:
    """Return OpenCL C with C++'s words, and without those of memory, which follows from declarations."""
    return _ATTRIBUTE.sub(_attribute, _TOKEN.sub(_word, text))


def _word(found: re.Match[str]) -> str:
    word = found[0]
    if word in {"kernel", "__kernel"}:
        return "__global__"
    return "" if word in _SPACES else f"{word}_" if word in CPP_WORDS else word


def _attribute(found: re.Match[str]) -> str:
    """Return what an attribute is in CUDA C++: of sides of work-groups their product, and of hints nothing."""
    if found[1] == "reqd_work_group_size":
        return f"__launch_bounds__(cl_product{found[2]})"
    return "" if found[1] in {"vec_type_hint", "work_group_size_hint"} else found[0]


def _has_comma(text: str, start: int) -> bool:
    """Return whether several things stand in a parenthesis."""
    depth = 1
    for found in re.finditer(r"[()\[\]{},]", text[start:]):
        depth += {"(": 1, "[": 1, "{": 1, ",": 0}.get(found[0], -1)
        if depth == 0 or (depth == 1 and found[0] == ","):
            return depth == 1
    return False


def _parts(text: str, lanes: int) -> str:
    """Declare the parts of vectors that a text names, as far as vectors of so many elements have them."""
    found = []
    for name in sorted(set(_PART.findall(text))):
        places = _places(name, lanes)
        if places and max(places) < lanes:
            found.append(f"cl_part<T, {4 if lanes == 3 else lanes}, {', '.join(map(str, places))}> {name};")
    return " ".join(found)


def _places(name: str, lanes: int) -> list[int]:
    if name in _HALVES:
        return list(_HALVES[name](lanes)) if lanes != 3 else []
    return ["xyzw".index(letter) for letter in name] if name[0] in "xyzw" else [int(digit, 16) for digit in name[1:]]


def _conversions(text: str) -> list[str]:
    """Define the conversions that a text names and that C++'s own do; others are errors."""
    found = []
    for name, kind, to, how in sorted({(each[0], *each.groups()) for each in _CONVERSION.finditer(text)}):
        # Integers are cut to by default, numbers that are not are rounded to.
        plain = "_rte" if to.startswith(("float", "double")) else "_rtz"
        if how in {"", plain}:
            found.append(f"#define {name} cl_{kind}<{to}>")
    return found


@cache
def _header() -> str:
    return _HEADER.read_text()
