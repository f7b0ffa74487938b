"""Whether a runtime for CPUs passes arguments and sides of work-groups where reading its code expects them.

No runtime says where: code of a kernel that stores what it is passed shows it, without being run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perflex.compiled.control_flow import UnknownFlowError, blocks_of
from perflex.compiled.decoding import disassembled
from perflex.compiled.program import Argument
from perflex.compiled.values import Propagation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perflex.compiled.elf import Function
    from perflex.compiled.program import CompiledProgram
    from perflex.compiled.values import Value

NAME = "perflex_layout"
SOURCE = f"""
kernel void {NAME}(volatile global ulong *out, uint first, ulong second) {{
    volatile local ulong here[1];
    here[0] = second;
    out[0] = first;
    out[1] = second;
    out[2] = get_local_size(0);
    out[3] = get_local_size(1);
    out[4] = get_local_size(2);
}}
"""
"""The kernel, in OpenCL C."""
ARGUMENTS = (
    Argument("out", 8, is_array=True),
    Argument("first", 4, is_array=False),
    Argument("second", 8, is_array=False),
)
_PASSED = {"first": 0x1234567, "second": 0x123456789ABCDEF}


def is_as_expected(program: CompiledProgram, local_size: Sequence[int]) -> bool:
    """Return whether the compiled kernel finds what it is passed where `CompiledProgram.entry` says."""
    sides = [*map(int, local_size), 1, 1][:3]
    expected = {8 * place: value for place, value in enumerate([*_PASSED.values(), *sides])}
    parts = program.parts(local_size)
    try:
        found = [_stored(program, function, local_size) for function, _ in parts]
    except UnknownFlowError:
        return False
    return bool(found) and all(stored == expected and is_local for stored, is_local in found)


def _stored(
    program: CompiledProgram, function: Function, local_size: Sequence[int]
) -> tuple[dict[int | None, Value], bool]:
    """Return what is stored in the array, by its byte there, and whether anything is stored in local memory."""
    blocks = blocks_of(disassembled(function))
    known = Propagation(blocks, *program.entry(_PASSED, local_size))
    stored: dict[int | None, Value] = {}
    is_local = False
    for number, block in enumerate(blocks):
        for place, one in enumerate(block.instructions):
            if not one.stores or known.before[number] is None:
                continue
            state = known.after(number, place)
            target = known.place(state, one.accesses[0].address)
            # Code may choose between what it is passed and its own frame.
            is_local = is_local or target.region.startswith(("local", "several"))
            if target.region == "global out":
                stored[target.offset] = known.read(state, one.operands[1])
    return stored, is_local
