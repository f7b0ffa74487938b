"""The words of feature identifiers that a kernel's description uses, too: types, address spaces, operations."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from perflex.errors import UnknownFeatureError

SPACES = ("global", "local", "private", "constant", "texture")
DIRECTIONS = ("load", "store")

DTYPES = (
    "float16", "bfloat16", "float32", "float64", "complex64", "complex128",
    "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
)  # fmt: skip

# madd is a product that feeds a sum (paper Section 5), fma a call of that function. A shuffle hands values to other
# work-items of the sub-group, a vote tells all of them what each has; mma are multiply-adds of matrix units. A swap is
# an atomic update that cannot be added up for several work-items: exchange, comparison, a counter that wraps around.
# Native functions are approximations of float32 (OpenCL's native_exp and half_exp, CUDA's __expf).
NATIVE = ("div", "sqrt", "exp", "exp10", "log", "log2", "log10", "sin", "cos", "tan", "pow")
OPERATIONS = (
    "add", "mul", "madd", "div", "floordiv", "mod", "pow", "min", "max", "abs", "cmp", "bit", "shift", "atomic",
    "swap", "convert", "exp", "exp2", "exp10", "expm1", "log", "log2", "log10", "log1p", "sqrt", "rsqrt", "cbrt", "fma",
    "sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
    "sinpi", "cospi", "hypot", "erf", "erfc", "floor", "ceil", "round", "trunc", "sign", "fmod", "conj",
    "shuffle", "vote", "mma", *(f"native_{name}" for name in NATIVE),
)  # fmt: skip

UPDATES = ("atomic", "swap")

# A function that is none of the above, e.g. a user's own.
_CALL = re.compile(r"call:[A-Za-z_]\w*")


def numpy_name(dtype: str) -> str:
    """Return the numpy type that an element type is like in size and kind: numpy has no bfloat16."""
    return "float16" if dtype == "bfloat16" else dtype


def operation_of_function(name: str) -> str:
    """Return what a call of a function is called as an operation: its name, or ``call:NAME`` for unknown ones."""
    return name if name in OPERATIONS else f"call:{name}"


def read_operation(identifier: str) -> tuple[str, str]:
    """Return element type and operation of an identifier ``f_op_<dtype>_<operation>``."""
    dtype, _, kind = identifier.removeprefix("f_op_").partition("_")
    for what, word, known in (("element type", dtype, DTYPES), ("operation", kind, OPERATIONS)):
        if word not in known and not (what == "operation" and _CALL.fullmatch(word)):
            near = difflib.get_close_matches(word, known, n=3, cutoff=0.5)
            msg = f"feature {identifier!r} names an unknown {what} {word!r}; {_hint(near, known)}"
            raise UnknownFeatureError(msg, feature=identifier, suggestions=tuple(near))
    return dtype, kind


def unknown_operation(kind: str) -> str:
    """Return what is wrong with an operation's name and which there are; empty if nothing is."""
    if kind in OPERATIONS or _CALL.fullmatch(kind):
        return ""
    near = difflib.get_close_matches(kind, OPERATIONS, n=3, cutoff=0.5)
    return f"{kind!r} is an unknown operation; {_hint(near, OPERATIONS)}, or call:NAME for a function of your own"


def _hint(near: Sequence[str], known: Sequence[str]) -> str:
    return f"did you mean {' or '.join(near)}?" if near else f"known are {', '.join(known)}"
