"""Places in a GPU's pipelines that an operation of the source takes: what compilers make of divisions and functions.

Numbers of instructions are those of CUDA's mathematical functions with their default precision, about: their code
branches on the argument. An operation that is not listed counts as a function of twenty instructions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PIPES = ("fp32", "fp64", "int32", "int32_mul", "special")


@dataclass(frozen=True)
class Slots:
    """Instructions of one operation: on the pipeline of its type, of integers and comparisons, of special functions."""

    own: float = 0.0
    simple: float = 0.0
    special: float = 0.0
    product: float = 0.0


_ONE = Slots(own=1)
_SIMPLE = Slots(simple=1)
_FUNCTION = Slots(own=20, special=1)
_NOTHING = Slots()

_FLOAT32: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "mul", "madd", "fma"), _ONE),
    **dict.fromkeys(("min", "max", "cmp", "abs", "sign"), _SIMPLE),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "rsqrt"), Slots(own=1, special=1)),
    "div": Slots(own=8, special=1),
    "sqrt": Slots(own=6, special=1),
    "exp": Slots(own=4, special=1),
    "exp2": Slots(own=2, special=1),
    "log": Slots(own=9, simple=3),
    "log2": Slots(own=3, special=1),
    "tanh": Slots(own=8, special=2),
    "pow": Slots(own=30, simple=8, special=2),
    "atomic": _NOTHING,
}
# Comparisons of doubles take the pipeline of doubles, selections do not; conversions to and from doubles are as slow.
_FLOAT64: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "mul", "madd", "fma", "cmp", "abs", "convert"), _ONE),
    **dict.fromkeys(("min", "max"), Slots(own=1, simple=2)),
    "div": Slots(own=10, special=1),
    "sqrt": Slots(own=10, special=1),
    "rsqrt": Slots(own=8, special=1),
    "atomic": _NOTHING,
}
_INTEGER: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "min", "max", "cmp", "abs", "bit", "shift", "sign"), _SIMPLE),
    **dict.fromkeys(("mul", "madd"), Slots(product=1)),
    # Quotients by powers of two, as those of subscripts: a shift and a mask.
    **dict.fromkeys(("floordiv", "mod"), Slots(simple=2)),
    "div": Slots(simple=12, product=4, special=1),
    "atomic": _NOTHING,
}
# 64-bit integers are pairs: two additions with a carry, four products.
_PAIR = 2
# A complex operation is two, or for products four, real ones.
_COMPLEX = {"mul": 4, "madd": 4}


def slots_of(kind: str, dtype: str) -> dict[str, float]:
    """Return the instructions of one operation by pipeline, one of `PIPES`; those that it has none of are left out."""
    pipe, table = "int32", _INTEGER
    if dtype in {"float16", "float32", "complex64"}:
        pipe, table = "fp32", _FLOAT32
    elif dtype in {"float64", "complex128"}:
        pipe, table = "fp64", _FLOAT64
    one = table.get(kind, _FUNCTION)
    times = 1
    if dtype.startswith("complex"):
        times = _COMPLEX.get(kind, 2)
    elif dtype in {"int64", "uint64"}:
        times = _PAIR
    own = {pipe: one.own}
    own["int32"] = own.get("int32", 0.0) + one.simple
    found = {**own, "int32_mul": one.product * times, "special": one.special}
    return {name: number * times for name, number in found.items() if number}
