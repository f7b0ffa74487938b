"""Global memory access with a simple pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, integers
from uipick._generator import Generator
from uipick.generators._arguments import GID_STRIDE_0, GID_STRIDE_1, NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._kernel import loaded_array, stored_array
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    import loopy as lp


def gmem_pattern(*, dtype: str, n_arrays: int, **pattern: int | bool) -> lp.TranslationUnit:
    """Global loads from n_arrays arrays and one store, all with one simple pattern.

    Each work-item stores ``in0[e] + in1[e] + ...`` in ``result[e]``, where e is its own element: lid and gid times
    their strides. The access-to-footprint ratio is 1. Loads carry the access tag ``inLD``, the store ``resST``.
    Isolates global loads (number of arrays varied) and the store of the given strides; beside them there are
    n_arrays - 1 additions per work-item.

    Source: the paper's Section 7.1.2.
    """
    names = [f"in{number}" for number in range(n_arrays)]
    return make_pattern_kernel(
        "gmem_pattern",
        pattern,
        ["result$resST[{index}] = " + " + ".join(f"{name}$inLD[{{index}}]" for name in names)],
        [
            *(loaded_array(name, dtype, "nelements") for name in names),
            stored_array("result", dtype, "nelements"),
        ],
    )


GMEM_PATTERN = Generator(
    name="gmem_pattern",
    tags=frozenset({"gmem_pattern", "gmem"}),
    arguments=(
        *PATTERN_ARGUMENTS,
        GID_STRIDE_0,
        GID_STRIDE_1,
        Argument("n_arrays", "int", "number of input arrays", integers(1, 16), (1, 2, 3)),
        NELEMENTS,
    ),
    build=gmem_pattern,
    size_arguments=("nelements",),
    constraints=PATTERN_CONSTRAINTS,
)
