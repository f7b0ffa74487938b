"""One sweep of a 3-D stencil over a grid, in three variants that differ in where neighbours come from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uipick._argument import Argument
from uipick._generator import Constraint
from uipick.generators._kernel import fits_in_local_memory
from uipick.generators._local_tile import fetch_tile
from uipick.generators._stencil import at, grid_array, make_grid_kernel, tag_letter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import loopy as lp

    from uipick.generators._stencil import GridLaunch, Offset

_CENTRE = (0, 0, 0)

VARIANT = Argument(
    "variant",
    "str",
    "every neighbour from global memory, those along z kept in private variables, or those beside in a local tile",
    ("plain", "column", "tile"),
    ("plain",),
)

# All loads of a variant: of a star, of a box, of either's tiles.
SWEEP_TOGETHER = ("uCLD_uXLD_uYLD_uZLD", "uCLD_uXLD_uYLD_uZLD_uDLD", "uZLD_uTLD")

Shells = list[list["Offset"]]


def _is_star(shells: Shells) -> bool:
    return all(tag_letter(offset) != "D" for shell in shells for offset in shell)


def _in_tile(offset: Offset, shells: Shells) -> bool:
    return offset[2] == 0 or not _is_star(shells)


def sweep_tags(variant: str, shells: Shells) -> set[str]:
    """Return the access tags of the loads in a sweep."""
    offsets = [offset for shell in shells for offset in shell]
    if variant == "tile":
        return {"uTLD"} | {"uZLD" for offset in offsets if not _in_tile(offset, shells)}
    if variant == "column":
        return {"uZLD"} | {f"u{tag_letter(offset)}LD" for offset in offsets if any(offset[:2])}
    return {f"u{tag_letter(offset)}LD" for offset in offsets}


def make_sweep_kernel(
    name: str,
    shells: Shells,
    expression: Callable[[list[list[str]]], str],
    data: Sequence[lp.GlobalArg],
    *,
    target: str,
    variant: str,
    dtype: str,
    launch: GridLaunch,
) -> lp.TranslationUnit:
    """Make a kernel that computes each point from neighbours in the array ``u``.

    Parameters
    ----------
    shells
        Steps to the neighbours, in groups, of which the first is the centre alone.
    expression
        The point's new value, given the terms that stand for the neighbours; ``{here}`` in it stands for the point's
        subscript. The centre's term may be used more than once, for it is a private variable.
    data
        All arrays except ``u``.
    target
        The store's array and access tag, ``"v$vST"``.
    """
    radius = max(abs(step) for shell in shells for offset in shell for step in offset)
    here = f"{launch.chunk}*column + plane"
    terms = [[_term(offset, shells, radius, variant, here) for offset in shell] for shell in shells]
    centre = at(_CENTRE, radius, here)
    update = [
        f"<{dtype}> centre = {terms[0][0]}",
        f"{target}[{centre}] = {expression([['centre'], *terms[1:]]).replace('{here}', centre)}",
    ]
    if variant == "column":
        body = _column_body(update, radius, launch.chunk, dtype)
    else:
        rule = ["near(layer, row, col) := u$uTLD[layer, row, col]"] if variant == "tile" else []
        body = [*rule, "for plane", *update, "end"]
    arrays = [grid_array("u", dtype, 3, radius), *data]
    kernel = make_grid_kernel(name, body, arrays, launch)
    if variant != "tile":
        return kernel
    return fetch_tile(kernel, ["i_inner", "j_inner"])


def _term(offset: Offset, shells: Shells, radius: int, variant: str, here: str) -> str:
    if variant == "column" and not any(offset[:2]):
        return f"z{offset[2] + radius}"
    if variant == "tile" and _in_tile(offset, shells):
        return f"near({at(offset, radius, here)})"
    return f"u$u{tag_letter(offset)}LD[{at(offset, radius, here)}]"


def _column_body(update: Sequence[str], radius: int, chunk: int, dtype: str) -> list[str]:
    """Return the sweep along z: one new value per plane, the others move down."""
    first = [f"{chunk}*column + {step}" for step in range(2 * radius)]
    return [
        *(f"<{dtype}> z{step} = u$uZLD[{place}, j + {radius}, i + {radius}]" for step, place in enumerate(first)),
        "for plane",
        f"<{dtype}> z{2 * radius} = u$uZLD[{chunk}*column + plane + {2 * radius}, j + {radius}, i + {radius}]",
        *update,
        *(f"z{step} = z{step + 1}" for step in range(2 * radius)),
        "end",
    ]


def tile_constraints(shells_of: Callable[[Mapping[str, Any]], Shells]) -> tuple[Constraint, ...]:
    """Return the constraints on the variants of a sweep with the neighbours `shells_of` (arguments)."""

    def fits(arguments: Mapping[str, Any]) -> bool:
        shells = shells_of(arguments)
        radius = max(abs(step) for shell in shells for offset in shell for step in offset)
        planes = 1 if _is_star(shells) else 2 * radius + 1
        elements: int = planes * (arguments["lsize_0"] + 2 * radius) * (arguments["lsize_1"] + 2 * radius)
        return fits_in_local_memory(elements, arguments["dtype"])

    return (
        Constraint(
            "variant:tile needs lsize_2:1 (one plane of work-items)",
            lambda a: a["variant"] != "tile" or a["lsize_2"] == 1,
        ),
        Constraint(
            "variant:tile needs a tile of at most 32 KiB (lsize_0 by lsize_1 and the halo, in each plane it holds)",
            lambda a: a["variant"] != "tile" or fits(a),
        ),
        Constraint(
            "variant:column needs neighbours along the axes only (no diagonal ones)",
            lambda a: a["variant"] != "column" or _is_star(shells_of(a)),
        ),
    )
