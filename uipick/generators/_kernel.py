"""Kernels and their arrays as all generators make them; loopy is imported when the first kernel is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import loopy as lp

LOCAL_BYTES = 32768
"""The least local memory that OpenCL guarantees to a work-group of a full profile."""


def fits_in_local_memory(elements: int, dtype: str) -> bool:
    """Tell whether so many elements take at most `LOCAL_BYTES`."""
    width: int = np.dtype(dtype).itemsize
    return elements * width <= LOCAL_BYTES


def make_kernel(
    name: str,
    domains: str | Sequence[str],
    instructions: str,
    data: Sequence[lp.ArrayArg | lp.ValueArg],
    *,
    in_order: bool = False,
    silenced_warnings: Sequence[str] = (),
) -> lp.TranslationUnit:
    """Make a kernel for OpenCL; `in_order` executes its instructions in the order in which they stand."""
    import loopy as lp

    return lp.make_kernel(
        domains,
        instructions,
        list(data),
        name=name,
        # Fixed, so that a newer loopy reads the same text the same way.
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=in_order,
        silenced_warnings=list(silenced_warnings),
    )


def loaded_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only loads from."""
    import loopy as lp

    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=True, is_output=False)


def stored_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only stores to."""
    import loopy as lp

    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=False, is_output=True)


def size_parameters(names: str) -> lp.ValueArg:
    """Return size parameters, names separated by commas."""
    import loopy as lp

    return lp.ValueArg(names, np.int32)


def local_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that the work-items of a work-group share."""
    import loopy as lp

    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.LOCAL)


def private_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that each work-item has for itself."""
    import loopy as lp

    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.PRIVATE)
