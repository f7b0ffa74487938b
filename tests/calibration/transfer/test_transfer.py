"""Transfer on simulated devices, of which everything is known."""

import warnings
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest

from perflex import Calibration, FitOptions, PerflexWarning, diagnose, fit_model, transfer
from perflex.__main__ import main
from perflex.calibration.diagnosis.pictures import draw_diagnosis
from perflex.calibration.row_predictions import known_as
from perflex.calibration.transfer.priors import shared_prior
from perflex.calibration.transfer.suggest import suggest_samples
from perflex.errors import CalibrationError, FileFormatError, MachineError
from support.simulated_devices import INPUTS, MODEL, OUTPUT, World, calibrated, simulated_devices
from support.source_kernels import axpy

EXACT = World(program=0.0, kernel=0.0, program_here=0.0, kernel_here=0.0, noise=0.01)


def _transferred(sources, samples):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        return transfer(sources, samples)


def _errors(calibration, table):
    return np.abs(calibration.predict_rows(table).predicted / table.column(OUTPUT) - 1)


@pytest.fixture(scope="module")
def world():
    """Five sources, the rows of a sixth device, and a random order of them."""
    devices = simulated_devices(3, 6)
    return devices.calibrations(5), devices.tables[5], np.random.default_rng(5).permutation(len(devices.tables[5]))


def test_parameters_come_back():
    devices = simulated_devices(1, 6, EXACT)
    found = _transferred(devices.calibrations(5), devices.tables[5].take(range(0, 120, 6)))
    for name, true in zip(MODEL.params(), devices.parameters[5], strict=True):
        low, high = found.fit.interval(name)
        assert found.params[name] == pytest.approx(true, rel=0.03)
        assert low / 1.02 < true < high * 1.02


def test_the_prior_is_that_of_the_devices():
    world = replace(EXACT, parameters=0.4)
    devices = simulated_devices(2, 24, world)
    prior = shared_prior(devices.calibrations(24))[0]
    logs = np.log(devices.parameters)
    for place, entry in enumerate(prior.values()):
        assert entry.mean == pytest.approx(logs[:, place].mean(), abs=0.02)
        # Widened for a finite number of devices, and drawn towards the usual spread.
        assert 0.8 * logs[:, place].std(ddof=1) < entry.spread < 1.5 * logs[:, place].std(ddof=1)


def test_errors_fall_with_samples(world):
    sources, table, order = world
    rest = table.take(order[20:])
    medians = [
        np.median(_errors(_transferred(sources, table.take(order[:n]) if n else None), rest)) for n in (0, 10, 20)
    ]
    assert medians[0] > medians[1]
    # Kernels differ from one another by 0.05 on each device and by 0.02 of noise; programs by 0.05.
    assert medians[2] < 0.08


