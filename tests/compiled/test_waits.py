"""Cycles of a sub-group that is alone: hand-made blocks, whose cycles can be told by hand."""

import pytest

from perflex.compiled.nvidia.cubin import GpuInstruction
from perflex.compiled.nvidia.flow import GpuBlock
from perflex.compiled.nvidia.waits import Latencies, cycles_of

LATENCIES = Latencies(arithmetic=4, global_loads=400, local_loads=30, private_loads=35, barrier=50)


def block(lines, *followers):
    instructions = []
    for number, line in enumerate(lines):
        name, *operands = line.replace(",", " ").split()
        name, *modifiers = name.split(".")
        instructions.append(GpuInstruction(16 * number, name, tuple(modifiers), tuple(operands)))
    return GpuBlock(tuple(instructions), followers)


@pytest.mark.parametrize(
    ("lines", "cycles"),
    [
        # Independent ones begin one after another; the last one's result is there four cycles after it began.
        (["FADD R0, R1, R2", "FADD R3, R4, R5"], 5),
        # One that needs the other's result begins when it is there.
        (["FADD R0, R1, R2", "FADD R3, R0, R5"], 8),
        # Loads that follow one another are waited for together.
        (["LDG.E R0, [R8]", "LDG.E R1, [R8+0x4]", "FADD R2, R0, R1"], 1 + 400 + 4),
        (["LDG.E R0, [R8]", "FADD R2, R0, R0", "LDG.E R1, [R8+0x4]", "FADD R2, R2, R1"], 400 + 1 + 400 + 4),
        (["LDS R0, [R8]", "LDL R1, [R1]", "FADD R2, R0, R1"], 1 + 35 + 4),
        # Of wide loads all registers are on their way.
        (["LDG.E.128 R0, [R8]", "FADD R5, R3, R3"], 404),
        (["FADD R0, R1, R2", "BAR.SYNC 0x0", "STG.E [R8], R0"], 1 + 50 + 2),
    ],
)
def test_instructions_begin_in_order_when_their_inputs_are_there(lines, cycles):
    assert cycles_of([block(lines, 1)], LATENCIES) == [cycles]


def test_a_loop_goes_on_while_its_last_results_are_on_their_way():
    body = ["FFMA R0, R1, R2, R0", "IADD3 R3, R3, 0x1, RZ", "BRA 0x0"]
    # The sum is needed anew every four cycles, which three instructions fill but for one.
    assert cycles_of([block(body, 1, 0)], LATENCIES) == [4]
    assert cycles_of([block([*body[:1], "FADD R9, R9, R8", "FADD R7, R7, R8", *body[1:]], 1, 0)], LATENCIES) == [5]
