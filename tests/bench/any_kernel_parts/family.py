"""What a family of kernels is: one task, written in several ways, at three sizes.

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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import loopy as lp

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class Family:
    """One task, written in several ways.

    Attributes
    ----------
    name
        Short, unique among all families, e.g. ``"gemm_tn"``.
    source
        Where the task comes from, e.g. ``"PolyBench/GPU gemm"``.
    variants
        Functions without arguments that make the kernel, by the variant's name, e.g. ``"16x16"``.
    sizes
        Three growing sizes: values of all size parameters.
    tiny
        A size at which results are compared with numpy, small enough for a slow reference.
    reference
        From the input arrays by name (as before the launch, also of those that the kernel updates) and the sizes: the
        expected value of every output array by name. All arrays are indexed as in the kernel, whatever their layout.
        Inputs are random numbers in [0.5, 1.5), integers are in 1 to 9.
    tolerance
        Largest relative deviation of results.
    """

    name: str
    source: str
    variants: Mapping[str, Callable[[], lp.TranslationUnit]]
    sizes: tuple[Mapping[str, int], Mapping[str, int], Mapping[str, int]]
    tiny: Mapping[str, int]
    reference: Callable[[Arrays, Mapping[str, int]], Arrays]
    tolerance: float = 2e-4
