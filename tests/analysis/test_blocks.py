"""The analytic choice of blocks: the paper's limits, brute force over all blocks, and the command."""

import json
from dataclasses import replace
from functools import cache
from itertools import product
from math import prod
from pathlib import Path

import loopy as lp
import numpy as np
import pytest
import yaml

from perflex import choose_block, load_machine
from perflex.__main__ import main
from perflex.analysis.block_quantities import needed_bytes, read_grids
from perflex.errors import BlockError, MachineError, UnsupportedKernelError
from perflex.features import extract_scop
from support.written_kernels import written
from uipick import ALL_GENERATORS, KernelCollection

TABLES = Path(__file__).parents[3] / "shared" / "data" / "paper_tables" / "yasksite2021.yaml"
SIZES = {"nx": 128, "ny": 96, "nz": 64}
KiB = 1024


def kernel(*tags):
    given = {tag.partition(":")[0] for tag in tags}
    grid = [f"{name}:{value}" for name, value in SIZES.items() if name not in given]
    return KernelCollection(ALL_GENERATORS).generate_kernels([*tags, *grid, "lsize_0:16", "lsize_1:2"])[0]


@cache
def wave3d(radius):
    wave = kernel("wave3d", f"radius:{radius}", "speed:array", "variant:plain", "dtype:float64")
    return read_grids(extract_scop(wave.kernel), wave.sizes)


@pytest.fixture(scope="module")
def star():
    return extract_scop(kernel("stencil3d", "points:25", "variant:plain", "dtype:float64").kernel)


@pytest.fixture
def machine():
    """CLX with small caches, so that blocks are needed."""
    clx = load_machine("Gold-6248-SNC-off")
    sizes = (32 * KiB, 64 * KiB, 256 * KiB)
    levels = tuple(replace(lv, size_bytes=size, shared_by=1) for lv, size in zip(clx.levels, sizes, strict=True))
    return replace(clx, levels=levels, cores=4, cores_per_domain=4)


@pytest.mark.parametrize("radius", [1, 4])
def test_the_grids_of_wave3d_are_the_paper_s(radius):
    """One grid with a star, and three that are touched at the point alone (Equation 5)."""
    grids = {grid.name: grid for grid in wave3d(radius).grids}
    assert set(grids) == {"u", "old", "speed", "new"}
    assert (grids["u"].rows, grids["u"].planes) == (4 * radius + 1, 2 * radius + 1)
    assert grids["u"].halo == (2 * radius,) * 3
    assert all((grids[name].rows, grids[name].planes) == (1, 1) for name in ("old", "speed", "new"))
    assert [name for name, grid in grids.items() if grid.stored] == ["new"]


def test_a_box_touches_all_rows_of_its_planes():
    box = kernel("stencil3d", "points:27", "variant:plain", "dtype:float32")
    first = read_grids(extract_scop(box.kernel), box.sizes).grids[0]
    assert (first.name, first.rows, first.planes, len(first.offsets)) == ("u", 9, 3, 27)


def test_each_stage_is_a_grid():
    stages = kernel("pirk", "kernel:rhs_lc", "problem:wave3d", "radius:1", "dtype:float64")
    found = read_grids(extract_scop(stages.kernel), stages.sizes)
    assert found.extents == (128, 96, 64)
    rows = {grid.name: grid.rows for grid in found.grids}
    assert rows == {f"stage[{s}]": 5 for s in range(4)} | {f"next[{s}]": 1 for s in range(4)} | {
        "y": 1, "prev": 1, "speed": 1
    }  # fmt: skip


