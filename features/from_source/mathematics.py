"""Functions of OpenCL C and CUDA C by their names: as which operations they count, and what they store."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from perflex.features.scop.words import OPERATIONS, operation_of_function

# Operators by clang's names, one after another.
_OPERATORS = (
    (re.compile(r"operator\+|__[fd]add_r\w|__hadd2?(_rn|_sat)?"), ("Add",)),
    (re.compile(r"operator-|__[fd]sub_r\w|__hsub2?(_rn|_sat)?|__hneg2?"), ("Sub",)),
    (re.compile(r"operator\*|__[fd]mul_r\w|__hmul2?(_rn|_sat)?|(__u?)?mul24"), ("Mul",)),
    (re.compile(r"operator/|__[fd]div_r\w|__hdiv|__h2div"), ("Div",)),
    (re.compile(r"mad24"), ("Mul", "Add")),
)
ROUNDED = re.compile(r"_r[nzud]$")
_EXTREMES = re.compile(r"(?:u|i|f|fast_|__h)?(min|max)(?:f|2|_nan|2_nan)?|__vi(min|max)_s32")
# By functions' names; of sums and scans over a sub-group or work-group libraries make something of their own.
_OPERATIONS = (
    (re.compile(r"fmaf?|__fmaf?_r\w|__hfma2?(_sat|_relu)?"), "fma"),
    (re.compile(r"mad"), "madd"),
    (re.compile(r"(__)?shfl(_\w+)?|(intel_)?sub_group_(shuffle|broadcast|rotate|clustered_rotate)\w*"), "shuffle"),
    (re.compile(r"(__)?(any|all|ballot)(_sync)?|__activemask|__match_\w+"), "vote"),
    (re.compile(r"sub_group_(any|all|ballot|elect|non_uniform)\w*"), "vote"),
    (re.compile(r"__hb?(eq|ne|lt|le|gt|ge)u?2?|__his(nan2?|inf)"), "cmp"),
    (re.compile(r"is(less|greater|lessgreater|equal|notequal|lessequal|greaterequal|ordered|unordered)"), "cmp"),
    (re.compile(r"__habs2?"), "abs"),
)
# They change a number's type, or take vectors apart and put them together.
CONVERSIONS = re.compile(
    r"convert_\w+|as_\w+|__(int|uint|float|double|longlong)2?\w*_(as_)?\w+|__(u?short|half|bfloat16)_as_\w+"
    r"|__(float|double|u?int|u?short|u?ll|half|bfloat16)s?2+(\w*_r\w|float2?|half2?|bfloat162?|hiint|loint)"
    r"|__hiloint2double"
)
# Those that do not cut off what is behind the point, or are beyond that.
ROUNDS = re.compile(r"_r(t[epn]|[nud])$|2(hi|lo)int$")
PARTS = re.compile(r"__(halves|lows?|highs?|half|bfloat16|float|floats)2\w+2(_rn)?|__(low|high)2\w+|__lowhigh2highlow")
_HALF = re.compile(r"h2?(exp2?|exp10|log2?|log10|sin|cos|sqrt|rsqrt|rcp|ceil|floor|trunc|rint|tanh)")
_DECORATED = re.compile(r"^(native_|half_|fast_|__builtin_|__)|(_rn|_rz|_rd|_ru)$")
_NATIVE = re.compile(r"(?:native|half)_(\w+)|__((?:fdivide|exp|exp10|log|log2|log10|sin|cos|tan|pow|sincos)f)")
# Functions whose names are others in features.
_NAMES = {
    "fabs": "abs", "rint": "round", "nearbyint": "round", "powr": "pow", "pown": "pow", "fsqrt": "sqrt",
    "frsqrt": "rsqrt", "rotate": "shift", "funnelshift_l": "shift", "funnelshift_r": "shift", "mulhi": "mul",
    "umulhi": "mul", "mul64hi": "mul", "umul64hi": "mul", "mul_hi": "mul", "isnan": "cmp", "isinf": "cmp",
    "isfinite": "cmp", "fdim": "add", "remainder": "fmod", "remquo": "fmod", "mad_hi": "madd", "mad_sat": "madd",
    "add_sat": "add", "sub_sat": "add", "dsqrt": "sqrt", "step": "cmp", "degrees": "mul", "radians": "mul",
    **dict.fromkeys(("lround", "lrint", "llround", "llrint"), "round"),
    **dict.fromkeys(("fdividef", "divide", "recip", "frcp", "drcp", "rcp"), "div"),
    **dict.fromkeys(("popcount", "popc", "popcll", "clz", "clzll", "ffs", "ffsll", "brev", "brevll", "ctz"), "bit"),
    **dict.fromkeys(("bitselect", "signbit", "copysign"), "bit"),
}  # fmt: skip
CONSTANTS = {"inf", "inff", "huge_val", "huge_valf", "nan", "nanf"}
# What hardware knows of a work-item.
REGISTERS = {
    "lanemask_lt", "clock", "clock64",
    "get_sub_group_id", "get_sub_group_local_id", "get_sub_group_size", "get_max_sub_group_size",
    "get_num_sub_groups", "get_enqueued_num_sub_groups",
}  # fmt: skip
_FOLDED = {each.__name__: each for each in (math.log2, math.log, math.sqrt, math.floor, math.ceil, math.exp2)}

# Of two integers of 16 bits in one, or four of 8.
_PACKED = re.compile(r"__v(absdiff|abs|add|sub|max|min|avg|hadd|neg|sad|cmp|set)(?:eq|ne|[gl][et])?(ss|us|s|u)?([24])")
_PACKED_WORDS = {
    "absdiff": ("add", "abs"), "sub": ("add",), "neg": ("add",), "avg": ("add", "shift"), "hadd": ("add", "shift"),
    "sad": ("add", "abs", "add"), "set": ("cmp",),
}  # fmt: skip
# Functions of several operations: how many of each for an element of their operands, and how many besides.
_DOT = (("mul", 0, 1), ("madd", 1, -1))
_PARTS_OF: Mapping[str, Sequence[tuple[str, int, int]]] = {
    "dot": _DOT,
    "length": (*_DOT, ("sqrt", 0, 1)),
    "distance": (("add", 1, 0), *_DOT, ("sqrt", 0, 1)),
    "normalize": (*_DOT, ("rsqrt", 0, 1), ("mul", 1, 0)),
    "cross": (("mul", 0, 3), ("madd", 0, 3)),
    "mix": (("add", 1, 0), ("madd", 1, 0)),
    "smoothstep": (("add", 2, 0), ("div", 1, 0), ("min", 1, 0), ("max", 1, 0), ("mul", 2, 0), ("madd", 1, 0)),
    "clamp": (("max", 1, 0), ("min", 1, 0)),
    "saturate": (("max", 1, 0), ("min", 1, 0)),
    "norm3d": (("mul", 1, 0), ("madd", 2, 0), ("sqrt", 1, 0)),
    "rnorm3d": (("mul", 1, 0), ("madd", 2, 0), ("rsqrt", 1, 0)),
    "norm4d": (("mul", 1, 0), ("madd", 3, 0), ("sqrt", 1, 0)),
    "rnorm4d": (("mul", 1, 0), ("madd", 3, 0), ("rsqrt", 1, 0)),
    "rhypot": (("mul", 1, 0), ("madd", 1, 0), ("rsqrt", 1, 0)),
    "sincos": (("sin", 1, 0), ("cos", 1, 0)),
    "sincospi": (("sinpi", 1, 0), ("cospi", 1, 0)),
    "native_sincos": (("native_sin", 1, 0), ("native_cos", 1, 0)),
    "fract": (("floor", 1, 0), ("add", 1, 0), ("min", 1, 0)),
    "modf": (("trunc", 1, 0), ("add", 1, 0)),
    "hadd": (("add", 1, 0), ("shift", 1, 0)),
    "rhadd": (("add", 1, 0), ("shift", 1, 0)),
    "abs_diff": (("add", 1, 0), ("abs", 1, 0)),
    "select": (),
}
# They store results through pointers.
STORING = {"sincos", "sincospi", "native_sincos", "fract", "modf", "frexp", "remquo", "lgamma_r"}


def operators_of(name: str) -> tuple[str, ...]:
    """Return the operators, by clang's names, that a function applies to its operands one after another."""
    extreme = _EXTREMES.fullmatch(name)
    if extreme:
        return (extreme[1] or extreme[2],)
    return next((operators for pattern, operators in _OPERATORS if pattern.fullmatch(name)), ())


