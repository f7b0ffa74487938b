"""Arithmetic on private variables: patterns of independent recurrences, and chains (paper Section 7.1.2)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from uipick._generator import Argument, integers, multiples_of
from uipick.generators._arguments import DTYPE, INT_DTYPE, NELEMENTS, PATTERN_ARGUMENTS
from uipick.generators._declared import declared
from uipick.generators._kernel import PATTERN_CONSTRAINTS, make_pattern_kernel, size_parameters, stored_array, total_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import loopy as lp

    from uipick._generator import Generator


UNROLL = 64


@dataclass(frozen=True)
class Recurrence:
    """One kind of update."""

    # The update's right-hand side, with ``{0}``, ``{1}`` for earlier variables and ``{own}`` for the variable itself.
    form: str
    # How many updates ago each of them was computed.
    offsets: tuple[int, ...]
    # Definitions (name, expression) that the starting values use; ``{lsize_0}`` and ``{dtype}`` in them.
    start: tuple[tuple[str, str], ...]
    # Starting values, taken in turn; ``{v}`` stands for the variable's number.
    cycle: tuple[str, ...]
    # How often the loop is unrolled.
    unroll: int = UNROLL


_ITEM = ("int32 item", "l0 + {lsize_0}*l1")
_SUM_START = (_ITEM, ("int32 next", "item + 1"), ("int32 minus_item", "-item"), ("int32 minus_next", "-item - 1"))
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

NVARS = Argument("nvars", "int", "private variables (16 suit devices with few registers)", (16, 32), (32,))


def arithmetic_generator(
    family: str,
    operation: str,
    build: Callable[..., lp.TranslationUnit],
    dtype: Argument,
    unroll: int,
    iterations: tuple[int, ...],
) -> Generator:
    """Return the generator ``<family>_<operation>_pattern`` of a kernel that `make_arithmetic_kernel` makes."""
    return declared(
        build,
        family,
        (dtype, *PATTERN_ARGUMENTS[1:], NVARS),
        (NELEMENTS, Argument("m", "int", "loop iterations", multiples_of(unroll), iterations)),
        *PATTERN_CONSTRAINTS,
        name=f"{family}_{operation}_pattern",
    )


def make_arithmetic_kernel(
    name: str, parts: Sequence[tuple[Recurrence, str]], *, dtype: str, nvars: int, **pattern: int | bool
) -> lp.TranslationUnit:
    """Make a kernel that updates ``nvars`` private variables m times and stores their sum.

    Variable number v belongs to part v modulo ``len(parts)``: a recurrence and the element type of its variables.
    """
    import loopy as lp

    names = [[f"x{v}" for v in range(part, nvars, len(parts))] for part in range(len(parts))]
    unroll = min(recurrence.unroll for recurrence, _ in parts)
    loops, domain = "k_outer, k_inner", f"0 <= k_inner < {unroll} and 0 <= {unroll}*k_outer < m"
    if unroll == 1:
        loops, domain = "k", "0 <= k < m"
    body = [line for part, own in zip(parts, names, strict=True) for line in _start(*part, own, pattern["lsize_0"])]
    body = [*dict.fromkeys(body), f"for {loops}"]
    updates = [_updates(recurrence, own) for (recurrence, _), own in zip(parts, names, strict=True)]
    body += [update for together in zip(*updates, strict=True) for update in together]
    body += ["end", *_sums(parts, names, dtype)]
    kernel = make_pattern_kernel(
        name,
        pattern,
        body,
        [stored_array("result", dtype, "nelements"), size_parameters("m")],
        loops=[f"{{[{loops}]: {domain}}}"],
        assume=f"m >= {unroll} and m mod {unroll} = 0" if unroll > 1 else "m >= 1",
    )
    if unroll == 1:
        return kernel
    # Without a priority loopy may put the unrolled loop outside: many loops in place of one long one.
    return lp.prioritize_loops(lp.tag_inames(kernel, "k_inner:unr"), "k_outer, k_inner")


def _start(recurrence: Recurrence, dtype: str, names: Sequence[str], lsize_0: int) -> list[str]:
    definitions = [(target.format(dtype=dtype), value.format(lsize_0=lsize_0)) for target, value in recurrence.start]
    body = [f"<{target.split()[0]}> {target.split()[1]} = {value}" for target, value in definitions]
    for position, name in enumerate(names):
        value = recurrence.cycle[position % len(recurrence.cycle)]
        if "{v}" in value:
            # A variable of its own, since loopy would compute the sum in the type of what it is assigned to.
            body.append(f"<int32> start_{name} = {value.format(v=name[1:])}")
            value = f"start_{name}"
        body.append(f"<{dtype}> {name} = {value}")
    return body


def _updates(recurrence: Recurrence, names: Sequence[str]) -> list[str]:
    lines = []
    for number, name in enumerate(names):
        earlier = [names[(number - back) % len(names)] for back in recurrence.offsets]
        lines.append(f"{name} = {recurrence.form.format(*earlier, own=name)}")
    return lines


def _sums(parts: Sequence[tuple[Recurrence, str]], names: Sequence[Sequence[str]], dtype: str) -> list[str]:
    """Sum the variables of the result's type, then add the sums of the others."""
    lines = []
    terms: list[str] = []
    for number, ((_, own_dtype), own) in enumerate(zip(parts, names, strict=True)):
        if own_dtype == dtype:
            terms += own
        else:
            lines += [f"<{own_dtype}> sum{number} = {' + '.join(own)}", f"<{dtype}> term{number} = sum{number}"]
            terms.append(f"term{number}")
    return [*lines, "result$resST[{index}] = " + " + ".join(terms)]


