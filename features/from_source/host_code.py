"""Host code of a file of CUDA C or HIP, as text: what names stand for where a kernel is launched."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

_UNREAD = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|^[ \t]*#[ \t]*if[ \t]+0\b.*?^[ \t]*#[ \t]*(?:else|elif|endif)\b",
    re.DOTALL | re.MULTILINE,
)
_MACRO = re.compile(r"^[ \t]*#[ \t]*(define|undef)[ \t]+(\w+)(?:\(([\w\s,]*)\))?[ \t]*(.*)$", re.MULTILINE)
_INTEGER = r"(?:(?:unsigned|signed|long|short)\s+)*(?:int|long|short|unsigned|size_t|uint|u?int\d+_t|cl_u?int)"
_DECLARED = re.compile(rf"\b(dim3|auto|{_INTEGER})\b(\s+const\b)?\s+((?:[^;{{}}]|\{{[^;{{}}]*\}})*);")
_ASSIGNED = re.compile(r"(?<=[;{}])\s*\b(\w+)\s*=(?!=)([^;{}]*);")
_CONSTANT = re.compile(r"\bconst(?:expr)?\b[\w\s]*$")
_DECLARATOR = re.compile(r"(\w+) ?(?:= ?(.*)|([({].*))?", re.DOTALL)
# One expression, of integers alone, is what a function like this returns: int blocks(int n, int items) { return ...; }
_FUNCTION = re.compile(r"\b(\w+)\s+(\w+)\s*\(([^(){}]*)\)\s*\{\s*return\b([^;{}]*);\s*\}")
_CAST = re.compile(
    rf"\(\s*(?:const\s+)?{_INTEGER}\s*\)(?=\s*[\w(])|\bstatic_cast\s*<\s*{_INTEGER}\s*>(?=\s*\()|\bstd::"
)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\.)")
# What is given a variable by reference changes it; these take values.
_BY_VALUE = {
    "dim3", "printf", "fprintf", "sizeof", "malloc", "calloc", "cudaMalloc", "hipMalloc", "min", "max", "ceil", "if",
    "while", "for", "switch", "return", "int", "float", "double", "hipLaunchKernelGGL", ">>>",
}  # fmt: skip
_ROUNDS = re.compile(r"(?i)div|ceil|round")


@dataclass(frozen=True)
class Value:
    """What a name stands for, and the place from which it does; a declaration alone has no text."""

    text: str
    place: int
    constant: bool = True
    declares: bool = False


class HostCode:
    """A file's text without comments and strings, with each character where it was."""

    def __init__(self, source: str, defines: dict[str, str] | None = None) -> None:
        self.text = _UNREAD.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
        self._given = defines or {}

    def line(self, place: int) -> int:
        """Return the number of a place's line."""
        return self.text.count("\n", 0, place) + 1

    @cached_property
    def macros(self) -> dict[str, tuple[list[str] | None, str]]:
        """Parameters and texts of macros, and of functions of one expression, that have one meaning in the file."""
        found: dict[str, tuple[list[str] | None, str]] = {}
        other = set()
        for kind, name, parameters, value in _MACRO.findall(self.text):
            meaning = [each.strip() for each in parameters.split(",")] if parameters else None, value.strip()
            if kind == "undef" or found.setdefault(name, meaning) != meaning:
                other.add(name)
        for kind, name, parameters, value in _FUNCTION.findall(self.text):
            own = [each.split()[-1].strip("&") for each in parameters.split(",") if each.strip()]
            meaning = own, f"({renamed(value.strip(), {each: f'({each})' for each in own})})"
            real = re.search(r"\b(float|double)\b", f"{kind} {parameters}")
            if not real and found.setdefault(name, meaning) != meaning:
                other.add(name)
        known = {name: meaning for name, meaning in found.items() if name not in other and meaning[1]}
        return known | {name: (None, value) for name, value in self._given.items()}

    def value(self, name: str, place: int) -> Value | None:
        """Return what a macro, an integer or extents stand for at a place, where nothing else can reach it."""
        if name in self.macros:
            parameters, text = self.macros[name]
            return Value(text, 0) if parameters is None else None
        function, blocks = self._function_at(place), self._blocks_at(place)
        seen = [each for each in self._definitions.get(name, ()) if each.place < place]
        seen = [each for each in seen if self._blocks_at(each.place) <= blocks]
        own = any(each.declares and function in self._blocks_at(each.place) for each in seen)
        of_function = [each for each in seen if function in self._blocks_at(each.place)]
        if not own and function and name in self._parameters(function):
            seen = of_function
        if not seen or not seen[-1].text or name in re.findall(r"\w+", seen[-1].text):
            return None
        last = seen[-1]
        if last.constant:
            return last
        changes = self.changes(name, last.place, place) if own or of_function == seen else self._changes(name)
        cases = re.search(r"\b(case|default)\b", self.text[last.place : place])
        return None if cases or [each for each in changes if each != last.place] else last

    def changes(self, name: str, since: int, place: int) -> list[int]:
        """Return where a variable changes, or may, from one place on before the other is reached for the last time."""
        # In a loop that began in between, what comes behind is before it, too.
        ends = [self._ends[each] for each in self._blocks_at(place) - self._blocks_at(since)]
        return [each for each in self._changes(name) if since <= each < max([place, *ends])]

    def _changes(self, name: str) -> list[int]:
        word = re.escape(name)
        change = re.compile(
            rf"(?<![\w.])(?:{word}\s*(?:\.\w+\s*)?(?:\+\+|--|(?:[-+*/|&%^]|<<|>>)?=(?!=))"
            rf"|(?:\+\+|--|(?<!&)&)\s*{word}\b)|\bcin\b[^;]*>>\s*{word}\b"
        )
        found = [each.start() for each in change.finditer(self.text)]
        found = [each for each in found if each not in self._initialised and not self._is_operand(each)]
        given = (each.start() for each in re.finditer(rf"[(,]\s*{word}\s*(?=[,)])", self.text))
        return found + [each for each in given if self._by_reference(each)]

    def _is_operand(self, place: int) -> bool:
        """Return whether an ampersand stands between two operands, and takes no address."""
        before = self.text[:place].rstrip()
        return self.text[place] == "&" and bool(re.search(r"[\w)\]]$", before))

    def _by_reference(self, place: int) -> bool:
        """Return whether the call that an argument stands in may change it: of a function that is not known."""
        before, called = self.called_at(place)
        # After a bracket it is a constructor's: vector<float> x(n)
        known = before == ">" or {before, called} & {*_BY_VALUE, *self.macros} or _ROUNDS.search(called)
        return bool(called) and not known and not self._takes_values(called)

    def called_at(self, place: int) -> tuple[str, str]:
        """Return the word before what an argument is given to, and what that is; both empty where it is none."""
        depth = 0
        for at in range(place, 0, -1):
            letter = self.text[at]
            depth += (letter in ")]}") - (letter in "([{")
            if depth < 0 or letter == ";":
                called = re.search(r"(\w+|>)?\s*(\b\w+|>>>)\s*$", self.text[max(0, at - 200) : at])
                return (called[1] or "", called[2]) if letter == "(" and called else ("", "")
        return "", ""

    def _takes_values(self, function: str) -> bool:
        """Return whether a function of the file takes no argument by reference."""
        headed = re.findall(rf"\b{re.escape(function)}\s*\(([^(){{}};]*)\)\s*\{{", self.text)
        return bool(headed) and "&" not in "".join(headed)

    @cached_property
    def _definitions(self) -> dict[str, list[Value]]:
        """Declarations and assignments by name, in their order; of a declaration alone the text is empty."""
        found: dict[str, list[Value]] = {}
        for each in _DECLARED.finditer(self.text):
            constant = bool(each[2] or _CONSTANT.search(self.text[max(0, each.start() - 40) : each.start()]))
            for part in split(each[3])[0]:
                if declared := _DECLARATOR.fullmatch(part):
                    extents = f"dim3{declared[3]}" if declared[3] and each[1] == "dim3" else ""
                    value = Value(extents or whole(declared[2] or ""), each.start(), constant, declares=True)
                    found.setdefault(declared[1], []).append(value)
        for each in _ASSIGNED.finditer(self.text):
            value = Value(whole(" ".join(each[2].split())), each.start(1), constant=False)
            found.setdefault(each[1], []).append(value)
        return {name: sorted(values, key=lambda value: value.place) for name, values in found.items()}

    @cached_property
    def _initialised(self) -> set[int]:
        """Places at which declarations give names their values."""
        equals = re.compile(r"(\w+)\s*=(?!=)")
        spans = (each.span(3) for each in _DECLARED.finditer(self.text))
        return {each.start() for span in spans for each in equals.finditer(self.text, *span)}

    @cached_property
    def _ends(self) -> dict[int, int]:
        """Where each block ends, by its beginning: of braces, and of directives that choose."""
        found: dict[int, int] = {}
        open_ones: dict[str, list[int]] = {"{": [], "#": []}
        for each in re.finditer(r"[{}]|^[ \t]*#[ \t]*(if|el|endif)", self.text, re.MULTILINE):
            begun = open_ones["{" if each[0] in "{}" else "#"]
            if begun and (each[0] == "}" or each[1] in {"el", "endif"}):
                found[begun.pop()] = each.start()
            if each[0] == "{" or each[1] in {"if", "el"}:
                begun.append(each.start())
        return dict(sorted(found.items()))

    def _blocks_at(self, place: int) -> frozenset[int]:
        begins = list(self._ends)
        return frozenset(begun for begun in begins[: bisect(begins, place)] if place < self._ends[begun])

    def _function_at(self, place: int) -> int:
        """Return where the body of the function around a place begins; 0 where there is none."""
        headed = re.compile(r"\)\s*(?:const|noexcept|override|\s)*$")
        blocks = sorted(self._blocks_at(place))
        return next((each for each in blocks if headed.search(self.text[max(0, each - 200) : each])), 0)

    def _parameters(self, function: int) -> set[str]:
        """Return the words of a function's parameters."""
        end = self.text.rindex(")", 0, function)
        depth = 0
        for at in range(end, 0, -1):
            depth += (self.text[at] == ")") - (self.text[at] == "(")
            if not depth:
                return set(_WORD.findall(self.text[at:end]))
        return set()


def split(text: str) -> tuple[list[str], int]:
    """Return parts between commas outside of brackets, up to what ends the launch or the list, and where that is."""
    found, depth, end = [""], 0, len(text)
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth < 0 or (not depth and (letter == ";" or text.startswith(">>>", place))):
            end = place
            break
        if letter == "," and not depth:
            found.append("")
        else:
            found[-1] += letter
    return [" ".join(each.split()) for each in found], end


def renamed(text: str, values: Mapping[str, str]) -> str:
    """Return an expression with other texts for some of its names."""
    return _WORD.sub(lambda word: values.get(word[0], word[0]), text)


def whole(text: str) -> str:
    """Return an expression that stays one where it is inserted."""
    return text if re.fullmatch(r"\w*|dim3\b.*", text, re.DOTALL) else f"({text})"


def plain(text: str) -> str:
    """Return an expression without casts to integers, namespace std and suffixes of numbers."""
    return re.sub(r"\b(\d+)[uUlL]+\b", r"\1", _CAST.sub("", text)).strip()
