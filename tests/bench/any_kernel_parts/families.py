"""Families of kernels: each is one task, written in several ways, at three sizes.

One half is used while models are developed, the other is only looked at for the report.

Modules ``develop_*.py`` and ``report_*.py`` each have a tuple ``FAMILIES``; `families` gathers them. Kernels are made
with the helpers of `kernels` or with loopy alone. Rules for a family:

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
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

if TYPE_CHECKING:
    import loopy as lp

Arrays = Mapping[str, Any]
Half: TypeAlias = Literal["develop", "report"]
HALVES: tuple[Half, ...] = get_args(Half)


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
    sizes: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]
    tiny: Mapping[str, int]
    reference: Callable[[Arrays, Mapping[str, int]], Arrays]
    tolerance: float = 2e-4


def families(half: Half) -> tuple[Family, ...]:
    """Return the families of a half, in the order of their names.

    Raises
    ------
    ValueError
        There is no such half, or two families have one name.
    """
    if half not in HALVES:
        msg = f"the halves are {' and '.join(HALVES)}, not {half!r}"
        raise ValueError(msg)
    modules = sorted(path.stem for path in Path(__file__).parent.glob(f"{half}_*.py"))
    found = [family for name in modules for family in import_module(f".{name}", __package__).FAMILIES]
    names = [family.name for family in found]
    if len(set(names)) < len(names):
        msg = f"several families of the half {half!r} have one name: {sorted(n for n in names if names.count(n) > 1)}"
        raise ValueError(msg)
    return tuple(sorted(found, key=lambda family: family.name))
