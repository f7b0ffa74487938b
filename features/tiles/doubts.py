"""Reasons not to rely on what is predicted of tile programs."""

from perflex.features.tiles.tile_program import TileProgram
from perflex.machines.machine import Machine

# Compute capabilities of the GPUs whose times predictions were compared with.
_JUDGED = (8.0, 9.0)


def tile_doubts(program: TileProgram, machine: Machine) -> tuple[str, ...]:
    """Return reasons not to rely on the prediction of a tile program, as short texts."""
    found = []
    if machine.compute_capability not in _JUDGED:
        found.append(f"predictions were judged on an A100 and an H100, {machine.name} is of another architecture")
    operands = [operand for dot in program.dots for operand in dot.operands]
    if not operands or not all(operand.direct and operand.access >= 0 for operand in operands):
        found.append("predictions were judged with plain products of matrices; this kernel is of another kind")
    return tuple(found)
