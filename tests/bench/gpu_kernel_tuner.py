"""Kernel Tuner's own strategies on a measured space, in its simulation mode."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import tempfile
import warnings
from pathlib import Path

import numpy as np

STRATEGIES = {
    "kernel_tuner genetic": "genetic_algorithm",
    "kernel_tuner annealing": "simulated_annealing",
    "kernel_tuner bayesian": "bayes_opt",
    "kernel_tuner random": "random_sample",
    "kernel_tuner greedy ils": "greedy_ils",
    "kernel_tuner diff evo": "diff_evo",
}


class SimulatedSpace:
    """A measured space as a cache file that Kernel Tuner reads instead of running kernels."""

    def __init__(self, description, settings, times):
        self.keys = list(description.tunables)
        self.values = {name: sorted({int(value) for value in settings[name]}) for name in self.keys}
        constants = {
            name: float(np.unique(settings[name])[0]) if name in settings else value
            for name, value in description.constants.items()
        }
        self.restrictions = [_with_numbers(constraint.text, constants) for constraint in description.constraints]
        whole = description.space()
        entries = {}
        for row in zip(*(whole[name].astype(int).tolist() for name in self.keys), strict=True):
            if all(value in self.values[name] for name, value in zip(self.keys, row, strict=True)):
                entries[row] = "CompilationFailedConfig"
        for row, time in zip(
            zip(*(settings[name].astype(int).tolist() for name in self.keys), strict=True), times, strict=True
        ):
            entries[row] = float(time)
        self.best = float(np.min(times))
        cache = {
            ",".join(map(str, row)): {**dict(zip(self.keys, row, strict=True)), "time": time}
            for row, time in entries.items()
        }
        document = {
            "schema_version": "1.0.0",
            "device_name": "simulated",
            "kernel_name": "kernel",
            "problem_size": [1],
            "tune_params_keys": self.keys,
            "tune_params": self.values,
            "objective": "time",
            "cache": cache,
        }
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "cache.json"
        self.path.write_text(json.dumps(document))

    def run(self, method: str, evaluations: int, seed: int) -> float:
        """Return the best time found after so many different configurations, relative to the optimum."""
        from kernel_tuner import tune_kernel

        np.random.seed(seed)  # noqa: NPY002  # Kernel Tuner draws from the global generators
        random.seed(seed)
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            found, _ = tune_kernel(
                "kernel",
                "__global__ void kernel(){}",
                (1,),
                [],
                self.values,
                restrictions=list(self.restrictions),
                simulation_mode=True,
                cache=str(self.path),
                strategy=STRATEGIES[method],
                strategy_options={"max_fevals": evaluations},
                quiet=True,
                lang="CUDA",
            )
        seen, best = set(), float("inf")
        for result in found:
            row = tuple(result[name] for name in self.keys)
            if row in seen:
                continue
            seen.add(row)
            if len(seen) > evaluations:
                break
            if isinstance(result["time"], int | float):
                best = min(best, result["time"])
        return best / self.best


def _with_numbers(text, constants):
    for name, value in constants.items():
        text = re.sub(rf"\b{name}\b", f"{value:g}", text)
    return text
