"""Errors of held-out kernels under the losses of `fit_model`: `python tests/bench/robust_fits.py [CALIBRATION ...]`.

On simulated measurements, whose truth is known; on the tables of the shipped calibrations, and of others given as
arguments; and on any table of recorded times:

    --csv FILE --model "p_launch + p_byte * f_rows * f_cols" --output time_s --group op [--where device=V100]

where f_NAME is the file's column NAME. Kernels are held out in ten random parts, and generator by generator. Training
rows are as recorded, or 3 in 50 of them are spoilt: doubled, halved, or multiplied by a factor from 2 to 7 either way.
Errors are of the unspoilt times of held-out rows, beside two baselines with the same knowledge: the training rows'
geometric mean, and the one feature that is most nearly in proportion to their times.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import perflex.features
from perflex import Calibration, FeatureTable, Model, fit_model, scale_features_by_output
from perflex.calibration.shipped import calibration_names, load_calibration
from perflex.errors import CalibrationError

Array = NDArray[np.float64]
Predictor = Callable[[Model, FeatureTable, FeatureTable], Array]
Folds = list[NDArray[np.intp]]
Ratios = dict[tuple[str, str], list[dict[str, float]]]

METHODS = ("squared", "soft_l1", "one feature", "geometric mean")
SHARE = 3 / 50


def spoilt(table: FeatureTable, kind: str, random: np.random.Generator) -> FeatureTable:
    """Return the table with some outputs multiplied by wrong factors."""
    count = 0 if kind == "clean" else max(1, round(SHARE * len(table)))
    rows = random.choice(len(table), count, replace=False)
    factors = {
        "doubled": np.full(count, 2.0),
        "halved": np.full(count, 0.5),
        "2 to 7": random.uniform(2, 7, count) ** random.choice([-1, 1], count),
        "clean": np.ones(count),
    }[kind]
    values = table.values.copy()
    values[rows, 0] *= factors
    return scale_features_by_output(
        FeatureTable(table.output, table.features, table.kernels, values, groups=table.groups)
    )


def fitted(loss: str) -> Predictor:
    """Return predictions by a fit under a loss."""

    def predict(model: Model, train: FeatureTable, test: FeatureTable) -> Array:
        fit = fit_model(model, train, nonnegative=True, loss=loss)  # type: ignore[arg-type]
        return values_of(model, fit, test)

    return predict


def values_of(model: Model, parameters: object, table: FeatureTable) -> Array:
    """Return a model's values for a table."""
    inputs = {name: table.column(name) for name in model.input_features()}
    return np.broadcast_to(np.asarray(model.evaluate(parameters, inputs)), (len(table),))  # type: ignore[arg-type]


def by_geometric_mean(model: Model, train: FeatureTable, test: FeatureTable) -> Array:
    """Predict the training rows' geometric mean for all."""
    return np.full(len(test), np.exp(np.log(train.values[:, 0]).mean()))


def by_one_feature(model: Model, train: FeatureTable, test: FeatureTable) -> Array:
    """Predict times in proportion to the one feature whose ratios to the training times scatter least."""
    best, level, spread = 0, 0.0, math.inf
    for column in range(1, train.values.shape[1]):
        if (train.values[:, column] > 0).all() and (test.values[:, column] > 0).all():
            ratios = np.log(train.values[:, 0] / train.values[:, column])
            scatter = float(np.median(np.abs(ratios - np.median(ratios))))
            if scatter < spread:
                best, level, spread = column, float(np.median(ratios)), scatter
    return test.values[:, best] * math.exp(level) if best else by_geometric_mean(model, train, test)


PREDICTORS: dict[str, Predictor] = {
    "squared": fitted("squared"),
    "soft_l1": fitted("soft_l1"),
    "one feature": by_one_feature,
    "geometric mean": by_geometric_mean,
}


def random_folds(table: FeatureTable, seed: int) -> Folds:
    """Return ten random parts."""
    return np.array_split(np.random.default_rng(seed).permutation(len(table)), min(10, len(table)))


def generator_folds(table: FeatureTable) -> Folds:
    """Return a part per generator; none if there are fewer than three."""
    owners = np.array(table.groups or [label.partition("(")[0] for label in table.kernels])
    names = list(dict.fromkeys(owners.tolist()))
    return [np.flatnonzero(owners == name) for name in names] if len(names) > 2 else []


