"""Reasons not to rely on what is predicted of tile programs."""

from math import log

from perflex.features.tiles.costs import TileCosts
from perflex.features.tiles.tile_program import TileProgram

# Compute capabilities of the GPUs whose times predictions were compared with, and what operands of products had.
_JUDGED, _TYPES = (8.0, 9.0), {"f16", "bf16", "tf32", "f32"}
_TIMED = "A100-80GB"
# So many registers that are spilt matter.
_SPILT = 32
UNLIKE_DEVIATION = log(2)
"""Standard deviation of the logarithm that predictions have beside where they are unlike all that was judged.

A choice, no measurement: best configurations of mixtures of experts are predicted a factor of 1.2 off on an A40, and of
1.4 on an H20 (rms), and nothing is known of the others.
"""


def tile_doubts(costs: TileCosts, *, timed: bool = False) -> tuple[str, ...]:
    """Return reasons not to rely on the prediction of a tile program, as short texts.

    `timed` says that the prediction rests on times of the machine.
    """
    machine, found = costs.machine, []
    if machine.compute_capability in _JUDGED and machine.name != _TIMED and not timed:
        cards = f"an {_TIMED} and of an H100 with slower memory than an H100-SXM"
        found.append(f"predictions were judged with times of {cards}, and with none of {machine.name}")
    return (*found, *unlike_judged(costs))


def unlike_judged(costs: TileCosts) -> list[str]:
    """Return in what kernel and machine are unlike all that predictions were judged with, as short texts."""
    machine, found = costs.machine, []
    if machine.compute_capability not in _JUDGED:
        found.append(f"predictions were judged on an A100 and an H100, {machine.name} is of another architecture")
    if kinds := _kinds(costs.program):
        found.append(f"predictions were judged with plain products of matrices; this kernel has {', '.join(kinds)}")
    if costs.moved_registers > _SPILT:
        found.append("predictions were not judged with spilt registers; registers do not hold all that programs need")
    return found


def _kinds(program: TileProgram) -> list[str]:
    """Return in words what a plain product does not have."""
    dots, loops = program.dots, {dot.loop for dot in program.dots}
    operands = [operand for dot in dots for operand in dot.operands]
    fed = {operand.access for operand in operands}
    within = [(number, one) for number, one in enumerate(program.accesses) if one.loop >= 0 and one.shape]
    types = sorted({kind for dot in dots for kind in dot.types[:2]} - _TYPES)
    directions = {one.direction for one in program.accesses}
    said = {
        "no products": not dots,
        f"products of {' and '.join(types)}": bool(types),
        "computed operands": not all(operand.direct and operand.access >= 0 for operand in operands),
        "products that follow one another": len(dots) > len(loops),
        "a loop around its products, as persistent and grouped ones": any(
            loop >= 0 and program.loops[loop].parent >= 0 for loop in loops
        ),
        "stores in loops": bool(dots) and any(one.direction != "load" for _, one in within),
        "other loads beside operands": bool(dots) and any(
            one.direction == "load" and one.loop in loops and number not in fed for number, one in within
        ),
        "atomic updates, as products split along k": bool(dots) and "atomic" in directions,
    }  # fmt: skip
    return [*(word for word, there in said.items() if there), *program.techniques]
