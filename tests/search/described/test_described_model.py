"""The analytic model of described kernels, its learned correction, and the tuner, on times of a known model."""

import numpy as np
import pytest

from perflex import DescribedSpace, Promise, SearchOptions, Tuner, load_description, tune
from perflex.errors import CalibrationError, MeasurementError
from perflex.search.described.description import description_names
from perflex.search.described.space import AnalyticFit
from perflex.search.gaussian_process import GaussianProcess
from support.described_data import TRUTH, convolution_space, times_of


def error(predicted, times):
    return float(np.expm1(np.mean(np.abs(np.log(predicted / times)))))


def batch(space, count, seed=0):
    return np.random.default_rng(seed).choice(len(space), count, replace=False)


def fitted(count, change=lambda times: times, **how):
    """Return the fit to some measurements of the space, and the true times of all of it."""
    space = convolution_space()
    times = times_of(space, **how)
    index = batch(space, count)
    return space.fit_analytic(index, change(times[index])), times


def test_few_measurements_determine_a_model_with_priors():
    found, times = fitted(50)
    assert found.reading == 0
    assert error(found.predicted, times) < 0.06
    assert found.fit.parameters["p_time"] == pytest.approx(TRUTH["p_time"], rel=0.5)


def test_fit_does_not_depend_on_the_unit():
    in_s, _ = fitted(60, lambda times: 1e-3 * times)
    assert in_s.predicted == pytest.approx(fitted(60)[0].predicted * 1e-3, rel=1e-2)


def test_a_few_freaks_do_not_bend_the_rest():
    found, times = fitted(80, lambda times: times * np.where(np.arange(80) < 4, 30, 1))
    assert error(found.predicted, times) < 0.12


def test_measurements_tell_a_build_that_ignores_a_tunable():
    found, times = fitted(60, reading=1)
    assert found.reading == 1
    assert error(found.predicted, times) < 0.08


@pytest.mark.slow
@pytest.mark.parametrize("name", description_names())
@pytest.mark.parametrize("device", ["Some Future GPU", "MI250X", ""])
def test_unknown_devices_work(name, device):
    description = load_description(name)
    whole = description.space()
    some = np.random.default_rng(0).choice(len(next(iter(whole.values()))), 60, replace=False)
    space = DescribedSpace(description, {key: column[some] for key, column in whole.items()}, device)
    drawn = np.exp(np.random.default_rng(1).normal(0, 0.3, 60))
    assert (space.fit_analytic(np.arange(30), drawn[:30]).predicted > 0).all()


def test_shares_say_what_a_cost_adds():
    space = convolution_space(40)
    fit = AnalyticFit(space.description, TRUTH, 0.0, 0.0)
    shares = fit.shares(space.readings[0])
    assert np.sum(list(shares.values()), axis=0) == pytest.approx(np.ones(40))
    for name in ("p_local", "p_latency"):
        less = AnalyticFit(space.description, TRUTH | {name: TRUTH[name] * 0.999}, 0.0, 0.0)
        fallen = 1 - less.predict(space.readings[0]) / fit.predict(space.readings[0])
        assert shares[name] == pytest.approx(1e3 * fallen, rel=1e-2, abs=1e-6)


@pytest.mark.parametrize("times", [[], [1.0, -1.0], [1.0, np.nan]])
def test_times_must_be_times(times):
    space = convolution_space(50)
    with pytest.raises(CalibrationError, match="positive and finite"):
        space.fit_analytic(np.arange(len(times)), np.array(times))


def test_correction_learns_what_the_model_does_not_know():
    space = convolution_space()
    unknown = 1 + 0.8 * (space.settings["tile_size_y"] == 3) * (space.settings["use_shmem"] == 1)
    times = times_of(space) * unknown
    index = batch(space, 150)
    analytic = space.fit_analytic(index, times[index])
    found = GaussianProcess().forecast(analytic, index, times[index])
    rest = np.setdiff1d(np.arange(len(space)), index)
    assert error(np.exp(found.logs[rest]), times[rest]) < 0.6 * error(analytic.predicted[rest], times[rest])
    assert sorted(found.order) == list(range(len(space)))


@pytest.mark.slow
def test_tuner_finds_the_best_and_survives_failures():
    space = convolution_space(400)
    times = times_of(space)
    times[np.argsort(times)[3:40:4]] = np.nan
    found = tune(space, measure=lambda v: float(times[v.number]), options=SearchOptions(measurements=40))
    assert len({step.number for step in found.history}) == len(found.history) == 40
    assert found.best.seconds == times[found.best.number] <= 1.05 * np.nanmin(times)
    assert found.best.settings == {name: column[found.best.number] for name, column in space.settings.items()}
    assert found.promise is None
    with pytest.raises(CalibrationError, match="build it yourself"):
        found.kernel()


def test_a_promise_ends_the_search_of_a_described_space():
    space = convolution_space(300)
    times = times_of(space)
    found = tune(space, measure=lambda v: float(times[v.number]), options=SearchOptions(300, promise=Promise(0.2, 0.9)))
    assert found.kept_promise
    assert len(found.history) < 200
    assert found.best.seconds <= 1.2 * times.min()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "give your own function as measure"),
        ({"device": "A100"}, "give your own function as measure"),
        ({"measure": lambda _: 1.0, "machine": "V100"}, "no sizes, calibration or machine"),
        ({"measure": lambda _: 1.0, "device": "A100"}, "leave one out"),
        ({"measure": lambda _: None}, "must be a number, nan if it failed"),
        ({"measure": lambda _: "CompilationFailedConfig"}, "must be a number, nan if it failed"),
        ({"measure": lambda _: float("inf")}, r"none of the 30 variants .* measure returned no time \(30\)"),
    ],
)
def test_what_cannot_be_measured_is_refused(given, message):
    with pytest.raises((CalibrationError, MeasurementError), match=message):
        tune(convolution_space(60), options=SearchOptions(30), **given)


def test_a_described_space_is_asked_and_told():
    space = convolution_space(60)
    times = times_of(space)
    tuner = Tuner(space, options=SearchOptions(40))
    while asked := tuner.ask(5):
        for each in asked:
            tuner.tell(each.settings, times[each.number])
    assert len(tuner.history) == 40
    assert error(tuner.predicted, times) < 0.1
    for which, text in ((60, "no variant 60"), (tuner.history[0].name, "already has a time")):
        with pytest.raises(CalibrationError, match=text):
            tuner.tell(which, 1.0)
    with pytest.raises(CalibrationError, match="its own prior"):
        Tuner(space, prior=np.ones(60))