def held_out(
    model: Model, table: FeatureTable, folds: Folds, kind: str, seed: int
) -> tuple[dict[str, list[Array]], int]:
    """Return (predicted - measured) / measured and the loss of the predicted best per method, and failures."""
    found: dict[str, list[Array]] = {name: [] for name in METHODS}
    failures = 0
    for number, rows in enumerate(folds):
        rest = np.setdiff1d(np.arange(len(table)), rows)
        train = spoilt(table.take(rest.tolist()), kind, np.random.default_rng((seed, number)))
        test = table.take(rows.tolist())
        truth = test.values[:, 0]
        try:
            predicted = {name: PREDICTORS[name](model, train, test) for name in METHODS}
        except CalibrationError:
            failures += 1
            continue
        for name, values in predicted.items():
            chosen = truth[int(np.argmin(values))] / truth.min() - 1
            found[name].append(np.array([*(values / truth - 1), chosen]))
    return found, failures


def report(
    title: str, scheme: str, model: Model, table: FeatureTable, folds: Folds, repeats: int, ratios: Ratios
) -> None:
    """Print a table per kind of training rows."""
    if not folds:
        return
    for kind in ("clean", "doubled", "halved", "2 to 7"):
        pooled: dict[str, list[Array]] = {name: [] for name in METHODS}
        failures = 0
        for seed in range(1 if kind == "clean" else repeats):
            errors_of, failed = held_out(model, table, folds, kind, seed)
            failures += failed
            for name in METHODS:
                pooled[name] += errors_of[name]
        if not pooled["squared"]:
            continue
        print(
            f"\n{title}, {scheme}, training rows {kind}"
            + (f" ({failures} parts do not determine the model)" if failures else "")
        )
        found = {name: measures(pooled[name]) for name in METHODS}
        for name, errors in found.items():
            print(f"  {name:15}" + "".join(f"  {what} {value:.2f}" for what, value in errors.items()) + " %")
        least = 1e-9
        ratios.setdefault((scheme, kind), []).append(
            {what: (found["soft_l1"][what] + least) / (found["squared"][what] + least) for what in found["squared"]}
        )


def measures(folds: list[Array]) -> dict[str, float]:
    """Return the errors of a method, in percent."""
    errors = np.concatenate([fold[:-1] for fold in folds])
    sizes, best = 100 * np.abs(errors), 100 * float(np.mean([fold[-1] for fold in folds]))
    with np.errstate(divide="ignore"):
        logs = np.abs(np.log(np.maximum(errors + 1, 1e-3)))
    return {
        "median": float(np.median(sizes)),
        "p90": float(np.percentile(sizes, 90)),
        "max": float(sizes.max()),
        "rms": float(np.sqrt(np.mean(sizes**2))),
        "rms of logarithms": float(100 * np.sqrt(np.mean(logs**2))),
        "mean": float(100 * errors.mean()),
        "loss of the predicted best": best,
    }


def summary(ratios: Ratios) -> None:
    """Print the geometric mean over tables of soft_l1's error as a share of squared's."""
    for (scheme, kind), entries in ratios.items():
        names = ("median", "p90", "max", "rms", "rms of logarithms")
        means = {name: math.exp(float(np.mean([math.log(entry[name]) for entry in entries]))) for name in names}
        text = "  ".join(f"{name} {value:.3f}" for name, value in means.items())
        print(f"soft_l1 / squared, {len(entries)} tables, {scheme}, {kind:7}: {text}")