_MANY, _FEWER = (1024, 1152, 1280, 1408), (64, 128, 192, 256)
# By how long an operation takes; functions, with fewest, are the rest.
_ITERATIONS = {"add": _MANY, "mul": _MANY, "madd": _MANY, "div": _FEWER, "sqrt": _FEWER}


# Any: the pattern's arguments, of the types that their declarations say.
def _repeated(name: str, recurrence: Recurrence, *, dtype: str, **arguments: Any) -> lp.TranslationUnit:
    return make_arithmetic_kernel(name, [(recurrence, dtype)], dtype=dtype, **arguments)


def _flops(operation: str, words: str, form: str, remark: str = "") -> Generator:
    # A partial object for its docstring: the generators differ in nothing else.
    recurrence = FLOAT_RECURRENCES[operation]
    build = partial(_repeated, f"flops_{operation}_pattern", recurrence)
    unrolled = f"; the loop is unrolled by {UNROLL}" if recurrence.unroll == UNROLL else "; the loop is not unrolled"
    build.__doc__ = f"""Throughput of {words}: m loop iterations, each updating every private variable once.

    Each work-item initialises 32 private variables (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {min(recurrence.offsets) - 1} before it{unrolled}. At the end the
    variables are summed (one addition fewer than there are variables) and stored with a simple pattern (access tag
    ``resST``). Isolates ``f_op_<dtype>_{operation}``: nvars times m of them per work-item.{remark and " " + remark}

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010).
    """
    iterations = _ITERATIONS.get(operation, (8, 16, 24, 32))
    return arithmetic_generator("flops", operation, build, DTYPE, recurrence.unroll, iterations)


FLOPS_PATTERNS = (
    _flops("add", "additions", "x = y + z"),
    _flops("mul", "multiplications", "x = y * z"),
    _flops("madd", "multiply-adds", "x = y * one + z"),
    _flops("div", "divisions", "x = y / z", "All values are powers of two from 1/8 to 8."),
    _flops("sqrt", "square roots", "x = sqrt(y)", "The values tend to 1."),
    _flops("rsqrt", "reciprocal square roots", "x = rsqrt(y)", "The values tend to 1."),
    _flops(
        "exp",
        "exponentials",
        "x = exp(-y)",
        "The sign, which does not count as an operation, makes the values tend to 0.567.",
    ),
    _flops(
        "sin",
        "sines",
        "x = sin(y)",
        "The values sink slowly towards 0, not below 0.0001: what large arguments cost to reduce does not show.",
    ),
    _flops(
        "cos", "cosines", "x = cos(y)", "The values tend to 0.739: what large arguments cost to reduce does not show."
    ),
)


def _iops(operation: str, words: str, form: str, times: str = "nvars times m") -> Generator:
    build = partial(_repeated, f"iops_{operation}_pattern", INT_RECURRENCES[operation])
    before = min(INT_RECURRENCES[operation].offsets) - 1
    build.__doc__ = f"""Throughput of integer {words}: m iterations, each updating every private variable once.

    Each work-item initialises 32 private integers (``nvars``), then repeats m times: for each variable in turn
    ``{form}``. No update depends on the {before} before it, none overflows, and the loop is unrolled by {UNROLL}. At
    the end the variables are summed (one addition fewer than there are variables) and stored with a simple pattern
    (access tag ``resST``). Isolates ``f_op_<dtype>_{operation}``: {times} of them per work-item, beside a few
    integer operations for the starting values.

    Source: the paper's Section 7.1.2, after SHOC's MaxFlops (Danalis et al., 2010), with integers.
    """
    return arithmetic_generator("iops", operation, build, INT_DTYPE, UNROLL, _MANY)


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
        (*PATTERN_ARGUMENTS, Argument("chains", "int", "independent private variables", integers(1, 32), (1, 2))),
        (NELEMENTS, Argument("m", "int", "loop iterations", multiples_of(1), (256, 512, 1024))),
        *PATTERN_CONSTRAINTS,
        name=f"flops_{operation}_chain",
    )


FLOPS_CHAINS = (_chains("add", "additions", "x = x + step"), _chains("madd", "multiply-adds", "x = x * one + step"))
