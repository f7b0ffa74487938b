"""Do intervals hold what they promise? Coverage of intervals of costs and of predictions, beside simpler intervals.

    python tests/bench/interval_coverage.py                    # all three parts, about two minutes
    python tests/bench/interval_coverage.py costs --fits 200
    python tests/bench/interval_coverage.py noise --fits 100
    python tests/bench/interval_coverage.py generators

``costs``: simulated measurements of two features, 0.5 % apart or well separated; the share of fits whose 95 %
interval of each cost holds its true value, and how wide it is. Beside it the linearised interval, value +- t * standard
error.

``noise``: kernels whose times vary by 15, 5 and 2 % where they are short, middle and long. The noise is once known to
the calibration from samples, once not at all. Share of new kernels inside, for each of the three.

``generators``: shipped calibrations. Each generator in turn is left out of everything: parameters, noise, and the
model term come from fits to the others (and the model term from fits without one of those). Its kernels are then
predicted. Beside it the interval of equal residuals and linearised errors, with the same knowledge. A width is the
factor between the prediction and a limit, the geometric mean of both limits.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from scipy import stats

from perflex import Calibration, FeatureTable, Model, calibration_names, fit_model, load_calibration
from perflex.calibration.calibrating import calibration_from_table
from perflex.calibration.held_out import refits_by_generator
from perflex.calibration.interval import interval_at
from perflex.errors import CalibrationError
from perflex.fit.table import scale_features_by_output

OUTPUT = "f_cl_wall_time_test"
FEATURES = ("f_op_float32_add", "f_op_float32_mul", "f_op_float32_div")
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul + p_c * f_op_float32_div")
LEVEL = 0.95


def table_of(counts: np.ndarray, seconds: np.ndarray, spread: np.ndarray | None = None) -> FeatureTable:
    labels = tuple(f"kernel{i}" for i in range(len(counts)))
    return FeatureTable(OUTPUT, (OUTPUT, *FEATURES), labels, np.column_stack([seconds, counts]), spread=spread)


def linearised(value: float, error: float, freedom: int) -> tuple[float, float]:
    reach = stats.t.ppf((1 + LEVEL) / 2, freedom) * np.nan_to_num(error)
    return value - reach, value + reach


def costs(fits: int) -> None:
    print(f"intervals of costs, {fits} fits each: coverage of p_a and p_b (median width over the true cost)")
    cases = [
        ("0.5 % apart, 5 % noise", 0.005, 0.05, 30, (1.0, 1.0)),
        ("0.5 % apart, 2 % noise", 0.005, 0.02, 30, (1.0, 1.0)),
        ("5 % apart, 5 % noise", 0.05, 0.05, 30, (1.0, 1.0)),
        ("5 % apart, second cost 0", 0.05, 0.05, 30, (1.0, 0.0)),
        ("well separated, 30 rows", None, 0.05, 30, (1.0, 1.0)),
        ("well separated, 140 rows", None, 0.10, 140, (1.0, 1.0)),
        ("well separated, second cost 0", None, 0.05, 30, (1.0, 0.0)),
    ]
    for name, apart, noise, rows, truth in cases:
        held, simple, widths, at_zero = [], [], [], 0
        for seed in range(fits):
            random = np.random.default_rng(seed)
            first = 10 ** random.uniform(3, 6, rows)
            second = 10 ** random.uniform(3, 6, rows)
            if apart is not None:
                second = first * np.exp(apart * random.normal(size=rows))
            counts = np.column_stack([first, second, np.full(rows, 1e4)])
            exact = counts @ np.array([*truth, 1.0]) * 1e-9
            table = table_of(counts, exact * (1 + noise * random.normal(size=rows)))
            fit = fit_model(MODEL, scale_features_by_output(table), nonnegative=True)
            found = [fit.interval(name) for name in ("p_a", "p_b")]
            pairs = list(zip(found, truth, strict=True))
            held.append([low <= 1e-9 * true <= high for (low, high), true in pairs])
            widths.append([(high - low) * 1e9 for low, high in found])
            naive = [linearised(p.value, p.standard_error, fit.degrees_of_freedom) for p in fit.parameters[:2]]
            simple.append([low <= 1e-9 * t <= high for (low, high), t in zip(naive, truth, strict=True)])
            at_zero += bool(set(fit.at_bound) & {"p_a", "p_b"})
        first, second = np.mean(held, axis=0)
        wide = np.median(widths, axis=0)
        text = f"{100 * first:5.1f} {100 * second:5.1f} %  ({wide[0]:.3g}, {wide[1]:.3g})"
        a, b = 100 * np.mean(simple, axis=0)
        print(f"  {name:32s} one at zero in {100 * at_zero / fits:3.0f} %: {text}   linearised {a:5.1f} {b:5.1f} %")


def noisy(random: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return counts, exact times and the true relative noise of kernels in three sizes."""
    group = np.arange(rows) % 3
    counts = 10 ** random.uniform(3.0, 3.8, (rows, 3)) * 30.0 ** group[:, None] * (0.1 + random.random((rows, 3)))
    noise = np.array([0.15, 0.05, 0.02])[group]
    return counts, counts @ np.array([1e-9, 3e-10, 2e-8]), noise


