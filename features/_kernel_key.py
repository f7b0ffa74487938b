"""A key for loopy kernels: equal in every process for kernels that are built alike.

loopy has such a hash of its own, made for kernels that are compiled afterwards: 13 ms for 70 instructions, more than
everything else on the way to remembered counts, and not the same in every process, because the parameters of some sets
come in another order in each. This one writes down the same parts ten times as fast, and leaves to loopy's what it
does not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from typing import Any

import numpy as np

from perflex._islpy import isl

__all__ = ["kernel_key"]

_Writer = Callable[[Any], str]


def kernel_key(kernel: Any, options: str = "") -> str:
    """Return a digest of everything a loopy kernel's description depends on.

    Parameters
    ----------
    kernel
        A loopy ``TranslationUnit``.
    options
        What else the description depends on, as text.

    Raises
    ------
    TypeError
        The kernel holds something that has no persistent hash.
    """
    text = f"{options}|{_text(kernel)}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _text(value: Any) -> str:
    """Return a text that is equal for equal values, and for no others."""
    kind = type(value)
    writer = _WRITERS.get(kind)
    if writer is None:
        writer = _WRITERS[kind] = _writer_for(kind)
    return writer(value)


def _writer_for(kind: type) -> _Writer:
    """Choose how objects of a class are written."""
    from loopy.target import TargetBase
    from loopy.tools import Optional
    from loopy.types import NumpyType
    from pytools import RecordWithoutPickling

    if is_dataclass(kind):
        return _dataclass_writer(kind)
    by_base: dict[Any, _Writer] = {
        type: _class_text,
        Enum: _enum_text,
        np.dtype: _dtype_text,
        np.generic: _scalar_text,
        isl.BasicSet: _points_text,
        isl.Set: _points_text,
        Mapping: _mapping_text,
        Optional: _optional_text,
        RecordWithoutPickling: _record_text,
        TargetBase: _attributes_text,
        NumpyType: _attributes_text,
    }
    return next((writer for base, writer in by_base.items() if issubclass(kind, base)), _text_by_loopy)


def _sequence_text(value: Any) -> str:
    return f"({','.join([repr(item) if type(item) is str else _text(item) for item in value])})"


def _set_text(value: Any) -> str:
    # Sets come in another order in each process.
    return f"{{{','.join(sorted([repr(item) if type(item) is str else _text(item) for item in value]))}}}"


def _mapping_text(value: Any) -> str:
    return f"{{{','.join(sorted([f'{_text(key)}:{_text(item)}' for key, item in value.items()]))}}}"


def _class_text(value: Any) -> str:
    return f"<{value.__module__}.{value.__qualname__}>"


def _enum_text(value: Any) -> str:
    return f"<{type(value).__qualname__}.{value.name}>"


def _scalar_text(value: Any) -> str:
    return f"<{type(value).__name__} {value!r}>"


def _points_text(value: Any) -> str:
    # loopy collects the parameters of some sets in the order of a Python set, and every process has its own.
    names = value.get_var_names(isl.dim_type.param)
    if len(names) > 1:
        value = value.align_params(_parameter_space(tuple(sorted(names))))
    head, colon, conditions = str(value).partition(" : ")
    if "exists" not in conditions and " or " not in conditions:
        conditions = " and ".join(sorted(conditions.removesuffix(" }").split(" and ")))
    return f"<{type(value).__name__} {head}{colon}{conditions}>"


@lru_cache(maxsize=256)
def _parameter_space(names: tuple[str, ...]) -> Any:
    return isl.Space.create_from_names(isl.DEFAULT_CONTEXT, set=[], params=list(names))


@lru_cache(maxsize=256)
def _dtype_text(dtype: np.dtype[Any]) -> str:
    return f"<dtype {dtype.str} {dtype.descr if dtype.names else ''}>"


def _dataclass_writer(kind: type) -> _Writer:
    names = tuple(field.name for field in fields(kind))
    opening = f"<{kind.__qualname__} "
    if len(names) == 1:
        (only,) = names
        return lambda value: f"{opening}{_text(getattr(value, only))}>"
    return lambda value: f"{opening}{','.join([_text(getattr(value, name)) for name in names])}>"


def _record_text(value: Any) -> str:
    parts = [f"{name}={_text(getattr(value, name, None))}" for name in _sorted(frozenset(value.fields))]
    return f"<{type(value).__qualname__} {','.join(parts)}>"


@lru_cache(maxsize=256)
def _sorted(names: frozenset[str]) -> tuple[str, ...]:
    return tuple(sorted(names))


def _attributes_text(value: Any) -> str:
    parts = [f"{name}={_text(item)}" for name, item in sorted(vars(value).items()) if not name.startswith("_")]
    return f"<{type(value).__qualname__} {','.join(parts)}>"


def _optional_text(value: Any) -> str:
    return f"<some {_text(value.value)}>" if value.has_value else "<none>"


def _text_by_loopy(value: Any) -> str:
    from loopy.tools import LoopyKeyBuilder

    return f"<{type(value).__qualname__} {LoopyKeyBuilder()(value)}>"


_WRITERS: dict[type, _Writer] = {
    **dict.fromkeys((str, int, float, bool, complex, bytes, type(None)), repr),
    **dict.fromkeys((tuple, list), _sequence_text),
    **dict.fromkeys((set, frozenset), _set_text),
}
