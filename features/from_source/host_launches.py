"""Launches of a kernel in the host code of its file: taken where no launch is given, or offered."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from perflex.errors import UnsupportedKernelError
from perflex.features.from_source.formulas import read_formula
from perflex.features.from_source.host_code import HostCode, plain, renamed, split, whole
from perflex.features.from_source.host_formulas import NotFormulaError, host_formula

_WORD = re.compile(r"\b[A-Za-z_]\w*\b(?!\s*\.)")
_CALL = re.compile(r"\b([A-Za-z_]\w*)\s*\(")
_MEMBER = re.compile(r"\b(\w+)\s*\.\s*([xyz])\b")
# What is given a kernel and launches it where that can be read, or not at all.
_ASKS = re.compile(r"hipLaunchKernelGGL|HIP_KERNEL_NAME|Func|Occupancy")
# Names that stand for others that stand for others.
_MOST_STEPS = 8


@dataclass(frozen=True)
class TakenLaunch:
    """A launch that host code does, in formulas of the kernel's sizes, and the line of its file."""

    line: int
    text: str
    groups: tuple[str, ...]
    local: tuple[int, ...]


@dataclass(frozen=True)
class _Launch:
    """A launch as it is written, and what the kernel is called with."""

    place: int
    grid: str
    block: str
    template_arguments: tuple[str, ...]
    arguments: tuple[str, ...]

    @property
    def text(self) -> str:
        return f"<<<{self.grid}, {self.block}>>>"


def taken_launch(
    source: str,
    name: str,
    template_arguments: Sequence[str],
    parameters: Sequence[tuple[str, bool]],
    defines: Mapping[str, object],
) -> TakenLaunch | None:
    """Return the launch of a kernel by its own file, where there is one and its extents are numbers and sizes.

    Parameters
    ----------
    source
        The file's text.
    name, template_arguments
        The kernel; launches with other template arguments are those of other kernels.
    parameters
        Of the kernel: names, and whether each is an integer, and so a size.
    defines
        Macros with their values.

    Returns
    -------
    TakenLaunch or None
        None where launches differ, or where one cannot be written in numbers and the kernel's sizes.
    """
    code = HostCode(source, {macro: str(value) for macro, value in defines.items()})
    found = []
    for launch in _launches(code, name):
        bound = _bound(code, launch, template_arguments)
        if bound is None:
            continue
        try:
            found.append((launch, _extents_of(code, launch, bound, parameters)))
        except NotFormulaError:
            return None
    if len({extents for _, extents in found}) != 1 or _passed_on(code, name):
        return None
    launch, (groups, local) = found[0]
    return TakenLaunch(code.line(launch.place), launch.text, groups, local)


def offered_launch(source: str, name: str) -> str:
    """Return how the file itself launches a kernel, as the end of a message; empty where it does not."""
    code = HostCode(source)
    launches = _launches(code, name)
    if not launches:
        return ""
    launch = launches[0]
    # What the kernel gets stays as it is: it is mostly called as the kernel calls it.
    values = _Values(code, launch.place, set(_words(launch.arguments)))
    groups, local = ([_shortest(axis) for axis in values.axes(text)] for text in (launch.grid, launch.block))
    more = f" (and {len(launches) - 1} more)" if len(launches) > 1 else ""
    offer = f"; line {code.line(launch.place)} of the file launches it with {launch.text}{more}"
    if not all(isinstance(each, int) for each in local) or not all(map(_is_formula, groups)):
        return f"{offer}, which is groups={_shown(groups)}, local={_shown(local)}: write it with numbers and sizes"
    words = ",".join(map(str, local)), _quoted(",".join(map(str, groups)))
    return f"{offer}: give local={_shown(local)}, groups={_shown(groups)}, or --local {words[0]} --groups {words[1]}"


def written_launch(text: str) -> tuple[list[str], list[str]]:
    """Return extents of grid and work-group from ``(nx/16, ny), (16, 16)``; else a ValueError."""
    grid, block = split(text)[0]
    values = _Values(HostCode(""), 0, set())
    return values.axes(grid), values.axes(block)


def _passed_on(code: HostCode, name: str) -> bool:
    """Return whether a kernel is given to what may launch it, too: a macro, or a function."""
    given = re.finditer(rf"[(,]\s*&?\s*{re.escape(name)}\s*(?=[,)])", code.text)
    return any((called := code.called_at(each.start())[1]) and not _ASKS.search(called) for each in given)


def _launches(code: HostCode, name: str) -> list[_Launch]:
    """Return the launches of a kernel by ``<<<...>>>`` and hipLaunchKernelGGL."""
    arguments = r"\s*(?:<([^;{}()]*?)>)?\s*"
    of_hip = rf"\bhipLaunchKernelGGL\s*\((?:[\s(]|HIP_KERNEL_NAME)*{re.escape(name)}\b{arguments}\)?\s*,"
    found = []
    for begun in re.finditer(rf"\b{re.escape(name)}{arguments}<<<|{of_hip}", code.text):
        parts, end = split(rest := code.text[begun.end() :])
        if len(parts) > 1:
            call = re.match(r">>>\s*\(", rest[end:])
            passed = split(rest[end + call.end() :])[0] if call else parts[4:]
            given = split(begun[1] or begun[2] or "")[0]
            called = tuple(plain(each) for each in passed if each)
            found.append(_Launch(begun.start(), parts[0], parts[1], tuple(filter(None, given)), called))
    return found


