"""Limiters, the levels of layer conditions, comparisons of tables and their picture."""

from __future__ import annotations

from dataclasses import replace
from math import log
from typing import TYPE_CHECKING

import pytest

from perflex import estimate_volumes, load_machine
from perflex.analysis.volumes.compare import compare_rows, comparison_table, read_rows
from perflex.analysis.volumes.limiters import LIMITERS, limits_of
from perflex.analysis.volumes.picture import draw_comparison, shape_colour
from perflex.analysis.volumes.series import layers_fit, level_without_layer_reuse, series_row
from perflex.errors import FileFormatError, MachineError, UnsupportedKernelError
from perflex.features import QuasiPolynomial, extract_scop, scop_from_yaml
from sample_kernels import matmul
from uipick import ALL_GENERATORS, KernelCollection

if TYPE_CHECKING:
    from pathlib import Path

A100 = load_machine("A100-40GB")
VOLUMES = {
    "f_l1_wavefronts": 1e6,
    "f_lmem_wavefronts": 3e5,
    "f_vol_l2_l1_load": 4e9,
    "f_vol_l2_l1_store": 1e9,
    "f_vol_dram_load": 1e9,
    "f_vol_dram_store": 4e8,
    "f_waves": 0.5,
}


# Ernst et al., Section 5.7 and Figure 23; the paper leaves out 12 B for 16 layers.
@pytest.mark.parametrize(("depth", "level"), [(1, 72), (2, 40), (4, 24), (8, 16), (16, 12), (32, 10)])
def test_levels_without_layer_reuse(depth: int, level: float) -> None:
    assert level_without_layer_reuse(depth, 8, 8) == level


def test_the_layer_condition_of_the_paper() -> None:
    # X = Y < sqrt(10 MB / (9 * 8 B)) = 381 with MB of 2**20 B, half of the near section of 20 MB.
    assert layers_fit(381 * 381, 8, 8, 20 * 2**20)
    assert not layers_fit(382 * 382, 8, 8, 20 * 2**20)


@pytest.mark.parametrize(
    ("lsize", "chunk", "depth"), [((512, 2, 1), 1, 1), ((64, 4, 4), 1, 4), ((16, 2, 32), 1, 32), ((64, 4, 4), 2, 8)]
)
def test_the_wave_depth_of_a_series(lsize: tuple[int, ...], chunk: int, depth: int) -> None:
    sizes = {"nx": 1024, "ny": 1024, "nz": 512}
    tags = ["stencil3d", "points:25", "variant:plain", f"chunk:{chunk}", "dtype:float64", "groups_fit:True"]
    tags += [f"lsize_{axis}:{extent}" for axis, extent in enumerate(lsize)]
    tags += [f"{name}:{value}" for name, value in sizes.items()]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    row = series_row(extract_scop(kernel.kernel), sizes, A100, VOLUMES)
    assert (row.updates, row.wave_depth, row.layers_fit) == (1024 * 1024 * 512, depth, False)
    assert row.level == pytest.approx(8 * (depth + 8) / depth)
    assert row.dram_load == pytest.approx(1e9 / row.updates)
    assert row.l2_load == pytest.approx(4e9 / row.updates)


def test_volumes_per_update_of_what_is_no_stencil() -> None:
    row = series_row(extract_scop(matmul(prefetch=False)), {"n": 64}, A100, VOLUMES)
    assert (row.updates, row.dram_load) == (64**2, pytest.approx(1e9 / 64**2))
    assert (row.wave_depth, row.level, row.layers_fit) == (None, None, None)


def test_a_grid_that_work_groups_do_not_divide() -> None:
    sizes = {"nx": 100, "ny": 90, "nz": 7}
    tags = ["stencil3d", "points:7", "variant:plain", "chunk:2", "dtype:float64", "groups_fit:False", "lsize_0:32"]
    tags += ["lsize_1:4", "lsize_2:1", *(f"{name}:{value}" for name, value in sizes.items())]
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(tags)
    row = series_row(extract_scop(kernel.kernel), sizes, A100, VOLUMES)
    assert (row.updates, row.level) == (100 * 90 * 7, None)


def test_a_kernel_without_stores_has_no_updates() -> None:
    text = """
schema: perflex-scop/1
name: silent
parameters: [n]
assumptions: "[n] -> { : n >= 0 }"
launches:
- {groups: ["floor(n/32)"], items: [32]}
arrays: []
statements: []
"""
    with pytest.raises(UnsupportedKernelError, match="stores nothing"):
        series_row(scop_from_yaml(text), {"n": 64}, A100, VOLUMES)


