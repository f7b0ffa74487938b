"""What compilers for GPUs make of one operation: instructions by pipeline, and the operations that counters see.

Divisions and functions are several instructions (`slots_of`): those of CUDA C++ with its default precision, counted in
the code that NVRTC 13.5 makes for sm_75 to sm_100. Between those, sums differ by a tenth at most, but for sin, cos,
sinpi, cospi, atan2 and pow of float64 on sm_100; NVRTC 12.8 differs more in sinh, cosh, asinh, atan2, expm1 and cbrt.
Counted is the path of usual arguments: what is jumped over for denormal, huge or other special ones is not on it,
instructions that a predicate may switch off are, and constants are in registers already. OpenCL's division of float32
takes less, unless it is built with full precision.

Which pipeline an instruction takes follows the throughputs of the CUDA C++ Programming Guide (arithmetic
instructions): comparisons, minima and selections take that of integers, also of floats; reciprocals and the like,
roundings and conversions take that of special functions, but for those of 32-bit integers to float32 since sm_86. An
operation that is not listed counts as a function of twenty instructions.

Counters of GPUs see the additions and products among those instructions (`flops_of`): a multiply-add is two, and what a
predicate switches off is none, or a half where the quadrant of an angle decides. Libraries of other versions differ by
one or two in most functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from perflex.errors import UnsupportedKernelError
from perflex.features.scop.words import UPDATES, numpy_name

# Of any type, in registers of 4 bytes. NVIDIA's units shuffle half as many values in a cycle as they add (CUDA C++
# Programming Guide, throughput of native arithmetic instructions).
EXCHANGES = {"shuffle": 2, "vote": 1}
_REGISTER_BYTES = 4


@dataclass(frozen=True)
class Slots:
    """What one operation executes: instructions by pipeline, and the floating-point operations that counters see."""

    own: float = 0.0  # of its type: additions, products and multiply-adds, of float64 also comparisons
    simple: float = 0.0  # of integers, comparisons, selections, moves and branches; of float64 also those of float32
    special: float = 0.0  # of special functions and conversions
    product: float = 0.0  # products of integers
    flops: int | None = 0  # additions and products of its type, a multiply-add being two; None where not known
    flops32: int = 0  # beside those of float64: of float32


_SIMPLE = Slots(simple=1)
_FUNCTION = Slots(own=20, special=1, flops=None)
_NOTHING = Slots()
_SUMS: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "mul"), Slots(own=1, flops=1)),
    **dict.fromkeys(("madd", "fma"), Slots(own=1, flops=2)),
    # The sign of an operand is changed by the instruction that takes it; atomic updates are made by the caches.
    **dict.fromkeys(("abs", *UPDATES), _NOTHING),
    **dict.fromkeys(("sign", "bit"), _SIMPLE),
}
_FLOAT32: Mapping[str, Slots] = {
    **_SUMS,
    **dict.fromkeys(("min", "max", "cmp"), _SIMPLE),
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "convert"), Slots(special=1)),
    # The special one beside the reciprocal looks whether the operands are usual (FCHK).
    "div": Slots(5, 3, 2, flops=10),
    "sqrt": Slots(4, 5, 1, flops=6),
    **dict.fromkeys(("rsqrt", "exp2"), Slots(2, 1, 1)),
    "cbrt": Slots(9, 5, 2, flops=10),
    **dict.fromkeys(("exp", "exp10"), Slots(6, 1, 1, flops=10)),
    "expm1": Slots(13, 8, flops=22),
    "log": Slots(15, 10, flops=24),
    "log2": Slots(17, 10, flops=26),
    "log10": Slots(16, 10, flops=25),
    "log1p": Slots(15, 9, flops=26),
    "pow": Slots(39, 19, 3, flops=58),
    "sin": Slots(11, 11, 1, flops=18),
    "cos": Slots(11, 12, 1, flops=18),
    "tan": Slots(12, 8, 2, flops=20),
    "sinpi": Slots(14, 4, 3, flops=22),
    "cospi": Slots(14, 5, 2, flops=22),
    "asin": Slots(14, 7, 1, flops=22),
    "acos": Slots(15, 7, 1, flops=23),
    "atan": Slots(11, 6, 1, flops=19),
    "atan2": Slots(16, 19, 2, flops=30),
    "sinh": Slots(14, 6, 3, flops=20),
    "cosh": Slots(8, 4, 3, flops=11),
    "tanh": Slots(9, 4, 2, flops=14),
    "asinh": Slots(20, 15, 2, flops=33),
    "acosh": Slots(23, 13, 1, flops=36),
    "atanh": Slots(19, 12, 1, flops=30),
    "hypot": Slots(11, 13, 1, flops=13),
    "erf": Slots(9, 10, 1, flops=15),
    "erfc": Slots(34, 7, 4, flops=53),
    # Beside the unit of special functions, what keeps results beyond the smallest usual numbers.
    **dict.fromkeys(
        ("native_div", "native_exp", "native_exp10", "native_log", "native_log10"), Slots(3, 1, 1, flops=1)
    ),
    **dict.fromkeys(("native_sqrt", "native_log2"), Slots(2, 1, 1)),
    **dict.fromkeys(("native_sin", "native_cos"), Slots(1, 0, 1, flops=1)),
    "native_tan": Slots(4, 1, 3, flops=2),
    "native_pow": Slots(5, 2, 2, flops=1),
}
# Short results need no more than the approximation that the unit of special functions makes.
_HALF: Mapping[str, Slots] = {
    **_FLOAT32,
    **dict.fromkeys(("sqrt", "rsqrt", "exp2"), Slots(1, 1, 1)),
    "log2": Slots(3, 3, 1),
    **dict.fromkeys(("log", "log10"), Slots(6, 3, 1)),
}
_FLOAT64: Mapping[str, Slots] = {
    **_SUMS,
    # Units that are slow at doubles convert and round them as slowly.
    **dict.fromkeys(("cmp", "floor", "ceil", "round", "trunc", "convert"), Slots(own=1)),
    **dict.fromkeys(("min", "max"), Slots(own=1, simple=6)),
    "div": Slots(8, 6, 1, flops=15, flops32=2),
    "sqrt": Slots(8, 7, 1, flops=13),
    "rsqrt": Slots(5, 5, 1, flops=8),
    "cbrt": Slots(13, 22, 6, 1, flops=15, flops32=2),
    "exp": Slots(15, 5, 0, 1, flops=29),
    "exp2": Slots(16, 5, 0, 1, flops=28),
    "exp10": Slots(17, 6, flops=32),
    "expm1": Slots(19, 19, flops=34),
    "log": Slots(30, 25, 1, flops=44),
    **dict.fromkeys(("log2", "log10"), Slots(32, 25, 1, flops=47)),
    "log1p": Slots(31, 29, 1, flops=45),
    "pow": Slots(87, 50, 1, 1, flops=121),
    "sin": Slots(16, 9, 2, 1, flops=24),
    "cos": Slots(16, 10, 2, 1, flops=24),
    "tan": Slots(27, 8, 1, flops=48),
    "sinpi": Slots(15, 8, 3, 1, flops=22),
    "cospi": Slots(14, 13, 2, 1, flops=22),
    "asin": Slots(27, 13, 1, flops=46),
    "acos": Slots(24, 16, 1, flops=42),
    "atan": Slots(24, 8, flops=42),
    "atan2": Slots(39, 24, 1, flops=61, flops32=2),
    "sinh": Slots(30, 29, 1, flops=52, flops32=2),
    "cosh": Slots(21, 9, 1, 1, flops=38),
    "tanh": Slots(21, 11, 6, flops=36, flops32=1),
    "asinh": Slots(35, 19, 3, flops=59, flops32=2),
    "acosh": Slots(33, 20, 2, flops=55, flops32=2),
    "atanh": Slots(33, 18, 2, flops=55, flops32=4),
    "hypot": Slots(15, 19, 1, flops=17),
    "erf": Slots(42, 4, 5, flops=78, flops32=1),
    "erfc": Slots(62, 17, 2, flops=112),
}
_INTEGER: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "min", "max", "cmp", "abs", "bit", "shift", "sign"), _SIMPLE),
    **dict.fromkeys(("mul", "madd"), Slots(product=1)),
    # Quotients by powers of two, as those of subscripts: a shift and a mask.
    **dict.fromkeys(("floordiv", "mod"), Slots(simple=2)),
    "div": Slots(simple=17, special=3, product=4),
    **dict.fromkeys(UPDATES, _NOTHING),
}
# Pairs of registers; a quotient of numbers that fit 32 bits, which are divided as such.
_INTEGER64: Mapping[str, Slots] = {
    **dict.fromkeys(("add", "cmp", "bit", "shift", "sign"), Slots(simple=2)),
    **dict.fromkeys(("min", "max"), Slots(simple=4)),
    **dict.fromkeys(("mul", "madd"), Slots(simple=1, product=3)),
    **dict.fromkeys(("floordiv", "mod", "abs"), Slots(simple=5)),
    "div": Slots(simple=16, special=3, product=4),
    **dict.fromkeys(UPDATES, _NOTHING),
}
# By type: the pipeline of its own, and the operations.
_TABLES: Mapping[str, tuple[str, Mapping[str, Slots]]] = {
    **dict.fromkeys(("float16", "bfloat16"), ("fp32", _HALF)),
    **dict.fromkeys(("float32", "complex64"), ("fp32", _FLOAT32)),
    **dict.fromkeys(("float64", "complex128"), ("fp64", _FLOAT64)),
    **dict.fromkeys(("int64", "uint64"), ("int32", _INTEGER64)),
}
# Those of half precision are counted apart, in pairs.
_FLOPS_AS = {"float32": "float32", "complex64": "float32", "float64": "float64", "complex128": "float64"}
# A complex operation is two, or for products four, real ones: two products, and two multiply-adds.
_COMPLEX_PRODUCTS = {"mul": 4, "madd": 4}
_COMPLEX_FLOPS = {"add": 2, "mul": 6, "madd": 8, "conj": 0, "atomic": 0, "swap": 0}


def slots_of(kind: str, dtype: str) -> dict[str, float]:
    """Return the instructions of one operation on each pipeline that it takes."""
    if kind == "mma":
        msg = "the time of matrix units (operation mma) is not modelled; count it as madd for that of the other units"
        raise UnsupportedKernelError(msg)
    if kind in EXCHANGES:
        registers = -(-np.dtype(numpy_name(dtype)).itemsize // _REGISTER_BYTES) if kind == "shuffle" else 1
        return {"int32": EXCHANGES[kind] * registers}
    # The others: fp32, fp64, int32_mul (products) and special (functions).
    pipe, table = _TABLES.get(dtype, ("int32", _INTEGER))
    one = table.get(kind, _FUNCTION)
    times = _COMPLEX_PRODUCTS.get(kind, 2) if dtype.startswith("complex") else 1
    own = {pipe: one.own}
    own["int32"] = own.get("int32", 0.0) + one.simple
    found = {**own, "int32_mul": one.product, "special": one.special}
    return {name: number * times for name, number in found.items() if number}


def flops_of(kind: str, dtype: str) -> dict[str, int]:
    """Return by type the floating-point operations of one operation, as counters of GPUs count them.

    Raises
    ------
    UnsupportedKernelError
        It is not known of what the operation is made: of functions that are not listed, and of matrix units.
    """
    if dtype not in _FLOPS_AS or kind in EXCHANGES:
        return {}
    real = _FLOPS_AS[dtype]
    one = _TABLES[real][1].get(kind, _FUNCTION)
    flops = _COMPLEX_FLOPS.get(kind) if dtype.startswith("complex") else one.flops
    if flops is None:
        msg = f"how many floating-point operations {kind} of {dtype} is made of is not known; leave f_flop_... out"
        raise UnsupportedKernelError(msg)
    found = {real: flops, "float32": one.flops32} if one.flops32 else {real: flops}
    return {name: number for name, number in found.items() if number}
