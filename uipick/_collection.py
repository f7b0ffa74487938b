"""The collection of generators, filtered by tags (paper Section 7.1)."""

from __future__ import annotations

import re
from difflib import get_close_matches
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from perflex.errors import TagError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from uipick._generator import Generator, MeasurementKernel, Value


class MatchCondition(Enum):
    """When a generator matches the generator tags that the user gives (paper Section 7.1)."""

    IDENTICAL = "the generator's tags are identical to the given tags"
    SUBSET = "the generator's tags are a subset of the given tags"
    SUPERSET = "the generator's tags are a superset of the given tags"
    INTERSECT = "the generator's tags and the given tags have one in common"

    def holds(self, own: frozenset[str], given: frozenset[str]) -> bool:
        """Tell whether a generator with the tags `own` matches the tags `given`."""
        relations = {
            MatchCondition.IDENTICAL: own == given,
            MatchCondition.SUBSET: own <= given,
            MatchCondition.SUPERSET: own >= given,
            MatchCondition.INTERSECT: bool(own & given),
        }
        return relations[self]


class KernelCollection:
    """Generators, and the condition under which tags select one.

    Parameters
    ----------
    generators
        Usually `uipick.ALL_GENERATORS`; a user's own may be among them.
    generator_match_cond
        See `MatchCondition`.
    """

    def __init__(
        self, generators: Iterable[Generator], generator_match_cond: MatchCondition = MatchCondition.SUPERSET
    ) -> None:
        self.generators = tuple(generators)
        self.generator_match_cond = generator_match_cond

    def matching_generators(self, tags: Iterable[str]) -> tuple[Generator, ...]:
        """Return the generators that the generator tags among `tags` select.

        Raises
        ------
        TagError
            A tag is malformed, or no generator has it, or none matches.
        """
        given = parse_tags(tags).generator
        known = sorted({tag for generator in self.generators for tag in generator.tags})
        for tag in sorted(given.difference(known)):
            msg = f"no generator has the tag {tag!r}; {_suggest(tag, known)}"
            raise TagError(msg, tag=tag)
        condition = self.generator_match_cond
        matching = tuple(g for g in self.generators if condition.holds(g.tags, given))
        if not matching:
            near = [g for g in self.generators if g.tags & given] or list(self.generators)
            have = "; ".join(f"{g.name}: {', '.join(sorted(g.tags))}" for g in near)
            msg = f"no generator matches {', '.join(sorted(given))} under {condition.name}; they have {have}"
            raise TagError(msg, tag=sorted(given))
        return matching

    def generate_kernels(
        self, tags: Iterable[str], values: Mapping[str, Sequence[Value]] | None = None
    ) -> list[MeasurementKernel]:
        """Make every kernel that the tags describe.

        Each matching generator makes one kernel for each element of the Cartesian product of its arguments'
        values: those named by a variant tag, else the argument's defaults. Combinations that a generator's own
        constraints exclude are left out, as long as every value that the user named appears in some kernel.

        Parameters
        ----------
        tags
            Generator tags (one word) and variant tags (``argument:value[,value...]``). With several matching
            generators, a variant tag applies to those that have the argument.
        values
            Values of further arguments, as what they are instead of as text: ``{"n": (512, 640)}``.

        Raises
        ------
        TagError
            A tag is malformed or given twice; no generator matches; no matching generator knows an argument or
            allows a value; or a constraint excludes every kernel with a value.
        """
        # Read twice below; a string stays one, so that `parse_tags` refuses it.
        tags = tags if isinstance(tags, str) else list(tags)
        generators = self.matching_generators(tags)
        variant: dict[str, Sequence[Value]] = dict(parse_tags(tags).variant)
        for argument, own in (values or {}).items():
            if argument in variant:
                msg = f"argument {argument!r} is given twice, as a tag and as values; leave one out"
                raise TagError(msg, argument=argument)
            variant[argument] = own
        chosen = {generator: _choose(generator, variant) for generator in generators}
        for argument, texts in variant.items():
            _check_known(generators, argument, texts)
        kernels: list[MeasurementKernel] = []
        for generator in generators:
            kernels += [
                generator.generate(arguments)
                for arguments in generator.combinations(chosen[generator])
                if generator.violated(arguments) is None
            ]
        for argument, texts in variant.items():
            used = {str(k.arguments[argument]) for k in kernels if argument in k.arguments}
            _check_used(generators, argument, texts, chosen, used)
        if not kernels:
            conditions = "; ".join(f"{g.name}: {c.description}" for g in generators for c in g.constraints)
            msg = f"no combination of the arguments' values can be generated ({conditions}); name other values"
            raise TagError(msg)
        return kernels


