"""The measurement kernels that a ready model asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.errors import TagError
from perflex.models.sizes import scaled_sizes, split_sizes

if TYPE_CHECKING:
    from perflex.models import ModelDescription
    from uipick import MatchCondition, MeasurementKernel


def measurement_kernels(description: ModelDescription, scale: float = 1.0) -> list[MeasurementKernel]:
    """Generate the measurement kernels of a model description, sized for a device.

    Parameters
    ----------
    description
        From `perflex.models.load_model`.
    scale
        The device's speed in multiples of the speed that the description's sizes suit.

    Raises
    ------
    TagError
        A tag set is empty or selects nothing, or its match condition is unknown.
    """
    from uipick import ALL_GENERATORS, KernelCollection

    kernels: dict[str, MeasurementKernel] = {}
    for number, kernel_set in enumerate(description.measurement_kernels, start=1):
        if not kernel_set.tags:
            msg = f"set {number} of the measurement kernels has no tags; name the generator at least"
            raise TagError(msg)
        condition = _condition(kernel_set.match)
        tags, sizes = split_sizes(kernel_set.tags, kernel_set.scale)
        suited = scaled_sizes(sizes, scale, kernel_set.scale)
        # By name: a kernel that several sets ask for is measured once.
        made = KernelCollection(ALL_GENERATORS, condition).generate_kernels(tags, suited)
        kernels |= {kernel.name: kernel for kernel in made}
    return list(kernels.values())


def _condition(word: str | None) -> MatchCondition:
    from uipick import MatchCondition

    if word is None:
        return MatchCondition.SUPERSET
    try:
        return MatchCondition[word.upper()]
    except KeyError:
        known = ", ".join(condition.name.lower() for condition in MatchCondition)
        msg = f"no match condition is called {word!r}; there are {known}"
        raise TagError(msg, tag=word) from None
