"""A key for loopy kernels: equal in every process for kernels that are built alike.

loopy has such a hash of its own, made for kernels that are compiled afterwards: 13 ms for 70 instructions, more than
everything else on the way to kept counts, and not the same in every process, because the parameters of some sets
come in another order in each. This one writes down the same parts ten times as fast, and leaves to loopy's what it
does not know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np

from perflex.features.polynomials.isl_text import align_parameters
from perflex.isl import isl

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
    text = f"{options}|{_WRITERS[type(kernel)](kernel)}"
    # Python's strings may hold lone surrogates, which strict UTF-8 refuses.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Writers(dict[type, _Writer]):
    """How objects of each class are written, as texts that are equal for equal objects and for no others."""

    def __missing__(self, kind: type) -> _Writer:
        writer = self[kind] = _writer_for(kind)
        return writer


def _writer_for(kind: type) -> _Writer:
    """Choose how objects of a class are written."""
    if is_dataclass(kind):
        return _fields_writer(kind, tuple(field.name for field in fields(kind)))
    by_base = _writers_by_base()
    return next((by_base[base] for base in kind.__mro__ if base in by_base), _text_by_loopy)


@lru_cache(maxsize=1)
def _writers_by_base() -> dict[Any, _Writer]:
    from loopy.target import TargetBase
    from loopy.tools import Optional
    from loopy.types import NumpyType
    from pytools import RecordWithoutPickling

    return {
        dict: _mapping_text,
        # What the parts of a kernel become when it crosses process borders.
        Mapping: _mapping_text,
        Sequence: _sequence_text,
        type: _class_text,
        Enum: _enum_text,
        np.dtype: _dtype_text,
        np.generic: _scalar_text,
        isl.BasicSet: _points_text,
        isl.Set: _points_text,
        Optional: _optional_text,
        RecordWithoutPickling: _record_text,
        TargetBase: _attributes_text,
        NumpyType: _attributes_text,
    }


def _sequence_text(value: Any) -> str:
    return f"({','.join([_WRITERS[type(item)](item) for item in value])})" if value else "()"


def _set_text(value: Any) -> str:
    # Sets come in another order in each process.
    return f"{{{','.join(sorted([_WRITERS[type(item)](item) for item in value]))}}}" if value else "{}"


def _mapping_text(value: Any) -> str:
    if not value:
        return "{:}"
    items = [f"{_WRITERS[type(key)](key)}:{_WRITERS[type(item)](item)}" for key, item in value.items()]
    return f"{{{','.join(sorted(items))}}}"


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
        value = align_parameters(value, sorted(names))
    head, colon, conditions = str(value).partition(" : ")
    # The order of conditions says nothing within one conjunction; across "or", or in a quantifier's scope, it does.
    if "exists" not in conditions and " or " not in conditions:
        conditions = " and ".join(sorted(conditions.removesuffix(" }").split(" and ")))
    return f"<{type(value).__name__} {head}{colon}{conditions}>"


@lru_cache(maxsize=256)
def _dtype_text(dtype: np.dtype[Any]) -> str:
    # A structure's str has its size only; descr has the fields.
    return f"<dtype {dtype.str} {dtype.descr if dtype.names else ''}>"


def _record_text(value: Any) -> str:
    # Records of one class may differ in their fields, and a class lists those of all of them.
    key = type(value), frozenset(value.__dict__.keys() & value.fields)
    writer = _RECORDS.get(key)
    if writer is None:
        writer = _RECORDS[key] = _fields_writer(key[0], tuple(sorted(key[1])))
    return writer(value)


def _fields_writer(kind: type, names: tuple[str, ...]) -> _Writer:
    """Return what writes the fields of one class."""
    opening = f"<{kind.__module__}.{kind.__qualname__}({','.join(names)}) "
    if len(names) == 1:
        (only,) = names

        def write_one(value: Any) -> str:
            item = getattr(value, only)
            return f"{opening}{_WRITERS[type(item)](item)}>"

        return write_one
    all_of = attrgetter(*names) if names else lambda _: ()

    def write(value: Any) -> str:
        return f"{opening}{','.join([_WRITERS[type(item)](item) for item in all_of(value)])}>"

    return write


def _attributes_text(value: Any) -> str:
    return f"<{type(value).__qualname__} {_mapping_text({k: v for k, v in vars(value).items() if k[:1] != '_'})}>"


def _optional_text(value: Any) -> str:
    return f"<some {_WRITERS[type(value.value)](value.value)}>" if value.has_value else "<none>"


def _text_by_loopy(value: Any) -> str:
    from loopy.tools import LoopyKeyBuilder

    return f"<{type(value).__qualname__} {LoopyKeyBuilder()(value)}>"


_RECORDS: dict[tuple[type, frozenset[str]], _Writer] = {}
_WRITERS = _Writers()
_WRITERS.update(dict.fromkeys((str, int, float, bool, complex, bytes, type(None)), repr))
_WRITERS.update(dict.fromkeys((tuple, list), _sequence_text))
_WRITERS.update(dict.fromkeys((set, frozenset), _set_text))
