"""Operations of every kind, in chains: few variables, each updated from itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._generator import Constraint
from uipick.generators import _arguments as arg
from uipick.generators._arrays import loaded_array, stored_array
from uipick.generators._declared import declared
from uipick.generators._kernel import make_line_kernel, total_of

if TYPE_CHECKING:
    import loopy as lp

# Updates whose values stay harmless for ever: they alternate, or have a fixed point. {x} is the variable.
_FLOAT_FORMS = {
    "add": "one - {x}",
    "mul": "{x} * one",
    "madd": "{x} * one + one",
    "div": "part / {x}",
    "sqrt": "sqrt({x})",
    "rsqrt": "rsqrt({x})",
    "pow": "{x} ** part",
    "exp": "exp(-{x})",
    "log": "log({x} + 2)",
    "sin": "sin({x})",
    "cos": "cos({x})",
    "tanh": "tanh({x})",
    "min": "fmin(one - {x}, part)",
    "max": "fmax(one - {x}, part)",
    "abs": "fabs({x} - one)",
}
_INT_FORMS = {
    "mul": "{x} * one",
    "madd": "{x} * one + one",
    "floordiv": "whole // {x}",
    "mod": "({x} + whole) % modulus",
}
# What a compiler cannot know: no m is as large.
_LARGE = 1000000000
_FLOAT_CONSTANTS = (f"<{{dtype}}> one = 1 if m < {_LARGE} else 2", f"<{{dtype}}> part = 0.5 if m < {_LARGE} else 2")
# Made without conditions, or multiplying by them would become one.
_INT_CONSTANTS = (
    f"<{{dtype}}> one = 1 + m // {_LARGE}",
    f"<{{dtype}}> whole = 1000000 + m // {_LARGE}",
    f"<{{dtype}}> modulus = 997 + m // {_LARGE}",
)
# Quotients of 1000000 by these are at least 1000, and never 0.
_STARTS = 1000


def op_chain(*, operation: str, dtype: str, lsize_0: int, chains: int) -> lp.TranslationUnit:
    """Operations of one kind: m loop iterations, each updating every one of ``chains`` private variables from itself.

    With one variable every update waits for the last (latency); with eight or more the operation's throughput decides.
    The loop is not unrolled, so that its code stays as short as that of usual kernels. The variables' sum is stored
    with stride 1 (access tag ``resST``). Work-groups are a line of lsize_0 work-items: as wide as a vector, or
    narrower. Isolates ``f_op_<dtype>_<operation>``, m times ``chains`` per work-item; min, max, abs, log and mod have
    as many additions beside them. Additions are differences, which compilers may make multiply-adds of.

    Source: after the paper's Section 7.1.2, arithmetic operations.
    """
    whole = dtype.startswith("int")
    form = (_INT_FORMS if whole else _FLOAT_FORMS)[operation]
    constants = _INT_CONSTANTS if whole else _FLOAT_CONSTANTS
    body = [
        *(line.format(dtype=dtype) for line in constants if line.split()[1] in form),
        f"<int32> start = 1 + ({{item}}) % {_STARTS - chains}",
    ]
    for c in range(chains):
        # A variable of its own, since loopy would compute the sum in the type of what it is assigned to.
        body += [f"<int32> start{c} = start + {c}", f"<{dtype}> x{c} = start{c}"]
    body += ["for k", *(f"x{c} = {form.replace('{x}', f'x{c}')}" for c in range(chains)), "end"]
    return make_line_kernel(
        "op_chain",
        [*body, "result$resST[{item}] = " + total_of(chains)],
        [stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
        times="m",
    )


OP_CHAIN = declared(
    op_chain,
    "",
    (
        arg.choice("operation", "what updates the variables", tuple(dict.fromkeys([*_FLOAT_FORMS, *_INT_FORMS]))),
        arg.dtypes("float32", "float64", "int32", "int64", default=("float32", "float64")),
        *arg.FITTING_LINE_ARGUMENTS[1:],
        arg.within("chains", "independent private variables", 1, 32, 8),
    ),
    (arg.positive("nitems", "work-items", 32768), arg.positive("m", "loop iterations", 64, 128)),
    Constraint(f"operation in ({tuple(_INT_FORMS)} if dtype in ('int32', 'int64') else {tuple(_FLOAT_FORMS)})"),
    arg.ITEMS_FIT,
)


_FORMS = {
    "madd": "{x} * {y} + {x}",
    "div": "{x} / {y}",
    "sqrt": "sqrt({x})",
    "rsqrt": "rsqrt({x})",
    "pow": "{x} ** {y}",
    "exp": "exp({x})",
    "log": "log({x})",
    "sin": "sin({x})",
    "cos": "cos({x})",
    "tanh": "tanh({x})",
    "min": "fmin({x}, {y})",
    "max": "fmax({x}, {y})",
    "abs": "fabs({x})",
}


def op_map(*, operation: str, applied: int, dtype: str, lsize_0: int) -> lp.TranslationUnit:
    """Operations of one kind in straight code: ``result = f(f(x))``, f applied as often as ``applied`` says.

    Each work-item loads an element of x, and one of y where f takes two (access tags ``xLD``, ``yLD``), and stores one
    of the result (``resST``), all with stride 1. Without a loop, runtimes that execute a work-group's items in a loop
    make vectors of them where they can. Isolates ``f_op_<dtype>_<operation>``, ``applied`` per work-item, beside
    streams of the caches that hold the arrays.

    Source: after the paper's Section 7.1.2, arithmetic operations.
    """
    form = _FORMS[operation]
    lines = [f"<{dtype}> x0 = x$xLD[{{item}}]"]
    if "{y}" in form:
        lines.append(f"<{dtype}> second = y$yLD[{{item}}]")
    for number in range(applied):
        value = form.replace("{x}", f"x{number}").replace("{y}", "second")
        lines.append(f"<{dtype}> x{number + 1} = {value}")
    inputs = ["x", "y"] if "{y}" in form else ["x"]
    return make_line_kernel(
        "op_map",
        [*lines, f"result$resST[{{item}}] = x{applied}"],
        [*(loaded_array(name, dtype, "nitems") for name in inputs), stored_array("result", dtype, "nitems")],
        lsize_0=lsize_0,
    )


OP_MAP = declared(
    op_map,
    "",
    (
        arg.choice("operation", "what is applied", tuple(_FORMS)),
        arg.within("applied", "how often it is applied", 1, 8, 1),
        *arg.FITTING_LINE_ARGUMENTS,
    ),
    (arg.positive("nitems", "work-items", 65536),),
    arg.ITEMS_FIT,
)
