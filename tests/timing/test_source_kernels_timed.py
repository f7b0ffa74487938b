"""Kernels from source code are timed, kept and calibrated with like others."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from perflex import Model, SearchOptions, TimingOptions, VariantSpace, calibrate, rank, time_kernel, tune
from perflex.errors import MeasurementError, MissingSizeError, PerflexWarning
from perflex.features import SizedKernel, source_kernel
from perflex.testing import FakeDevice
from perflex.timing.key import measurement_key
from perflex.timing.measuring import measure
from perflex.timing.results import MeasurementFailure, Timing
from support.source_kernels import AXPY, axpy, kernel

QUICK = TimingOptions(trials=5, warmups=1, budget_s=0.05)
SIZES = [{"n": n} for n in (1 << 18, 1 << 19, 1 << 20, 1 << 21, 1 << 22)]
MODEL = Model("f_cl_wall_time", "p_launch * f_sync_kernel_launch + p_load * f_mem_access_global_float32_load")


@pytest.mark.parametrize("isolate", [False, True])
def test_times_grow_with_the_data(isolate, default_device):
    options = TimingOptions(budget_s=0.02, isolate=isolate)
    small, large = (time_kernel(axpy(), {"n": n}, default_device, options).seconds for n in (1 << 12, 1 << 22))
    # A thousand times the data.
    assert 0 < 4 * small < large


def test_a_kernel_that_is_refused_fails_alone(default_device):
    refused = kernel("y[(int)x[0]] = 1;", "__global float *x, __global float *y", stated={"y": 100})
    jobs = [SizedKernel(axpy(), {"n": 4096}, "axpy"), SizedKernel(refused, {}, "scatter")]
    timed, failed = measure(jobs, default_device, QUICK)
    assert isinstance(timed, Timing)
    assert isinstance(failed, MeasurementFailure)
    assert "scatter: kernel.cl: kernel 'k' cannot be launched: line 2" in failed.reason
    with pytest.raises(MeasurementError, match="cannot be launched"):
        time_kernel(refused, {}, default_device)


def test_names_that_a_kernel_does_not_take_are_told(default_device):
    with pytest.warns(PerflexWarning, match="kernel 'axpy' takes no alfa; it takes n, a$"):
        time_kernel(axpy(), {"n": 4096, "alfa": 0.5}, default_device, QUICK)


def test_several_values_of_a_size_are_refused():
    with pytest.raises(MissingSizeError, match="size n has several values; give a pair"):
        time_kernel(axpy(), {"n": np.array([4096, 8192])}, FakeDevice(lambda _label, _sizes: 1e-3))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::perflex.errors.PerflexWarning")
def test_calibrations_ranks_and_searches_on_a_device(default_device):
    found = calibrate(MODEL, [(axpy(), sizes) for sizes in SIZES], device=default_device, timing=QUICK)
    timed = time_kernel(axpy(), {"n": 3 << 20}, default_device).seconds
    # Too little is known of a test machine's load for more than an order of magnitude.
    assert 0.1 < found.predict(axpy(), {"n": 3 << 20}) / timed < 10
    places = rank({"64": axpy(64), "16": axpy(16)}, found, {"n": 1 << 20}, time=default_device)
    assert 0 < places[0].measured <= places[1].measured
    space = VariantSpace(axpy, {"items": [1, 4, 64]})
    best = tune(space, {"n": 1 << 18}, device=default_device, options=SearchOptions(timing=QUICK)).best
    assert best.settings["items"] in {4, 64}


# Of which kernel samples are


def key(made, device, sizes=None):
    return measurement_key(SizedKernel(made, sizes or {"n": 64}, "x"), device, QUICK).kernel


def test_keys_are_equal_for_equal_kernels_only(tmp_path):
    device = FakeDevice(lambda *_: 1e-6)
    (tmp_path / "h.h").write_text("#define A 1\n")
    source = f'#include "h.h"\n{AXPY}'

    def made(text=source, folder=tmp_path, **options):
        (folder / "k.cl").write_text(text)
        return source_kernel(folder / "k.cl", "axpy", **{"local": [64], "global_size": ["n"], **options})

    first = key(made(), device)
    assert key(made(), device, {"n": 128}) == first
    # Elsewhere, but the same.
    other = tmp_path / "other"
    other.mkdir()
    (other / "h.h").write_text("#define A 1\n")
    assert key(made(folder=other), device) == first
    changes = [
        made(source.replace("+=", "-=")),
        made(local=[32]),
        made(global_size=["2*n"]),
        made(defines={"B": 1}),
        made(stated={"x": 100}),
    ]
    (other / "h.h").write_text("#define A 2\n")
    changes.append(made(folder=other))
    assert len({first, *(key(each, device) for each in changes)}) == 1 + len(changes)


_IN_ANOTHER_PROCESS = f"""
import sys
sys.path[:0] = [{str(Path(__file__).parent)!r}, {str(Path(__file__).parents[1])!r}]
from test_source_kernels_timed import FakeDevice, axpy, key
print(key(axpy(), FakeDevice(lambda *_: 1e-6)))
"""


def test_keys_are_those_of_other_processes():
    command = [sys.executable, "-c", _IN_ANOTHER_PROCESS]
    for seed in ("1", "2"):
        found = subprocess.check_output(command, env=os.environ | {"PYTHONHASHSEED": seed}, text=True)
        assert found.strip() == key(axpy(), FakeDevice(lambda *_: 1e-6))