@pytest.mark.machine
def test_the_paper_s_block_limits():
    """Largest blocks that meet Equation 10, which counts no halos."""
    if not TABLES.is_file():
        pytest.skip(f"the paper's tables are not there ({TABLES})")
    rows = yaml.safe_load(TABLES.read_text(encoding="utf-8"))["block_limits_wave3d"]
    assert len(rows) == 8
    for row in rows:
        stencil = wave3d(row["r"])
        for reuse, limit, block in (
            ("row", row["max_b_z_10a"], lambda b: (b, 1, 1)),
            ("plane", row["max_b_10b_with_by_eq_bz"], lambda b: (b, b, 1)),
        ):
            met = needed_bytes(stencil, reuse, np.array([block(limit), block(limit + 1)]), halo=False) < row["s_i_B"]
            assert met.tolist() == [True, False], (row, reuse)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 3, 4])
@pytest.mark.parametrize("criterion", [{"L3": "plane"}, {"L3": "plane", "L2": "row"}, {"L2": "plane"}, {}])
def test_the_block_is_the_best_of_all_that_meet_the_criterion(star, machine, criterion, cores):
    found = choose_block(star, SIZES, machine, criterion, cores=cores, lanes=16, tiles_per_core=1)
    available = {level.name: level.size_bytes for level in machine.levels}

    def need(reuse, x, y):  # 25 points: radius 4, and the array that is written
        row, other = 8 * (x + 8), 8 * x
        return 17 * row + other if reuse == "row" else 9 * row * (y + 8) + other * y

    best = None
    for x, y, z in product(*([d for d in range(1, n + 1) if n % d == 0] for n in SIZES.values())):
        if x % 16 or any(need(reuse, x, y) >= available[level] for level, reuse in criterion.items()):
            continue
        tiles = prod(SIZES.values()) // (x * y * z)
        if tiles < cores:
            continue
        score = (-(-tiles // cores) * cores / tiles, -x, tiles, -y)
        best = min(best or (score, (x, y, z)), (score, (x, y, z)))
    assert found.block == best[1]
    assert found.imbalance == best[0][0]
    for held in found.conditions:
        assert held.needed_bytes == need(held.reuse, *found.block[:2]) < held.available_bytes == available[held.level]


def test_no_blocks_where_everything_fits(star):
    criterion = {"L2": "row", "L3": "plane"}
    found = choose_block(star, SIZES, "EPYC-7452", criterion, cores=1, tiles_per_core=1)
    assert (found.block, found.tiles, found.imbalance) == ((128, 96, 64), 1, 1.0)
    assert [(held.level, held.reuse) for held in found.conditions] == [("L2", "row"), ("L3", "plane")]
    # Halos are counted.
    assert found.extra_loads == pytest.approx(((136 * 104 * 72) / (128 * 96 * 64) - 1) / 2)
    # Four cores need four tiles: whole rows, and the fewest points in halos for that.
    assert choose_block(star, SIZES, "EPYC-7452", criterion, cores=4, tiles_per_core=1).block == (128, 96, 16)


def test_the_rule_by_default(star, machine):
    found = choose_block(star, SIZES, machine)
    assert [(held.level, held.reuse) for held in found.conditions] == [("L2", "plane")]
    assert found.tiles_per_core >= 8


def test_eight_tiles_for_each_core(star):
    """Whole rows, of all such blocks the one cut least along y."""
    found = choose_block(star, SIZES, "EPYC-7452", {}, cores=2)
    assert (found.block, found.tiles, found.tiles_per_core) == ((128, 96, 4), 16, 8)
    with pytest.raises(BlockError, match="no 1000000 tiles for each of 2 cores"):
        choose_block(star, SIZES, "EPYC-7452", {}, cores=2, tiles_per_core=10**6)
    with pytest.raises(BlockError, match="give one or more of each"):
        choose_block(star, SIZES, "EPYC-7452", {}, cores=0)


@pytest.mark.parametrize(
    ("criterion", "words"),
    [
        ({"L4": "plane"}, "has no level 'L4'; it has L1, L2, L3"),
        ({"L3": "x"}, "reuse of a row or a plane, not of 'x'"),
        ({"L1": "plane"}, "no block of .* meets the criterion L1: plane: the smallest needs .* has 32768 B"),
    ],
)
def test_a_criterion_that_cannot_be_met_says_why(star, machine, criterion, words):
    with pytest.raises(BlockError, match=words):
        choose_block(star, SIZES, machine, criterion, cores=4, lanes=64)


def test_a_number_that_all_points_read_is_no_grid():
    def scop(code):
        scalar = lp.GlobalArg("s", np.float64, shape=())
        return extract_scop(written("{[k, j, i]: 0 <= k, j, i < n}", code, "a, b: float64[n, n, n]", more=[scalar]))

    plain, scaled = scop("b[k, j, i] = a[k, j, i]"), scop("b[k, j, i] = s * a[k, j, i]")
    assert read_grids(scaled, {"n": 64}).grids == read_grids(plain, {"n": 64}).grids
    assert choose_block(scaled, {"n": 64}, "Gold-6248") == choose_block(plain, {"n": 64}, "Gold-6248")
    with pytest.raises(UnsupportedKernelError, match="array without axes"):
        choose_block(scop("s = a[k, j, i]"), {"n": 64}, "Gold-6248")


def test_more_cores_than_there_are_are_refused(star):
    with pytest.raises(MachineError, match="has 20 cores, not 21"):
        choose_block(star, SIZES, "Gold-6248", cores=21)


def test_what_is_no_stencil_is_refused():
    matmul = KernelCollection(ALL_GENERATORS).generate_kernels(
        ["matmul_sq", "dtype:float32", "prefetch:False", "lsize_0:16", "lsize_1:16", "groups_fit:True", "n:64"]
    )[0]
    with pytest.raises(UnsupportedKernelError, match="no stencil on a grid"):
        choose_block(matmul, matmul.sizes, "EPYC-7452")


def test_the_command(tmp_path, capsys):
    file = tmp_path / "k.py"
    file.write_text(
        "import loopy as lp\n"
        "def jacobi():\n"
        "    return lp.make_kernel('{[k,j,i]: 0<=k,j,i<n}',\n"
        "        'b[k+1,j+1,i+1] = a[k,j+1,i+1] + a[k+2,j+1,i+1] + a[k+1,j,i+1] + a[k+1,j+2,i+1] + a[k+1,j+1,i]',\n"
        "        [lp.GlobalArg('a,b', 'float64', shape='n+2,n+2,n+2'), ...], lang_version=(2018, 2))\n",
        encoding="utf-8",
    )
    words = ["block", f"{file}:jacobi", "n=240", "--machine", "clx", "--criterion", "L2=plane", "--cores", "2"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    # Three planes of a with halos, one of b: 8 (3 (x + 1) (y + 2) + x y) below 1 MiB.
    assert found["block"] == [240, 120, 30]
    assert found["conditions"][0]["needed_bytes"] == 8 * (3 * 241 * 122 + 240 * 120)
    assert main(words) == 0
    assert "block: 240 x 120 x 30 points" in capsys.readouterr().out
    assert main([*words[:-4], "--criterion", "L2"]) != 0
    assert "--criterion" in capsys.readouterr().err


@pytest.mark.parametrize("size", [600, 601])
def test_grids_with_few_divisors_are_not_cut_to_crumbs(size):
    loads = "a[k-1, j, i] + a[k+1, j, i] + a[k, j-1, i] + a[k, j+1, i] + a[k, j, i-1] + a[k, j, i+1]"
    domain, data = "{[k, j, i]: 1 <= k, j, i < n - 1}", "a, b: float64[n, n, n]"
    scop = extract_scop(written(domain, f"b[k, j, i] = {loads}", data))
    found = choose_block(scop, {"n": size}, "Gold-6248")
    assert found.block[0] == size - 2
    assert found.imbalance < 1.05
    assert found.extra_loads < 0.1
    assert np.prod(-(-(size - 2) // np.array(found.block))) == found.tiles
