"""Recurrences that keep a processor busy with one kind of operation, for ever, with harmless values.

Update number t of the private variables computes x[t] from x[t - offset], one operation per update. Offsets of at
least five keep updates from waiting for one another; values neither grow nor shrink nor become trivial to a compiler:

* additive updates: a sequence of period 6 with x[t] = x[t-1] + x[t+1] solves x[t] = x[t-13] + x[t-11] (13 = 1 and
  11 = -1 modulo 6), so that small integers stay small integers: exact, finite and never denormal;
* products: 1 and -1 do the same; quotients: powers of two, x[t] = x[t-1] / x[t-2], again with period 6;
* integers: the same, and nothing overflows;
* functions: x = f(x) where that has an attracting fixed point, so that only f itself is repeated.

Starting values depend on both local ids, lest a compiler compute one value for a whole work-group. They come from
integers, lest they count as arithmetic of the kind that is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

UNROLL = 64


@dataclass(frozen=True)
class Recurrence:
    """One kind of update.

    Attributes
    ----------
    operation
        The operation's name in features.
    form
        The update's right-hand side, with ``{0}``, ``{1}`` for earlier variables and ``{own}`` for the variable itself.
    offsets
        How many updates ago each of them was computed.
    start
        Integer definitions (name, expression) that the starting values use; ``{lsize_0}`` and ``{dtype}`` in them.
    cycle
        Starting values, taken in turn; ``{v}`` stands for the variable's number.
    unroll
        How often the loop is unrolled.
    """

    operation: str
    form: str
    offsets: tuple[int, ...]
    start: tuple[tuple[str, str], ...]
    cycle: tuple[str, ...]
    unroll: int = UNROLL


_ITEM = ("int32 item", "l0 + {lsize_0}*l1")
_SUM_START = (
    _ITEM,
    ("int32 next", "item + 1"),
    ("int32 minus_item", "-item"),
    ("int32 minus_next", "-item - 1"),
)
_SUMS = ("next", "item", "-1", "minus_next", "minus_item", "1")
_PRODUCT_START = (("int32 sign", "1 - 2*((l0 + l1) % 2)"), ("int32 other", "2*((l0 + l1) % 2) - 1"))
_PRODUCTS = ("sign", "other", "1", "sign", "1")
# a, b, b/a, 1/a, 1/b, a/b with b = 8 and a = 4 or 2.
_QUOTIENT_START = (
    ("{dtype} large", "4 if (l0 + l1) % 2 == 1 else 2"),
    ("{dtype} middle", "2 if (l0 + l1) % 2 == 1 else 4"),
    ("{dtype} small", "0.25 if (l0 + l1) % 2 == 1 else 0.5"),
    ("{dtype} smaller", "0.5 if (l0 + l1) % 2 == 1 else 0.25"),
)
_QUOTIENTS = ("large", "8", "middle", "small", "0.125", "smaller")
# Always 1 and 0, which a compiler cannot know (nor infer from the loop's being entered); the integers are not
# made by a condition, or multiplying by them would become one.
_ONE = ("{dtype} one", "1 if m < 1000000000 else 0")
_INT_ONE = ("{dtype} int_one", "1 + m // 1000000000")
_ZERO = ("{dtype} zero", "m // 1000000000")

_ADD = Recurrence("add", "{0} + {1}", (13, 11), _SUM_START, _SUMS)
_MUL = Recurrence("mul", "{0} * {1}", (13, 11), _PRODUCT_START, _PRODUCTS)
_MADD = Recurrence("madd", "{0} * one + {1}", (13, 11), (*_SUM_START, _ONE), _SUMS)
_DIV = Recurrence("div", "{0} / {1}", (13, 14), _QUOTIENT_START, _QUOTIENTS)


def _function(name: str, form: str, first: str, unroll: int = 1) -> Recurrence:
    return Recurrence(name, form, (13,), (_ITEM,), (first,), unroll)


# Calls of library functions are long, and inlined 64 times they take compilers minutes; beside one pass over all
# variables the loop costs nothing.
FLOAT_RECURRENCES = {
    "add": _ADD,
    "mul": _MUL,
    "madd": _MADD,
    "div": _DIV,
    "sqrt": _function("sqrt", "sqrt({0})", "item + {v} + 1", UNROLL),
    "rsqrt": _function("rsqrt", "rsqrt({0})", "item + {v} + 1"),
    "exp": _function("exp", "exp(-{0})", "(item + {v}) % 37"),
    "sin": _function("sin", "sin({0})", "item + {v} + 1"),
    "cos": _function("cos", "cos({0})", "item + {v}"),
}

INT_RECURRENCES = {
    "add": _ADD,
    "mul": _MUL,
    "madd": Recurrence("madd", "{0} * int_one + {1}", (13, 11), (*_SUM_START, _INT_ONE), _SUMS),
    # Of exclusive or alone, compilers cancel equal operands; this map can be undone, so that no bit dies out.
    "bit": Recurrence("bit", "{own} ^ {0} & {1}", (13, 11), (_ITEM,), ("item + {v}",)),
    "shift": Recurrence("shift", "{0} << zero", (13,), (_ITEM, _ZERO), ("item + {v}",)),
}

# For half of the variables, eight at least: no offset may exceed their number.
HALF_RECURRENCES = {
    "add": replace(_ADD, offsets=(7, 5)),
    "mul": replace(_MUL, offsets=(7, 5), cycle=("sign", "sign", "1")),
    "madd": replace(_MADD, offsets=(7, 5)),
    "div": replace(_DIV, offsets=(7, 8)),
    "exp": replace(FLOAT_RECURRENCES["exp"], offsets=(7,)),
    "sqrt": replace(FLOAT_RECURRENCES["sqrt"], offsets=(7,)),
}
