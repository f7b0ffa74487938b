"""Short ways to write kernels whose work-items are named: ``bx, by, bz`` in the grid, ``tx, ty`` in a work-group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import islpy as isl
import loopy as lp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_AXES = {"bx": "g.0", "by": "g.1", "tx": "l.0", "ty": "l.1"}


def make(
    name: str,
    loops: Mapping[str, str],
    body: str,
    arrays: Mapping[str, str],
    *,
    local: Mapping[str, tuple[int, ...]] | None = None,
    private: Mapping[str, tuple[int, ...]] | None = None,
    dtypes: Mapping[str, Any] | None = None,
    assume: str = "n >= 1",
    sizes: Sequence[str] = ("n",),
) -> Any:
    """Return a kernel that executes its instructions in the order in which they stand.

    Parameters
    ----------
    name
        The kernel's name.
    loops
        Loop variables with the bounds that they have, e.g. ``{"k": "0 <= k < n"}``; work-items come first.
    body
        loopy's instructions; work-items are around all of them.
    arrays
        Global arrays and their shapes.
    local, private
        Arrays and variables of a work-group, and of a work-item, and their shapes.
    dtypes
        Types other than float32.
    assume
        What holds of the size ``n``.
    sizes
        Names of the size parameters.
    """
    types = dtypes or {}
    items = [loop for loop in loops if loop in _AXES]
    arguments: list[Any] = [lp.GlobalArg(one, types.get(one, np.float32), shape=arrays[one]) for one in arrays]
    for space, variables in ((lp.AddressSpace.LOCAL, local), (lp.AddressSpace.PRIVATE, private)):
        arguments += [
            lp.TemporaryVariable(one, types.get(one, np.float32), shape=shape, address_space=space)
            for one, shape in (variables or {}).items()
        ]
    parameters = ", ".join(sizes)
    domain = f"[{parameters}] -> {{ [{', '.join(loops)}] : {' and '.join(loops.values())} }}"
    kernel = lp.make_kernel(
        domain,
        f"for {', '.join(items)}\n{body}\nend",
        [*arguments, lp.ValueArg(parameters, np.int32), ...],
        name=name,
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
        silenced_warnings=["write_race*"],
    )
    kernel = lp.assume(kernel, isl.BasicSet(f"[{parameters}] -> {{ : {assume} }}"))
    return lp.tag_inames(kernel, {loop: _AXES[loop] for loop in items})


def items(block_x: int, block_y: int = 0, *, x: str = "n", y: str = "n") -> dict[str, str]:
    """Return the loops of a grid that covers ``x`` columns and, with a second axis, ``y`` rows; its edge is guarded."""
    found = {"bx": "0 <= bx", "tx": f"0 <= tx < {block_x} and {block_x}*bx + tx < {x}"}
    if block_y:
        found |= {"by": "0 <= by", "ty": f"0 <= ty < {block_y} and {block_y}*by + ty < {y}"}
    return found


def whole_items(block_x: int, block_y: int = 0, *, x: str = "n", y: str = "n") -> dict[str, str]:
    """Return the loops of a grid of whole work-groups, whose tiles ``x`` by ``y`` are as many as the work-items."""
    found = {"bx": f"0 <= bx and {block_x}*bx < {x}", "tx": f"0 <= tx < {block_x}"}
    if block_y:
        found |= {"by": f"0 <= by and {block_y}*by < {y}", "ty": f"0 <= ty < {block_y}"}
    return found
