"""Tile programs as files, and how many tiles neighbours share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perflex.errors import FileFormatError
from perflex.features.tiles.tile_program import TileAccess, read_tile_program

if TYPE_CHECKING:
    from pathlib import Path

TEXT = """\
schema: perflex-tiles/1
name: scale
grid: [64, 1, 1]
loops:
- {entries: 64, iterations: 640}
accesses:
- {array: x, direction: load, itemsize: 2, shape: [128], loop: 0, executions: 640, elements: 81920, sectors: 5120}
- {array: y, direction: store, itemsize: 2, shape: [128], executions: 64, elements: 8192, sectors: 512}
operations:
- {kind: elementwise, dtype: f16, loop: 0, count: 81920}
"""
DOTS = (
    "dots:\n- {{shape: [16, 16, 16], types: [f16, f16, f32], executions: 1, operands: [{{access: 0}}, {{access: {}}}]}}"
)


def test_a_file_says_what_a_launch_does(tmp_path: Path) -> None:
    path = tmp_path / "scale.yaml"
    path.write_text(TEXT)
    program = read_tile_program(path)
    assert program.programs == 64
    assert program.accesses[0].bytes == 163840
    assert program.loops[0].iterations == 640
    assert (program.warps, program.stages, program.exact) == (4, 3, True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("loop: 0, executions", "loop: 1, executions", r"line 7, field accesses\[0\].loop: there is no loop 1"),
        ("entries: 64", "parent: 0, entries: 64", r"line 5, field loops\[0\].parent: there is no loop 0"),
        ("count: 81920", "count: -1", r"line 10, field operations\[0\].count"),
        ("itemsize: 2, shape: [128], loop", "itemsize: 0, shape: [128], loop", r"line 7, field accesses\[0\].itemsize"),
        ("name: scale", "nam: scale", "nam"),
        ("count: 81920", "count: .inf", r"line 10, field operations\[0\].count: a finite number must stand here"),
        ("count: 81920", "count: 1.0e+31", r"line 10, field operations\[0\].count: it must be a number <= 1e\+30"),
        ("grid: [64,", "grid: [2147483648,", r"line 3, field grid\[0\]: it must be a number <= 2147483647"),
        ("shape: [128], exec", "shape: [128], shared: [[1, x]], exec", r"line 8, field accesses\[1\].shared\[0\]\[1\]"),
        ("shape: [128], exec", "shape: [128], shared: [[4, 1], [4, 2]], exec", r"accesses\[1\].shared: the numbers of"),
        ("operations:", f"{DOTS.format(7)}\noperations:", r"dots\[0\].operands\[1\].access: there is no access 7"),
        ("operations:", f"{DOTS.format('x')}\noperations:", r"line 10, field dots\[0\].operands\[1\].access"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    path = tmp_path / "scale.yaml"
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(FileFormatError, match=said):
        read_tile_program(path)


def test_tiles_of_neighbours_grow_as_a_power_between_what_is_known() -> None:
    access = TileAccess(
        array="a", direction="load", itemsize=2, shape=(16,), executions=1, elements=1, sectors=1,
        shared=((1, 1.0), (4, 2.0), (16, 2.0)),
    )  # fmt: skip
    assert access.different(1) == 1
    assert access.different(2) == pytest.approx(2**0.5)
    assert access.different(4) == pytest.approx(2)
    assert access.different(16) == access.different(64) == pytest.approx(2)
    # Nothing is known: programs share no tiles.
    alone = TileAccess(array="a", direction="load", itemsize=2, shape=(16,), executions=1, elements=1, sectors=1)
    assert alone.different(7) == 7
