"""UIPiCK: measurement kernels, made by generators that filter tags select.

Source: the paper's Section 7.1. ::

    from uipick import ALL_GENERATORS, KernelCollection

    kernels = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "dtype:float32", "prefetch:True", "lsize_0:16", "lsize_1:16",
         "groups_fit:True", "n:512,640,768,896"])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from uipick._access_tags import tag_accesses
    from uipick._argument import Argument, Criterion
    from uipick._collection import KernelCollection, MatchCondition
    from uipick._confine_loads import confine_loads
    from uipick._generator import Constraint, Generator
    from uipick._measurement_kernel import MeasurementKernel
    from uipick._remove_work import remove_work
    from uipick.generators import ALL_GENERATORS

__all__ = [
    "ALL_GENERATORS",
    "Argument",
    "Constraint",
    "Criterion",
    "Generator",
    "KernelCollection",
    "MatchCondition",
    "MeasurementKernel",
    "confine_loads",
    "remove_work",
    "tag_accesses",
]

# Names are loaded when first used, so that importing uipick stays fast.
_HOME = {
    "ALL_GENERATORS": "uipick.generators",
    "Argument": "uipick._argument",
    "Constraint": "uipick._generator",
    "Criterion": "uipick._argument",
    "Generator": "uipick._generator",
    "KernelCollection": "uipick._collection",
    "MatchCondition": "uipick._collection",
    "MeasurementKernel": "uipick._measurement_kernel",
    "confine_loads": "uipick._confine_loads",
    "remove_work": "uipick._remove_work",
    "tag_accesses": "uipick._access_tags",
}


def __getattr__(name: str) -> object:
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    msg = f"module 'uipick' has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted(__all__)