def _bound(code: HostCode, launch: _Launch, template_arguments: Sequence[str]) -> dict[str, str] | None:
    """Return what template parameters of the host stand for in this kernel; None where another one is launched."""
    bound: dict[str, str] = {}
    for ours, written in zip(template_arguments, launch.template_arguments, strict=False):
        theirs = _shortest(_Values(code, launch.place, set()).resolved(written))
        if str(theirs) != ours and (not str(theirs).isidentifier() or bound.setdefault(str(theirs), ours) != ours):
            return None
    return bound


def _extents_of(
    code: HostCode, launch: _Launch, bound: Mapping[str, str], parameters: Sequence[tuple[str, bool]]
) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return work-groups along each axis as formulas of the kernel's sizes, and work-items of a work-group."""
    if len(launch.arguments) != len(parameters):
        raise NotFormulaError
    pairs = zip(launch.arguments, parameters, strict=True)
    passed = [(text, own) for text, (own, integer) in pairs if integer]
    texts = [text for text, _ in passed]
    # What is passed twice is two sizes, which may differ.
    sizes = {text: own for text, own in passed if text.isidentifier() and texts.count(text) == 1}
    values = _Values(code, launch.place, sizes, bound)
    # Constants that arguments are made of are sizes, too; those of the work-group stay what they are.
    of_block = values.behind([launch.block])
    values.hidden = values.behind(texts) - of_block - sizes.keys()
    groups = tuple(host_formula(axis, sizes) for axis in values.axes(launch.grid))
    local = tuple(_shortest(axis) for axis in values.axes(launch.block))
    numbers = tuple(axis for axis in local if isinstance(axis, int) and axis > 0)
    if len(numbers) < len(local) or not all(map(_is_formula, groups)):
        raise NotFormulaError
    return tuple(str(_shortest(group)) for group in groups), numbers


class _Values:
    """What expressions are at a place in host code, where names that are kept stay as they are."""

    def __init__(
        self, code: HostCode, place: int, kept: Container[str], bound: Mapping[str, str] | None = None
    ) -> None:
        self._code, self._place, self._kept, self._bound = code, place, kept, bound or {}
        self.hidden: Container[str] = ()

    def axes(self, written: str) -> list[str]:
        """Return extents along each axis."""
        return [self.resolved(axis) for axis in self._axes(written)]

    def resolved(self, text: str) -> str:
        """Return an expression with values for the names that have one."""
        for _ in range(_MOST_STEPS):
            before = text
            text = self._called(_MEMBER.sub(self._axis, text))
            text = _WORD.sub(lambda found: self._value(found[0]) or found[0], text)
            if text == before:
                break
        return plain(text)

    def behind(self, texts: Iterable[str]) -> set[str]:
        """Return all names in expressions, and in what these stand for."""
        found: set[str] = set()
        left = _words(texts)
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                value = self._code.value(name, self._place)
                left += _words([value.text]) if value else []
        return found

    def _value(self, name: str) -> str:
        """Return what a name stands for; empty where that is not known, or not meant."""
        if name in self._bound:
            return self._bound[name]
        if name in self._kept or name in self.hidden:
            return ""
        found = self._code.value(name, self._place)
        if found is None:
            return ""
        # A size that changes in between is another one when the kernel gets it.
        sizes = [word for word in _words([found.text]) if word in self._kept]
        if found.place and any(self._code.changes(size, found.place, self._place) for size in sizes):
            return ""
        return found.text

    def _axes(self, written: str) -> list[str]:
        text = written
        for _ in range(_MOST_STEPS):
            text = (self._value(text) if text.isidentifier() else "") or text
        begun = re.match(r"(dim3\b)?\s*[({]", text)
        parts, end = split(text[begun.end() :]) if begun else ([], 0)
        if begun is None or begun.end() + end < len(text) - 1:  # Such as (a) + (b)
            return [text]
        return parts if len(parts) > 1 else self._axes(parts[0])

    def _axis(self, found: re.Match[str]) -> str:
        axes = self._axes(found[1])
        return whole([*axes, "1", "1"]["xyz".index(found[2])]) if axes != [found[1]] else found[0]

    def _called(self, text: str) -> str:
        """Return an expression with what macros and functions of one expression stand for."""
        for found in _CALL.finditer(text):
            parameters, body = self._code.macros.get(found[1], (None, ""))
            given, end = split(text[found.end() :])
            if parameters is not None and len(parameters) == len(given):
                body = renamed(body, dict(zip(parameters, given, strict=True)))
                return text[: found.start()] + body + self._called(text[found.end() + end + 1 :])
        return text


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in re.findall(r"[A-Za-z_]\w*", text)]


def _shortest(text: str) -> int | str:
    """Return a number where an expression is one."""
    try:
        number = read_formula(host_formula(text, {}), {}).value
    except (NotFormulaError, UnsupportedKernelError):
        return text
    return text if number is None else number


def _is_formula(text: int | str) -> bool:
    """Return whether an extent can be read once its sizes are numbers."""
    try:
        read_formula(text, dict.fromkeys(_words([str(text)]), 1))
    except UnsupportedKernelError:
        return False
    return True


def _shown(extents: list[int | str]) -> str:
    return repr(extents[0] if len(extents) == 1 else extents)


def _quoted(text: str) -> str:
    return text if re.fullmatch(r"[\w,/+.-]*", text) else f"'{text}'"
