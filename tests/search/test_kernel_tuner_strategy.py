"""The strategy inside Kernel Tuner, in its simulation mode."""

import json
import warnings
from itertools import product

import numpy as np
import pytest


@pytest.fixture
def simulated(tmp_path, monkeypatch):
    """Run Kernel Tuner in its simulation mode, with a file of times of all settings; give the times it looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel_tuner = pytest.importorskip("kernel_tuner", reason="Kernel Tuner is not installed (extra tuner)")
    monkeypatch.chdir(tmp_path)

    def run(source, size, arguments, tunables, times, evaluations, **more):
        entries = {
            ",".join(map(str, row)): {**dict(zip(tunables, row, strict=True)), "time": time}
            for row, time in zip(product(*tunables.values()), times, strict=True)
        }
        document = {
            "schema_version": "1.0.0", "device_name": "A100", "kernel_name": "k", "problem_size": [size],
            "objective": "time", "tune_params_keys": list(tunables), "tune_params": tunables, "cache": entries,
        }  # fmt: skip
        (tmp_path / "cache.json").write_text(json.dumps(document))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            results, _ = kernel_tuner.tune_kernel(
                "k", source, size, arguments, tunables, simulation_mode=True, cache="cache.json", lang="CUDA",
                strategy_options={"max_fevals": evaluations}, quiet=True, **more,
            )  # fmt: skip
        assert len(results) == evaluations
        return [result["time"] for result in results]

    return run


SOURCE = """
__global__ void k(float *out, const float *in, int n) {
    for (int i = (blockIdx.x * block_size_x + threadIdx.x) * stride; i < n; i += block_size_x * stride * gridDim.x)
        out[i % n] = 2 * in[i];
}
"""


@pytest.mark.machine
def test_the_strategy_reads_the_source(simulated):
    from perflex import KernelTunerStrategy

    n = 1 << 22
    tunables = {"block_size_x": [32, 64, 128, 256, 512], "stride": [1, 2, 4, 8, 16, 32]}
    times = [stride + 32 / block for block, stride in product(*tunables.values())]
    arguments = [np.zeros(n, np.float32), np.zeros(n, np.float32), np.int32(n)]
    strategy, divisors = KernelTunerStrategy(device="A100-40GB"), ["block_size_x", "stride"]
    found = simulated(SOURCE, n, arguments, tunables, times, 12, strategy=strategy, grid_div_x=divisors)
    # Contiguous accesses are expected to be the fastest.
    assert min(found) <= 1.25
