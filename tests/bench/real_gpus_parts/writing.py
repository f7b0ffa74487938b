"""Short ways to write kernels whose work-items are named, and to describe what loopy has no words for."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import islpy as isl
import loopy as lp
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from perflex.features import Scop, Statement

F32, F64, U32, U8 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint32), np.dtype(np.uint8)
# By either naming; work-items are around all instructions.
_AXES = {"bx": "g.0", "by": "g.1", "tx": "l.0", "ty": "l.1", "gx": "g.0", "gy": "g.1", "lx": "l.0", "ly": "l.1"}
# Longer than any body of a loop here, so that what stood in a loop finds places between its neighbours.
_PLACES = 64


def make(
    name: str,
    loops: Mapping[str, str],
    body: str,
    arrays: Mapping[str, str],
    *,
    local: Mapping[str, tuple[int, ...]] | None = None,
    private: Mapping[str, tuple[int, ...]] | None = None,
    assume: str = "n >= 1",
    **options: Any,
) -> Any:
    """Return a kernel that executes its instructions in the order in which they stand.

    Loop variables come with their bounds, work-items first: ``bx, by`` in the grid and ``tx, ty`` in a work-group.
    Arrays and variables come with their shapes; `options` are element types other than float32 (``dtypes``) and names
    of size parameters other than n (``sizes``).
    """
    types, sizes = options.get("dtypes", {}), ", ".join(options.get("sizes", ("n",)))
    arguments: list[Any] = [lp.GlobalArg(one, types.get(one, np.float32), shape=arrays[one]) for one in arrays]
    for space, variables in ((lp.AddressSpace.LOCAL, local), (lp.AddressSpace.PRIVATE, private)):
        arguments += [
            lp.TemporaryVariable(one, types.get(one, np.float32), shape=shape, address_space=space)
            for one, shape in (variables or {}).items()
        ]
    domain = f"[{sizes}] -> {{ [{', '.join(loops)}] : {' and '.join(loops.values())} }}"
    items = [loop for loop in loops if loop in _AXES]
    return _made(name, domain, f"for {', '.join(items)}\n{body}\nend", [*arguments, ...], sizes, assume)


def make_of(
    name: str, domains: str | Sequence[str], body: str, data: Sequence[Any], sizes: str = "n", assume: str = ""
) -> lp.TranslationUnit:
    """Return a kernel as `make` does, of loopy's own domains and data, which say what is loaded and what is stored.

    Work-items are ``gx``, ``gy``, ``lx`` and ``ly``; ``sizes`` are the names of size parameters, all at least 1.
    """
    # Loopy would execute what has none of these loops in its subscripts once for all work-items.
    loops = ", ".join(loop for loop in ("gx", "gy", "lx", "ly") if loop in str(domains))
    body = f"for {loops}\n{textwrap.indent(textwrap.dedent(body), '    ')}\nend"
    at_least = " and ".join(f"{size.strip()} >= 1" for size in sizes.split(","))
    return _made(name, domains, body, data, sizes, f"{at_least} and {assume}" if assume else at_least)


def _made(
    name: str, domains: str | Sequence[str], body: str, data: Sequence[Any], sizes: str, assume: str
) -> lp.TranslationUnit:
    arguments = [one for one in data if one is not ...]
    kernel = lp.make_kernel(
        domains,
        body,
        [*arguments, lp.ValueArg(sizes, np.int32), *([...] if len(arguments) < len(data) else [])],
        name=name,
        target=lp.PyOpenCLTarget(),
        lang_version=(2018, 2),
        seq_dependencies=True,
        silenced_warnings=["write_race*"],
    )
    kernel = lp.assume(kernel, isl.BasicSet(f"[{sizes}] -> {{ : {assume} }}"))
    used = kernel.default_entrypoint.all_inames()
    return lp.tag_inames(kernel, {loop: axis for loop, axis in _AXES.items() if loop in used})


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


def loaded(name: str, dtype: Any, shape: str) -> lp.GlobalArg:
    """Return a global array that is only loaded from."""
    return lp.GlobalArg(name, dtype, shape=shape, is_input=True, is_output=False)


def stored(name: str, dtype: Any, shape: str) -> lp.GlobalArg:
    """Return a global array that is only stored to."""
    return lp.GlobalArg(name, dtype, shape=shape, is_input=False, is_output=True)


def local(name: str, dtype: Any, *shape: int) -> lp.TemporaryVariable:
    """Return an array of each work-group."""
    return lp.TemporaryVariable(name, dtype, shape=shape, address_space=lp.AddressSpace.LOCAL)


def scalar(name: str, dtype: Any) -> lp.TemporaryVariable:
    """Return a variable of each work-item."""
    return lp.TemporaryVariable(name, dtype, shape=(), address_space=lp.AddressSpace.PRIVATE)


def without(scop: Scop, array: str) -> Scop:
    """Return a kernel without the accesses of an array: constant memory, whose values are operands of instructions."""
    statements = tuple(
        replace(one, accesses=tuple(access for access in one.accesses if access.array != array))
        for one in scop.statements
    )
    return replace(scop, arrays=tuple(one for one in scop.arrays if one.name != array), statements=statements)


def in_vectors(scop: Scop, loops: Collection[str]) -> Scop:
    """Return a Scop in which innermost loops of these names are the dimension ``lane`` of vectors.

    Raises
    ------
    ValueError
        One of the loops has another one in it.
    """
    statements = tuple(_in_vectors(one, loops) for one in scop.statements)
    barriers = tuple(replace(one, schedule=_spread(one.schedule)) for one in scop.barriers)
    launches = tuple(
        replace(one, unrolled=tuple(loop for loop in one.unrolled if loop not in loops)) for one in scop.launches
    )
    return replace(scop, launches=launches, statements=statements, barriers=barriers)


def _in_vectors(statement: Statement, loops: Collection[str]) -> Statement:
    schedule = _spread(statement.schedule)
    if any(step in loops for step in schedule[:-2]):
        msg = f"statement {statement.name}: of the loops {statement.loops}, {', '.join(loops)} must be innermost"
        raise ValueError(msg)
    if len(schedule) < 3 or schedule[-2] not in loops:
        return replace(statement, schedule=schedule)
    *outer, place, _, inner = schedule
    last = statement.domain.dim(isl.dim_type.set) - 1
    domain = statement.domain.set_dim_name(isl.dim_type.set, last, "lane")
    return replace(statement, domain=domain, schedule=(*outer, int(place) + int(inner) // _PLACES))


def _spread(schedule: tuple[int | str, ...]) -> tuple[int | str, ...]:
    return tuple(_PLACES * step if isinstance(step, int) else step for step in schedule)