def test_an_empty_launch_moves_nothing_and_starts_its_groups(tmp_path: Path) -> None:
    (kernel,) = KernelCollection(ALL_GENERATORS).generate_kernels(["empty", "lsize_0:16", "lsize_1:16", "ngroups:16"])
    scop, sizes = extract_scop(kernel.kernel), {"ngroups": 16}
    found = estimate_volumes(scop, sizes, A100)
    values = found.features()
    assert (values.pop("f_resident_groups"), values.pop("f_waves")) == (8, pytest.approx(16 / (8 * 108)))
    assert set(values.values()) == {0.0}
    limits = limits_of(values, scop, sizes, A100)
    assert A100.group_start_rate is not None
    assert (limits.limiter, limits.predicted_s) == ("group start", pytest.approx(16 / A100.group_start_rate))
    row = series_row(scop, sizes, A100, {name: values[name] for name in VOLUMES if name in values})
    assert (row.updates, row.dram_load, row.dram_store, row.l2_load, row.level) == (0, 0, 0, 0, None)
    table = [{"x": "1", "v": str(row.dram_load)}, {"x": "2", "v": "0"}]
    compared = compare_rows(table, table, ["x"], "v")
    assert (compared.percentile(100), compared.bias) == (0, 0)
    draw_comparison(compared, tmp_path / "zero.png", ["x"])
    assert (tmp_path / "zero.png").stat().st_size > 1000


def test_limits_are_volumes_by_rates() -> None:
    scop = extract_scop(matmul(prefetch=False))
    limits = limits_of(VOLUMES, scop, {"n": 1024}, A100)
    assert tuple(limits.seconds) == LIMITERS
    cycles = 108 * 1.41e9
    # A part of a wave waits as long as a whole one.
    assert limits.seconds["latency"] == A100.dram_latency == pytest.approx(574.6 / 1.41e9, rel=1e-3)
    assert limits.seconds["DRAM"] == pytest.approx(1.4e9 / 1400e9)
    assert limits.seconds["L2"] == pytest.approx(5e9 / 5000e9)
    assert limits.seconds["L1"] == pytest.approx(1e6 / cycles)
    assert limits.seconds["local memory"] == pytest.approx(3e5 / cycles)
    assert limits.seconds["arithmetic"] == pytest.approx(1024**3 / (64 * cycles), rel=1e-3)
    assert (limits.limiter, limits.uncounted) == ("DRAM", ())
    assert limits.predicted_s == limits.seconds["DRAM"]


def test_each_of_several_launches_waits_for_memory() -> None:
    once = extract_scop(matmul(prefetch=False))
    host = QuasiPolynomial.constant(7)
    again = replace(once, launches=(replace(once.launches[0], repeats=host),))
    waits = [limits_of({**VOLUMES, "f_waves": 3.0}, scop, {"n": 1024}, A100).seconds for scop in (once, again)]
    assert waits[0]["latency"] == pytest.approx(3 * A100.dram_latency)
    assert waits[1]["latency"] == pytest.approx(7 * 3 * A100.dram_latency)


@pytest.mark.parametrize(
    ("identifier", "limiter"),
    [
        ("f_vol_dram_store", "DRAM"),
        ("f_vol_l2_l1_load", "L2"),
        ("f_l1_wavefronts", "L1"),
        ("f_lmem_wavefronts", "local memory"),
        ("", "arithmetic"),
    ],
)
def test_each_part_can_be_the_limiter(identifier: str, limiter: str) -> None:
    volumes = dict.fromkeys(VOLUMES, 0.0)
    if identifier:
        volumes[identifier] = 1e13
    assert limits_of(volumes, extract_scop(matmul(prefetch=False)), {"n": 512}, A100).limiter == limiter


@pytest.mark.parametrize("fact", ["dram_bandwidth", "l2_bandwidth", "clock_hz", "compute_units", "fp32_per_cycle"])
def test_limits_name_the_fact_they_lack(fact: str) -> None:
    with pytest.raises(MachineError, match=fact):
        limits_of(VOLUMES, extract_scop(matmul(prefetch=False)), {"n": 64}, replace(A100, **{fact: None}))


PREDICTED = [{"x": "32", "y": "4", "v": "10"}, {"x": "64", "y": "2", "v": "22"}, {"x": "1", "y": "1", "v": "5"}]
REFERENCE = [{"y": "2", "x": "64", "w": "20"}, {"y": "4", "x": "32", "w": "10"}, {"y": "9", "x": "9", "w": "1"}]


