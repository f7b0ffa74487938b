"""Tiles of an array in local memory, fetched by all work-items of a work-group together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp

_LOCAL_BYTES = 32768


def fits_in_tile(elements: int, dtype: str) -> bool:
    """Tell whether a tile takes at most 32 KiB, the least local memory that OpenCL guarantees."""
    width: int = np.dtype(dtype).itemsize
    return elements * width <= _LOCAL_BYTES


def fetch_tile(kernel: lp.TranslationUnit, swept: Sequence[str]) -> lp.TranslationUnit:
    """Fetch what the rule ``near`` reads while some inames vary into the local array ``tile``.

    Unlike ``add_prefetch``, this leaves other accesses to the same array alone and keeps the rule's access tag.
    """
    import loopy as lp

    return lp.precompute(
        kernel,
        "near",
        list(swept),
        default_tag="l.auto",
        fetch_bounding_box=True,
        temporary_name="tile",
        temporary_address_space=lp.AddressSpace.LOCAL,
    )
