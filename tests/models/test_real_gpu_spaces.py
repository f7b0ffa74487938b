"""Tuning spaces of the hub data set: which configurations are drawn, of which GPUs, and how they were launched."""

from __future__ import annotations

import csv
import gzip
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.bench.real_gpus_parts import hub
from tests.bench.real_gpus_parts.later import made

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).resolve().parents[3] / "shared" / "data" / "gpu_kernels" / "hub"
CONVOLUTION = ("block_x", "block_y", "tile_x", "tile_y", "read_only", "use_padding")
BAT, WIDE = (8, 16, 112), (16, 112, 144)


def write(path: Path, names: Sequence[str], lines: Sequence[Sequence[object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") as stream:
        csv.writer(stream).writerows([names, *lines])


def time_of(*settings: int) -> float:
    return 1e-3 + 1e-6 * settings[0]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Spaces of three and three widths, two of which are in both; times of one GPU in ms, in a folder of their own."""
    names, found = ("device", *CONVOLUTION, "time_median_s"), tmp_path / "kernels" / "hub"

    def lines(gpu: str, widths: Sequence[int]) -> list[list[Any]]:
        return [[gpu, x, 4, tile, 1, 0, 0, time_of(x)] for x, tile in product(widths, (1, 2))]

    two = [*lines("RTX 2080 Ti", BAT), *lines("RTX 3060 Laptop", BAT)[:-1]]
    write(found / "convolution_bat.csv.gz", names, two)
    write(found / "convolution_milo_MI50.csv.gz", names, lines("MI50", WIDE))
    there = ("block_size_x", "block_size_y", "tile_size_x", "tile_size_y", "read_only", "use_padding", "use_shmem")
    here = [[*line[1:7], staged, 1e3 * line[7] + 5 * (1 - staged), 9] for line in lines("", WIDE) for staged in (0, 1)]
    write(tmp_path / "gpu_tuning" / "convolution_milo" / "A100.csv.gz", (*there, "time_ms_median", "time_ms"), here)
    points = [["RTX 3060 Laptop", x, 1, 0, 0, time_of(x)] for x in (32, 64)]
    write(
        found / "pnpoly.csv.gz",
        ("device", "block_x", "tile_size", "between_method", "use_method", "time_median_s"),
        points,
    )
    return found


def test_a_drawn_configuration_has_the_time_of_every_gpu_that_ran_it(folder: Path) -> None:
    found = {(row.gpu, row.launches[0][0].arguments[:2]): row.seconds for row in hub.rows(folder, 99)}
    gpus = {"RTX 2080 Ti": BAT, "RTX 3060 Laptop": BAT, "MI50": WIDE, "A100 40GB": WIDE}
    expected = {
        (gpu, ((x, 4), (tile, 1))): pytest.approx(time_of(x))
        for gpu, widths in gpus.items()
        for x, tile in product(widths, (1, 2))
    }
    # One GPU failed to run one of them.
    del expected["RTX 3060 Laptop", ((112, 4), (2, 1))]
    # A point is a number and not a pair of pairs.
    expected |= {("RTX 3060 Laptop", (x, 1)): pytest.approx(time_of(x)) for x in (32, 64)}
    assert found == expected


def test_fewer_configurations_are_the_first_of_more(folder: Path) -> None:
    few, more = ({row.label for row in hub.rows(folder, most) if row.gpu == "MI50"} for most in (1, 3))
    assert few < more
    # One of either space; those of the other space that this GPU did not run are not among them.
    assert 1 <= len(few) <= 2


@pytest.mark.parametrize("name", ["convolution_bat", "convolution_milo_MI50"])
def test_padding_is_that_of_the_data(name: str) -> None:
    path = DATA / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip("needs the data of gpu_kernels beside the project, in shared/data")
    with gzip.open(path, "rt", newline="") as stream:
        for line in csv.DictReader(stream):
            block_x, block_y, tile_x, tile_y = (int(line[key]) for key in CONVOLUTION[:4])
            pad = hub.padding(block_x, tile_x) if line["use_padding"] == "1" else 0
            assert pad == int(line["pad_columns"])
            assert 4 * (block_y * tile_y + 14) * (block_x * tile_x + 14 + pad) == int(line["shared_bytes"])


@pytest.mark.parametrize(
    ("kernel", "sizes", "groups", "items"),
    [
        # Whole tiles; tiles beyond both edges; points beyond the last one.
        (hub.Later(hub.convolution, ((32, 4), (2, 2), 0)), {"n": 4096}, 64 * 512, 128),
        (hub.Later(hub.convolution, ((48, 8), (3, 5), 18)), {"n": 4096}, 29 * 103, 384),
        (hub.Later(hub.pnpoly, (96, 7, 1, 2)), {"n": 20_000_000, "vertices": 600}, 29762, 96),
    ],
)
def test_launches_are_those_of_the_description(kernel: Any, sizes: dict[str, int], groups: int, items: int) -> None:
    (launch,) = made(kernel).launches
    assert int(launch.group_count.evaluate(sizes)) == groups
    assert launch.group_size == items
