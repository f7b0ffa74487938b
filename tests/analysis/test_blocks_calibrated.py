"""The calibrated choice of blocks, on a device whose costs are known."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest

from perflex import Calibration, TimingOptions, choose_block, load_machine
from perflex.__main__ import main
from perflex.analysis.block_choice import calibrate_blocks
from perflex.analysis.block_quantities import block_quantities, read_grids
from perflex.errors import BlockError, CalibrationError, FeatureError, PerflexWarning
from perflex.features import Target, extract_scop, parse_feature
from perflex.testing import FakeDevice
from uipick import ALL_GENERATORS, KernelCollection

KiB = 1024
SIZES = {"nx": 64, "ny": 64, "nz": 32}
TIMING = TimingOptions(trials=4, min_trials=4, precision=0.0)
COSTS = {
    "f_block_points": 1e-10,
    "f_block_runs": 2e-9,
    "f_block_tiles": 3e-7,
    "f_block_tail": 2e-11,
    "f_block_vol_l2": 1e-12,
    "f_block_vol_l3": 5e-12,
    "f_block_vol_mem": 4e-11,
}


@pytest.fixture(scope="module")
def machine():
    """Two cores with small caches, the last of them shared."""
    clx = load_machine("Gold-6248-SNC-off")
    sizes = ((4 * KiB, 1), (16 * KiB, 1), (200 * KiB, 2))
    levels = tuple(replace(lv, size_bytes=s, shared_by=n) for lv, (s, n) in zip(clx.levels, sizes, strict=True))
    return replace(clx, levels=levels, cores=2, cores_per_domain=2)


@pytest.fixture(scope="module")
def star():
    tags = ["stencil3d", "points:7", "variant:plain", "dtype:float64", "nx:64", "ny:64", "nz:32", "lsize_0:8"]
    return KernelCollection(ALL_GENERATORS).generate_kernels([*tags, "lsize_1:2"])[0].kernel


def grid_of(x: int, y: int, z: int) -> dict[str, int]:
    return {"nx": x, "ny": y, "nz": z}


def seconds(star, machine, sizes, block) -> float:
    stencil = read_grids(extract_scop(star), sizes)
    found = block_quantities(stencil, np.array([block]), machine, 2)
    return sum(cost * float(found[name][0]) for name, cost in COSTS.items())


@pytest.fixture(scope="module")
def calibration(star, machine):
    jobs = [
        (star, grid_of(*grid), (grid[0], y, z))
        for grid in ((16, 32, 16), (32, 32, 32), (64, 32, 32))
        for y, z in product((1, 4, 32), (1, 4, 16))
    ]

    def law(label, sizes):
        block = tuple(int(word) for word in label.rpartition(" ")[2].split("x"))
        return seconds(star, machine, sizes, block)

    # One stencil does not tell the cost of a point from that of its loads; the last digits decide how the fit says so.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the measurement kernels ", category=PerflexWarning)
        return calibrate_blocks(jobs, machine, device=FakeDevice(law), timing=TIMING)


def test_quantities_of_a_small_block(star, machine) -> None:
    """Each number by hand, for a block so small that the first two levels hold its planes and one so large that not."""
    stencil = read_grids(extract_scop(star), SIZES)
    found = block_quantities(stencil, np.array([[4, 4, 4], [64, 64, 32]]), machine, 2)
    points = prod(SIZES.values())
    assert found["f_block_points"].tolist() == [points, points]
    assert found["f_block_loads"].tolist() == [7 * points, 7 * points]
    # Rows of four points: five of u and one of v; whole rows: three planes of u and one of v.
    assert found["f_block_runs"].tolist() == [6 * points / 4, 4 * 32]
    assert found["f_block_tiles"].tolist() == [points / 64, 1]
    assert found["f_block_tail"].tolist() == [7 * 64, 7 * points]
    # Planes need 8 (3*6*6 + 4*4) B = 992 B, less than half of 4 KiB: each point of the tile and its halo once.
    assert found["f_block_vol_l2"][0] == points / 64 * 8 * (6**3 + 2 * 4**3)
    # Rows need 8 (5*66 + 64) B = 3152 B of 4 KiB, so part of them is left; planes do not fit at all.
    held = 2 - 2 * 3152 / 4096
    rows_kept, none_kept = 66 * (5 + 3 * 63) * 32, 66 * 5 * 64 * 32
    expected = 8 * (held * rows_kept + (1 - held) * none_kept + 2 * points)
    assert found["f_block_vol_l2"][1] == pytest.approx(expected, rel=1e-12)


def test_memory_traffic_of_layers(star, machine) -> None:
    """Nothing while the grids fit in half of the last level; halo planes again where layers of tiles leave it."""
    small = read_grids(extract_scop(star), grid_of(16, 16, 16))
    assert block_quantities(small, np.array([[16, 4, 4]]), machine, 2)["f_block_vol_mem"].tolist() == [0.0]
    large = read_grids(extract_scop(star), SIZES)
    found = block_quantities(large, np.array([[64, 4, 1], [64, 2, 32]]), machine, 2)["f_block_vol_mem"]
    points = prod(SIZES.values())
    layer = 8 * (66 * 66 * 3 + 64 * 64)
    held = 2 - 2 * layer / (200 * KiB)
    assert 0 < held < 1
    # One plane per layer, and planes of both cores' tiles fit: three planes are loaded for each.
    assert found[0] == pytest.approx(8 * points * (held + 3 * (1 - held) + 2), rel=1e-12)
    assert found[1] == pytest.approx(8 * points * (1 + 2 / 32 + 2), rel=1e-12)


def test_how_well_the_times_repeat_is_kept(calibration) -> None:
    assert calibration.table.repeatability.tolist() == [0.0] * len(calibration.table)
    assert calibration.timing.samples == 4 * len(calibration.table)
    assert calibration.noise_floor == 0


def test_the_costs_are_found_and_the_fastest_block_is_chosen(star, machine, calibration) -> None:
    assert calibration.fit.geometric_mean_error < 2e-6
    found = choose_block(star, SIZES, machine, lanes=8, calibration=calibration)
    divisors = [[d for d in range(1, n + 1) if n % d == 0] for n in (64, 32)]
    times = {(64, y, z): seconds(star, machine, SIZES, (64, y, z)) for y, z in product(*divisors) if y * z <= 1024}
    assert found.block == min(times, key=times.__getitem__)
    assert found.predicted_s == pytest.approx(min(times.values()), rel=1e-6)
    assert found.conditions == ()
    # The plain rule chooses another one.
    assert choose_block(star, SIZES, machine, {}, lanes=8).block != found.block


def test_a_criterion_still_holds(star, machine, calibration) -> None:
    found = choose_block(star, SIZES, machine, {"L2": "plane"}, lanes=8, calibration=calibration)
    (held,) = found.conditions
    assert held.needed_bytes < held.available_bytes == 16 * KiB


def test_calibrations_are_files_and_the_command_reads_them(star, machine, calibration, tmp_path, capsys) -> None:
    calibration.save(tmp_path / "blocks.yaml")
    again = Calibration.load(tmp_path / "blocks.yaml")
    found = choose_block(star, SIZES, machine, lanes=8, calibration=again)
    assert found == choose_block(star, SIZES, machine, lanes=8, calibration=calibration)
    file = tmp_path / "k.py"
    file.write_text(
        "import loopy as lp\n"
        "def jacobi():\n"
        "    return lp.make_kernel('{[k,j,i]: 0<=k,j,i<n}',\n"
        "        'b[k+1,j+1,i+1] = a[k,j+1,i+1] + a[k+2,j+1,i+1]',\n"
        "        [lp.GlobalArg('a,b', 'float64', shape='n+2,n+2,n+2'), ...], lang_version=(2018, 2))\n",
        encoding="utf-8",
    )
    words = ["block", f"{file}:jacobi", "n=64", "--machine", "clx", "--calibration", str(tmp_path / "blocks.yaml")]
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["predicted_s"] > 0
    assert main(words) == 0
    assert "predicted: " in capsys.readouterr().out


def test_what_cannot_be_calibrated_says_why(star, machine, calibration) -> None:
    device = FakeDevice(lambda label, sizes: 1e-3)  # noqa: ARG005 - the law's signature
    with pytest.raises(BlockError, match=r"block \(64, 5, 1\) does not divide the grid"):
        calibrate_blocks([(star, SIZES, (64, 5, 1))], machine, device=device, timing=TIMING)
    with pytest.raises(CalibrationError, match="1 of 1 blocks could be timed, for 8 parameters"):
        calibrate_blocks([(star, SIZES, (64, 4, 1))], machine, device=device, timing=TIMING)
    fewer = replace(machine, levels=machine.levels[:2])
    with pytest.raises(BlockError, match="needs f_block_vol_l3, which blocks do not have"):
        choose_block(star, SIZES, fewer, lanes=8, calibration=calibration)
    with pytest.raises(FeatureError, match="has a value for a block only"):
        parse_feature("f_block_tail").value(extract_scop(star), SIZES, Target(16))
