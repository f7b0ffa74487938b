"""Tuning spaces of the hub data set: which configurations are drawn, of which GPUs, and how they were launched."""

import csv
import gzip
import shutil
from itertools import product

import pytest

from perflex.errors import FileFormatError
from tests.bench.real_gpus_parts import hub

CONVOLUTION = ("block_x", "block_y", "tile_x", "tile_y", "read_only", "use_padding")
SOURCES = {
    "kernels/convolution_milo.cu": "convolution_kernel(float *out)",
    "currently_unused/kernels/pnpoly.cu": "cn_pnpoly(int *out, int n)",
}
BAT, WIDE = (8, 16, 112), (16, 112, 144)


def write(path, names, lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.open(path, "wt", newline="") as stream:
        csv.writer(stream).writerows([names, *lines])


def time_of(*settings):
    return 1e-3 + 1e-6 * settings[0]


@pytest.fixture
def folder(tmp_path):
    """Spaces of three and three widths, two of which are in both; times of one GPU in ms, in a folder of their own."""
    names, found = ("device", *CONVOLUTION, "time_median_s"), tmp_path / "kernels" / "hub"

    def lines(gpu, widths):
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
    for path, head in SOURCES.items():
        source = tmp_path / "kernel_sources" / "hub" / path
        source.parent.mkdir(parents=True)
        source.write_text(f"__global__ void {head} {{ out[blockIdx.x * block_size_x + threadIdx.x] = 1; }}")
    return found


@pytest.mark.machine
def test_a_drawn_configuration_has_the_time_of_every_gpu_that_ran_it(folder):
    found = {(row.gpu, row.label): row.seconds for row in hub.rows(folder, 99)}
    gpus = {"RTX 2080 Ti": BAT, "RTX 3060 Laptop": BAT, "MI50": WIDE, "A100 40GB": WIDE}
    label = "convolution block_x={} block_y=4 tile_x={} tile_y=1 read_only=0 use_padding=0"
    expected = {
        (gpu, label.format(x, tile)): pytest.approx(time_of(x))
        for gpu, widths in gpus.items()
        for x, tile in product(widths, (1, 2))
    }
    # One GPU failed to run one of them.
    del expected["RTX 3060 Laptop", label.format(112, 2)]
    points = "pnpoly block_x={} tile_size=1 between_method=0 use_method=0"
    expected |= {("RTX 3060 Laptop", points.format(x)): pytest.approx(time_of(x)) for x in (32, 64)}
    assert found == expected


def test_launches_are_those_that_ran(folder):
    """4096 by 4096 outputs and 20 million points, in blocks of tiles; what is beyond the edge is launched, too."""
    groups = {
        (row.label.split()[0], *(int(part.partition("=")[2]) for part in row.label.split()[1:4])): int(
            row.launches[0][0].scop(row.launches[0][1]).launches[0].group_count.evaluate(dict(row.launches[0][1]))
        )
        for row in hub.rows(folder, 99)
    }
    assert groups["convolution", 16, 4, 2] == 128 * 1024
    assert groups["convolution", 112, 4, 1] == 37 * 1024
    assert groups["pnpoly", 64, 1, 0] == 312_500


def test_sources_are_asked_for(folder):
    shutil.rmtree(folder.parents[1] / "kernel_sources")
    with pytest.raises(FileFormatError, match="no folder kernel_sources/hub beside"):
        list(hub.rows(folder, 99))
