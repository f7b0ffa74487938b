"""Tiles of an array in local memory, fetched by all work-items of a work-group together."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp


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
