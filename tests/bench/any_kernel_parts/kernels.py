"""Short ways to write the kernels of families with loopy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .families import Lengths

F32, F64, I32 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)


def loaded(names: str, dtype: Any, shape: str, **layout: Any) -> lp.GlobalArg:
    """Return global arrays that are only loaded from; `layout` is ``order="F"`` or ``dim_tags="N0,N1"``."""
    return lp.GlobalArg(names, dtype, shape=shape, is_input=True, is_output=False, **layout)


def stored(names: str, dtype: Any, shape: str, **layout: Any) -> lp.GlobalArg:
    return lp.GlobalArg(names, dtype, shape=shape, is_input=False, is_output=True, **layout)


def updated(names: str, dtype: Any, shape: str, **layout: Any) -> lp.GlobalArg:
    return lp.GlobalArg(names, dtype, shape=shape, is_input=True, is_output=True, **layout)


def scratch(names: str, dtype: Any, *shape: int, local: bool = False) -> list[lp.TemporaryVariable]:
    """Return variables or arrays of each work-item's own, or of each work-group."""
    space = lp.AddressSpace.LOCAL if local else lp.AddressSpace.PRIVATE
    return [lp.TemporaryVariable(name, dtype, shape=shape, address_space=space) for name in names.split(", ")]


def make(
    name: str,
    domains: str | Sequence[str],
    body: str,
    arguments: Sequence[Any],
    sizes: str = "n",
    *,
    assume: str = "",
    silenced_warnings: Sequence[str] = (),
) -> lp.TranslationUnit:
    """Return a kernel that executes its instructions in their order; `sizes` are its parameters, by commas."""
    kernel = lp.make_kernel(
        domains,
        body,
        [*arguments, lp.ValueArg(sizes, np.int32)],
        name=name,
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
        silenced_warnings=["v1_scheduler_fallback", *silenced_warnings],
    )
    at_least = " and ".join(f"{size.strip()} >= 1" for size in sizes.split(","))
    return lp.assume(kernel, f"{at_least} and {assume}" if assume else at_least)


def fits(multiple: int, *sizes: str) -> str:
    return " and ".join(f"{size} mod {multiple} = 0" for size in sizes)


def on_grid(kernel: lp.TranslationUnit, **lengths: int) -> lp.TranslationUnit:
    """Give loops to work-groups of so many work-items: the first named loop is axis 0, the second axis 1, and so on."""
    for axis, (iname, length) in enumerate(lengths.items()):
        kernel = lp.split_iname(kernel, iname, length, outer_tag=f"g.{axis}", inner_tag=f"l.{axis}")
    return kernel


def neighbours(kernel: lp.TranslationUnit, iname: str, count: int) -> lp.TranslationUnit:
    """Let each work-item compute `count` neighbouring iterations, unrolled; the loop then counts work-items."""
    if count == 1:
        return kernel
    kernel = lp.split_iname(kernel, iname, count, inner_iname=f"{iname}_own", outer_iname=f"{iname}_rest")
    kernel = lp.tag_inames(kernel, {f"{iname}_own": "unr"})
    return lp.rename_iname(kernel, f"{iname}_rest", iname)


def unrolled(kernel: lp.TranslationUnit, iname: str, count: int) -> lp.TranslationUnit:
    return lp.split_iname(kernel, iname, count, inner_tag="unr") if count > 1 else kernel


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


def over_grid(name: str, body: str, arguments: Sequence[Any]) -> lp.TranslationUnit:
    """Return a kernel over rows i and columns j of a grid of ny by nx, in the order of its body."""
    domain = "{[i, j]: 0 <= i < ny and 0 <= j < nx}"
    return make(name, domain, f"for i, j\n{body}\nend", arguments, "nx, ny")


def shaped(
    kernel: lp.TranslationUnit, lengths: Lengths, block: tuple[str, int] = ("", 1), column: int = 1, tile: str = ""
) -> lp.TranslationUnit:
    """Launch such a kernel.

    With `block` a work-item computes so many neighbours along a loop, unrolled; with `column` so many rows in a loop.
    With `tile` all that a work-group loads of an array of this name is fetched into local memory, first.
    """
    kernel = neighbours(kernel, *block)
    if column > 1:
        kernel = lp.assume(kernel, fits(column, "ny"))
        kernel = lp.split_iname(kernel, "i", column, outer_iname="part", inner_iname="row")
    if not tile:
        return on_grid(kernel, **lengths)
    kernel = lp.assume(kernel, f"{fits(lengths['j'], 'nx')} and {fits(lengths['i'], 'ny')}")
    return fetched_tile(on_grid(kernel, **lengths), tile, ["i_inner", "j_inner"])
