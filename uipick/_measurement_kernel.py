"""A measurement kernel: a loopy kernel with sizes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from constantdict import constantdict

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp


@dataclass(frozen=True)
class MeasurementKernel:
    """A kernel and the sizes it is to be run with.

    Attributes
    ----------
    kernel
        The kernel; its size parameters stay symbolic, and all sizes of a variant share one object.
        Not compared: the name says the same.
    sizes
        Value of every size parameter; immutable and hashable.
    name
        Unique and readable, e.g. ``"matmul_sq(dtype=float32, prefetch=True, n=512)"``.
    generator
        Name of the generator that made it.
    arguments
        All arguments, also those that are sizes; immutable and hashable.
    """

    kernel: lp.TranslationUnit = field(compare=False, repr=False)
    sizes: Mapping[str, int]
    name: str
    generator: str
    arguments: Mapping[str, object] = field(repr=False)

    def __post_init__(self) -> None:
        """Make the mappings immutable."""
        object.__setattr__(self, "sizes", constantdict(self.sizes))
        object.__setattr__(self, "arguments", constantdict(self.arguments))
