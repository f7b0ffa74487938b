"""Short ways to write kernels of the nvbench data: their work-items are named, nothing is transformed."""

from __future__ import annotations

import textwrap
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import loopy as lp
import numpy as np

from perflex.features import Operation, Scop, extract_scop

if TYPE_CHECKING:
    from collections.abc import Sequence

F32, F64, U32, U8 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.uint32), np.dtype(np.uint8)

_AXES = {"gx": "g.0", "gy": "g.1", "lx": "l.0", "ly": "l.1"}


def loaded(name: str, dtype: Any, shape: str) -> lp.GlobalArg:
    """Return a global array that is only loaded from."""
    return lp.GlobalArg(name, dtype, shape=shape, is_input=True, is_output=False)


def stored(name: str, dtype: Any, shape: str) -> lp.GlobalArg:
    """Return a global array that is only stored to."""
    return lp.GlobalArg(name, dtype, shape=shape, is_input=False, is_output=True)


def updated(name: str, dtype: Any, shape: str) -> lp.GlobalArg:
    """Return a global array that is loaded and stored."""
    return lp.GlobalArg(name, dtype, shape=shape, is_input=True, is_output=True)


def local(name: str, dtype: Any, *shape: int) -> lp.TemporaryVariable:
    """Return an array of each work-group."""
    return lp.TemporaryVariable(name, dtype, shape=shape, address_space=lp.AddressSpace.LOCAL)


def scalar(name: str, dtype: Any) -> lp.TemporaryVariable:
    """Return a variable of each work-item."""
    return lp.TemporaryVariable(name, dtype, shape=(), address_space=lp.AddressSpace.PRIVATE)


def make(
    name: str, domains: str | Sequence[str], body: str, data: Sequence[Any], sizes: str = "n", assume: str = ""
) -> lp.TranslationUnit:
    """Return a kernel that executes its instructions in the order in which they stand.

    Its parallel loops are called ``gx``, ``gy``, ``lx`` and ``ly``; ``sizes`` are the names of its size parameters,
    separated by commas, all of which are at least 1.
    """
    # Loopy would execute what has none of these loops in its subscripts once for all work-items.
    loops = ", ".join(loop for loop in _AXES if loop in str(domains))
    kernel = lp.make_kernel(
        domains,
        f"for {loops}\n{textwrap.indent(textwrap.dedent(body), '    ')}\nend",
        [*data, lp.ValueArg(sizes, np.int32)],
        name=name,
        lang_version=(2018, 2),
        target=lp.PyOpenCLTarget(),
        seq_dependencies=True,
        silenced_warnings=["write_race*"],
    )
    at_least = " and ".join(f"{size.strip()} >= 1" for size in sizes.split(","))
    kernel = lp.assume(kernel, f"{at_least} and {assume}" if assume else at_least)
    used = kernel.default_entrypoint.all_inames()
    return lp.tag_inames(kernel, {loop: axis for loop, axis in _AXES.items() if loop in used})


def with_conversions(kernel: Any) -> Scop:
    """Return a kernel with the conversions, to double precision and back, of what it clamps in double precision."""
    scop = extract_scop(kernel)
    conversions = Operation("convert", "float64", 2)
    return replace(
        scop,
        statements=tuple(
            replace(one, operations=(*one.operations, conversions))
            if any((operation.kind, operation.dtype) == ("min", "float64") for operation in one.operations)
            else one
            for one in scop.statements
        ),
    )


def without(scop: Scop, array: str) -> Scop:
    """Return a kernel without the accesses of an array: constant memory, whose values are operands of instructions."""
    return replace(
        scop,
        arrays=tuple(one for one in scop.arrays if one.name != array),
        statements=tuple(
            replace(one, accesses=tuple(access for access in one.accesses if access.array != array))
            for one in scop.statements
        ),
    )
