"""A calibration judged by times that it has not seen: known errors come back, and what was fitted is not judged."""

import math

import numpy as np
import pytest

import perflex
from perflex import Model, TimedKernel, TimesTable, calibrate
from perflex.errors import CalibrationError
from perflex.features import kernel_feature_values
from perflex.studies.judged import MODEL, judge
from sample_kernels import matmul

TRUE = {"p_launch": 4e-6, "p_group": 2e-8, "p_madd": 3e-11}
LAW = Model(
    "f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_group * f_thread_groups + p_madd * f_op_float32_madd"
)
TILES = (8, 16)


def true(kernel, n):
    values = kernel_feature_values(LAW.input_features(), kernel, {"n": n})
    return float(LAW.evaluate(TRUE, values))


def times(sizes, factors, device=""):
    rows = []
    for n in sizes:
        for tile, factor in zip(TILES, factors, strict=True):
            kernel = matmul(prefetch=False, tile=tile)
            rows.append(TimedKernel(kernel, {"n": n}, factor * true(kernel, n), f"tiled(tile={tile}, n={n})", "tiled"))
    return TimesTable(tuple(rows), device)


@pytest.fixture(scope="module")
def calibration():
    # Times that scatter a little, so that there are intervals.
    noise = np.random.default_rng(1).normal(1, 0.01, 10)
    rows = [row for n in (32, 64, 96, 128, 160) for row in times([n], (1.0, 1.0)).rows]
    own = [
        TimedKernel(row.kernel, row.sizes, row.seconds * factor, row.name, row.generator)
        for row, factor in zip(rows, noise, strict=True)
    ]
    return calibrate(LAW, times=TimesTable(tuple(own)))


def test_known_errors_come_back(calibration):
    found = perflex.judge(calibration, times([48, 112], (0.5, 1.6)))
    predicted = np.array([float(calibration.predict(one.kernel, one.sizes)) for one in times([48, 112], (1, 1)).rows])
    assert found.predicted == pytest.approx(predicted)
    # The law is found to some percent: half of a time is predicted twice too long.
    errors = np.abs(predicted / found.measured - 1)
    assert errors == pytest.approx([1.0, 0.375] * 2, abs=0.05)
    accuracy = found.accuracies[MODEL]
    assert (accuracy.cases, accuracy.groups) == (4, 2)
    assert accuracy.median == pytest.approx(np.median(errors))
    assert accuracy.maximum == pytest.approx(errors.max())
    assert accuracy.rms == pytest.approx(math.sqrt(np.mean(errors**2)))
    # Smaller tiles are predicted to be slower, and are timed to be faster.
    slow, fast = (found.measured[places] for places in ([1, 3], [0, 2]))
    assert accuracy.loss_mean == pytest.approx(np.mean(slow / fast - 1))
    assert found.inside == 0.0
    assert [row[0] for row in found.row_table().rows[:2]] == ["tiled(tile=8, n=112)", "tiled(tile=8, n=48)"]
    (program,) = found.program_table().records()
    assert (program["program"], program["rows"], program["inside"]) == ("tiled", 4, 0.0)


def test_exact_times_lie_in_their_intervals_and_beat_trivial_predictions(calibration):
    found = judge(calibration, times([48, 80, 112, 144], (1.0, 1.0)))
    assert found.inside == 1.0
    assert found.accuracies[MODEL].maximum < 0.03
    assert found.better
    assert found.heading.startswith("The model is better than the trivial predictions")
    assert found.knows == {
        MODEL: "the calibration's times", "one cost": "the calibration's times",
        "one cost, fitted to these times": "these times",
    }  # fmt: skip
    assert found.doubts == ["no roofline: no machine is known; name one"]


def test_the_trivial_prediction_is_the_best_single_cost(calibration):
    """By hand: of launches, groups and multiply-adds, one with a factor, least scattered about the times it knows."""
    new = times([48, 112], (1.0, 1.3))
    found = judge(calibration, new)
    for name, table in (("one cost", None), ("one cost, fitted to these times", new)):
        kernels = calibration.table.columns(LAW.input_features())
        known = calibration.table.column("f_cl_wall_time")
        columns = {
            feature: [kernel_feature_values([feature], row.kernel, row.sizes)[feature] for row in new.rows]
            for feature in LAW.input_features()
        }
        if table is not None:
            kernels, known = columns, np.array([row.seconds for row in table.rows])
        ratios = {feature: np.log(known / np.array(kernels[feature])) for feature in columns}
        best = min(ratios, key=lambda feature: np.std(ratios[feature]))
        expected = np.exp(np.mean(ratios[best])) * np.array(columns[best])
        assert found.baselines[name] == pytest.approx(expected)


def test_a_roofline_stands_beside_where_the_machine_is_known(calibration):
    new = times([48], (1.0, 1.0))
    found = judge(calibration, new, machine="V100")
    # Multiply-adds of 80 compute units with 64 units each, at the clock that the machine's file has.
    machine = perflex.load_machine("V100")
    peak = machine.fp32_per_cycle / 2 * machine.compute_units * machine.clock_hz
    assert found.baselines["roofline"] == pytest.approx(
        max(48**3 / peak, 3 * 48**2 * 4 / machine.dram_bandwidth), rel=1e-9
    )
    assert found.knows["roofline"] == "the machine's peaks"


def test_what_was_fitted_is_left_out_by_name(calibration):
    found = judge(calibration, times([48, 64], (1.0, 1.0)))
    assert len(found.predictions) == 2
    assert found.left_out == tuple((f"tiled(tile={tile}, n=64)", "the calibration was fitted to it") for tile in TILES)
    assert found.doubts[0] == (
        "2 left out, for the calibration was fitted to it: tiled(tile=8, n=64), tiled(tile=16, n=64)"
    )
    with pytest.raises(CalibrationError, match=r"no row .* is left to judge by; .*the calibration was fitted to it"):
        judge(calibration, times([64], (1.0, 1.0)))


def test_a_model_that_is_worse_than_trivial_is_not_recommended(calibration):
    new = times([48, 112], (1.0, 1.3))
    exact = judge(calibration, new).baselines["one cost"]
    rows = [
        TimedKernel(row.kernel, row.sizes, float(seconds), row.name, row.generator)
        for row, seconds in zip(new.rows, exact, strict=True)
    ]
    found = judge(calibration, TimesTable(tuple(rows)))
    assert found.accuracies["one cost"].maximum == pytest.approx(0, abs=1e-9)
    assert not found.better
    assert found.heading.startswith("Not recommended: a trivial prediction that has not seen these times is better")
