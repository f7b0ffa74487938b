"""Models with and without cache volumes on a CPU device, over sizes that cross its cache levels.

    python tests/bench/ecm_models.py MACHINE.yaml [--device NAME] [--models matmul_ecm,stencil_ecm] [--csv FILE]

Calibrates each model from its measurement kernels but those held out (sizes between the others), then predicts these.
The model without volumes is the same expression without its ``f_ecm_vol_...`` terms. Run it on a machine that does
nothing else.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

import numpy as np

from perflex import (
    FeatureTable,
    Model,
    TimingOptions,
    find_device,
    fit_model,
    gather_feature_values,
    scale_features_by_output,
)
from perflex.fit.result import describe_errors
from perflex.models import load_model
from uipick import ALL_GENERATORS, KernelCollection

STENCIL = ["stencil3d", "points:7,25", "variant:plain", "dtype:float32", "lsize_0:64", "lsize_1:4", "chunk:1"]
HELD_OUT = {
    "matmul_ecm": [
        ["matmul_sq", "dtype:float32", "prefetch:True,False", "lsize_0:16", "lsize_1:16", "groups_fit:True",
         "n:224,352,672,1184,1696"],
    ],
    "stencil_ecm": [
        [*STENCIL, "groups_fit:True", "nx:128,384", "ny:128,384", "nz:24"],
        [*STENCIL, "groups_fit:True", "nx:512,1024", "ny:512", "nz:32"],
    ],
}  # fmt: skip


def without_volumes(expression: str) -> str:
    """Return the expression without its terms of cache volumes."""
    return " + ".join(term for term in " ".join(expression.split()).split(" + ") if "f_ecm_vol" not in term)


def rows(table: FeatureTable, wanted: list[str]) -> FeatureTable:
    """Return the columns of a table that a model needs."""
    places = [table.features.index(name) for name in wanted]
    return FeatureTable(table.output, tuple(wanted), table.kernels, table.values[:, places])


def main() -> None:
    """Fit both models of each computation and print their errors."""
    parser = argparse.ArgumentParser()
    parser.add_argument("machine", type=Path)
    parser.add_argument("--device", default=None)
    parser.add_argument("--models", default="matmul_ecm,stencil_ecm")
    parser.add_argument("--csv", type=Path, default=None)
    arguments = parser.parse_args()
    device = find_device(arguments.device)
    collection = KernelCollection(ALL_GENERATORS)
    timing = TimingOptions(trials=15, min_trials=3, budget_s=0.25)
    output = "f_cl_wall_time"
    lines = []
    for name in arguments.models.split(","):
        description = load_model(name)
        kernels = [k for entry in description.measurement_kernels for k in collection.generate_kernels(entry.tags)]
        held_out = [k for tags in HELD_OUT[name] for k in collection.generate_kernels(tags)]
        known = {k.name for k in held_out}
        kernels = [k for k in kernels if k.name not in known]
        whole = Model(output, description.expression)
        table = gather_feature_values(
            whole.all_features(), [*kernels, *held_out], device=device, machine=arguments.machine, timing=timing,
            store="off",
        )  # fmt: skip
        tested = np.array([label in known for label in table.kernels])
        for title, expression in (
            ("with volumes", description.expression),
            ("without", without_volumes(description.expression)),
        ):
            model = Model(output, expression)
            part = rows(table, model.all_features())
            halves = [
                FeatureTable(
                    output,
                    part.features,
                    tuple(label for label, held in zip(part.kernels, tested, strict=True) if held == wanted),
                    part.values[tested == wanted],
                )
                for wanted in (False, True)
            ]
            fit = fit_model(model, scale_features_by_output(halves[0]), nonnegative=True, on_undetermined="warn")
            columns = {feature: halves[1].values[:, i] for i, feature in enumerate(halves[1].features)}
            predicted = np.asarray(model.evaluate(fit, columns))
            errors = np.abs(predicted / columns[output] - 1)
            print(
                f"{name} {title}: {tested.sum()} held out of {len(tested)}: {describe_errors(errors)}; "
                f"at its own kernels {describe_errors(fit.relative_errors)}",
                flush=True,
            )
            print("  " + ", ".join(f"{p} {v:.3g}" for p, v in dict(fit).items()), flush=True)
            lines += [
                (name, title, label, seconds, guess)
                for label, seconds, guess in zip(halves[1].kernels, columns[output], predicted, strict=True)
            ]
    if arguments.csv is not None:
        with arguments.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["model", "volumes", "kernel", "measured_s", "predicted_s"])
            writer.writerows(lines)


if __name__ == "__main__":
    main()
