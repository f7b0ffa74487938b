"""Short ways to write kernels whose work-items are named, and to describe what loopy has no words for."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import islpy as isl
import loopy as lp
import numpy as np
from msgspec.structs import replace

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from perflex.features import Scop

# By either naming; work-items are around all instructions.
_AXES = {"bx": "g.0", "by": "g.1", "tx": "l.0", "ty": "l.1", "gx": "g.0", "gy": "g.1", "lx": "l.0", "ly": "l.1"}
_DECLARATION = re.compile(r"(local |private |)((?:u?int|float)\d+) (.+)")
_VARIABLE = re.compile(r"(\w+)(?:\[([^\]]*)\])?")


def make(
    name: str,
    domains: str | Sequence[str] | Mapping[str, str],
    body: str,
    data: str,
    sizes: str = "n",
    assume: str = "",
) -> lp.TranslationUnit:
    """Return a kernel that executes its instructions in the order in which they stand.

    `domains` are loopy's, or loop variables with their bounds; work-items are ``gx, gy`` or ``bx, by`` in the grid and
    ``lx, ly`` or ``tx, ty`` in a work-group. `data` declare arrays and variables as C does, ``float32 x[n], y[n];
    local float32 tile[32, 33]; private float64 sum``; `sizes` are the names of size parameters, all at least 1.
    """
    if not isinstance(domains, (str, list)):
        domains = f"[{sizes}] -> {{ [{', '.join(domains)}] : {' and '.join(domains.values())} }}"
    # Loopy would execute what has none of these loops in its subscripts once for all work-items.
    loops = ", ".join(loop for loop in _AXES if re.search(rf"\b{loop}\b", str(domains)))
    kernel = lp.make_kernel(
        domains,
        f"for {loops}\n{textwrap.indent(textwrap.dedent(body), '    ')}\nend",
        [*_declared(data), lp.ValueArg(sizes, np.int32)],
        name=name,
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
        silenced_warnings=["write_race*"],
    )
    at_least = " and ".join(f"{size.strip()} >= 1" for size in sizes.split(","))
    assume = f"{at_least} and {assume}" if assume else at_least
    kernel = lp.assume(kernel, isl.BasicSet(f"[{sizes}] -> {{ : {assume} }}"))
    used = kernel.default_entrypoint.all_inames()
    return lp.tag_inames(kernel, {loop: axis for loop, axis in _AXES.items() if loop in used})


def _declared(data: str) -> Iterator[Any]:
    for declaration in data.split("; "):
        found = _DECLARATION.fullmatch(declaration)
        assert found, declaration
        space, dtype, variables = found.groups()
        for name, shape in _VARIABLE.findall(variables):
            if space:
                extents = tuple(map(int, shape.split(","))) if shape else ()
                where = lp.AddressSpace.LOCAL if space == "local " else lp.AddressSpace.PRIVATE
                yield lp.TemporaryVariable(name, np.dtype(dtype), shape=extents, address_space=where)
            else:
                yield lp.GlobalArg(name, np.dtype(dtype), shape=shape)


def items(block_x: int, block_y: int = 0, *, x: str = "n", y: str = "n") -> dict[str, str]:
    """Return the loops of a grid that covers ``x`` columns and, with a second axis, ``y`` rows; its edge is guarded."""
    found = {"bx": "0 <= bx", "tx": f"0 <= tx < {block_x} and {block_x}*bx + tx < {x}"}
    if block_y:
        found |= {"by": "0 <= by", "ty": f"0 <= ty < {block_y} and {block_y}*by + ty < {y}"}
    return found


def whole_items(block_x: int, block_y: int) -> dict[str, str]:
    """Return the loops of a grid of whole work-groups, whose tiles of n by n are as many as the work-items."""
    found = {"bx": f"0 <= bx and {block_x}*bx < n", "tx": f"0 <= tx < {block_x}"}
    return found | {"by": f"0 <= by and {block_y}*by < n", "ty": f"0 <= ty < {block_y}"}


def in_constant_memory(scop: Scop, array: str) -> Scop:
    arrays = tuple(replace(one, space="constant") if one.name == array else one for one in scop.arrays)
    return replace(scop, arrays=arrays)
