"""Types of numbers by their numpy names, and the types that C computes in."""

from __future__ import annotations

from functools import cache

# Bytes of real scalars; of two the later one is the type in which C computes.
_BYTES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8,
    "bfloat16": 2, "float16": 2, "float32": 4, "float64": 8,
}  # fmt: skip
_RANKS = tuple(_BYTES)
# Complex type -> that of its parts.
_PARTS = {"complex64": "float32", "complex128": "float64"}


def scalar_bytes(dtype: str) -> int:
    """Return the size of a scalar."""
    return _BYTES.get(dtype, 8)


def is_float(dtype: str) -> bool:
    """Return whether a type is a floating-point type."""
    return dtype.startswith(("float", "bfloat"))


@cache
def common_type(*dtypes: str) -> str:
    """Return the type in which C computes with operands of these types (C11, 6.3.1.8); other types have no rank.

    Half precision stays half precision, as in OpenCL C.
    """
    parts = (_PARTS.get(dtype, dtype) for dtype in dtypes)
    found = max((dtype for dtype in parts if dtype in _BYTES), key=_RANKS.index, default=dtypes[0])
    if not _PARTS.keys().isdisjoint(dtypes):
        return "complex128" if found == "float64" else "complex64"
    # Integers narrower than int are promoted to int, which holds all their values.
    return "int32" if found in _RANKS[:5] else found
