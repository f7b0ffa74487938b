"""Fetches whose array surely lies in local memory."""

from __future__ import annotations

import loopy as lp


def fetched_locally(kernel: lp.TranslationUnit, *fetches: tuple[str, list[str]]) -> lp.TranslationUnit:
    """Fetch what arrays, or substitution rules, are loaded for the named loops into local memory, first.

    Loopy guesses where a fetched array lies, and takes private memory where a fetch does not use every axis of the
    work-group; here it is told.
    """
    for array, inames in fetches:
        kernel = lp.add_prefetch(
            kernel, array, inames, default_tag="l.auto", temporary_address_space=lp.AddressSpace.LOCAL
        )
    return lp.add_inames_for_unused_hw_axes(kernel)


def fetched_tile(kernel: lp.TranslationUnit, array: str, inames: list[str]) -> lp.TranslationUnit:
    """Fetch the rectangle around all that a work-group loads of an array into local memory, first."""
    return lp.add_prefetch(
        kernel,
        array,
        inames,
        default_tag="l.auto",
        temporary_address_space=lp.AddressSpace.LOCAL,
        fetch_bounding_box=True,
    )
