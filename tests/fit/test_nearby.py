"""Refits near a known minimum against full ones."""

from __future__ import annotations

import numpy as np

from perflex import FeatureTable, Model, fit_model, scale_features_by_output
from perflex.fit.coordinates import Coordinates
from perflex.fit.loss import SoftL1
from perflex.fit.nearby import minimum_near
from perflex.fit.problem import pose

OUTPUT = "f_cl_wall_time_test"
MODEL = Model(OUTPUT, "p_a * f_op_float32_add + p_b * f_op_float32_mul")


def test_cheap_refits_are_full_ones() -> None:
    random = np.random.default_rng(0)
    counts = 10 ** random.uniform(3, 6, (60, 2))
    seconds = (counts @ [1e-9, 3e-10]) * np.exp(0.2 * random.standard_t(4, size=60))
    columns = (OUTPUT, "f_op_float32_add", "f_op_float32_mul")
    table = FeatureTable(OUTPUT, columns, tuple(map(str, range(60))), np.column_stack([seconds, counts]))
    table = scale_features_by_output(table)
    fit = fit_model(MODEL, table, loss="soft_l1", nonnegative=True)
    assert fit.loss_scale is not None
    problem = pose(MODEL, table).under(SoftL1(fit.loss_scale))
    coordinates = Coordinates(("cost", "cost"), np.zeros(2), np.full(2, np.inf), np.full(2, np.nan))
    for first in (0, 20, 40):
        rest = (np.arange(60) < first) | (np.arange(60) >= first + 5)
        found = minimum_near(problem, coordinates, np.array(list(fit.values())), rest)
        full = fit_model(MODEL, table.take(np.flatnonzero(rest).tolist()), loss="soft_l1", nonnegative=True)
        np.testing.assert_allclose(found, list(full.values()), rtol=0.02)
