"""Kernels on grids on Oclgrind: after optimisation, too, they execute what they say.

What they execute as written is compared with the symbolic counts of the whole catalog elsewhere.
"""

from __future__ import annotations

import pytest

from oracles.oclgrind import needs_oclgrind, run_jobs
from uipick import ALL_GENERATORS, KernelCollection

pytestmark = [needs_oclgrind, pytest.mark.slow]

# Grid of 16 by 8 (by 8) points, work-groups of 8 by 4, chunks of 4 planes.
GRID = ["lsize_0:8", "lsize_1:4", "groups_fit:True", "nx:16", "ny:8"]
SPACE = [*GRID, "nz:8", "chunk:4"]
JOBS = {
    "star": ["stencil2d", "shape:star", "radius:3", *GRID],
    "box": ["stencil2d", "shape:box", "radius:2", *GRID],
    "box diagonal": ["stencil2d_mem", "shape:box", "radius:2", "keep:uDLD", *GRID],
    "7": ["stencil3d", "points:7", "variant:plain", *SPACE],
    "19": ["stencil3d", "points:19", "variant:plain", *SPACE],
    "27": ["stencil3d", "points:27", "variant:plain", *SPACE],
    "25": ["stencil3d", "points:25", "variant:plain", *SPACE],
    "7 column": ["stencil3d", "points:7", "variant:column", *SPACE],
    "25 column": ["stencil3d", "points:25", "variant:column", *SPACE],
    "25 tile": ["stencil3d", "points:25", "variant:tile", *SPACE],
    "19 tile": ["stencil3d", "points:19", "variant:tile", *SPACE],
    "7 loads": ["stencil3d_mem", "points:7", "variant:plain", "keep:uCLD_uXLD_uYLD_uZLD", *SPACE],
    "25 along z": ["stencil3d_mem", "points:25", "variant:plain", "keep:uZLD", *SPACE],
    "25 column loads": ["stencil3d_mem", "points:25", "variant:column", "keep:uZLD", *SPACE],
    "25 tile loads": ["stencil3d_mem", "points:25", "variant:tile", "keep:uTLD", *SPACE],
    "27 diagonal": ["stencil3d_mem", "points:27", "variant:plain", "keep:uDLD", *SPACE],
    "27 store": ["stencil3d_mem", "points:27", "variant:plain", "keep:vST", *SPACE],
    "wave": ["wave3d", "radius:2", "speed:constant", "variant:plain", *SPACE],
    "wave column": ["wave3d", "radius:2", "speed:array", "variant:column", *SPACE],
    "wave loads": ["wave3d_mem", "radius:2", "speed:array", "variant:plain", "keep:oldLD_speedLD", *SPACE],
    "streaming": ["lbm_d3q15", "collide:none", *SPACE],
    "collision": ["lbm_d3q15", "collide:bgk", *SPACE],
    "pulled from corners": ["lbm_d3q15_mem", "collide:none", "keep:fDLD", *SPACE],
    "convolution": ["conv2d", "filter_size:5", "tile_x:2", "tile_y:1", "local:False", *GRID],
    "convolution of a tile": ["conv2d", "filter_size:5", "tile_x:2", "tile_y:2", "local:True", *GRID],
    "image": ["conv2d_mem", "filter_size:5", "tile_x:2", "tile_y:1", "local:False", "keep:inLD", *GRID],
    "filter": ["conv2d_mem", "filter_size:5", "tile_x:2", "tile_y:2", "local:True", "keep:filterLD", *GRID],
    "image tile": ["conv2d_mem", "filter_size:5", "tile_x:2", "tile_y:2", "local:True", "keep:inTLD", *GRID],
}
CHUNK = 4


@pytest.fixture(scope="module")
def executed():
    collection = KernelCollection(ALL_GENERATORS)
    kernels = []
    for tags in JOBS.values():
        (kernel,) = collection.generate_kernels(tags)
        kernels.append(kernel)
    results = run_jobs([(k.kernel, k.sizes) for k in kernels], options=[])
    points = {
        name: kernel.sizes["nx"] * kernel.sizes["ny"] * kernel.sizes.get("nz", 1)
        for name, kernel in zip(JOBS, kernels, strict=True)
    }
    return {name: _PerPoint(run, points[name]) for name, run in zip(JOBS, results, strict=True)}


class _PerPoint:
    """Executed instructions divided by the points of the grid."""

    def __init__(self, run, points):
        self.loads = run.load("global").count / points
        self.stores = run.store("global").count / points
        self.local = (run.load("local").count / points, run.store("local").count / points)
        self.adds, self.muls, self.madds = run.adds / points, run.muls / points, run.madds() / points
        self.divs, self.barriers = run.divs / points, run.barriers / points


