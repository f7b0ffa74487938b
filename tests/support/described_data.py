"""Described spaces with times of a known model, for tests."""

import numpy as np

from perflex import DescribedSpace, load_description
from perflex.search.described.space import AnalyticFit

TRUTH = {
    "p_time": 5e-12, "p_tail": 0.5, "p_latency": 3.0, "p_parallel": 0.5, "p_issue": 0.6, "p_stage": 5.0, "p_local": 2.5,
    "p_line": 1.5, "p_line_read_only": 4.0, "p_byte": 0.2, "p_sharp": 3.0, "p_spill": 3.0, "p_spill_hoisted": 30.0,
    "p_spill_growth": 0.8, "p_scratch": 0.05, "p_scratch_direct": 0.05, "p_copy_waiting": 4.0,
    "p_read_only_staged": 1.0,
}  # fmt: skip


def convolution_space(rows=600, device="A4000"):
    """Return some of the convolution's configurations on a device."""
    description = load_description("convolution")
    whole = description.space()
    some = np.random.default_rng(1).choice(len(whole["block_size_x"]), rows, replace=False)
    return DescribedSpace(description, {name: column[some] for name, column in whole.items()}, device)


def times_of(space, noise=0.02, reading=0):
    """Return times in s of the true model, with some noise and an effect that the model does not know."""
    exact = AnalyticFit(space.description, TRUTH, 0.0, 0.0).predict(space.readings[reading])
    draw = np.random.default_rng(2).normal(0, noise, len(space))
    return exact * np.exp(draw)