def noise(fits: int) -> None:
    print(f"prediction intervals, noise of 15, 5 and 2 % for short, middle and long kernels, {fits} calibrations each")
    for name in ("spread known", "repeatability known", "nothing known"):
        held: list[np.ndarray] = []
        simple: list[np.ndarray] = []
        width: list[np.ndarray] = []
        for seed in range(fits):
            random = np.random.default_rng(seed)
            counts, exact, size = noisy(random, 45)
            new, true, its = noisy(random, 60)
            seconds, measured = (t * np.exp(s * random.normal(size=len(t))) for t, s in ((exact, size), (true, its)))
            table = table_of(counts, seconds)
            if name != "nothing known":
                # Medians of 9 samples each: the spread is that of samples, three times the noise of their median.
                samples = np.exp(2.4 * size[:, None] * random.normal(size=(len(size), 9)))
                low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75), axis=1)
                halves = np.abs(random.normal(size=len(size))) * size * np.sqrt(2)
                column = {"spread": (high - low) / middle} if name == "spread known" else {"repeatability": halves}
                table = FeatureTable(table.output, table.features, table.kernels, table.values, **column)
            calibration = calibration_from_table(MODEL, table)
            values = dict(zip(FEATURES, new.T, strict=True))
            found = interval_at(calibration, values, LEVEL)
            held.append((found.low <= measured) & (measured <= found.high))
            width.append(np.log(found.high / found.low) / 2)
            plain = simple_interval(calibration, values)
            simple.append((plain[0] <= measured) & (measured <= plain[1]))
        groups = np.arange(60) % 3
        parts = [
            " ".join(f"{100 * np.array(which)[:, groups == g].mean():5.1f}" for g in range(3))
            for which in (held, simple)
        ]
        widths = " ".join(f"{np.exp(np.array(width)[:, groups == g].mean()):.3f}" for g in range(3))
        print(f"  {name:20s} {parts[0]} %  (width factors {widths})   equal residuals {parts[1]} %")


def simple_interval(calibration: Calibration, values: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the textbook interval of a relative fit: equal residuals, linearised errors, bounds taken for certain."""
    fit, model = calibration.fit, calibration.model
    predicted = np.asarray(model.evaluate(fit, values))
    gradient = model.compiled.derivatives({**values, **fit}, len(predicted))
    covariance = np.nan_to_num(fit.covariance)
    variance = np.einsum("ri,ij,rj->r", gradient, covariance, gradient) / predicted**2
    deviation = fit.residual_norm / np.sqrt(fit.degrees_of_freedom)
    reach = stats.t.ppf((1 + LEVEL) / 2, fit.degrees_of_freedom) * np.sqrt(variance + deviation**2)
    return predicted * np.exp(-reach), predicted * np.exp(reach)


def generators() -> None:
    print("held-out generators of shipped calibrations: kernels inside their 95 % intervals")
    for name in calibration_names():
        calibration = load_calibration(name)
        assert calibration.table is not None
        held: list[bool] = []
        simple: list[bool] = []
        width: list[float] = []
        plain_width: list[float] = []
        whole, errors = 0, []
        start = calibration.fit
        refits = refits_by_generator(calibration.model, calibration.table, nonnegative=True, start=start)
        for refit in refits:
            if refit.fit is None:
                continue
            part = Calibration(calibration.model, refit.fit, table=refit.rest)
            values = {feature: refit.own.column(feature) for feature in calibration.model.input_features()}
            measured = refit.own.column(calibration.model.output_feature)
            try:
                found = interval_at(part, values, LEVEL)
            except CalibrationError as error:
                print(f"    {refit.generator}: {error}")
                continue
            inside = (found.low <= measured) & (measured <= found.high)
            plain = simple_interval(part, values)
            held += inside.tolist()
            whole += bool(inside.mean() >= LEVEL)
            simple += ((plain[0] <= measured) & (measured <= plain[1])).tolist()
            width += (np.log(found.high / found.low) / 2).tolist()
            plain_width += (np.log(plain[1] / plain[0]) / 2).tolist()
            errors.append(refit.generator)
        print(
            f"  {name:42s} {100 * np.mean(held):5.1f} % of {len(held)} kernels ({whole} of {len(errors)} generators "
            f"whole), width factor median {np.exp(np.median(width)):.2f}, geometric mean {np.exp(np.mean(width)):.2f}, "
            f"largest {np.exp(np.max(width)):.3g}; simple {100 * np.mean(simple):5.1f} %, median "
            f"{np.exp(np.median(plain_width)):.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", help="costs, noise, generators; all by default")
    parser.add_argument("--fits", type=int, default=200, help="simulated calibrations of each case")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    chosen = options.parts or ["costs", "noise", "generators"]
    if "costs" in chosen:
        costs(options.fits)
    if "noise" in chosen:
        noise(options.fits)
    if "generators" in chosen:
        generators()


if __name__ == "__main__":
    main()