@pytest.mark.parametrize("count", [5, 20])
def test_a_prior_beats_none(world, count):
    sources, table, order = world
    samples, rest = table.take(order[:count]), table.take(order[20:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        alone = fit_model(MODEL, samples, FitOptions(residual="logarithmic"))
    values = {name: rest.column(name) for name in INPUTS}
    own = np.abs(np.asarray(MODEL.evaluate(alone, values)) / rest.column(OUTPUT) - 1)
    assert np.median(_errors(_transferred(sources, samples), rest)) < 0.8 * np.median(own)


def test_one_factor_is_contained():
    # Devices of one kind, at different clocks, and a model that is off by a factor of two and more for each kernel:
    # other devices' times with one factor are right to the noise.
    lumpy = World(parameters=0.0, program=0.5, kernel=0.5, program_here=0.0, kernel_here=0.0, noise=0.01)
    devices = simulated_devices(7, 5, lumpy)
    factors = (1.0, 1.3, 0.7, 2.0, 1.6)
    tables = [_slower(table, factor) for table, factor in zip(devices.tables, factors, strict=True)]
    sources = [calibrated(table, f"device {place}") for place, table in enumerate(tables[:4])]
    order = np.random.default_rng(0).permutation(len(tables[4]))
    found = _transferred(sources, tables[4].take(order[:10]))
    errors = _errors(found, tables[4].take(order[10:]))
    assert np.median(errors) < 0.02
    assert np.quantile(errors, 0.9) < 0.05


def _slower(table, factor):
    values = table.values.copy()
    values[:, 0] *= factor
    return replace(table, values=values)


@pytest.mark.parametrize("count", [0, 3])
def test_a_diagnosis_says_what_the_rows_alone_do_not_tell(count, world, tmp_path):
    sources, table, order = world
    samples = table.take(order[:count])
    _transferred(sources, samples).save(tmp_path / "new.yaml")
    found = diagnose(Calibration.load(tmp_path / "new.yaml"))
    assert not any(one.severity == "problem" for one in found.findings)
    assert any("rest on other devices, too" in one.text for one in found.findings)
    # By hand: the formula at the posterior's mode, over the measured times.
    mode = {p.name: p.value for p in found.parameters}
    errors = MODEL.evaluate(mode, {name: samples.column(name) for name in INPUTS}) / samples.column(OUTPUT) - 1
    np.testing.assert_allclose([kernel.relative_error for kernel in found.kernels], errors, rtol=1e-9)
    assert all(p.low < p.value < p.high for p in found.parameters)
    assert all(np.isnan([found.leave_one_out_error, found.cross_validation_error]))
    assert len(draw_diagnosis(found, tmp_path)) == 3
    assert main(["diagnose", str(tmp_path / "new.yaml"), "--out", str(tmp_path)]) == 0
    assert "rest on other devices, too" in (tmp_path / "report.html").read_text()


def test_kernels_timed_elsewhere_are_marked(world):
    sources, table, order = world
    found = _transferred(sources, table.take(order[:10]))
    labels = ("program0(n=3)", "program0(n=33)")
    rows = replace(table.take([3, 4]), kernels=labels)
    predicted = found.predict_rows(rows)
    assert predicted.knowledge == ("timing on other devices", "nothing")
    widths = np.log(predicted.high / predicted.low)
    assert widths[1] > widths[0]


def test_a_device_unlike_all_sources_is_flagged(world):
    sources, table, order = world
    strange = _slower(table, 1.0)
    strange.values[:, 0] *= np.where(strange.column(INPUTS[1]) > strange.column(INPUTS[0]), 12.0, 0.2)
    with pytest.warns(PerflexWarning, match="the samples contradict the sources"):
        transfer(sources, strange.take(order[:10]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", PerflexWarning)
        found = transfer(sources, table.take(order[:10]))
    assert found.transferred is not None
    assert found.transferred.conflict is not None
    assert found.transferred.conflict > 0.01


@pytest.mark.parametrize("count", [0, 10])
def test_files_keep_everything(world, count, tmp_path):
    sources, table, order = world
    found = _transferred(sources, table.take(order[:count]) if count else None)
    found.save(tmp_path / "new.yaml")
    read = Calibration.load(tmp_path / "new.yaml")
    assert read.transferred == found.transferred
    assert read.fit.prior == found.fit.prior
    first, second = found.predict_rows(table), read.predict_rows(table)
    for name in ("predicted", "low", "high"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), rtol=1e-12)
    assert read.fit.interval("p_0") == pytest.approx(found.fit.interval("p_0"))


def test_suggestions_tell_more_than_chance(world):
    sources, table, order = world
    start = _transferred(sources, None)
    chosen = suggest_samples(start, table, 8)
    assert len(set(chosen)) == 8
    # The first tells of what varies most over devices, so that variances of all rows shrink; random rows do less.
    rows = [table.kernels.index(label) for label in chosen]
    best = _log_width(_transferred(sources, table.take(rows)), table)
    random = [_log_width(_transferred(sources, table.take(order[8 * i : 8 * i + 8])), table) for i in range(4)]
    assert best < np.mean(random)
    assert not set(chosen) & set(suggest_samples(_transferred(sources, table.take(rows)), table, 8))


def _log_width(calibration, table):
    # Deviations, without the factor that left-out sources give them, which differs from choice to choice.
    assert calibration.transferred is not None
    found = calibration.predict_rows(table)
    return float(np.mean(np.log(found.high / found.low))) / calibration.transferred.half_width(0.95)


def test_refusals_and_doubts(world, tmp_path):
    sources, table, _ = world
    with pytest.raises(CalibrationError, match="there are no sources"):
        transfer([])
    with pytest.raises(CalibrationError, match="only a transferred calibration"):
        suggest_samples(sources[0], table, 3)
    with pytest.raises(CalibrationError, match="request 1 to 120"):
        suggest_samples(_transferred(sources, None), table, 121)
    with pytest.raises(CalibrationError, match="not above zero"):
        transfer(sources, _slower(table, 0.0))
    with pytest.warns(PerflexWarning, match="no sample of this device"):
        found = transfer(sources)
    assert "no sample of this device" in found.predict_rows(table).doubts[0]
    assert "no sample of this device" in repr(found)
    found.save(tmp_path / "new.yaml")
    text = (tmp_path / "new.yaml").read_text(encoding="utf-8")
    (tmp_path / "new.yaml").write_text(text.replace("  limits:\n", "  limits:\n  - 1.0\n"), encoding="utf-8")
    with pytest.raises(FileFormatError, match=r"transferred\.limits"):
        Calibration.load(tmp_path / "new.yaml")


def test_zero_in_some_sources_counts_as_small():
    def zero(source):
        first, *rest = source.fit.parameters
        return replace(source, fit=replace(source.fit, parameters=(msgspec.structs.replace(first, value=0.0), *rest)))

    free = [replace(one, table=one.table.take([])) for one in simulated_devices(4, 3, EXACT).calibrations(3)]
    prior = shared_prior([zero(free[0]), *free[1:]])[0]
    others = [source.fit["p_0"] for source in free[1:]]
    assert prior["p_0"].mean == pytest.approx(np.mean(np.log([min(others) / 3, *others])))
    assert shared_prior([zero(source) for source in free])[0]["p_0"].held_at_zero


def test_limits_of_few_sources_are_no_nearer_than_normal_ones():
    devices = simulated_devices(104, 3)
    found = _transferred(devices.calibrations(2), devices.tables[2].take([5, 50, 100]))
    assert found.transferred.limits[-1] >= 1.9599


@pytest.mark.slow
@pytest.mark.parametrize(("sources", "count"), [(6, 0), (6, 5), (2, 3)])
def test_intervals_hold(sources, count):
    shares = []
    for seed in range(12):
        devices = simulated_devices(100 + seed, sources + 1)
        target = devices.tables[sources]
        order = np.random.default_rng(seed).permutation(len(target))
        samples = target.take(order[:count]) if count else None
        rest = target.take(order[20:])
        found = _transferred(devices.calibrations(sources), samples).predict_rows(rest)
        measured = rest.column(OUTPUT)
        shares.append(np.mean((found.low <= measured) & (measured <= found.high)))
    # Rows of one device are missed together, so that the error of the mean is that of 12 devices.
    error = np.std(shares) / np.sqrt(len(shares))
    assert 0.90 - 2 * error <= np.mean(shares) <= 0.98 + 2 * error


@pytest.mark.parametrize(("sizes", "name", "labels"), [
    ({"n": 64, "alpha": 0.5}, "", ["axpy(n=64, alpha=0.5)"]),
    ({"alpha": np.float64(0.5), "n": 64.0}, "", ["axpy(n=64, alpha=0.5)"]),
    ({"n": np.array([64, 128]), "alpha": 0.25}, "own", ["own(n=64, alpha=0.25)", "own(alpha=0.25, n=128)"]),
    ({"n": 64, "alpha": np.nan}, "", ["axpy(n=64, alpha=nan)"]),
])  # fmt: skip
def test_kernels_are_known_at_sizes_of_any_type_in_any_order(sizes, name, labels):
    known = ("axpy(n=64, alpha=0.5)", "axpy(n=64, alpha=0)", "own(alpha=0.25, n=128)")
    prior = SimpleNamespace(kernels=known, programs=("axpy", "own"))
    assert [label for label, _ in known_as(prior, axpy(), sizes, name)] == labels


def test_sources_of_one_device_are_told(world):
    source = replace(world[0][0], device={"name": "A GPU"})
    with pytest.warns(PerflexWarning) as told:
        transfer([source, source])
    assert str(told[0].message).startswith(
        "A GPU is the device of several sources, which count as devices of their own"
    )


@pytest.mark.parametrize("sources", [["general_gpu"], "general_gpu", [None]])
def test_what_is_no_calibration_is_no_source(sources):
    with pytest.raises(CalibrationError, match="sources are calibrations, in a list, not"):
        transfer(sources)


@pytest.mark.parametrize(("source", "machine", "told"), [
    ("matmul_sq_amd_epyc_4cores_pocl", "V100", "V100 is a GPU, and the calibration is of .*, a CPU"),
    ("general_gpu_h100_cuda", "EPYC-7452", "EPYC-7452 is a CPU, and the calibration is of .*, a GPU"),
])  # fmt: skip
def test_costs_of_a_cpu_are_not_carried_over_to_a_gpu(source, machine, told):
    with pytest.raises(MachineError, match=told):
        transfer([Calibration.load(source)], machine=machine)
