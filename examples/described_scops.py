"""Kernels that loopy never saw, written down as Scops: one configuration of the described convolution or gemm.

The formulas of a description rank many configurations at once; the Scop of one configuration is what they stand for,
and every feature can be counted from it exactly::

    scop = described_scop(load_description("gemm"), settings)
    count_features(scop, {})
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perflex.errors import UnsupportedKernelError
from perflex.features import scop_from_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perflex.features import Scop

_ITEMSIZES = {1: "float32", 2: "complex64", 4: "complex128"}


def described_scop(description: Any, settings: Mapping[str, float]) -> Scop:
    """Return the Scop of one configuration.

    Parameters
    ----------
    description
        One of the shipped descriptions that have Scops: ``convolution`` or ``gemm``.
    settings
        Value of each tunable, and of constants that are to be others than the description's.

    Raises
    ------
    UnsupportedKernelError
        The description has no Scops, or the configuration breaks its constraints.
    """
    if description.name not in _BUILDERS:
        msg = f"description {description.name!r} has no Scops; those of {' and '.join(_BUILDERS)} have"
        raise UnsupportedKernelError(msg, kernel=description.name)
    if not description.valid(settings).all():
        stated = ", ".join(f"{name}={value:g}" for name, value in settings.items())
        msg = f"{stated} breaks a constraint of description {description.name!r}"
        raise UnsupportedKernelError(msg, kernel=description.name)
    values = {name: int(column[0]) for name, column in description.columns(settings).items()}
    return scop_from_yaml(_BUILDERS[description.name](values))


def _array(name: str, space: str, shape: tuple[int, int], dtype: str = "float32") -> str:
    sizes = f"shape: [{shape[0]}, {shape[1]}], strides: [{shape[1]}, 1]"
    return f"- {{name: {name}, space: {space}, dtype: {dtype}, {sizes}}}\n"


class _Loops:
    """The loops of a launch; statements are in those at the end of ``[g0, g1, l0, l1, ..]`` in their domains."""

    def __init__(self) -> None:
        self._places: dict[tuple[object, ...], int] = {}
        self._entries: list[str] = []

    def around(self, domain: str, order: tuple[int, ...]) -> str:
        """Return the fields for a place; what has the same numbers up to a loop is in that loop."""
        inside: list[int] = []
        for depth, name in enumerate(domain.split("]", maxsplit=1)[0].split(", ")[4:], 1):
            place = self._places.setdefault(order[:depth], len(self._entries))
            if place == len(self._entries):
                self._entries.append(f"{{name: {name}{f', parent: {inside[-1]}' if inside else ''}}}")
            inside.append(place)
        return f"loops: {inside}\n  order: {list(order)}"

    def __str__(self) -> str:
        return f"[{', '.join(self._entries)}]"


def _statement(
    loops: _Loops,
    name: str,
    domain: str,
    accesses: list[tuple[str, str, str]],
    order: tuple[int, ...],
    operations: str = "",
) -> str:
    head = domain.split(":", maxsplit=1)[0]
    lines = [f"- name: {name}", f'  domain: "{{ {domain} }}"', f"  {loops.around(domain, order)}", "  accesses:"]
    lines += [
        f'  - {{array: {array}, direction: {direction}, relation: "{{ {head} -> [{place}] }}"}}'
        for array, direction, place in accesses
    ]
    if operations:
        lines.append(f"  operations: [{operations}]")
    return "\n".join(lines) + "\n"


def _document(name: str, launch: str, arrays: str, statements: str, barriers: str) -> str:
    head = f"schema: perflex-scop/2\nname: {name}\nparameters: []\nlaunches:\n- {launch}\n"
    tail = f"barriers:\n{barriers}" if barriers else ""
    return f"{head}arrays:\n{arrays}statements:\n{statements}{tail}"


def _convolution(v: Mapping[str, int]) -> str:
    bx, by, tx, ty = v["block_size_x"], v["block_size_y"], v["tile_size_x"], v["tile_size_y"]
    width, height, fw, fh = v["image_width"], v["image_height"], v["filter_width"], v["filter_height"]
    gx, gy = -(-width // (bx * tx)), -(-height // (by * ty))
    padding = (-(fw - 1 + bx * (tx - 1))) % 32 if v["use_padding"] else 0
    rows, columns = by * ty + fh - 1, bx * tx + fw - 1
    guarded = bool(width % (bx * tx) or height % (by * ty))
    grid = f"0 <= g0 < {gx} and 0 <= g1 < {gy} and 0 <= l0 < {bx} and 0 <= l1 < {by}"
    # The arrays reach as far as the last work-group does: guarded accesses beyond the image are counted as executed.
    image = (gy * by * ty + fh - 1, gx * bx * tx + fw - 1)
    arrays = _array("image", "global", image) + _array("result", "global", (gy * by * ty, gx * bx * tx))
    statements, loops = "", _Loops()
    if v["use_shmem"]:
        arrays += _array("tile", "local", (rows, columns + padding))
        place = f"l1 + {by}*i, l0 + {bx}*j"
        source = f"{by * ty}*g1 + l1 + {by}*i, {bx * tx}*g0 + l0 + {bx}*j"
        within = f"0 <= i and 0 <= j and l1 + {by}*i < {rows} and l0 + {bx}*j < {columns}"
        domain = f"[g0, g1, l0, l1, i, j] : {grid} and {within}"
        statements += _statement(
            loops, "stage", domain, [("image", "load", source), ("tile", "store", place)], (0, 0, 0)
        )
    taps = f"0 <= f < {fh} and 0 <= c < {fw} and 0 <= y < {ty} and 0 <= x < {tx}"
    # Each row of the input once where the compiler can share it between outputs, else once for each output.
    shared = bool(v["use_shmem"]) or not guarded
    rows_read = f"exists (y, f : 0 <= y < {ty} and 0 <= f < {fh} and r = {by}*y + f)"
    domain = f"[g0, g1, l0, l1, r, x, c] : {grid} and 0 <= x < {tx} and 0 <= c < {fw} and {rows_read}"
    row, order = "r", (2, 0, 0, 0)
    if not shared:
        domain = f"[g0, g1, l0, l1, y, f, x, c] : {grid} and {taps}"
        row, order = f"{by}*y + f", (2, 0, 0, 0, 0)
    local = ("tile", "load", f"l1 + {row}, l0 + {bx}*x + c")
    direct = ("image", "load", f"{by * ty}*g1 + l1 + {row}, {bx * tx}*g0 + l0 + {bx}*x + c")
    statements += _statement(loops, "read", domain, [local if v["use_shmem"] else direct], order)
    domain = f"[g0, g1, l0, l1, f, c, y, x] : {grid} and {taps}"
    statements += _statement(loops, "add", domain, [], (3, 0, 0, 0, 0), "{kind: madd, dtype: float32, count: 1}")
    domain = f"[g0, g1, l0, l1, y, x] : {grid} and 0 <= y < {ty} and 0 <= x < {tx}"
    target = f"{by * ty}*g1 + l1 + {by}*y, {bx * tx}*g0 + l0 + {bx}*x"
    statements += _statement(loops, "write", domain, [("result", "store", target)], (4, 0, 0))
    barrier = f'- {{kind: local, domain: "{{ [g0, g1, l0, l1] : {grid} }}", order: [1]}}\n' if v["use_shmem"] else ""
    return _document(
        "convolution", f"{{groups: [{gx}, {gy}], items: [{bx}, {by}], loops: {loops}}}", arrays, statements, barrier
    )


def _gemm(v: Mapping[str, int]) -> str:
    groups = (-(-v["M"] // v["MWG"]), -(-v["N"] // v["NWG"]))
    items = (v["MDIMC"], v["NDIMC"])
    tiles, depth, steps = (v["MWG"], v["NWG"]), v["KWG"], v["K"] // v["KWG"]
    each = (tiles[0] // items[0], tiles[1] // items[1])
    extents = {"g0": groups[0], "g1": groups[1], "l0": items[0], "l1": items[1], "t": steps}
    grid = " and ".join(f"0 <= {name} < {extent}" for name, extent in extents.items())
    arrays, statements, barriers, loops = "", "", "", _Loops()
    sides = (("a", "SA", v["MDIMA"], v["VWM"]), ("b", "SB", v["NDIMB"], v["VWN"]))
    for side, (name, staged, across, vector) in enumerate(sides):
        # 16 B is the widest access of one instruction.
        wide = min(vector, 4)
        extent = groups[side] * tiles[side] // wide
        arrays += _array(name, "global", (v["K"], extent), _ITEMSIZES[wide])
        first = f"{tiles[side] // wide}*g{side}"
        if v[staged]:
            arrays += _array(f"{name}_tile", "local", (depth, tiles[side] // wide), _ITEMSIZES[wide])
            count, lines = tiles[side] // across // wide, items[0] * items[1] // across
            # Work-item number of the work-group, rearranged to `across` work-items along the tile.
            number = f"l0 + {items[0]}*l1"
            p, q = f"(({number}) mod {across})", f"floor(({number})/{across})"
            local = f"{depth // lines}*{q} + k, {count}*{p} + m"
            source = f"{depth}*t + {depth // lines}*{q} + k, {first} + {count}*{p} + m"
            domain = f"[g0, g1, l0, l1, t, k, m] : {grid} and 0 <= k < {depth // lines} and 0 <= m < {count}"
            accesses = [(name, "load", source), (f"{name}_tile", "store", local)]
            statements += _statement(loops, f"stage_{name}", domain, accesses, (0, side, 0, 0))
        chunks = each[side] // wide
        domain = f"[g0, g1, l0, l1, t, k, m] : {grid} and 0 <= k < {depth} and 0 <= m < {chunks}"
        place = f"{chunks}*l{side} + m"
        access = (
            (f"{name}_tile", "load", f"k, {place}")
            if v[staged]
            else (name, "load", f"{depth}*t + k, {first} + {place}")
        )
        statements += _statement(loops, f"read_{name}", domain, [access], (0, 3 + side, 0, 0))
    domain = f"[g0, g1, l0, l1, t, k, m, n] : {grid} and 0 <= k < {depth} and 0 <= m < {each[0]} and 0 <= n < {each[1]}"
    statements += _statement(loops, "add", domain, [], (0, 5, 0, 0, 0), "{kind: madd, dtype: float32, count: 1}")
    if v["SA"] or v["SB"]:
        for moment in (2, 6):
            domain = f"[g0, g1, l0, l1, t] : {grid}"
            place = loops.around(domain, (0, moment))
            barriers += f'- kind: local\n  domain: "{{ {domain} }}"\n  {place}\n'
    launch = f"{{groups: [{groups[0]}, {groups[1]}], items: [{items[0]}, {items[1]}], loops: {loops}}}"
    return _document("gemm", launch, arrays, statements, barriers)


_BUILDERS: Mapping[str, Callable[[Mapping[str, int]], str]] = {"convolution": _convolution, "gemm": _gemm}
