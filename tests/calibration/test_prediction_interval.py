"""Prediction intervals: textbook formulas for linear models, coverage by simulation, and what is refused."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, stats

from perflex import Calibration, FeatureTable, Model
from perflex.calibration import doubts
from perflex.calibration.interval import PredictionInterval, interval_at
from perflex.calibration.prediction_variance import without_bound
from perflex.errors import CalibrationError, MachineError, PerflexWarning
from perflex.features import source_kernel
from perflex.machines.host import ReportedCache, ReportedCpu
from sample_kernels import matmul
from support.fitted import fitted
from uipick import ALL_GENERATORS, KernelCollection, tag_accesses

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
LINEAR = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")
TRUTH = {"p_a": 1e-9, "p_b": 3e-10, "p_c": 2e-8}


TAGGED = tag_accesses(matmul(prefetch=False), loads={"a": "aLD", "b": "bLD"})


def draw(random, rows):
    """Return counts of the three features over three decades, many of them zero, no row empty."""
    counts = 10 ** random.uniform(3, 6, (rows, 3)) * (random.random((rows, 3)) < 0.6)
    counts[:, 2] += 300
    counts[np.arange(rows), np.arange(rows) % 3] += 1e4
    return counts


def table_of(counts, seconds):
    labels = tuple(map(str, range(len(counts))))
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, np.column_stack([seconds, counts]))


def calibrated(model, counts, seconds, **options):
    return fitted(model, table_of(counts, seconds), **options)


def at(adds, multiplications, divisions):
    return dict(zip(FEATURES, (adds, multiplications, divisions), strict=True))


def values(counts):
    return dict(zip(FEATURES, counts.T, strict=True))


def experiments(model, truth, *, repeats=120, rows=12, residual="relative"):
    """Return many calibrations, each with new measurements of the same law, of 5 % noise."""
    random = np.random.default_rng(11)
    made = []
    for _ in range(repeats):
        counts, new = draw(random, rows), draw(random, 50)
        exact = [np.asarray(model.evaluate(truth, values(some))) for some in (counts, new)]
        seconds, measured = ((1 + 0.05 * random.normal(size=len(one))) * one for one in exact)
        made.append((calibrated(model, counts, seconds, residual=residual), new, measured))
    return made


def coverage(made, confidence=0.95):
    """Return the share of new measurements inside their intervals."""
    inside = []
    for calibration, new, seconds in made:
        interval = interval_at(calibration, values(new), confidence)
        inside.append((interval.low <= seconds) & (seconds <= interval.high))
    return float(np.mean(inside))


PARTIAL = "partial_overlap(p_a * f_op_float32_add + p_b * f_op_float32_mul, p_c * f_op_float32_div, 5, p_hidden)"


@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
@pytest.mark.parametrize(
    ("model", "truth", "options", "tolerance"),
    [
        (LINEAR, TRUTH, {}, 0.025),
        (LINEAR, TRUTH, {"residual": "logarithmic"}, 0.025),
        # A cost that is often at its bound.
        pytest.param(LINEAR, {**TRUTH, "p_b": 0.0}, {}, 0.025, marks=pytest.mark.slow),
        pytest.param(
            Model(OUTPUT, PARTIAL),
            {**TRUTH, "p_hidden": 0.7},
            {"rows": 25, "repeats": 40},
            0.035,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_intervals_hold_new_measurements(model, truth, options, tolerance):
    made = experiments(model, truth, **options)
    for confidence in (0.5, 0.95) if model is LINEAR and truth is TRUTH else (0.95,):
        assert coverage(made, confidence) == pytest.approx(confidence, abs=tolerance)


def linear_case(*, relative):
    random = np.random.default_rng(2)
    counts = draw(random, 15)
    exact = counts @ list(TRUTH.values())
    seconds = exact + 0.05 * (exact if relative else exact.min()) * random.normal(size=15)
    return (
        calibrated(LINEAR, counts, seconds, residual="relative" if relative else "absolute", nonnegative=False),
        counts,
        seconds,
    )


@pytest.mark.parametrize("relative", [False, True])
def test_intervals_are_those_of_textbooks(relative):
    """Absolute ones stand on both sides of the prediction, relative ones are factors of it."""
    calibration, counts, seconds = linear_case(relative=relative)
    new = draw(np.random.default_rng(3), 7)
    found = interval_at(calibration, values(new), 0.9)
    weight = 1 / seconds if relative else np.ones(15)
    weighted = counts * weight[:, None]
    solution, squares, *_ = np.linalg.lstsq(weighted, seconds * weight, rcond=None)
    variance = squares[0] / 12
    inside = np.einsum("ri,ij,rj->r", new, np.linalg.inv(weighted.T @ weighted), new)
    inside = inside / (new @ solution) ** 2 if relative else inside
    half_width = stats.t.ppf(0.95, 12) * np.sqrt(variance * (1 + inside))
    low, middle, high = (np.log(x) if relative else x for x in (found.low, found.predicted, found.high))
    np.testing.assert_allclose(found.predicted, new @ solution, rtol=1e-9)
    np.testing.assert_allclose([high - middle, middle - low], [half_width] * 2, rtol=1e-7)
    size = found.predicted if relative else 1.0
    np.testing.assert_allclose(found.standard_error, size * np.sqrt(variance * inside), rtol=1e-7)
    np.testing.assert_allclose(found.residual_deviation, size * np.sqrt(variance))
    assert found.degrees_of_freedom == 12
    for confidence in (0.0, 1.0, 95, -0.1):
        with pytest.raises(ValueError, match="between 0 and 1"):
            interval_at(calibration, values(counts), confidence)


def test_scalars_give_scalars_and_shapes_are_kept():
    calibration, counts, _ = linear_case(relative=True)
    one = interval_at(calibration, {name: float(column[0]) for name, column in values(counts).items()})
    many = interval_at(calibration, {name: column.reshape(3, 5) for name, column in values(counts).items()})
    mixed = interval_at(calibration, {**values(counts), "f_op_float32_mul": 1e4})
    assert isinstance(one.low, float)
    assert isinstance(one.standard_error, float)
    for name in ("predicted", "low", "high", "standard_error", "residual_deviation"):
        assert np.shape(getattr(many, name)) == (3, 5)
        assert getattr(many, name)[0, 0] == pytest.approx(getattr(one, name))
        assert np.shape(getattr(mixed, name)) == (15,)


def bounded(noise=0.05, **options):
    """Return a calibration with p_b at its bound, or below it, its counts and its times."""
    random = np.random.default_rng(4)
    counts = draw(random, 14)
    seconds = (counts @ [1e-9, -3e-11, 2e-8]) * (1 + noise * random.normal(size=14))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return calibrated(LINEAR, counts, seconds, **options), counts, seconds


def test_a_released_parameter_is_where_the_unbounded_fit_puts_it():
    calibration, counts, seconds = bounded()
    assert calibration.fit.at_bound == ("p_b",)
    found = without_bound(calibration.fit, 1)
    weighted = counts / seconds[:, None]
    solution = np.linalg.lstsq(weighted, np.ones(14), rcond=None)[0]
    inverse = np.linalg.inv(weighted.T @ weighted)
    assert found.value == pytest.approx(solution[1], rel=1e-7)
    variance = calibration.fit.residual_norm**2 / 12
    assert found.standard_error == pytest.approx(np.sqrt(variance * inverse[1, 1]), rel=1e-7)
    at_bound = np.array(list(calibration.params.values()))
    np.testing.assert_allclose(at_bound + found.value * found.direction, solution, rtol=1e-6)
    # E[x**2] of the normal distribution with these two numbers, above zero only.
    density = stats.norm(found.value, found.standard_error).pdf
    half_width = 12 * found.standard_error
    below = integrate.quad(density, 0, half_width, epsabs=0)[0]
    expected = integrate.quad(lambda x: x * x * density(x), 0, half_width, epsabs=0)[0] / below
    assert found.mean_square() == pytest.approx(expected, rel=1e-6)
    # It widens what depends on it.
    much_b, no_b = (interval_at(calibration, at(1e4, number, 1e3)) for number in (1e6, 0.0))
    assert much_b.predicted == pytest.approx(no_b.predicted)
    assert much_b.high > 1.1 * no_b.high


def test_a_negative_prediction_keeps_a_plain_interval():
    found = interval_at(bounded(0.01, nonnegative=False)[0], at(0.0, 1e6, 0.0))
    assert found.low < found.predicted < 0
    assert found.high - found.predicted == pytest.approx(found.predicted - found.low)


def test_no_interval_of_what_depends_on_an_undetermined_parameter():
    random = np.random.default_rng(5)
    counts = draw(random, 12)
    counts[:, 1] = 0.0
    seconds = (counts @ list(TRUTH.values())) * (1 + 0.05 * random.normal(size=12))
    with pytest.warns(PerflexWarning, match="p_b"):
        calibration = calibrated(LINEAR, counts, seconds, on_undetermined="warn")
    assert interval_at(calibration, at(1e4, 0.0, 1e4)).doubts == ()
    doubt = "it depends on p_b, which the measurement kernels do not determine"
    assert calibration.place_of(at(1e4, 1.0, 1e4)).doubts == (doubt,)
    with pytest.raises(CalibrationError, match="depends on p_b, which the measurement kernels do not determine"):
        interval_at(calibration, at(1e4, 1.0, 1e4))
    few = calibrated(LINEAR, counts[:3] + np.eye(3) * 1e4, (counts[:3] + np.eye(3) * 1e4) @ list(TRUTH.values()))
    with pytest.raises(CalibrationError, match=r"leave no degrees of freedom.* more measurement kernels"):
        interval_at(few, values(counts))
    # As of a file in which a number was damaged.
    text = "1e300 * 1e300 * p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div"
    problem = replace(calibration.fit.problem, model=Model(OUTPUT, text))
    with pytest.raises(CalibrationError, match="no finite slopes"):
        replace(calibration, fit=replace(calibration.fit, problem=problem)).place_of(at(1e5, 1e4, 1e3))


def test_an_undetermined_cost_is_doubted_where_a_larger_one_hides_it_and_in_other_proportions():
    counts = draw(np.random.default_rng(5), 12)
    counts[:, 1] = 2 * counts[:, 0]
    together = [at(1.0, 2.0, 0.0), at(1.0, 2.1, 0.0), at(0.0, 1.0, 1.0)]
    with pytest.warns(PerflexWarning, match="p_b"):
        calibration = calibrated(LINEAR, counts, counts @ list(TRUTH.values()), on_undetermined="warn")
    found = [calibration.place_of(values).depends_on for values in together]
    assert found == [(), ("p_a", "p_b"), ("p_a", "p_b")]
    assert all(calibration.place_of(values).outside for values in together[1:])
    counts[:, 1] = 0.0
    hidden = Model(OUTPUT, "smooth_max(p_a * f_op_float32_add, p_b * f_op_float32_mul, 5) + p_c * f_op_float32_div")
    with pytest.warns(PerflexWarning, match="p_b"):
        calibration = calibrated(hidden, counts, counts @ list(TRUTH.values()), on_undetermined="warn")
    assert calibration.place_of(at(1e4, 1e9, 1e4)).depends_on == ("p_b",)
    with pytest.raises(CalibrationError, match="depends on p_b"):
        interval_at(calibration, at(1e4, 1e9, 1e4))


@pytest.mark.filterwarnings("ignore:flops_madd_pattern. the model has no feature for f_op_float32_add")
@pytest.mark.filterwarnings("ignore:this prediction is doubtful")
def test_predict_interval_of_a_kernel():
    tags = ["flops_madd_pattern", "dtype:float32", "lsize_0:16", "lsize_1:16", "groups_fit:True"]
    kernel = KernelCollection(ALL_GENERATORS).generate_kernels(tags)[0]
    model = Model(OUTPUT, "p_madd * f_op_float32_madd + p_launch * f_sync_kernel_launch")
    counts = np.column_stack([np.linspace(1e5, 1e7, 9), np.ones(9)])
    seconds = (counts @ [1e-9, 1e-5]) * (1 + 0.01 * np.random.default_rng(0).normal(size=9))
    labels, columns = tuple(map(str, range(9))), np.column_stack([seconds, counts])
    calibration = fitted(model, FeatureTable(OUTPUT, tuple(model.all_features()), labels, columns))
    # On a CPU, conflict misses are looked for at the kernel's own sizes, too.
    calibration = replace(calibration, device={"kind": "cpu", "max_work_group_size": 1024})
    found = calibration.predict_interval(kernel, {})
    assert isinstance(found, PredictionInterval)
    assert found.predicted == pytest.approx(calibration.predict(kernel, {}))
    assert found.low < found.predicted < found.high
    name = next(iter(kernel.sizes))
    sizes = {name: np.array([1, 2]) * kernel.sizes[name]}
    many = calibration.predict_interval(kernel, sizes, confidence=0.5)
    np.testing.assert_allclose(many.predicted, calibration.predict(kernel, sizes))
    assert many.low[0] > found.low


NOISE = np.array([0.15, 0.05, 0.02])


def sized(random, rows):
    """Return counts of short, middle and long kernels in turn, their times, and these with their noise."""
    group = np.arange(rows) % 3
    counts = 10 ** random.uniform(3, 3.8, (rows, 3)) * 30.0 ** group[:, None]
    exact = counts @ list(TRUTH.values())
    return counts, exact, exact * np.exp(NOISE[group] * random.normal(size=rows))


@pytest.mark.parametrize("column", ["repeatability", None])
@pytest.mark.slow
def test_short_and_long_kernels_have_intervals_of_their_own_noise(column):
    inside = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        (counts, _, seconds), (new, _, measured) = sized(random, 45), sized(random, 60)
        repeatability = np.abs(random.normal(size=45)) * NOISE[np.arange(45) % 3]
        table = replace(table_of(counts, seconds), **({} if column is None else {column: repeatability}))
        found = interval_at(fitted(LINEAR, table), values(new))
        inside.append((found.low <= measured) & (measured <= found.high))
    for group in range(3):
        assert 0.9 <= np.mean(np.array(inside)[:, group::3]) <= 0.98


def grouped(seed, deviation, rows=48, growth=0.0):
    """Return a calibration of 8 generators, each with an error that its kernels share, and that may grow with times."""
    random = np.random.default_rng(seed)
    counts = draw(random, rows)
    shared = np.repeat(np.exp(deviation * random.normal(size=8)), rows // 8)
    exact = counts @ list(TRUTH.values())
    grown = (exact / np.median(exact)) ** (growth * np.repeat([-1, 1], rows // 2))
    seconds = exact * shared * grown * np.exp(0.02 * random.normal(size=rows))
    owners = tuple(f"make{i // (rows // 8)}" for i in range(rows))
    return fitted(LINEAR, replace(table_of(counts, seconds), groups=owners)), random


def test_kernels_of_new_generators_are_inside():
    inside = []
    for seed in range(25):
        calibration, random = grouped(seed, 0.2)
        assert calibration.between_generators.generators == 8
        # Each new kernel is of a generator of its own.
        new = draw(random, 30)
        seconds = (new @ list(TRUTH.values())) * np.exp(np.hypot(0.2, 0.02) * random.normal(size=30))
        found = interval_at(calibration, values(new))
        inside.append((found.low <= seconds) & (seconds <= found.high))
    assert 0.9 <= np.mean(inside) <= 0.98


def test_generators_that_agree_widen_nothing():
    assert np.median([grouped(seed, 0.0)[0].between_generators.ratio for seed in range(5)]) < 0.5


def test_predictions_beyond_the_measurement_kernels_say_so_and_are_wider():
    calibration, _ = grouped(0, 0.1, growth=0.1)
    assert calibration.table is not None
    inside = interval_at(calibration, at(1e5, 1e5, 1e4))
    assert (inside.extrapolated, inside.doubts) == (False, ())
    larger = interval_at(calibration, at(1e8, 1e8, 1e7))
    assert larger.extrapolated is True
    assert "f_op_float32_add is " in larger.doubts[0]
    assert larger.high / larger.low > 1.2 * inside.high / inside.low
    many = interval_at(calibration, {name: np.array([1e4, 1e9]) for name in FEATURES})
    assert np.asarray(many.extrapolated).tolist() == [False, True]
    assert larger.doubted("one", "two", "one").doubts == (*larger.doubts, "one", "two")


def test_a_mixture_that_no_measurement_kernel_has_is_extrapolated():
    random = np.random.default_rng(1)
    counts = np.outer(10 ** random.uniform(3, 6, 30), [1.0, 1.0, 0.1]) * np.exp(0.05 * random.normal(size=(30, 3)))
    seconds = (counts @ list(TRUTH.values())) * (1 + 0.02 * random.normal(size=30))
    calibration = calibrated(LINEAR, counts, seconds, nonnegative=False)
    alike, unlike = (interval_at(calibration, at(*mixture)) for mixture in ((1e5, 1e5, 1e4), (1e5, 1e5, 1e5)))
    assert alike.doubts == ()
    assert any(
        text.startswith("a combination of costs that no measurement kernel has: leverage") for text in unlike.doubts
    )


def test_conflict_misses_are_shown(monkeypatch):
    found_by = "perflex.features.cpu.ecm_estimate.conflict_doubts"
    monkeypatch.setattr(found_by, lambda _scop, sizes, _machine: (f"n is {sizes['n']}",))
    calibration = Calibration.load("matmul_sq_amd_epyc_4cores_intel_opencl")
    with pytest.warns(PerflexWarning, match=r"prediction is doubtful: n is 480;"):
        assert calibration.predict(TAGGED, {"n": 480}) > 0
    with pytest.warns(PerflexWarning, match=r"is 1\.1 times the largest.*; n is 1024;"):
        found = calibration.predict_interval(TAGGED, {"n": 1024})
    assert found.extrapolated is True
    assert found.doubts == calibration.doubts(TAGGED, {"n": 1024})


def test_conflict_misses_are_those_of_the_caches_that_the_cpu_has():
    shipped = Calibration.load("matmul_sq_amd_epyc_4cores_intel_opencl")
    assert any("size and ways are assumed" in text for text in shipped.doubts(TAGGED, {"n": 480}))

    # A column of 480 rows of 1920 B, 30 lines, is in every second of the 64 sets: 15 lines in each of them.
    def here(ways):
        first = ReportedCache(level=1, size_bytes=4096 * ways, line_bytes=64, shared_by=1, ways=ways)
        second = ReportedCache(level=2, size_bytes=1 << 26, line_bytes=64, shared_by=1, ways=1 << 20)
        return replace(shipped, cpu=ReportedCpu("here", "", 2, 1, 64, (first, second)))

    (doubt,) = here(8).doubts(TAGGED, {"n": 480})
    assert "1920 B apart, fall into 32 set(s) of 8 lines" in doubt
    assert "assumed" not in doubt
    assert here(32).doubts(TAGGED, {"n": 480}) == ()
    # Caches of a CPU that comes with perflex are those of its file.
    named = replace(shipped, device={**shipped.device, "name": "AMD EPYC 7452 32-Core Processor"})
    assert not any("assumed" in text for text in named.doubts(TAGGED, {"n": 1024}))


@pytest.mark.parametrize("feature", ["f_ecm_vol_l2", "f_traffic_bytes_l2"])
def test_models_that_count_conflict_misses_are_not_doubted_for_them(feature):
    # A column of 1024 rows, a power of two apart, is in few sets of any cache.
    table = FeatureTable(OUTPUT, (OUTPUT, feature), ("a", "b"), np.array([[1e-3, 1e5], [2e-3, 2e5]]))
    made = fitted(Model(OUTPUT, f"p_line * {feature}"), table)
    made = replace(made, device={"kind": "cpu"}, machine="Gold-6248")
    kernel, sizes = matmul(prefetch=False), {"n": 1024}
    assert not any("conflict" in text for text in doubts.kernel_doubts(made, kernel, sizes, made.target()))
    counted = replace(made, model=Model(OUTPUT, "p_line * f_op_float32_madd"))
    assert any("conflict" in text for text in doubts.kernel_doubts(counted, kernel, sizes, counted.target()))


def test_the_machine_file_of_a_calibration_is_asked_for():
    table = FeatureTable(OUTPUT, (OUTPUT, "f_ecm_vol_l2"), ("a", "b"), np.array([[1e-3, 1e5], [2e-3, 2e5]]))
    made = replace(fitted(Model(OUTPUT, "p_line * f_ecm_vol_l2"), table), device={"kind": "cpu"}, machine="My-CPU")
    with pytest.raises(MachineError, match="rests on facts of My-CPU, a file of yours; name it with --machine"):
        made.predict(TAGGED, {"n": 64})
    with pytest.raises(MachineError, match="no machine is called 'Mine'"):
        made.predict(TAGGED, {"n": 64}, machine="Mine")


@pytest.mark.parametrize(("kind", "machine"), [("cpu", "Gold-6248"), ("gpu", "V100")])
def test_idle_compute_units_are_told(kind, machine):
    shipped = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    here = replace(shipped, device={**shipped.device, "kind": kind})
    for n, groups in ((16, 1), (32, 4)):
        idle = [text for text in here.doubts(TAGGED, {"n": n}) if "idle" in text]
        assert idle == ["with 1 work-groups 3 of 4 compute units are idle, which the model does not see"][: groups < 4]
    knows = "f_peak_issue" if kind == "cpu" else "f_wave_quantisation"
    aware = replace(here, model=Model(OUTPUT, f"p_core * {knows}"))
    assert not any("idle" in text for text in doubts.kernel_doubts(aware, TAGGED, {"n": 16}, aware.target(machine)))


@pytest.mark.filterwarnings("ignore:k. the model has no feature")
def test_a_kernel_that_the_device_cannot_run_is_flagged():
    kernel = tag_accesses(matmul(prefetch=True), loads={"a": "aLD", "b": "bLD"})
    shipped = Calibration.load("matmul_sq_amd_epyc_4cores_pocl")
    assert not any("cannot run" in text for text in shipped.doubts(kernel, {"n": 480}))
    # Two tiles of 16 x 16 numbers of four bytes, and as many work-items as one has.
    small = replace(shipped, device={**shipped.device, "max_work_group_size": 255, "local_memory_bytes": 2047})
    found = small.doubts(kernel, {"n": 480})
    assert "the device cannot run it: a work-group has 256 work-items, the device allows 255" in found
    assert "the device cannot run it: a work-group needs 2048 B of local memory, the device has 2047 B" in found
    exact = replace(shipped, device={**shipped.device, "max_work_group_size": 256, "local_memory_bytes": 2048})
    assert not any("cannot run" in text for text in exact.doubts(kernel, {"n": 480}))
    # What a launch asks for may be more than what a kernel declares, but generated kernels declare all.
    small = replace(small, device={**small.device, "kind": "gpu", "most_local_memory_bytes": 4096})
    assert any("needs 2048 B of local memory" in text for text in small.doubts(kernel, {"n": 480}))
    source = "__global__ void k(float *y, int n) { extern __shared__ float t[]; t[n - 1] = y[0]; y[0] = t[n - 1]; }"
    asking = source_kernel(source, "k", local=[1], groups=[1])
    assert not any("local memory" in text for text in small.doubts(asking, {"n": 1024}))
    assert any(
        "needs 4100 B of local memory, the device has 4096 B" in text for text in small.doubts(asking, {"n": 1025})
    )
