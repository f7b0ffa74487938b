"""Families of kernels: each is one task from a public source, written in several ways, at three sizes.

Modules beside this one each have a tuple ``FAMILIES``; `families` gathers them. Kernels are made with the helpers of
`kernels` or with loopy alone. Rules for a family:

* All variants do the same task: the same size parameters, the same arrays by name with the same subscripts and element
  types. A variant with another data layout changes an array's ``order`` or ``dim_tags`` only, so that one reference in
  numpy serves all variants.
* A size parameter of one variant is one of all variants, and all sizes fit every variant's assumptions.
* One launch takes about 50 us to 30 ms on two cores. The smallest size's data lies in the caches; most of the largest
  size's data does not fit in an L2 of 2 MiB per core.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import loopy as lp

Arrays: TypeAlias = Mapping[str, Any]
Sizes: TypeAlias = Mapping[str, int]
# Work-items along the loops that are given to the grid, by loop.
Lengths: TypeAlias = dict[str, int]


@dataclass(frozen=True)
class Family:
    """One task, written in several ways.

    `source` is where it comes from; `variants` make the kernel; `sizes` grow. At the size `tiny`, small enough for a
    slow reference, results are compared: `reference` takes the input arrays by name (as before the launch, also of
    those that the kernel updates) and the sizes, and returns every output array, indexed as in the kernel whatever its
    layout. Inputs are random numbers in [0.5, 1.5), integers are in 1 to 9; `tolerance` is the largest relative error.
    """

    name: str
    source: str
    variants: Mapping[str, Callable[[], lp.TranslationUnit]]
    sizes: tuple[Sizes, Sizes, Sizes]
    tiny: Sizes
    reference: Callable[[Arrays, Sizes], Arrays]
    tolerance: float = 2e-4


def shaped_as(make: Callable[..., Any], *names: str, **how: Any) -> dict[str, Callable[[], lp.TranslationUnit]]:
    """Return variants that differ in their work-groups alone: "64x4" has 64 work-items along j and 4 along i."""
    lengths = {name: dict(zip("ji", map(int, name.split("x")), strict=True)) for name in names}
    return {name: partial(make, own, **how) for name, own in lengths.items()}


def sized_as(make: Callable[..., Any], *items: int, prefix: str = "", **how: Any) -> dict[str, Callable[[], Any]]:
    return {f"{prefix}{each}": partial(make, each, **how) for each in items}


@cache
def families() -> dict[str, Family]:
    modules = ("dense", "grids", "images", "layers", "particles", "recurrences")
    found = [family for name in modules for family in import_module(f".{name}", __package__).FAMILIES]
    return {family.name: family for family in sorted(found, key=lambda family: family.name)}
