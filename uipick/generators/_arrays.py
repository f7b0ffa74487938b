"""Arrays and size parameters of kernels."""

from __future__ import annotations

import numpy as np

from uipick import _loopy as lp


def loaded_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only loads from."""
    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=True, is_output=False)


def stored_array(name: str, dtype: str, shape: str, dim_tags: str | None = None) -> lp.GlobalArg:
    """Return a global array that a kernel only stores to."""
    return lp.GlobalArg(name, np.dtype(dtype), shape, dim_tags, is_input=False, is_output=True)


def updated_array(name: str, dtype: str, shape: str) -> lp.GlobalArg:
    """Return a global array that a kernel loads from and stores to."""
    return lp.GlobalArg(name, np.dtype(dtype), shape, is_input=True, is_output=True)


def size_parameters(names: str) -> lp.ValueArg:
    """Return size parameters, names separated by commas."""
    return lp.ValueArg(names, np.int32)


def local_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that the work-items of a work-group share."""
    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.LOCAL)


def private_array(name: str, dtype: str, shape: tuple[int, ...]) -> lp.TemporaryVariable:
    """Return an array that each work-item has for itself."""
    return lp.TemporaryVariable(name, np.dtype(dtype), shape, address_space=lp.AddressSpace.PRIVATE)
