"""Time of fit_model with 30 parameters and 500 kernels, compilation included: `python tests/bench/fit_speed.py`."""

from __future__ import annotations

import time
import warnings

import numpy as np

from perflex import FeatureTable, Model, features, fit_model, scale_features_by_output

SIDE = 14
KERNELS = 500


def problem(*, noise: float, absent: int) -> tuple[Model, FeatureTable]:
    """Return a partially overlapping model and measurements of it; `absent` costs are really zero."""
    random = np.random.default_rng(1)
    sides = [" + ".join(f"p_{side}{i} * f_{side}{i}" for i in range(SIDE)) for side in "go"]
    model = Model("f_cl_wall_time_bench", f"partial_overlap({sides[0]}, {sides[1]}, p_edge, p_hidden)")
    values = {name: 10 ** random.uniform(-13, -9) for name in model.params()}
    values |= {"p_edge": 6.0, "p_hidden": 0.8}
    values |= {f"p_g{i}": -1e-12 for i in range(absent)}
    inputs = model.input_features()
    counts = 10 ** random.uniform(4, 8, (KERNELS, len(inputs))) * (random.random((KERNELS, len(inputs))) < 0.4)
    counts[:, 0] += 1e6
    seconds = model.evaluate(values, dict(zip(inputs, counts.T, strict=True)))
    seconds = np.abs(seconds * (1 + noise * random.normal(size=KERNELS))) + 1e-6
    labels = tuple(f"kernel {i}" for i in range(KERNELS))
    columns = (model.output_feature, *inputs)
    table = FeatureTable(model.output_feature, columns, labels, np.column_stack([seconds, counts]))
    return model, scale_features_by_output(table)


def main() -> None:
    """Print seconds for each kind of fit."""
    features.parse_feature = lambda identifier: identifier  # type: ignore[assignment, return-value]
    warnings.simplefilter("ignore")
    for nonnegative in (False, True):
        for absent in (0, 4):
            for loss in ("squared", "soft_l1"):
                # Anew, since a model keeps its compiled form.
                model, table = problem(noise=0.02, absent=absent)
                begin = time.perf_counter()
                result = fit_model(
                    model,
                    table,
                    nonnegative=nonnegative,
                    on_undetermined="warn",
                    loss=loss,  # type: ignore[arg-type]
                )
                seconds = time.perf_counter() - begin
                print(
                    f"{loss:7}: {len(model.params())} parameters, {len(table)} kernels, nonnegative={nonnegative}, "
                    f"{absent} costs below zero: {seconds:.2f} s, {result.status.starts_at_optimum} of "
                    f"{result.status.starts} starts, {result.status.evaluations} evaluations, "
                    f"valid {result.status.valid}"
                )


if __name__ == "__main__":
    main()
