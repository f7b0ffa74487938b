"""Layer conditions and cache volumes against kerncraft's and the paper's numbers, where these data are there."""

import csv
from pathlib import Path

import pytest
import yaml

from perflex import estimate_ecm, load_machine
from support.ecm_kernels import jacobi2d, jacobi3d, small_machine, wave3d

pytestmark = pytest.mark.machine

DATA = Path(__file__).resolve().parents[4] / "shared" / "data"
KERNELS = {"2d-5pt": jacobi2d, "3d-7pt": jacobi3d}


def rows_of(name):
    path = DATA / "ecm_reference" / name
    if not path.is_file():
        pytest.skip(f"needs the data of {name} beside the project, in shared/data")
    with path.open() as file:
        return list(csv.DictReader(file))


def table():
    path = DATA / "paper_tables" / "yasksite2021.yaml"
    if not path.is_file():
        pytest.skip("needs the tables of YaskSite beside the project, in shared/data")
    return yaml.safe_load(path.read_text())


def test_every_layer_condition_is_the_reference_s():
    rows = [row for row in rows_of("layer_conditions.csv") if row["condition"] != "True"]
    assert len(rows) == 60
    for row in rows:
        sizes = {"M": 10**7, "N": 1000}
        found = estimate_ecm(
            KERNELS[row["kernel"]](), sizes, row["machine"], cores=int(row["cores"]), convention="reference"
        ).conditions
        (condition,) = [c for c in found if (c.level, c.inequality) == (row["cache"], row["condition"])]
        assert (condition.hits, condition.misses, condition.evicts) == tuple(
            int(row[key]) for key in ("hits", "misses", "evicts")
        )
        assert condition.cache_bytes == int(row["cache_bytes"])
        if row["max_N"]:
            assert (condition.symbol, condition.largest) == ("N", int(row["max_N"]))
            assert condition.reuse_distance == row["tail_bytes"]
        else:
            assert condition.loop == "all"


def test_conditions_come_in_the_reference_s_order():
    rows = rows_of("layer_conditions.csv")
    wanted = [
        row["condition"] for row in rows if (row["kernel"], row["machine"], row["cores"]) == ("3d-7pt", "clx", "1")
    ]
    found = estimate_ecm(jacobi3d(), {"M": 10**7, "N": 1000}, "clx").conditions
    assert [condition.inequality for condition in found] == [text for text in wanted if text != "True"]


def test_every_volume_and_every_cycle_is_the_reference_s():
    rows = rows_of("data_volumes_lc.csv")
    assert len(rows) == 320
    for row in rows:
        sizes = {"M": int(row["M"]), "N": int(row["N"])}
        found = estimate_ecm(
            KERNELS[row["kernel"]](), sizes, row["machine"], cores=int(row["cores"]), convention="reference"
        )
        for name, column, time in (("L2", "L1L2", "T_L2"), ("L3", "L2L3", "T_L3"), ("memory", "L3MEM", "T_MEM")):
            level = found.level(name)
            # A line of work is 8 iterations.
            assert level.load_bytes == pytest.approx(8 * float(row[f"{column}_load_cl"]), abs=1e-9)
            assert level.store_bytes == pytest.approx(8 * float(row[f"{column}_store_cl"]), abs=1e-9)
            assert 8 * level.cycles == pytest.approx(float(row[f"{time}_cy_per_CL"]), abs=2e-4)
        assert found.memory_stream == row["mem_bw_kernel"]
        assert 8 * found.memory_penalty == pytest.approx(float(row["penalty_cy_per_CL"]), abs=1e-3)


def test_the_cache_simulation_agrees_away_from_thresholds():
    rows = rows_of("data_volumes_sim.csv")
    compared = 0
    for row in rows:
        # The simulation's own transitions are smooth there (3d-7pt, N = 600 and 750).
        if row["N"] in {"600", "750"}:
            continue
        sizes = {"M": int(row["M"]), "N": int(row["N"])}
        found = estimate_ecm(KERNELS[row["kernel"]](), sizes, row["machine"])
        for name, column in (("L2", "to_L2"), ("memory", "to_MEM")):
            assert found.level(name).load_bytes / 8 == pytest.approx(float(row[f"{column}_load_cl"]), abs=0.3)
            assert found.level(name).store_bytes / 8 == pytest.approx(float(row[f"{column}_store_cl"]), abs=0.3)
        compared += 1
    assert compared == 26


@pytest.mark.parametrize("radius", [1, 4])
def test_folded_volumes_of_the_paper_from_the_kernel_itself(radius):
    scop = wave3d(radius)
    for row in table()["volumes_folded"]:
        along_x, along_y, _ = map(int, row["fold"].split(":"))
        if row["r"] != radius:
            continue
        sizes = {"M": 4000, "n": 1000}
        # Well below the first condition (a row is held), between both, and above the second one (a plane).
        row_bytes, plane_bytes = row["cond1_B"] * sizes["n"], row["cond2_B"] * sizes["n"] ** 2
        caches = [row_bytes // 3, 3 * row_bytes, 2 * plane_bytes]
        for cache, volume in zip(caches, row["V"], strict=True):
            fold = {"x": along_x, "y": along_y}
            found = estimate_ecm(scop, sizes, small_machine(cache), fold=fold, convention="paper")
            assert found.level("memory").bytes == pytest.approx(volume, abs=1e-9)


def test_a_victim_cache_in_the_paper_s_convention():
    sizes = {"M": 10**6, "N": 150}
    reference = estimate_ecm(jacobi3d(), sizes, "clx")
    paper = estimate_ecm(jacobi3d(), sizes, "clx", convention="paper")
    assert (reference.level("L3").bytes, paper.level("L3").bytes) == (24.0, 16.0)
    assert paper.level("memory").bytes == 24.0
    fitting = {"M": 150, "N": 60}
    inside = estimate_ecm(jacobi3d(), fitting, "clx", convention="paper")
    assert (inside.level("L3").bytes, inside.level("memory").bytes) == (32.0, 0.0)


def test_table_one_is_in_the_machine_files():
    told = table()["table_I"]
    for name, key in (("clx-snc-off", "CLX"), ("rome", "ROME")):
        machine, row = load_machine(name), told[key]
        assert machine.clock_hz == pytest.approx(1e9 * row["freq_GHz"])
        assert machine.cores == row["cores"] == machine.need("cores_per_domain") * machine.need("domains")
        sizes = [level.size_bytes / 1024 for level in machine.levels]
        last = row.get("L3_MiB", row.get("L3_MiB_per_CCX"))
        assert sizes == [row["L1_KiB_per_core"], row["L2_KiB_per_core"], 1024 * last]
        assert machine.dram_bandwidth == pytest.approx(1e9 * row["mem_triad_GBs"])
    assert load_machine("rome").domain_efficiency == told["ROME"]["triad_scaling_efficiency"]
    assert {level.overlap for level in load_machine("clx").levels} == {"sum"}
    assert {level.overlap for level in load_machine("rome").levels} == {"max"}
