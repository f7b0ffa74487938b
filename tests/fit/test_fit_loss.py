"""The loss soft_l1: what wrong rows do to it, against scipy, simulated truth and Huber's formulas."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import least_squares

from perflex import FeatureTable, FitOptions, Model, fit_model
from perflex.errors import PerflexWarning
from perflex.fit.problem import SoftL1, pose, robust_loss

OUTPUT = "f_cl_wall_time_test"
LINEAR = Model(OUTPUT, "p_a * f_thread_groups + p_b * f_waves + p_launch")
OVERLAP = Model(OUTPUT, "p_launch + p_a * f_thread_groups + overlap(p_b * f_waves, p_c * f_sync_barrier_local, p_edge)")
TRUTH = {"p_a": 1e-11, "p_b": 3e-10, "p_launch": 2e-6, "p_c": 8e-11, "p_edge": 1e5}
ROWS = 50


def truth_of(model: Model) -> dict[str, float]:
    return {name: TRUTH[name] for name in model.params()}


def counted(model: Model, random: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: 10 ** random.uniform(3, 7, ROWS) for name in model.input_features()}


def table_of(model: Model, inputs: dict[str, np.ndarray], seconds: np.ndarray) -> FeatureTable:
    labels = tuple(f"kernel {i}" for i in range(len(seconds)))
    return FeatureTable(OUTPUT, (OUTPUT, *inputs), labels, np.column_stack([seconds, *inputs.values()]))


def spoilt(seconds: np.ndarray, random: np.random.Generator, factors: str) -> np.ndarray:
    rows = random.choice(len(seconds), 3, replace=False)
    wrong = {
        "doubled": np.full(3, 2.0),
        "halved": np.full(3, 0.5),
        "any": random.uniform(2, 7, 3) ** random.choice([-1, 1], 3),
    }[factors]
    result = seconds.copy()
    result[rows] *= wrong
    return result


def errors(model: Model, loss: str, noise: float, factors: str = "", count: int = 30) -> np.ndarray:
    """Return relative errors of fits against the truth, shape (tables, rows)."""
    found = []
    for seed in range(count):
        random = np.random.default_rng(seed)
        inputs = counted(model, random)
        seconds = np.asarray(model.evaluate(truth_of(model), inputs))
        noisy = seconds * np.abs(1 + noise * random.normal(size=ROWS))
        table = table_of(model, inputs, spoilt(noisy, random, factors) if factors else noisy)
        fit = fit_model(model, table, FitOptions(on_undetermined="warn", loss=loss))  # type: ignore[arg-type]
        found.append(np.asarray(model.evaluate(fit, inputs)) / seconds - 1)
    return np.array(found)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(values**2)))


@pytest.mark.parametrize(
    ("factors", "model", "moved", "tables"),
    [
        pytest.param("doubled", LINEAR, 0.02, 10, id="doubled-linear"),
        pytest.param("halved", LINEAR, 0.02, 10, id="halved-linear"),
        pytest.param("any", LINEAR, 0.02, 10, id="any-linear"),
        pytest.param("doubled", OVERLAP, 0.05, 3, id="doubled-overlap"),
        pytest.param("any", OVERLAP, 0.05, 10, id="any-overlap", marks=pytest.mark.slow),
    ],
)
def test_three_wrong_rows_in_fifty_move_predictions_little(
    model: Model, factors: str, moved: float, tables: int
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PerflexWarning)
        robust, squared = (rms(errors(model, loss, 0.02, factors, tables)) for loss in ("soft_l1", "squared"))
    assert robust < moved
    assert squared > 1.4 * robust


def test_clean_rows_are_fitted_as_well_as_by_squares() -> None:
    # 95 % efficiency is 2.6 % more deviation; squares pay for their bias.
    assert rms(errors(LINEAR, "soft_l1", 0.05)) < 1.05 * rms(errors(LINEAR, "squared", 0.05))


def test_noise_in_the_output_does_not_pull_predictions_down() -> None:
    noise, pulled = 0.1, -0.02
    squared = float(errors(LINEAR, "squared", noise).mean())
    assert squared == pytest.approx(pulled, abs=0.015)
    # The median of the noise is 1; its logarithm's skewness is left, and chance.
    assert abs(float(errors(LINEAR, "soft_l1", noise).mean())) < 0.4 * abs(pulled)


@pytest.mark.parametrize("model", [LINEAR, OVERLAP], ids=["linear", "overlap"])
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize("relative", [False, True])
def test_exact_data_are_fitted_to_the_last_digits(model: Model, nonnegative: bool, relative: bool) -> None:
    inputs = counted(model, np.random.default_rng(4))
    table = table_of(model, inputs, np.asarray(model.evaluate(truth_of(model), inputs)))
    fit = fit_model(model, table, FitOptions(nonnegative=nonnegative, loss="soft_l1", relative=relative))
    assert dict(fit) == pytest.approx(truth_of(model), rel=1e-8, abs=0)
    assert max(map(abs, fit.relative_errors)) < 1e-11
    assert fit.status.valid


def test_exact_rows_outvote_wrong_ones() -> None:
    random = np.random.default_rng(1)
    inputs = counted(LINEAR, random)
    seconds = np.asarray(LINEAR.evaluate(truth_of(LINEAR), inputs))
    fit = fit_model(LINEAR, table_of(LINEAR, inputs, spoilt(seconds, random, "any")), FitOptions(loss="soft_l1"))
    assert dict(fit) == pytest.approx(truth_of(LINEAR), rel=1e-3, abs=0)


@pytest.mark.filterwarnings("ignore:negative costs were fitted")
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_estimates_are_scipys_at_the_same_scale(relative: bool, seed: int) -> None:
    random = np.random.default_rng(seed)
    inputs = counted(LINEAR, random)
    seconds = spoilt(np.asarray(LINEAR.evaluate(truth_of(LINEAR), inputs)), random, "any")
    seconds *= np.exp(0.05 * random.normal(size=ROWS))
    options = FitOptions(nonnegative=False, loss="soft_l1", relative=relative)
    fit = fit_model(LINEAR, table_of(LINEAR, inputs, seconds), options)
    values = np.array(list(fit.values()))

    def residual(factors: np.ndarray) -> np.ndarray:
        model = np.asarray(LINEAR.evaluate(dict(zip(LINEAR.params(), factors * values, strict=True)), inputs))
        return np.log(model / seconds) if relative else (model - seconds) / seconds.max()

    scale = fit.loss_scale if relative else fit.loss_scale / seconds.max()  # type: ignore[operator]
    found = least_squares(residual, [1.1, 0.9, 1.05], loss="soft_l1", f_scale=scale, xtol=1e-15, ftol=1e-15, gtol=1e-15)
    # Beside what is known of each: in seconds, the launch is next to nothing.
    deviation = np.array([p.standard_error for p in fit.parameters])
    assert (np.abs((found.x - 1) * values) < 1e-4 * deviation).all()


def test_absolute_errors_have_no_logarithms() -> None:
    # Outputs below zero, which have no logarithm.
    random = np.random.default_rng(0)
    inputs = counted(LINEAR, random)
    model = Model(OUTPUT, "p_a * f_thread_groups - p_b * f_waves")
    exact = 2.0 * inputs["f_thread_groups"] - 5.0 * inputs["f_waves"]
    wrong = exact + 1e3 * random.normal(size=ROWS)
    wrong[:3] += 1e8
    fit = fit_model(
        model, table_of(model, inputs, wrong), FitOptions(nonnegative=False, loss="soft_l1", relative=False)
    )
    assert dict(fit) == pytest.approx({"p_a": 2.0, "p_b": 5.0}, rel=1e-3)


def test_a_cost_that_is_zero_is_held_at_its_bound() -> None:
    random = np.random.default_rng(3)
    model = Model(OUTPUT, "p_a * f_thread_groups + p_b * f_waves + p_launch")
    inputs = counted(model, random)
    seconds = (1e-11 * inputs["f_thread_groups"] + 2e-6) * (1 - 0.02 * np.tanh(inputs["f_waves"] / 1e5))
    fit = fit_model(model, table_of(model, inputs, seconds), FitOptions(loss="soft_l1"))
    assert fit.at_bound == ("p_b",)
    problem = pose(model, table_of(model, inputs, seconds)).under(SoftL1(fit.loss_scale))  # type: ignore[arg-type]
    x = np.array(list(fit.values()))
    gradient = problem.jacobian(x).T @ problem.residual(x) * np.array([1e-11, 1e-10, 2e-6])
    order = dict(zip(model.params(), gradient, strict=True))
    # Free parameters have no slope, and leaving the bound would raise the loss.
    assert order["p_b"] > 0
    assert abs(order["p_a"]) < 1e-6 * order["p_b"]
    assert fit.degrees_of_freedom == ROWS - 2


def test_standard_errors_are_hubers() -> None:
    random = np.random.default_rng(5)
    inputs = counted(LINEAR, random)
    seconds = np.asarray(LINEAR.evaluate(truth_of(LINEAR), inputs)) * np.exp(0.05 * random.standard_t(2, ROWS))
    fit = fit_model(LINEAR, table_of(LINEAR, inputs, seconds), FitOptions(loss="soft_l1"))
    model = np.asarray(LINEAR.evaluate(fit, inputs))
    columns = {"p_a": inputs["f_thread_groups"], "p_b": inputs["f_waves"], "p_launch": np.ones(ROWS)}
    jacobian = np.column_stack([columns[name] * fit[name] for name in LINEAR.params()]) / model[:, None]
    u = np.log(model / seconds) / fit.loss_scale
    psi, slope = fit.loss_scale * u / np.sqrt(1 + u**2), (1 + u**2) ** -1.5  # type: ignore[operator]
    correction = 1 + 3 / ROWS * slope.var() / slope.mean() ** 2
    variance = correction**2 * (psi @ psi / (ROWS - 3)) / slope.mean() ** 2 * np.linalg.inv(jacobian.T @ jacobian)
    relative = [p.standard_error / p.value for p in fit.parameters]
    np.testing.assert_allclose(relative, np.sqrt(np.diag(variance)), rtol=1e-6)
    assert fit.residual_norm == pytest.approx(np.linalg.norm(np.log(model / seconds)), rel=1e-9)


@pytest.mark.parametrize(
    ("factors", "low", "seeds"),
    [
        ("", 0.92, 80),
        pytest.param("any", 0.90, 150, marks=pytest.mark.slow),
    ],
)
def test_intervals_of_parameters_hold_the_truth(factors: str, low: float, seeds: int) -> None:
    inside = []
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        inputs = counted(LINEAR, random)
        seconds = np.asarray(LINEAR.evaluate(truth_of(LINEAR), inputs)) * np.exp(0.05 * random.normal(size=ROWS))
        table = table_of(LINEAR, inputs, spoilt(seconds, random, factors) if factors else seconds)
        fit = fit_model(LINEAR, table, FitOptions(loss="soft_l1"))
        # 2.012: Student's t with 47 degrees of freedom.
        inside += [abs(p.value - TRUTH[p.name]) < 2.012 * p.standard_error for p in fit.parameters]
    assert low < np.mean(inside) < 0.98


def test_the_deviation_is_that_of_good_residuals() -> None:
    random = np.random.default_rng(0)
    normal = random.normal(size=20_000)
    assert robust_loss(normal, len(normal), 0.0)[1] == pytest.approx(1.0, abs=0.02)
    normal[:1200] *= 1e6
    loss, deviation = robust_loss(normal, len(normal), 0.0)
    assert 1.0 < deviation < 1.3
    # Huber's Proposal 2: its equation holds.
    psi = loss.influence(normal)
    assert psi @ psi / len(normal) == pytest.approx(0.444845 * deviation**2, rel=1e-6)
    assert robust_loss(np.zeros(5), 3, 1e-3)[1] == 0.0
    assert robust_loss(np.zeros(5), 3, 1e-3)[0].scale == pytest.approx(1.287e-3, rel=1e-3)
