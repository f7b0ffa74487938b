"""Global loads in a loop, mixed with multiply-adds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from uipick._argument import Argument, integers
from uipick._generator import Constraint, Generator
from uipick.generators._arguments import DTYPE, GROUPS_FIT, LSIZE_0, LSIZE_1, MATRIX_SIZE
from uipick.generators._kernel import loaded_array, make_kernel, size_parameters, stored_array
from uipick.generators.matmul import MATMUL_CONSTRAINTS

if TYPE_CHECKING:
    import loopy as lp

_LOADS = {"uniform": ("row",), "unit": ("col",), "both": ("row", "col")}
_GRID = (
    "{{[i_out, j_out, i_in, j_in]: 0 <= i_in < {lsize_1} and 0 <= j_in < {lsize_0} and i_out, j_out >= 0 "
    "and {lsize_1}*i_out + i_in < n and {lsize_0}*j_out + j_in < n}}"
)
_LOAD_TEXT = {"row": "a$aLD[i, k]", "col": "b$bLD[k, j]"}


def _updates(loads: tuple[str, ...], m: int, chains: int) -> list[str]:
    """Return m multiply-adds, each with a loaded value; halving keeps the sums bounded."""
    factor = "row" if loads == ("row", "col") else "0.5"
    first = f"x0 = x0 * {factor} + {loads[-1]}"
    rest = [f"x{u % chains} = x{u % chains} * 0.5 + {loads[u % len(loads)]}" for u in range(1, m)]
    return [first, *rest]


def overlap_madd(
    *, dtype: str, load: str, m: int, chains: int, lsize_0: int, lsize_1: int, groups_fit: bool
) -> lp.TranslationUnit:
    """Global loads in a sequential loop, m multiply-adds on each iteration's values.

    Each work-item (i, j) of an n by n grid loops over k and loads ``a[i, k]`` (``load:uniform``, access tag
    ``aLD``), ``b[k, j]`` (``load:unit``, ``bLD``) or both, as matrix multiplication does, and updates ``chains``
    independent private variables with them in turn, m times. The sum of the variables is stored (``cST``).
    Memory access and arithmetic really mix here, so that a model's overlap is determined without running the
    application. Features: ``f_op_<dtype>_madd`` (m n per work-item) and the loads. The variables differ between
    work-items, so that compilers compute on vectors of work-items for uniform loads too.

    Source: after the paper's Section 7.4, with arithmetic in place of local memory.
    """
    import loopy as lp

    loads = _LOADS[load]
    body = [f"<int32> item = {lsize_1}*i_in + j_in"]
    # Integer sums of their own, lest they count as floating-point arithmetic.
    for c in range(chains):
        body += [f"<int32> start{c} = item + {c}", f"<{dtype}> x{c} = start{c}"]
    body += ["for k", *(f"<{dtype}> {name} = {_LOAD_TEXT[name]}" for name in loads)]
    body += [*_updates(loads, m, chains), "end"]
    body.append("c$cST[i, j] = " + " + ".join(f"x{c}" for c in range(chains)))
    text = "\n".join(["for i_out, j_out, i_in, j_in", *body, "end"])
    # The texts have i and j; the domain has them as groups and work-items already.
    for name, width in (("i", lsize_1), ("j", lsize_0)):
        text = text.replace(f"[{name}, ", f"[{width}*{name}_out + {name}_in, ")
        text = text.replace(f", {name}]", f", {width}*{name}_out + {name}_in]")
    kernel = make_kernel(
        "overlap_madd",
        [
            _GRID.format(lsize_0=lsize_0, lsize_1=lsize_1),
            "{[k]: 0 <= k < n}",
        ],
        text,
        [
            *([loaded_array("a", dtype, "n, n")] if "row" in loads else []),
            *([loaded_array("b", dtype, "n, n")] if "col" in loads else []),
            stored_array("c", dtype, "n, n"),
            size_parameters("n"),
        ],
        in_order=True,
    )
    fit = f" and n mod {lsize_0} = 0 and n mod {lsize_1} = 0" if groups_fit else ""
    kernel = lp.assume(kernel, f"n >= 1{fit}")
    return lp.tag_inames(kernel, "i_out:g.1, j_out:g.0, i_in:l.1, j_in:l.0")


OVERLAP_MADD = Generator(
    name="overlap_madd",
    tags=frozenset({"overlap_madd", "overlap"}),
    arguments=(
        DTYPE,
        Argument("load", "str", "which values each iteration loads", tuple(_LOADS)),
        Argument("m", "int", "multiply-adds per iteration", integers(1, 256), (1, 2, 4, 8, 16)),
        Argument(
            "chains",
            "int",
            "independent private variables that the multiply-adds update in turn",
            integers(1, 32),
            (1,),
        ),
        LSIZE_0,
        LSIZE_1,
        GROUPS_FIT,
        MATRIX_SIZE,
    ),
    build=overlap_madd,
    size_arguments=("n",),
    constraints=(
        *(c for c in MATMUL_CONSTRAINTS if "prefetch" not in c.description),
        Constraint(
            "chains is at most m (each variable is updated in every iteration)", lambda a: a["chains"] <= a["m"]
        ),
    ),
)