def operation_of(name: str) -> str:
    """Return the one operation that a function of several operands is; empty for others."""
    return next((word for pattern, word in _OPERATIONS if pattern.fullmatch(name)), "")


def plain_name(name: str) -> str:
    """Return a function's name without what says how precise and of which type it is."""
    if found := _HALF.fullmatch(name):
        return found[1]
    if found := _NATIVE.fullmatch(name):
        plain = found[1] or found[2]
        native = f"native_{_NAMES.get(plain, plain.removesuffix('f'))}"
        # Others have no faster approximation.
        if native in OPERATIONS or native in _PARTS_OF:
            return native
    base = _DECORATED.sub("", _DECORATED.sub("", name))
    known = {*_NAMES, *_PARTS_OF, *STORING, *OPERATIONS, *CONSTANTS, *REGISTERS}
    return next((each for each in (base, base.removesuffix("f")) if each in known), name)


def packed(name: str) -> tuple[str, int, tuple[str, ...]]:
    """Return type and number of the integers that a function takes for one, and what it computes of each."""
    found = _PACKED.fullmatch(name)
    if found is None:
        return "", 0, ()
    lanes = int(found[3])
    dtype = f"{'int' if found[2] in {'s', 'ss'} or found[1] in {'abs', 'neg'} else 'uint'}{32 // lanes}"
    return dtype, lanes, _PACKED_WORDS.get(found[1], (found[1],))


def counted_as(name: str, lanes: int) -> list[tuple[str, int]]:
    """Return the operations of a function by its plain name, of operands of so many elements."""
    if name in _PARTS_OF and not (name in {"length", "distance"} and lanes == 1):
        counts = ((word, each * lanes + more) for word, each, more in _PARTS_OF[name])
        return [(word, count) for word, count in counts if count]
    # OpenCL's shuffle moves elements of a vector, not values between work-items.
    word = "call:shuffle" if name == "shuffle" else operation_of_function(_NAMES.get(name, name))
    found = {"length": [("abs", 1)], "distance": [("add", 1), ("abs", 1)]}
    return found.get(name, [(word, lanes)])


def folded(name: str, number: float | None) -> float | None:
    """Return what a function gives of a known number, where compilers compute it."""
    function = _FOLDED.get(name)
    if function is None or number is None or number <= 0:
        return None
    try:
        return float(function(number))
    except ArithmeticError:
        return None