def simulated(repeats: int) -> None:
    """Print errors of predictions against the truth, over noise and wrong rows; fifty rows, four costs."""
    model = Model("f_cl_wall_time_bench", "p_launch + p_a * f_a + overlap(p_b * f_b, p_c * f_c, p_edge)")
    truth = {"p_launch": 4e-6, "p_a": 3e-12, "p_b": 1e-11, "p_c": 2e-11, "p_edge": 1e5}
    for noise in (0.0, 0.02, 0.05, 0.1, 0.2):
        for kind in ("clean", "doubled", "halved", "2 to 7"):
            errors: dict[str, list[Array]] = {loss: [] for loss in METHODS[:2]}
            for seed in range(repeats):
                random = np.random.default_rng(seed)
                counts = 10 ** random.uniform(4, 8, (50, 3))
                seconds = values_of_counts(model, truth, counts)
                noisy = seconds * np.abs(1 + noise * random.normal(size=50))
                table = spoilt(table_of(model, noisy, counts), kind, random)
                for loss, rows in errors.items():
                    fit = fit_model(model, table, nonnegative=True, on_undetermined="warn", loss=loss)  # type: ignore[arg-type]
                    rows.append(values_of_counts(model, fit, counts) / seconds - 1)
            for loss, found in errors.items():
                each = np.array(found)
                print(
                    f"noise {100 * noise:4.0f} %, {kind:8} {loss:8} bias {100 * each.mean():+6.2f} %  "
                    f"rms {100 * np.sqrt(np.mean(each**2)):6.2f} %  max {100 * np.abs(each).max():6.1f} %"
                )


def values_of_counts(model: Model, parameters: object, counts: Array) -> Array:
    """Return a model's values for columns of counts."""
    return np.asarray(model.evaluate(parameters, dict(zip(model.input_features(), counts.T, strict=True))))  # type: ignore[arg-type]


def table_of(model: Model, seconds: Array, counts: Array, groups: tuple[str, ...] = ()) -> FeatureTable:
    """Return a table of times and counts, with the output in the first column."""
    features = (model.output_feature, *model.input_features())
    labels = tuple(f"kernel {i}" for i in range(len(seconds)))
    table = FeatureTable(model.output_feature, features, labels, np.column_stack([seconds, counts]), groups)
    return scale_features_by_output(table)


def from_csv(options: argparse.Namespace) -> tuple[Model, FeatureTable]:
    """Return the model and the rows that the options name."""
    path = Path(options.csv)
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    wanted = dict(entry.split("=", 1) for entry in options.where)
    rows = [row for row in csv.DictReader(text.splitlines()) if all(row[k] == v for k, v in wanted.items())]
    if options.rows and len(rows) > options.rows:
        rows = [rows[i] for i in np.sort(np.random.default_rng(0).choice(len(rows), options.rows, replace=False))]
    model = Model("f_cl_wall_time_bench", options.model)
    counts = np.array([[float(row[name.removeprefix("f_")]) for name in model.input_features()] for row in rows])
    seconds = np.array([float(row[options.output]) for row in rows])
    groups = tuple(row[options.group] for row in rows) if options.group else ()
    return model, table_of(model, seconds, counts, groups)


def calibrations(paths: list[str]) -> Iterator[tuple[str, Model, FeatureTable]]:
    """Return the tables of the shipped calibrations and of files."""
    found = [(name, load_calibration(name)) for name in calibration_names()]
    found += [(path, Calibration.load(path)) for path in paths]
    for name, calibration in found:
        if calibration.table is not None:
            yield name, calibration.model, calibration.table


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("calibration", nargs="*")
    parser.add_argument("--simulated", type=int, default=0, metavar="N", help="simulate only, N tables for each line")
    parser.add_argument("--repeats", type=int, default=3, help="spoilt tables for each part")
    parser.add_argument("--only", default="", help="calibrations whose name contains this")
    parser.add_argument("--csv")
    parser.add_argument("--model")
    parser.add_argument("--output", default="time_s")
    parser.add_argument("--group")
    parser.add_argument("--where", action="append", default=[], metavar="COLUMN=VALUE")
    parser.add_argument("--rows", type=int, default=0, help="that many rows at random")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.simulated:
        perflex.features.parse_feature = lambda identifier: identifier  # type: ignore[assignment, return-value]
        simulated(options.simulated)
        return
    if options.csv:
        perflex.features.parse_feature = lambda identifier: identifier  # type: ignore[assignment, return-value]
        tables = [(f"{Path(options.csv).name} {' '.join(options.where)}", *from_csv(options))]
    else:
        tables = [entry for entry in calibrations(options.calibration) if options.only in entry[0]]
    ratios: Ratios = {}
    for title, model, table in tables:
        heading = f"{title} ({len(table)} rows, {len(model.params())} parameters)"
        for scheme, folds in (("ten random parts", random_folds(table, 0)), ("by generator", generator_folds(table))):
            report(heading, scheme, model, table, folds, options.repeats, ratios)
    summary(ratios)


if __name__ == "__main__":
    main()
