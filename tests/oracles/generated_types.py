"""Types of the operations in a kernel's generated code, as Oclgrind's compiler takes them.

loopy's OpenCL C, compiled without optimisation, has an instruction with a type for each operation in the source.
Nothing of loopy's or perflex's type inference is used. Signs: a subtracted product is a negation and a multiply-add,
and ``a - b`` is ``a + -1.0f * b``, a multiply-add; compare `as_arithmetic` where kernels subtract. Integer operations
of subscripts and loops cannot be told from others, but are all of 32 bits; those of other widths are the data's.
"""

import re
from collections import Counter

from oracles.nasty.rows import FUNCTIONS
from oracles.oclgrind import CALL_NAME

__all__ = ["as_arithmetic", "integer_widths", "typed_operations"]

_TYPES = {"half": "float16", "float": "float32", "double": "float64"}
_OPCODES = {"fadd": "add", "fsub": "add", "fmul": "mul", "fdiv": "div", "fcmp": "cmp"}
_KERNEL = re.compile(r"^define [^\n]*spir_kernel.*?^}", re.MULTILINE | re.DOTALL)
_PLAIN = re.compile(r"= (fadd|fsub|fmul|fdiv|fcmp)(?: [ou]\w\w| contract)* (?:<\d+ x )?(half|float|double)\b")
_INTEGER = re.compile(r"= (add|sub|mul|sdiv|udiv|srem|urem|shl|ashr|lshr|and|or|xor)(?: nsw| nuw| exact)* (i\d+) ")
_CALL = re.compile(r"call [^@\n]*@([\w.]+)\((?:<\d+ x )?(half|float|double)\b")
_POWER = re.compile(r"powf32|powf64|loopy_pow_\w+")


def typed_operations(code):
    """Return the floating-point operations in LLVM code of kernels, by (kind, type), each once."""
    found = Counter()
    for body in _KERNEL.findall(code):
        for opcode, dtype in _PLAIN.findall(body):
            found[_OPCODES[opcode], _TYPES[dtype]] += 1
        for name, dtype in _CALL.findall(body):
            if kind := _function(name):
                found[kind, _TYPES[dtype]] += 1
    return found


def integer_widths(code):
    """Return the integer operations in LLVM code of kernels, by (opcode, bits)."""
    return Counter(
        (opcode, int(width[1:])) for body in _KERNEL.findall(code) for opcode, width in _INTEGER.findall(body)
    )


def _function(name):
    if name.startswith("llvm.fmuladd"):
        return "madd"
    if _POWER.fullmatch(name):
        return "pow"
    mangled = CALL_NAME.fullmatch(name)
    return FUNCTIONS.get(mangled[2][: int(mangled[1])], "") if mangled else ""


def as_arithmetic(operations):
    """Return which kinds there are in which types, additions, multiplications and multiply-adds as one kind."""
    merged = {"add": "arithmetic", "mul": "arithmetic", "madd": "arithmetic"}
    return {(merged.get(kind, kind), dtype) for (kind, dtype), number in operations.items() if number}
