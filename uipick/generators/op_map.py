"""Operations of every kind in straight code: each work-item applies one to elements that it loads, without a loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument, integers, multiples_of
from uipick._generator import Constraint, Generator
from uipick.generators._kernel import loaded_array, stored_array
from uipick.generators._line import FITTING_LINE_ARGUMENTS, make_line_kernel

if TYPE_CHECKING:
    from collections.abc import Mapping

    import loopy as lp

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


def op_map(*, operation: str, applied: int, dtype: str, lsize_0: int, groups_fit: bool) -> lp.TranslationUnit:
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
        [
            *(loaded_array(name, dtype, "nitems") for name in inputs),
            stored_array("result", dtype, "nitems"),
        ],
        lsize_0=lsize_0,
        groups_fit=groups_fit,
    )


# Any: argument values by name, of the types that the declarations say.
def _fits(arguments: Mapping[str, Any]) -> bool:
    return bool(arguments["nitems"] % arguments["lsize_0"] == 0)


OP_MAP = Generator(
    name="op_map",
    tags=frozenset({"op_map"}),
    arguments=(
        Argument("operation", "str", "what is applied", tuple(_FORMS)),
        Argument("applied", "int", "how often it is applied", integers(1, 8), (1,)),
        *FITTING_LINE_ARGUMENTS,
        Argument("nitems", "int", "work-items", multiples_of(1), (65536,)),
    ),
    build=op_map,
    size_arguments=("nitems",),
    constraints=(Constraint("nitems must be a multiple of lsize_0", _fits),),
)
