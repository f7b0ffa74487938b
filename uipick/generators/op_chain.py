"""Operations of every kind, in chains: few variables, each updated from itself."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import size_parameters, stored_array
from uipick.generators._line import FITTING_LINE_ARGUMENTS, make_line_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

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
_FLOAT_CONSTANTS = (
    f"<{{dtype}}> one = 1 if m < {_LARGE} else 2",
    f"<{{dtype}}> part = 0.5 if m < {_LARGE} else 2",
)
# Made without conditions, or multiplying by them would become one.
_INT_CONSTANTS = (
    f"<{{dtype}}> one = 1 + m // {_LARGE}",
    f"<{{dtype}}> whole = 1000000 + m // {_LARGE}",
    f"<{{dtype}}> modulus = 997 + m // {_LARGE}",
)
# Quotients of 1000000 by these are at least 1000, and never 0.
_STARTS = 1000


def op_chain(*, operation: str, dtype: str, lsize_0: int, groups_fit: bool, chains: int) -> lp.TranslationUnit:
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
        [*body, "result$resST[{item}] = " + " + ".join(f"x{c}" for c in range(chains))],
        [stored_array("result", dtype, "nitems"), size_parameters("m")],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
        loops=["{[k]: 0 <= k < m}"],
        assume="m >= 1",
    )


# Any: argument values by name, of the types that the declarations say.
def _exists(arguments: Mapping[str, Any]) -> bool:
    forms = _INT_FORMS if arguments["dtype"].startswith("int") else _FLOAT_FORMS
    return arguments["operation"] in forms


_DTYPE, *_OTHERS = FITTING_LINE_ARGUMENTS

OP_CHAIN = Generator(
    name="op_chain",
    tags=frozenset({"op_chain"}),
    arguments=(
        Argument("operation", "str", "what updates the variables", tuple(dict.fromkeys([*_FLOAT_FORMS, *_INT_FORMS]))),
        replace(_DTYPE, allowed=("float32", "float64", "int32", "int64"), default=("float32", "float64")),
        *_OTHERS,
        Argument("chains", "int", "independent private variables", integers(1, 32), (8,)),
        Argument("nitems", "int", "work-items", multiples_of(1), (32768,)),
        Argument("m", "int", "loop iterations", multiples_of(1), (64, 128)),
    ),
    build=op_chain,
    size_arguments=("nitems", "m"),
    constraints=(
        Constraint(
            f"integers have the operations {', '.join(_INT_FORMS)}, the others {', '.join(_FLOAT_FORMS)}", _exists
        ),
        Constraint("nitems must be a multiple of lsize_0", lambda a: a["nitems"] % a["lsize_0"] == 0),
    ),
)