_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_VALUE = re.compile(r"[A-Za-z_0-9.+-]+")


class FilterTags(NamedTuple):
    """The generator tags, and the texts of the values of each argument that a variant tag names, in the order given."""

    generator: frozenset[str]
    variant: Mapping[str, tuple[str, ...]]


def parse_tags(tags: Iterable[object]) -> FilterTags:
    """Take filter tags apart."""
    if isinstance(tags, str):  # a sequence of strings too, but never what is meant
        msg = f"filter tags are a list of strings, not one string; write [{tags!r}]"
        raise TagError(msg, tag=tags)
    generator: set[str] = set()
    variant: dict[str, tuple[str, ...]] = {}
    for tag in tags:
        if not isinstance(tag, str):
            msg = f"filter tag {tag!r} is not a string; write 'word' or 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        name, colon, rest = (part.strip() for part in tag.partition(":"))
        if not _NAME.fullmatch(name):
            msg = f"malformed filter tag {tag!r}: {name!r} is not a name; write 'word' or 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        if name in (variant if colon else generator):
            msg = f"generator tag {name!r} is given twice; leave one out"
            if colon:
                msg = f"argument {name!r} is given twice; join the values in one tag: '{name}:{rest},...'"
            raise TagError(msg, tag=tag)
        if colon:
            variant[name] = _values(tag, rest)
        else:
            generator.add(name)
    return FilterTags(frozenset(generator), variant)


def _values(tag: str, text: str) -> tuple[str, ...]:
    values = tuple(value.strip() for value in text.split(","))
    for position, value in enumerate(values):
        if not _VALUE.fullmatch(value):
            msg = f"malformed filter tag {tag!r}: {value!r} is not a value; write 'argument:value[,value...]'"
            raise TagError(msg, tag=tag)
        if value in values[:position]:
            msg = f"filter tag {tag!r} has the value {value!r} twice; leave one out"
            raise TagError(msg, tag=tag)
    return values


_Chosen = dict["Generator", dict[str, tuple["Value", ...]]]


def _suggest(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"there are {', '.join(known)}"


def _choose(generator: Generator, variant: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    chosen = {}
    for name, texts in variant.items():
        if name in generator.by_name:
            values = (generator.by_name[name].read(text) for text in texts)
            chosen[name] = tuple(value for value in values if value is not None)
    return chosen


def _check_known(generators: Sequence[Generator], argument: str, texts: Sequence[Value]) -> None:
    having = [g for g in generators if argument in g.by_name]
    if not having:
        known = list(dict.fromkeys(name for g in generators for name in g.by_name))
        names = ", ".join(g.name for g in generators)
        msg = f"no argument {argument!r} in {names}; {_suggest(argument, known)} (arguments: {', '.join(known)})"
        raise TagError(msg, argument=argument)
    for text in texts:
        if all(g.by_name[argument].read(text) is None for g in having):
            allowed = "; ".join(f"{g.name}: {g.by_name[argument].allowed_text}" for g in having)
            msg = f"value {text!r} is not allowed for argument {argument!r}; allowed are {allowed}"
            raise TagError(msg, argument=argument, value=text)


def _check_used(
    generators: Sequence[Generator], argument: str, texts: Sequence[Value], chosen: _Chosen, used: set[str]
) -> None:
    for text in texts:
        values = [(g, g.by_name[argument].read(text)) for g in generators if argument in g.by_name]
        readable = [(g, value) for g, value in values if value is not None]
        if any(str(value) in used for _, value in readable):
            continue
        reasons = []
        for generator, value in readable:
            narrowed = {**chosen[generator], argument: (value,)}
            violated = (generator.violated(a) for a in generator.combinations(narrowed))
            reasons += [f"{generator.name}: {c.description}" for c in violated if c is not None]
        msg = f"no kernel can have {argument}:{text} ({'; '.join(dict.fromkeys(reasons))}); name other values"
        raise TagError(msg, argument=argument, value=text)
