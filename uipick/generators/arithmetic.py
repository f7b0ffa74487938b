"""Arithmetic on private variables: patterns of independent recurrences, and chains (paper Section 7.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from uipick import _loopy as lp
from uipick._generator import Argument, multiples_of
from uipick.generators import _arguments as arg
from uipick.generators._arrays import size_parameters, stored_array
from uipick.generators._declared import declared
from uipick.generators._kernel import total_of
from uipick.generators._pattern import PATTERN_CONSTRAINTS, make_pattern_kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from uipick._generator import Generator


UNROLL = 64


@dataclass(frozen=True)
class Recurrence:
    """One kind of update."""

    # The update's right-hand side, with ``{0}``, ``{1}`` for earlier variables and ``{own}`` for the variable itself.
    form: str
    # How many updates ago each of them was computed.
    offsets: tuple[int, ...]
    # Instructions that define what the starting values use; ``{lsize_0}`` and ``{dtype}`` in them.
    start: tuple[str, ...]
    # Starting values, taken in turn; ``{v}`` stands for the variable's number.
    cycle: tuple[str, ...]
    # How often the loop is unrolled.
    unroll: int = UNROLL


_ITEM = "<int32> item = l0 + {lsize_0}*l1"
_SUM_START = (_ITEM, "<int32> next = item + 1", "<int32> minus_item = -item", "<int32> minus_next = -item - 1")
_SUMS = ("next", "item", "-1", "minus_next", "minus_item", "1")
_PRODUCT_START = ("<int32> sign = 1 - 2*((l0 + l1) % 2)", "<int32> other = 2*((l0 + l1) % 2) - 1")
_PRODUCTS = ("sign", "other", "1", "sign", "1")
# a, b, b/a, 1/a, 1/b, a/b with b = 8 and a = 4 or 2.
_QUOTIENT_START = (
    "<{dtype}> large = 4 if (l0 + l1) % 2 == 1 else 2",
    "<{dtype}> middle = 2 if (l0 + l1) % 2 == 1 else 4",
    "<{dtype}> small = 0.25 if (l0 + l1) % 2 == 1 else 0.5",
    "<{dtype}> smaller = 0.5 if (l0 + l1) % 2 == 1 else 0.25",
)
_QUOTIENTS = ("large", "8", "middle", "small", "0.125", "smaller")
# Always 1 and 0, which a compiler cannot know (nor infer from the loop's being entered); the integers are not
# made by a condition, or multiplying by them would become one.
_ONE = "<{dtype}> one = 1 if m < 1000000000 else 0"
_INT_ONE = "<{dtype}> int_one = 1 + m // 1000000000"
_ZERO = "<{dtype}> zero = m // 1000000000"

_ADD = Recurrence("{0} + {1}", (13, 11), _SUM_START, _SUMS)
_MUL = Recurrence("{0} * {1}", (13, 11), _PRODUCT_START, _PRODUCTS)
_MADD = Recurrence("{0} * one + {1}", (13, 11), (*_SUM_START, _ONE), _SUMS)
_DIV = Recurrence("{0} / {1}", (13, 14), _QUOTIENT_START, _QUOTIENTS)


def _function(form: str, first: str, unroll: int = 1) -> Recurrence:
    return Recurrence(form, (13,), (_ITEM,), (first,), unroll)


# Calls of library functions are long, and inlined 64 times they take compilers minutes; beside one pass over all
# variables the loop costs nothing.
FLOAT_RECURRENCES = {
    "add": _ADD,
    "mul": _MUL,
    "madd": _MADD,
    "div": _DIV,
    "sqrt": _function("sqrt({0})", "item + {v} + 1", UNROLL),
    "rsqrt": _function("rsqrt({0})", "item + {v} + 1"),
    "exp": _function("exp(-{0})", "(item + {v}) % 37"),
    "sin": _function("sin({0})", "item + {v} + 1"),
    "cos": _function("cos({0})", "item + {v}"),
}

INT_RECURRENCES = {
    "add": _ADD,
    "mul": _MUL,
    "madd": Recurrence("{0} * int_one + {1}", (13, 11), (*_SUM_START, _INT_ONE), _SUMS),
    # Of exclusive or alone, compilers cancel equal operands; this map can be undone, so that no bit dies out.
    "bit": Recurrence("{own} ^ {0} & {1}", (13, 11), (_ITEM,), ("item + {v}",)),
    "shift": Recurrence("{0} << zero", (13,), (_ITEM, _ZERO), ("item + {v}",)),
}


# Any: the pattern's arguments, of the types that their declarations say.
def _repeated(name: str, recurrence: Recurrence, *, dtype: str, nvars: int, **pattern: Any) -> lp.TranslationUnit:
    """Make a kernel that updates ``nvars`` private variables m times and stores their sum."""
    names, unroll = [f"x{v}" for v in range(nvars)], recurrence.unroll
    loops, domain = "k_outer, k_inner", f"0 <= k_inner < {unroll} and 0 <= {unroll}*k_outer < m"
    if unroll == 1:
        loops, domain = "k", "0 <= k < m"
    body = [*_start(recurrence, dtype, names, pattern["lsize_0"]), f"for {loops}"]
    for number, own in enumerate(names):
        earlier = [names[(number - back) % nvars] for back in recurrence.offsets]
        body.append(f"{own} = {recurrence.form.format(*earlier, own=own)}")
    kernel = make_pattern_kernel(
        name,
        pattern,
        [*body, "end", f"result$resST[{{index}}] = {total_of(nvars)}"],
        [stored_array("result", dtype, "nelements"), size_parameters("m")],
        loops=[f"{{[{loops}]: {domain}}}"],
        assume=f"m >= {unroll} and m mod {unroll} = 0" if unroll > 1 else "m >= 1",
    )
    if unroll == 1:
        return kernel
    # Without a priority loopy may put the unrolled loop outside: many loops in place of one long one.
    return lp.prioritize_loops(lp.tag_inames(kernel, "k_inner:unr"), "k_outer, k_inner")


def _start(recurrence: Recurrence, dtype: str, names: Sequence[str], lsize_0: int) -> list[str]:
    body = [line.format(dtype=dtype, lsize_0=lsize_0) for line in recurrence.start]
    for position, name in enumerate(names):
        value = recurrence.cycle[position % len(recurrence.cycle)]
        if "{v}" in value:
            # A variable of its own, since loopy would compute the sum in the type of what it is assigned to.
            body.append(f"<int32> start_{name} = {value.format(v=name[1:])}")
            value = f"start_{name}"
        body.append(f"<{dtype}> {name} = {value}")
    return body


_MANY, _FEWER = (1024, 1152, 1280, 1408), (64, 128, 192, 256)
# By how long an operation takes; functions, with fewest, are the rest.
_ITERATIONS = {**dict.fromkeys(INT_RECURRENCES, _MANY), "div": _FEWER, "sqrt": _FEWER}


def _throughput(family: str, operation: str, recurrence: Recurrence, dtype: Argument, description: str) -> Generator:
    name = f"{family}_{operation}_pattern"
    # A partial object for its docstring: the generators differ in nothing else.
    build = partial(_repeated, name, recurrence)
    build.__doc__ = description
    iterations = _ITERATIONS.get(operation, (8, 16, 24, 32))
    m = Argument("m", "int", "loop iterations", multiples_of(recurrence.unroll), iterations)
    nvars = arg.choice("nvars", "private variables (16 suit devices with few registers)", (16, 32), 32)
    arguments = (dtype, *arg.PATTERN_ARGUMENTS[1:], nvars)
    return declared(build, family, arguments, (arg.NELEMENTS, m), *PATTERN_CONSTRAINTS, name=name)


def _flops(operation: str, words: str, form: str, remark: str = "") -> Generator:
    recurrence = FLOAT_RECURRENCES[operation]
    unrolled = f"; the loop is unrolled by {UNROLL}" if recurrence.unroll == UNROLL else "; the loop is not unrolled"
    description = f"""Throughput of {words}: m loop iterations, each updating every private variable once.

    Each work-item initialises 32 private variables (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {min(recurrence.offsets) - 1} before it{unrolled}. At the end the
    variables are summed (one addition fewer than there are variables) and stored with a simple pattern (access tag
    ``resST``). Isolates ``f_op_<dtype>_{operation}``: nvars times m of them per work-item.{remark and " " + remark}

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010).
    """
    return _throughput("flops", operation, recurrence, arg.DTYPE, description)


_LARGE = "what large arguments cost to reduce does not show."
FLOPS_PATTERNS = (
    _flops("add", "additions", "x = y + z"),
    _flops("mul", "multiplications", "x = y * z"),
    _flops("madd", "multiply-adds", "x = y * one + z"),
    _flops("div", "divisions", "x = y / z", "All values are powers of two from 1/8 to 8."),
    _flops("sqrt", "square roots", "x = sqrt(y)", "The values tend to 1."),
    _flops("rsqrt", "reciprocal square roots", "x = rsqrt(y)", "The values tend to 1."),
    _flops("exp", "exponentials", "x = exp(-y)",
        "The sign, which does not count as an operation, makes the values tend to 0.567."),
    _flops("sin", "sines", "x = sin(y)", f"The values sink slowly towards 0, not below 0.0001: {_LARGE}"),
    _flops("cos", "cosines", "x = cos(y)", f"The values tend to 0.739: {_LARGE}"),
)  # fmt: skip


def _iops(operation: str, words: str, form: str, times: str = "nvars times m") -> Generator:
    recurrence, before = INT_RECURRENCES[operation], min(INT_RECURRENCES[operation].offsets) - 1
    description = f"""Throughput of integer {words}: m iterations, each updating every private variable once.

    Each work-item initialises 32 private integers (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {before} before it, none overflows, and the loop is unrolled by {UNROLL}. At
    the end the variables are summed (one addition fewer than there are variables) and stored with a simple pattern
    (access tag ``resST``). Isolates ``f_op_<dtype>_{operation}``: {times} of them per work-item, beside a few
    integer operations for the starting values.

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010), with integers.
    """
    return _throughput("iops", operation, recurrence, arg.INT_DTYPE, description)


IOPS_PATTERNS = (
    _iops("add", "additions", "x = y + z"),
    _iops("mul", "multiplications", "x = y * z"),
    _iops("madd", "multiply-adds", "x = y * one + z"),
    _iops("bit", "bit operations", "x = x ^ (y & z)", "twice nvars times m"),
    _iops("shift", "shifts", "x = y << zero"),
)


_UPDATES = {"add": "x{c} = x{c} + step", "madd": "x{c} = x{c} * one + step"}


def _chain(operation: str, *, dtype: str, chains: int, **pattern: int | bool) -> lp.TranslationUnit:
    # Integer sums, lest they count as floating-point arithmetic; different ones in each work-item.
    body = [f"<int32> item = l0 + {pattern['lsize_0']}*l1", "<int32> odd = 1 + item % 2", f"<{dtype}> step = odd"]
    for c in range(chains):
        body += [f"<int32> start{c} = item + {c}", f"<{dtype}> x{c} = start{c}"]
    if operation == "madd":
        # Always 1, which a compiler cannot know.
        body.append(f"<{dtype}> one = 1 if m < 1000000000 else 0")
    body += ["for k", *(_UPDATES[operation].format(c=c) for c in range(chains)), "end"]
    body.append("result$resST[{index}] = " + total_of(chains))
    return make_pattern_kernel(
        f"flops_{operation}_chain", pattern, body, [stored_array("result", dtype, "nelements")], times="m"
    )


def _chains(operation: str, words: str, form: str) -> Generator:
    build = partial(_chain, operation)
    build.__doc__ = f"""Latency of {words}: m loop iterations, each updating every private variable from itself.

    Each work-item repeats ``{form}`` m times for each of its ``chains`` variables, which do not depend on each other;
    with one of them every update waits for the last. The sum of the variables is stored (access tag ``resST``).
    Isolates ``f_chain_<dtype>_{operation}``, m per work-item, from ``f_op_<dtype>_{operation}``, m times ``chains``.
    Sums stay exact integers as long as m is below a million.

    Source: the paper's Section 7.1.1 names the dependence chain of work-removed kernels; this measures it.
    """
    return declared(
        build,
        "flops_chain",
        (*arg.PATTERN_ARGUMENTS, arg.within("chains", "independent private variables", 1, 32, 1, 2)),
        (arg.NELEMENTS, arg.positive("m", "loop iterations", 256, 512, 1024)),
        *PATTERN_CONSTRAINTS,
        name=f"flops_{operation}_chain",
    )


FLOPS_CHAINS = (_chains("add", "additions", "x = x + step"), _chains("madd", "multiply-adds", "x = x * one + step"))
