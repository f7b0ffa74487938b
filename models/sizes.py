"""Sizes that suit a device: fast ones get larger kernels, so that all take milliseconds."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from perflex.yaml_file import Fields, Positive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# Lengths of arrays are multiples of it, so that work-groups of usual sizes divide them.
_BLOCK = 32768
# Digits of the largest size: beyond any memory, and their products still fit in doubles.
_DIGITS = 15
_Count = Annotated[int, Meta(ge=1, le=10**_DIGITS)]


class SizeRule(Fields, frozen=True):
    """How a size argument is made to suit a device.

    Attributes
    ----------
    power
        Work grows with this power of the size.
    step
        Sizes are odd multiples of it.
    only_up
        Sizes do not shrink for slow devices.
    most
        Sizes grow no further than suits a device so many times as fast: fast devices' main memories are not as much
        faster as their arithmetic, and arrays would outgrow 32-bit subscripts.
    least
        The smallest multiple of the step.
    """

    power: Annotated[int, Meta(ge=1, le=10)]
    step: _Count
    only_up: bool = False
    most: Positive = inf
    least: _Count = 1

    def sizes(self, sizes: Iterable[int], scale: float) -> tuple[int, ...]:
        """Return odd multiples of the step, increasing, for a device that is `scale` times as fast as `sizes` suit."""
        scale = min(max(scale, 1.0) if self.only_up else scale, self.most)
        # Work grows with size**power, so the size grows with that root of the speed; 2 * half + 1 is odd.
        halves = [round((size * scale ** (1 / self.power) / self.step - 1) / 2) for size in sorted(sizes)]
        # Two steps at a time keep the multiples odd.
        return _increasing([self.step * max(self.least, 2 * half + 1) for half in halves], 2 * self.step)


# Multiples of large powers of two are avoided, for there the columns of a matrix fall into few cache sets of a CPU, and
# a load costs several times as much: nothing a cost per access can see.
MATRIX_SIZES = SizeRule(power=3, step=32, least=3)


def _element_counts(counts: Iterable[int], scale: float) -> tuple[int, ...]:
    return _increasing([max(1, round(count * scale / _BLOCK)) * _BLOCK for count in sorted(counts)], _BLOCK)


def _increasing(values: Iterable[int], step: int) -> tuple[int, ...]:
    """Return values, each raised by steps until it is above the one before: sizes that round alike stay apart."""
    found: list[int] = []
    for value in values:
        while found and value <= found[-1]:
            value += step  # noqa: PLW2901 - raised in place
        found.append(value)
    return tuple(found)


# How sizes are scaled where the model's file does not say: extents of matrices that are multiplied, lengths of arrays.
_RULES: Mapping[str, Callable[[Iterable[int], float], tuple[int, ...]]] = {
    "n": MATRIX_SIZES.sizes,
    "nelements": _element_counts,
}


def split_sizes(tags: Iterable[str], rules: Mapping[str, SizeRule]) -> tuple[list[str], dict[str, tuple[int, ...]]]:
    """Take the sizes that follow a device's speed out of filter tags: return the other tags, and sizes by argument.

    Parameters
    ----------
    tags
        Filter tags, as a model's file has them.
    rules
        Of arguments that are scaled to odd multiples, beside ``n`` and ``nelements``.
    """
    others: list[str] = []
    sizes: dict[str, tuple[int, ...]] = {}
    for tag in tags:
        argument, _, text = (part.strip() for part in tag.partition(":"))
        values = [value.strip() for value in text.split(",")]
        numbers = [int(value) for value in values if value.isdecimal() and len(value) <= _DIGITS]
        # What is not plainly a list of numbers stays a tag, for the generators say best what they allow.
        plain = len(set(numbers)) == len(values) and argument not in sizes
        if plain and (argument in rules or argument in _RULES):
            sizes[argument] = tuple(numbers)
        else:
            others.append(tag)
    return others, sizes


def scaled_sizes(
    sizes: Mapping[str, tuple[int, ...]], scale: float, rules: Mapping[str, SizeRule]
) -> dict[str, tuple[int, ...]]:
    """Return sizes by argument for a device that is `scale` times as fast as they suit."""
    # At the reference speed the sizes of the model's file stand as they are, odd multiples or not.
    if scale == 1.0:
        return dict(sizes)
    own = {argument: rule.sizes for argument, rule in rules.items()}
    return {argument: {**_RULES, **own}[argument](values, scale) for argument, values in sizes.items()}
