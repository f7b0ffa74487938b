"""Sizes that suit a device: fast ones get larger kernels, so that all take milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from perflex.store.records import Recorder
    from perflex.timing.launch.backend import TimedDevice

__all__ = ["REFERENCE_RATE", "SizeRule", "matrix_sizes", "multiply_add_rate", "odd_multiples", "scaled_tags"]

# The shipped models' sizes suit a device of this many single-precision multiply-adds per second.
REFERENCE_RATE = 1.7e11
_PILOT = ["flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True", "m:64"]
_PILOT_ELEMENTS = (32768, 1048576, 16777216)
_LONG_ENOUGH_S = 2e-4
_STEP = 32
_BLOCK = 32768


@dataclass(frozen=True)
class SizeRule:
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
    """

    power: int
    step: int
    only_up: bool = False
    most: float = inf

    def sizes(self, sizes: Iterable[int], scale: float) -> tuple[int, ...]:
        """Return sizes for a device that is `scale` times as fast as they suit: increasing."""
        scale = min(max(scale, 1.0) if self.only_up else scale, self.most)
        return odd_multiples(sizes, scale, power=self.power, step=self.step)


def multiply_add_rate(device: TimedDevice, recorder: Recorder | None = None) -> float:
    """Return the device's multiply-adds per second, from one short measurement kernel.

    Parameters
    ----------
    device
        Where to run.
    recorder
        What keeps the samples, so that a run that goes on finds the sizes that it had.

    Raises
    ------
    MeasurementError
        The kernel does not run on the device.
    """
    from perflex.features.sized_kernel import SizedKernel
    from perflex.timing.measuring import MeasurementFailure, TimingOptions, measure
    from uipick import ALL_GENERATORS, KernelCollection

    rate = 0.0
    for elements in _PILOT_ELEMENTS:
        tags = [*_PILOT, f"nelements:{elements}"]
        (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
        (outcome,) = measure(
            [SizedKernel(kernel.kernel, kernel.sizes, kernel.name)],
            device,
            TimingOptions(trials=5, min_trials=3, budget_s=1.0),
            recorder=recorder,
        )
        if isinstance(outcome, MeasurementFailure):
            raise outcome.error
        rate = elements * 64 * 32 / outcome.seconds
        if outcome.seconds >= _LONG_ENOUGH_S:
            break
    return rate


def matrix_sizes(sizes: Iterable[int], scale: float) -> tuple[int, ...]:
    """Scale matrix extents so that the work grows by `scale`: odd multiples of 32, increasing.

    Multiples of large powers of two are avoided, for there the columns of a matrix fall into few cache sets
    of a CPU, and a load costs several times as much: nothing a cost per access can see.
    """
    return odd_multiples(sizes, scale, power=3, step=_STEP, least=3)


def odd_multiples(sizes: Iterable[int], scale: float, *, power: int, step: int, least: int = 1) -> tuple[int, ...]:
    """Return odd multiples of a step, increasing, from the least one on, such that their power grows by `scale`."""
    found: list[int] = []
    for size in sorted(sizes):
        half = round((size * scale ** (1 / power) / step - 1) / 2)
        value = step * max(least, 2 * half + 1)
        while found and value <= found[-1]:
            value += 2 * step
        found.append(value)
    return tuple(found)


def _element_counts(counts: Iterable[int], scale: float) -> tuple[int, ...]:
    found: list[int] = []
    for count in sorted(counts):
        value = max(1, round(count * scale / _BLOCK)) * _BLOCK
        while found and value <= found[-1]:
            value += _BLOCK
        found.append(value)
    return tuple(found)


def scaled_tags(tags: Sequence[str], scale: float, rules: Mapping[str, SizeRule] | None = None) -> list[str]:
    """Return filter tags with sizes scaled to a device; all other tags stay.

    Parameters
    ----------
    tags
        Filter tags.
    scale
        The device's speed in multiples of the speed that the sizes suit.
    rules
        Of arguments that are scaled to odd multiples. By default ``n`` is taken for the extent of matrices that are
        multiplied, ``nelements`` for that of long arrays.
    """
    return [_scaled(tag, scale, rules or {}) for tag in tags]


def _scaled(tag: str, scale: float, rules: Mapping[str, SizeRule]) -> str:
    argument, _, text = (part.strip() for part in tag.partition(":"))
    rule: Callable[[Iterable[int], float], tuple[int, ...]] | None
    rule = {"n": matrix_sizes, "nelements": _element_counts}.get(argument)
    if argument in rules:
        rule = rules[argument].sizes
    values = [value.strip() for value in text.split(",")]
    # What is no number stays, for the generators say best which values they allow.
    if rule is None or not all(value.isdecimal() for value in values):
        return tag
    return f"{argument}:{','.join(map(str, rule([int(value) for value in values], scale)))}"