def test_rows_are_paired_by_their_keys() -> None:
    found = compare_rows(PREDICTED, REFERENCE, ["x", "y"], "v", "w")
    assert [(dict(pair.key)["x"], pair.predicted, pair.reference) for pair in found.pairs] == [
        ("64", 22, 20),
        ("32", 10, 10),
    ]
    assert found.unmatched == 2
    assert found.percentile(100) == pytest.approx(0.1)
    assert found.percentile(50) == found.bias == pytest.approx(0.05)
    assert found.rank_correlation == pytest.approx(1.0)
    (row,) = comparison_table([found])
    assert row == {
        "quantity": "v", "configurations": "2", "median_%": "5.00", "rms_%": "7.07", "p90_%": "9.00",
        "worst_%": "10.00", "bias_%": "+5.00", "rank_correlation": "1.0000",
    }  # fmt: skip


def test_rank_correlation_equals_scipys_also_with_ties() -> None:
    from scipy.stats import spearmanr

    left, right = [3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]
    rows = [[{"k": str(i), "v": str(v)} for i, v in enumerate(side)] for side in (left, right)]
    found = compare_rows(rows[0], rows[1], ["k"], "v")
    assert found.rank_correlation == pytest.approx(spearmanr(left, right).statistic)
    constant = compare_rows(rows[0], [{**row, "v": "1"} for row in rows[1]], ["k"], "v")
    assert constant.rank_correlation != constant.rank_correlation


@pytest.mark.parametrize(
    ("predicted", "reference", "median", "rms", "bias"),
    [
        # Squares and sums of these are beyond all numbers, what is shown of them is not.
        (["1e200", "1e200"], ["1", "1"], 1e200, 1e200, 1e200),
        (["1.5e308", "1.5e308"], ["1", "1"], 1.5e308, 1.5e308, 1.5e308),
        (["-1e200", "1e200", "5"], ["1", "1", "5"], 1e200, 1e200 * (2 / 3) ** 0.5, 0),
        # A reference of zero makes an error infinite, and the median only where half of them are.
        (["1", "2", "3"], ["0", "0", "3"], float("inf"), float("inf"), float("inf")),
        (["1", "2", "6"], ["0", "2", "3"], 1, float("inf"), float("inf")),
        (["1e300"], ["1e-300"], float("inf"), float("inf"), float("inf")),
    ],
)
def test_errors_of_any_size_have_a_median_an_rms_and_a_mean(
    predicted: list[str], reference: list[str], median: float, rms: float, bias: float
) -> None:
    sides = [[{"k": str(i), "v": v} for i, v in enumerate(side)] for side in (predicted, reference)]
    found = compare_rows(sides[0], sides[1], ["k"], "v")
    assert (found.percentile(50), found.rms) == (pytest.approx(median), pytest.approx(rms))
    assert found.bias == pytest.approx(bias, abs=1e-9 * min(rms, 1e300))
    assert comparison_table([found])[0]["configurations"] == str(len(predicted))


@pytest.mark.parametrize(
    ("predicted", "keys", "quantity", "words"),
    [
        (PREDICTED, ["x", "z"], "v", "prediction has no column 'z'"),
        (PREDICTED, ["x"], "u", "prediction has no column 'u'"),
        ([*PREDICTED, PREDICTED[0]], ["x", "y"], "v", r"x=32, y=4 twice \(row 4\)"),
        ([{"x": "1", "y": "1", "v": "much"}], ["x"], "v", "'much' for v"),
        (PREDICTED[2:], ["x", "y"], "v", "no configuration"),
    ],
)
def test_tables_that_do_not_fit_are_refused(
    predicted: list[dict[str, str]], keys: list[str], quantity: str, words: str
) -> None:
    with pytest.raises(FileFormatError, match=words):
        compare_rows(predicted, REFERENCE, keys, quantity, "w")


@pytest.mark.parametrize(
    ("text", "words"), [("a,b\n1,2,3\n", "line 2"), ("a,b\n1\n", "line 2"), ("a,b\n", "no rows"), ("", "no rows")]
)
def test_damaged_tables_are_refused(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=words):
        read_rows(path)
    with pytest.raises(FileFormatError, match="cannot read"):
        read_rows(tmp_path / "none.csv")


def test_colours_tell_the_shape() -> None:
    assert shape_colour(1024, 1, 1) == (1.0, 0.0, 0.0)
    assert shape_colour(1, 256) == (0.0, 1.0, 0.0)
    assert shape_colour(1, 1, 64) == (0.0, 0.0, 1.0)
    assert shape_colour(16, 2, 32) == pytest.approx((0.5, 0.125, log(32) / log(64)))


def test_the_picture_is_written(tmp_path: Path) -> None:
    found = compare_rows(PREDICTED, REFERENCE, ["x", "y"], "v", "w")
    draw_comparison(found, tmp_path / "v.png", ["x", "y"], title="volumes")
    assert (tmp_path / "v.png").read_bytes().startswith(b"\x89PNG")
