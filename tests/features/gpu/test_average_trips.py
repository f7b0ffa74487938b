"""Volumes of loops that run so often on average, as stated: by hand."""

from fractions import Fraction

import pytest

from perflex import annotate, estimate_volumes, load_machine, source_kernel
from perflex.features import Target, extract_scop
from perflex.features.gpu.volume_estimate import local_transactions
from perflex.features.values import feature_values
from support.written_kernels import written

V100 = load_machine("V100")
ROWS = """
__kernel void rows(__global const float *x, __global const int *count, __global float *y, int n) {
    __local float sums[64];
    int i = get_global_id(0), rows = count[i];
    for (int j = 0; j < rows; j++)
        sums[get_local_id(0)] += x[i + n*j];
    y[i] = sums[63 - get_local_id(0)];
}"""
ITEMS = 64 * 64


# Of 2.5 iterations, domains have three, of 0.01 one.
@pytest.mark.parametrize("trips", [4, 2.5, 0.25, 0.01])
def test_volumes_are_those_of_the_average(trips):
    stated = {"5": trips, "x": "n*8"}
    scop = source_kernel(ROWS, "rows", local=64, groups=64, stated=stated).scop({"n": ITEMS})
    found = estimate_volumes(scop, {"n": ITEMS}, V100, caches="cold")
    moved = found.arrays["x"]
    once = 4 * ITEMS
    for volume in (moved.l1_load, moved.l2_l1_load, moved.dram_load, moved.wave_load):
        assert volume == pytest.approx(trips * once)
    # What stands beside the loop is executed once.
    assert [found.arrays[name].dram_load for name in ("count", "y")] == [once, 0]
    assert found.arrays["y"].dram_store == once
    # Eight sectors, or one wavefront of local memory, for each of 32 floats.
    names = ("f_txn_global", "f_peak_dram")
    values = feature_values(names, scop, {"n": ITEMS}, Target(machine=V100, caches="cold"))
    assert values["f_txn_global"] == pytest.approx((trips + 2) * once / 32)
    assert values["f_peak_dram"] == pytest.approx((trips + 2) * once / V100.dram_bandwidth)
    wavefronts = local_transactions(scop, {"n": ITEMS}, V100)
    assert wavefronts["sums", "store"] == pytest.approx(trips * ITEMS / 32)
    assert wavefronts["sums", "load"] == pytest.approx((trips + 1) * ITEMS / 32)


def test_averages_of_loopy_kernels_too():
    text = "y[i] = sum(j, x[i + n*j])"
    kernel = written(
        ["{[i]: 0<=i<n}", "[m] -> {[j]: 0<=j<m}"], f"<> m = count[i]\n{text}",
        "x: float32[8*n]; y: float32[n]; count: int32[n]", "i/64: g.0, l.0", assume="n mod 64 = 0 and n >= 64",
    )  # fmt: skip
    scop = extract_scop(annotate(kernel, trip_counts={"j": Fraction(5, 2)}))
    found = estimate_volumes(scop, {"n": ITEMS}, V100, caches="cold")
    assert found.arrays["x"].l1_load == pytest.approx(2.5 * 4 * ITEMS)
