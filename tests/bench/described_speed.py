"""How long 100,000 described configurations take to be ranked, once the model is compiled."""

from __future__ import annotations

import time

import numpy as np

from perflex import DescribedSpace, load_description
from perflex.search.described.hybrid import HybridPredictor

ROWS = 100_000

for name in ("convolution", "gemm"):
    description = load_description(name)
    whole = description.space()
    drawn = np.random.default_rng(0).integers(len(next(iter(whole.values()))), size=ROWS)
    settings = {key: column[drawn] for key, column in whole.items()}
    index = np.arange(100)
    times = np.exp(np.random.default_rng(1).normal(0, 0.3, 100))
    DescribedSpace(description, {key: column[:200] for key, column in settings.items()}, "A100").fit_analytic(
        index, times
    )
    begun = time.perf_counter()
    space = DescribedSpace(description, settings, "A100")
    order = np.argsort(space.fit_analytic(index, times).predicted)
    analytic = time.perf_counter() - begun
    HybridPredictor(space).predict(index, times)
    both = time.perf_counter() - begun
    print(f"{name}: {len(order)} configurations, analytic {analytic:.2f} s, with the learned correction {both:.2f} s")
