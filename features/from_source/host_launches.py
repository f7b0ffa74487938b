"""Launches of a kernel in the host code of its file, which are offered where no launch is given."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.formulas import read_formula

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL)
_MACRO = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+(\S.*)$", re.MULTILINE)
_DECLARED = re.compile(r"\b(dim3|auto|int|long|short|unsigned|size_t|uint|u?int\d+_t)\s+([^;{}]*);")
_ASSIGNED = re.compile(r"(?<![\w.])(\w+)\s*(?:\.\w+\s*)?(?:[-+*/|&]|<<|>>)?=(?!=)")
_WORD = re.compile(r"[A-Za-z_]\w*")
# Names that stand for others that stand for others.
_MOST_STEPS = 8
_FOLDED: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv,
    ast.LShift: operator.lshift,
}  # fmt: skip


def offered_launch(source: str, name: str) -> str:
    """Return how the file itself launches a kernel, as the end of a message; empty where it does not."""
    text = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    arguments = r"\s*(?:<[^;{}()]*?>)?\s*"
    of_hip = rf"\bhipLaunchKernelGGL\s*\((?:[\s(]|HIP_KERNEL_NAME)*{re.escape(name)}\b{arguments}\)?\s*,"
    begun = rf"\b{re.escape(name)}{arguments}<<<|{of_hip}"
    launches = [(found.start(), _split(text[found.end() :])) for found in re.finditer(begun, text)]
    launches = [(place, parts) for place, parts in launches if len(parts) > 1]
    if not launches:
        return ""
    place, (grid, block, *rest) = launches[0]
    # What the kernel gets stays as it is: it is mostly called as the kernel calls it.
    passed = set(_WORD.findall(text[place : text.find(";", place)].partition(">>>")[2] or ",".join(rest)))
    known = {word: value for word, value in _known(text, place).items() if word not in passed}
    groups, local = _extents(grid, known), _extents(block, known)
    more = f" (and {len(launches) - 1} more)" if len(launches) > 1 else ""
    offer = f"; line {text.count(chr(10), 0, place) + 1} of the file launches it with <<<{grid}, {block}>>>{more}"
    if not all(isinstance(each, int) for each in local) or not all(map(_is_formula, groups)):
        return f"{offer}, which is groups={_shown(groups)}, local={_shown(local)}: write it with numbers and sizes"
    words = ",".join(map(str, local)), _quoted(",".join(map(str, groups)))
    return f"{offer}: give local={_shown(local)}, groups={_shown(groups)}, or --local {words[0]} --groups {words[1]}"


def _is_formula(text: int | str) -> bool:
    try:
        read_formula(text, {})
    except UnsupportedKernelError:
        return False
    return True


def _shown(extents: list[int | str]) -> str:
    return repr(extents[0] if len(extents) == 1 else extents)


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w,/+.-]*", text) else f"'{text}'"


def _known(text: str, place: int) -> dict[str, str]:
    """Return what names stand for at a place: macros, and the last declarations and assignments before it."""
    known = {macro: value.strip() for macro, value in _MACRO.findall(text)}
    before = text[:place]
    for kind, statement in _DECLARED.findall(before):
        for declared in _split(statement):
            found = re.fullmatch(r"(\w+) ?(?:= ?(.*)|([({].*))", declared)
            if found and (found[2] or kind == "dim3"):
                known[found[1]] = found[2] or f"dim3{found[3]}"
    # What is assigned to elsewhere holds what is not known.
    assigned = set(_ASSIGNED.findall(_DECLARED.sub(";", before)))
    return {name: value for name, value in known.items() if name not in assigned}


def _split(text: str) -> list[str]:
    """Return parts between commas that stand outside of brackets, up to what ends the launch or the list."""
    found, depth = [""], 0
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (not depth and (letter == ";" or text.startswith(">>>", place))):
            break
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [" ".join(each.split()) for each in found]


def _extents(written: str, known: Mapping[str, str]) -> list[int | str]:
    """Return extents along each axis, as numbers where they are known."""
    return [_simplified(axis, known) for axis in _axes(written, known)]


def _axes(written: str, known: Mapping[str, str]) -> list[str]:
    text = written
    for _ in range(_MOST_STEPS):
        text = known.get(text, text)
    axes = re.fullmatch(r"dim3\s*[({](.*)[)}]", text)
    parts = _split(axes[1]) if axes else [text]
    return _axes(parts[0], known) if axes and len(parts) == 1 else parts


def _simplified(text: str, known: Mapping[str, str]) -> int | str:
    def of_axis(found: re.Match[str]) -> str:
        axes = _axes(found[1], known)
        return _inserted([*axes, "1", "1"]["xyz".index(found[2])]) if axes != [found[1]] else found[0]

    for _ in range(_MOST_STEPS):
        text = re.sub(r"\b(\w+)\s*\.\s*([xyz])\b", of_axis, text)
        text = re.sub(r"\b[A-Za-z_]\w*\b(?!\s*\.)", lambda found: _inserted(known.get(found[0], found[0])), text)
    try:
        return _folded(ast.parse(text, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return text


def _inserted(value: str) -> str:
    """Return a name's value for an expression; a name that stands for several extents stays."""
    return value if re.fullmatch(r"\w+|\(.*\)|dim3.*", value) else f"({value})"


def _folded(node: Any) -> int:
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _FOLDED:
            return _FOLDED[type(sign)](_folded(left), _folded(right))
    raise ValueError