@pytest.mark.parametrize(("name", "points", "groups"), [("star", 13, 4), ("box", 25, 3)])
def test_stencils_in_a_plane_load_every_neighbour(executed, name, points, groups):
    found = executed[name]
    assert (found.loads, found.stores, found.local) == (points, 1, (0, 0))
    assert (found.adds, found.muls, found.madds) == (points - groups, 1, groups - 1)


def test_diagonal_neighbours_alone(executed):
    found = executed["box diagonal"]
    assert (found.loads, found.adds, found.stores, found.muls, found.madds) == (16, 16, 1, 0, 0)


@pytest.mark.parametrize(("points", "groups"), [(7, 2), (19, 3), (27, 4), (25, 5)])
def test_plain_stencils_load_every_neighbour_for_each_point(executed, points, groups):
    found = executed[str(points)]
    assert (found.loads, found.stores, found.local) == (points, 1, (0, 0))
    # One sum within each group of neighbours and one product for each; all products but one join a sum.
    assert (found.adds, found.muls, found.madds) == (points - groups, 1, groups - 1)


@pytest.mark.parametrize(("points", "radius"), [(7, 1), (25, 4)])
def test_columns_load_each_value_along_z_once(executed, points, radius):
    found = executed[f"{points} column"]
    assert found.loads == 4 * radius + (CHUNK + 2 * radius) / CHUNK
    assert found.adds == executed[str(points)].adds


@pytest.mark.parametrize(("points", "radius", "planes", "others"), [(25, 4, 1, 8), (19, 1, 3, 0)])
def test_tiles_are_fetched_plane_by_plane(executed, points, radius, planes, others):
    found = executed[f"{points} tile"]
    fetched = planes * (8 + 2 * radius) * (4 + 2 * radius) / (8 * 4)
    assert found.loads == fetched + others
    assert found.local == (points - others, fetched)
    assert found.barriers == 2
    assert found.adds == executed[str(points)].adds


@pytest.mark.parametrize(
    ("name", "loads"),
    [("7 loads", 7), ("25 along z", 8), ("25 column loads", 12 / 4), ("25 tile loads", 6), ("27 diagonal", 20)],
)
def test_work_removed_stencils_execute_every_load(executed, name, loads):
    found = executed[name]
    assert (found.loads, found.adds) == (loads, loads)
    assert found.stores == 1 / CHUNK
    assert found.muls == found.madds == found.barriers == 0
    assert found.local == (0, 0)


def test_a_stencil_s_store_alone(executed):
    found = executed["27 store"]
    assert (found.loads, found.stores, found.adds) == (0, 1, 0)


def test_waves_load_each_array_once_beside_the_neighbours(executed):
    assert (executed["wave"].loads, executed["wave"].stores) == (13 + 1, 1)
    assert executed["wave column"].loads == 8 + (CHUNK + 4) / CHUNK + 2
    # Two sums of six; 2 centre - old, and the three terms of the Laplacian: all but one product join a sum.
    assert (executed["wave"].adds, executed["wave"].madds) == (10, 4)
    assert (executed["wave loads"].loads, executed["wave loads"].adds) == (2, 2)


def test_streaming_loads_and_stores_each_direction_once(executed):
    for name in ("streaming", "collision"):
        assert (executed[name].loads, executed[name].stores, executed[name].local) == (15, 15, (0, 0))
    found = executed["streaming"]
    assert found.adds == found.muls == found.madds == found.divs == 0
    assert executed["collision"].divs == 1
    corners = executed["pulled from corners"]
    assert (corners.loads, corners.adds, corners.stores) == (8, 8, 1 / CHUNK)


def test_convolutions_load_each_weight_once_for_all_results_of_a_work_item(executed):
    found = executed["convolution"]
    assert (found.loads, found.stores, found.madds) == (25 + 25 / 2, 1, 25)
    assert found.adds == found.muls == found.barriers == 0
    found, fetched = executed["convolution of a tile"], 20 * 12 / (16 * 8)
    assert (found.loads, found.stores, found.madds) == (fetched + 25 / 4, 1, 25)
    assert found.local == (25, fetched)
    assert found.barriers == 1 / 4


@pytest.mark.parametrize(
    ("name", "results", "loads"), [("image", 2, 25), ("filter", 4, 25 / 4), ("image tile", 4, 20 * 12 / (16 * 8))]
)
def test_work_removed_convolutions_execute_every_load(executed, name, results, loads):
    found = executed[name]
    assert (found.loads, found.adds, found.stores) == (loads, loads, 1 / results)
    assert found.muls == found.madds == found.barriers == 0
    assert found.local == (0, 0)
